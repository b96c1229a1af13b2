"""Wires an engine: model, KV store, tree, scheduler and worker; and `Engine`, all of it in one process.

One of the few modules that know every part. `build_core` is also what an engine process runs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

import msgspec

from palmette.kernels.protocol import set_threads
from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import eviction_policy
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InvalidRequest, NeverFits
from palmette.runtime.frontend import Frontend, Output, Prompt, collect
from palmette.runtime.grammar.compile import Compiler, TokenizerSpace
from palmette.runtime.link import EngineLink, LocalLink
from palmette.runtime.machine import free_memory, usable_threads
from palmette.runtime.messages.replies import EngineReady
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.models.loading import Model, load_model
from palmette.runtime.parsers.registry import detect
from palmette.runtime.roofline.device import unmeasured_host
from palmette.runtime.roofline.shape import KvFormat, model_shape
from palmette.runtime.scheduler.core import EngineCore
from palmette.runtime.scheduler.kv_events import KvEventPublisher, PublishingCore
from palmette.runtime.scheduler.overlap import OverlappingCore
from palmette.runtime.scheduler.process import Core
from palmette.runtime.step_time import StepTimeModel
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.turns import TurnRenderer
from palmette.runtime.worker.worker import CpuWorker

T = TypeVar("T")
Progress = Callable[[str], None]

# The scheduler's thread shares the GIL with the front; Python's default of 5 ms would delay each step.
SWITCH_INTERVAL = 2e-4

KV_FORMATS: dict[str, KvFormat] = {"float32": "f32", "bfloat16": "bf16", "int8": "int8"}


def build_core(config: EngineConfig, files: ModelFiles | None = None, progress: Progress | None = None) -> Core:
    """Loads the model and makes scheduler and worker; `progress` hears what takes long.

    Raises ModelError, InvalidRequest or NeverFits.
    """
    start = time.monotonic()
    check_config(config)
    files = files or resolve(config.model)
    threads = config.threads or usable_threads()
    set_threads(threads)
    model = load_model(
        files, config.dtype, config.kernels, kv_dtype=config.kv_dtype, threads=threads, progress=progress
    )
    context = min(config.context_length or model.config.context_length, model.config.context_length)
    pages = pool_pages(config, model, context)
    kv_tokens = pages * config.page_size
    context = min(context, kv_tokens)
    worker = CpuWorker(
        model,
        model.new_store(pages, config.page_size),
        slots=config.max_running,
        context_length=context,
        page_size=config.page_size,
    )
    ready = EngineReady(
        model=config.model,
        context_length=context,
        kv_tokens=kv_tokens,
        page_size=config.page_size,
        threads=threads,
        dtype=str(model.dtype).removeprefix("torch."),
        kv_dtype=model.kv_dtype,
        kernels=model.kernels,
        load_seconds=time.monotonic() - start,
        embedding_size=model.config.hidden_size,
    )
    tokenizer = load_tokenizer(files)
    vocabulary = tokenizer.vocabulary.sized(model.config.vocab_size)
    cache = RadixCache(pages, config.page_size, eviction=eviction_policy(config.eviction), enabled=config.prefix_cache)
    shape = model_shape(model.config, kv=KV_FORMATS[model.kv_dtype])
    step_time = StepTimeModel(shape, unmeasured_host(threads, free_memory()))
    compiler = Compiler(TokenizerSpace(tokenizer, vocabulary), schema_backend=config.grammar_backend)
    make = OverlappingCore if config.overlap else EngineCore
    core = make(config, worker, cache, vocabulary, ready, step_time=step_time, compiler=compiler)
    if config.kv_events is None:
        return core
    return PublishingCore(core, KvEventPublisher(cache, config.kv_events))


def build_frontend(config: EngineConfig, files: ModelFiles, link: EngineLink) -> Frontend:
    """The text side of an engine at the other end of `link`."""
    tokenizer = load_tokenizer(files, chat_template=config.chat_template)
    template = TurnRenderer.of(tokenizer) if tokenizer.chat_template is not None else None
    return Frontend(
        link,
        tokenizer,
        template,
        model=config.model,
        context_length=config.context_length or sys.maxsize,
        formats=detect(tokenizer.chat_template, tools=config.tool_call_parser, reasoning=config.reasoning_parser),
        output_ids=config.output_ids,
    )


def check_config(config: EngineConfig) -> None:
    """Raises InvalidRequest naming an option whose value can't be."""
    for name in ("page_size", "max_running", "step_tokens", "threads", "kv_tokens", "context_length"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name}={value!r} is not a whole number of 1 or more.", param=name)


def pool_pages(config: EngineConfig, model: Model, context: int) -> int:
    """Pages of the KV pool: as configured, else a quarter of the free memory, at most context × running limit."""
    if config.kv_tokens is not None:
        tokens = config.kv_tokens
    else:
        tokens = min(free_memory() // 4 // model.bytes_per_token, context * config.max_running)
    pages = tokens // config.page_size
    if pages < 1:
        raise NeverFits(
            f"The KV pool would have {tokens} tokens, less than one page of {config.page_size}.",
            hint="Give kv_tokens, or free some memory.",
            param="kv_tokens",
        )
    return pages


class Engine:
    """An engine in this process: scheduler and worker in a thread, the frontend on an event loop of its own.

    `Engine("smollm2-135m", threads=2)` takes a model or an EngineConfig, and the fields of EngineConfig. Use it as a
    context manager, or call `close`. Safe to use from any thread.
    """

    def __init__(self, config: EngineConfig | str | None = None, **options: Any) -> None:
        if isinstance(config, str):
            config = EngineConfig(model=config)
        self.config = _with_options(config or EngineConfig(), options)
        files = resolve(self.config.model)
        core = build_core(self.config, files)
        self.ready: EngineReady = core.ready
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="palmette-front", daemon=True)
        self._closed = False
        self.frontend = build_frontend(self.config, files, LocalLink(core))
        self._thread.start()
        self.run(self._start())
        # Python's collector goes over all there is each time that a quarter has been added. Programs make many objects
        # beside a model's and libraries', so those that are there by now are left out of it until the engine is closed.
        self._froze = gc.get_freeze_count() == 0
        if self._froze:
            gc.freeze()

    async def _start(self) -> None:
        self.frontend.start()
        await self.frontend.wait_ready()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the engine's loop and waits for it; Ctrl-C cancels it."""
        if self._closed:
            work.close()
            raise InvalidRequest("The engine is closed.", hint="Make a new Engine.")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def generate(self, prompts: Prompt | Sequence[str], params: SamplingParams | None = None, **options: Any) -> Any:
        """Continues one prompt (text, token ids or messages → Output) or a list of texts (→ list of Outputs).

        `options` are fields of SamplingParams. Raises InvalidRequest, ContextLengthExceeded or NeverFits.
        """
        params = _with_options(params or SamplingParams(), options)
        many = not isinstance(prompts, str) and len(prompts) > 0 and isinstance(prompts[0], str)
        outputs = self.run(self._generate(cast("list[Prompt]", prompts if many else [prompts]), params))
        return outputs if many else outputs[0]

    async def _generate(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Output]:
        encoded = [await self.frontend.tokens_of(prompt) for prompt in prompts]
        return await collect([self.frontend.submit(tokens, params) for tokens in encoded])

    def close(self) -> None:
        """Aborts what runs and frees the engine. Idempotent."""
        if self._closed:
            return
        self.run(self.frontend.close())
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        if self._froze:
            gc.unfreeze()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


S = TypeVar("S", EngineConfig, SamplingParams)


def _with_options(base: S, options: dict[str, Any]) -> S:
    """`base` with fields replaced. Raises InvalidRequest for a name that is no field, listing those there are."""
    if not isinstance(base, msgspec.Struct):
        raise InvalidRequest(
            f"{base!r} was given where an EngineConfig or SamplingParams belongs.",
            hint="Give the options by name, for example max_tokens=32.",
        )
    fields = base.__struct_fields__
    for name in options:
        if name not in fields:
            raise InvalidRequest(
                f"There is no option {name!r}.", hint=f"The options are: {', '.join(sorted(fields))}.", param=name
            )
    try:
        return msgspec.convert({**msgspec.structs.asdict(base), **options}, type(base))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"An option has a wrong value: {error}.") from error
