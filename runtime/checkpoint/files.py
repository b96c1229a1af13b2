"""Where a model's files are: what resolve.py finds and every process may hold. No I/O here."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine. `name` is as the user gave it.

    `path`: the .gguf file; the folder of config.json, tokenizer and safetensors files; or the packaged folder
    of the tiny model, whose weights come from a seed.
    """

    name: str
    kind: Literal["gguf", "safetensors", "tiny"]
    path: Path
