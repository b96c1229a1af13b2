"""What an engine is started with. The only place that may read environment variables (the cache folder)."""

from __future__ import annotations

import configparser
import os
import sys
from pathlib import Path
from typing import Literal

import msgspec

DEFAULT_MODEL = "smollm2-135m"

Policy = Literal[
    "longest_prefix", "first_come", "depth_first_weight", "priority", "deadline", "shortest_remaining", "fair_share"
]
Eviction = Literal["program", "learned", "lru", "lfu", "slru", "priority", "ttl", "cost"]
DType = Literal["auto", "float32", "bfloat16"]
KvDType = Literal["auto", "float32", "bfloat16", "int8"]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of an engine. `None` and "auto" are resolved at start and printed there."""

    model: str = DEFAULT_MODEL  # a catalogue name, a .gguf file, a folder of safetensors, or a hub name
    dtype: DType = "auto"  # of the weights
    kv_dtype: KvDType = "auto"  # auto: as dtype; int8 has a scale per token and KV head (native kernels only)
    chat_template: str | None = None  # a jinja file instead of the model's own
    tool_call_parser: str = "auto"  # a name of runtime/parsers/registry.py; auto: by the chat template; or none
    reasoning_parser: str = "auto"  # the same of reasoning
    output_ids: bool = True  # chat messages that are earlier outputs keep the token ids that the model wrote
    context_length: int | None = None  # at most the model's
    page_size: int = 16  # tokens of a page of the KV pool
    kv_tokens: int | None = None  # pool size; None: a quarter of the free memory
    max_running: int = 64  # requests at once; others wait
    step_tokens: int = 512  # tokens of one step, prefill chunks and decodes together
    policy: Policy = "longest_prefix"  # which waiting request goes next
    aging_alpha: float = 0.2  # a request goes first once alpha × the tokens queued before it + beta went to later ones
    aging_beta: int = 16384  # tokens of prefill; see aging_alpha
    itl_target_ms: float | None = 250.0  # prefill chunks are cut so that decodes wait no longer; None: step_tokens only
    ttft_target_ms: float | None = None  # of requests that state none: to the first token
    tpot_target_ms: float | None = None  # of requests that state none: a token after the first
    prefix_cache: bool = True  # keep what was computed for later requests
    eviction: Eviction = "program"  # which cached page goes first: by hints, else by learned hit density
    threads: int | None = None  # None: affinity and cgroup quota
    kernels: Literal["auto", "cpu", "portable", "reference"] = "auto"  # auto: cpu with a compiler, else portable
    kv_events: str | None = None  # ZeroMQ endpoint at which stored and removed pages are published; None: nowhere
    overlap: bool = False  # plan each step while the one before runs; pays where the model doesn't use the CPU
    grammar_backend: Literal["llguidance", "xgrammar"] = "llguidance"  # of JSON schemas; xgrammar must be installed
    check_invariants: bool = False  # after every step


def cache_folder() -> Path:
    """Where downloads and prepared models are kept: $PALMETTE_CACHE, else $XDG_CACHE_HOME/palmette."""
    explicit = os.environ.get("PALMETTE_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "palmette"


def package_index_url() -> str | None:
    """The package index that pip would use, read without pip: $PIP_INDEX_URL, else the pip.conf files."""
    explicit = os.environ.get("PIP_INDEX_URL")
    if explicit:
        return explicit
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = [Path("/etc/pip.conf"), Path.home() / ".pip/pip.conf", config_home / "pip/pip.conf"]
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read([*places, Path(sys.prefix) / "pip.conf"], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return None  # pip itself would refuse it; the public index is the better guess
    return parser.get("global", "index-url", fallback=None)
