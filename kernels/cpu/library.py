"""The native library through ctypes: its structs, one engine a model, and single kernels for comparison.

The struct fields mirror native/step.cpp and native/linear.h; `palmette_layout` holds both to one size. Everything
that a struct points to is kept alive here. Called by runtime/models (the engine) and tests.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from palmette.kernels.cpu.packing import FORMAT_CODES, GROUP, LANES, Bytes, Format

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
KvStorage = Literal["bfloat16", "float32", "int8"]
KV_CODES: dict[KvStorage, int] = {"bfloat16": 0, "float32": 1, "int8": 2}


class _Part(c.Structure):
    _fields_ = (
        ("format", c.c_int32),
        ("blocks", c.c_int32),
        ("data", c.c_void_p),
        ("bias", c.c_void_p),
    )


class _Linear(c.Structure):
    _fields_ = (
        ("blocks", c.c_int32),
        ("inputs", c.c_int32),
        ("parts", c.c_int32),
        ("reserved", c.c_int32),
        ("part", c.POINTER(_Part)),
    )


class _Attention(c.Structure):
    _fields_ = (("window", c.c_int32), ("soft_cap", c.c_float), ("sinks", c.c_void_p))


class _Layer(c.Structure):
    _fields_ = (
        ("attention_norm", c.c_void_p),
        ("qkv", _Linear),
        ("out", _Linear),
        ("mlp_norm", c.c_void_p),
        ("gate_up", _Linear),
        ("down", _Linear),
        ("attention", _Attention),
    )


class _Model(c.Structure):
    _fields_ = (
        ("layers", c.c_int32),
        ("hidden", c.c_int32),
        ("inner", c.c_int32),
        ("heads", c.c_int32),
        ("kv_heads", c.c_int32),
        ("head_dim", c.c_int32),
        ("vocabulary", c.c_int32),
        ("kv", c.c_int32),
        ("eps", c.c_float),
        ("scale", c.c_float),
        ("cosines", c.c_void_p),
        ("sines", c.c_void_p),
        ("final_norm", c.c_void_p),
        ("embedding", _Linear),
        ("head", _Linear),
        ("layer", c.POINTER(_Layer)),
    )


class _Step(c.Structure):
    _fields_ = (
        ("tokens", c.c_int32),
        ("rows", c.c_int32),
        ("logits", c.c_int32),
        ("page_size", c.c_int32),
        ("table_stride", c.c_int32),
        ("states", c.c_int32),
        ("ids", c.c_void_p),
        ("positions", c.c_void_p),
        ("write_slots", c.c_void_p),
        ("row_starts", c.c_void_p),
        ("tables", c.c_void_p),
        ("logits_at", c.c_void_p),
        ("keys", c.c_void_p),
        ("values", c.c_void_p),
        ("out", c.c_void_p),
        ("states_at", c.c_void_p),
        ("states_out", c.c_void_p),
    )


class _AttentionCall(c.Structure):
    _fields_ = (
        ("kv", c.c_int32),
        ("reserved", c.c_int32),
        ("heads", c.c_int32),
        ("kv_heads", c.c_int32),
        ("head_dim", c.c_int32),
        ("attention", _Attention),
        ("tokens", c.c_int32),
        ("rows", c.c_int32),
        ("page_size", c.c_int32),
        ("table_stride", c.c_int32),
        ("positions", c.c_void_p),
        ("row_starts", c.c_void_p),
        ("tables", c.c_void_p),
        ("q", c.c_void_p),
        ("keys", c.c_void_p),
        ("values", c.c_void_p),
        ("out", c.c_void_p),
    )


@dataclass(frozen=True)
class Attention:
    """What a layer asks of attention beyond causality, in the order cap, window, softmax, sinks."""

    window: int | None = None  # a row at position p sees positions > p - window
    soft_cap: float | None = None  # score → cap × tanh(score / cap)
    sinks: Floats | None = None  # [heads]: a logit that joins the softmax's sum

    def struct(self) -> _Attention:
        return _Attention(
            self.window or 0, self.soft_cap or 0.0, None if self.sinks is None else self.sinks.ctypes.data
        )


# The arrays of a native/sample.h SamplePlan behind its counts, in order.
_SAMPLE_ARRAYS = (
    "logits", "samples", "bias_starts", "bias_tokens", "bias_values", "seen_starts", "seen_tokens", "seen_counts",
    "masks", "scored", "drawn", "top_starts", "top_tokens", "top_logprobs", "scored_logprobs",
)  # fmt: skip


class _SamplePlan(c.Structure):
    _fields_ = (
        ("samples", c.c_int32),
        ("scores", c.c_int32),
        ("vocabulary", c.c_int32),
        ("mask_words", c.c_int32),
        *((f"{name}_at", c.c_void_p) for name in _SAMPLE_ARRAYS),
    )


def _sample(library: c.CDLL, handle: int | None, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Fills the result arrays of native/sample.h; `arrays` are named and typed as there. logits [L, vocabulary]."""
    plan = _SamplePlan(
        len(arrays["samples"]),
        len(arrays["scored"]),
        arrays["logits"].shape[1],
        arrays["masks"].shape[1],
        *[_at(array) if (array := arrays[name]).size else None for name in _SAMPLE_ARRAYS],
    )
    library.palmette_sample(handle, c.byref(plan))


@dataclass(frozen=True)
class Weight:
    """A packed linear: `data` as packing.py makes it, `bias` [outputs, padded to a multiple of 16] or None."""

    format: Format
    outputs: int
    inputs: int
    data: Bytes
    bias: Floats | None = None

    @property
    def blocks(self) -> int:
        return -(-self.outputs // LANES)


# Weights with the same inputs, one product: the outputs follow each other. All but the last have a multiple of 16.
Fused = tuple[Weight, ...]


@dataclass(frozen=True)
class LayerWeights:
    attention_norm: Floats  # [hidden]
    qkv: Fused
    out: Fused
    mlp_norm: Floats
    gate_up: Fused  # outputs in packing.gate_up_order
    down: Fused
    attention: Attention = Attention()


@dataclass(frozen=True)
class LayerPages:
    """A layer's KV in memory, by address; the owner keeps it alive (radix_cache/packed_store.py)."""

    kv: KvStorage
    page_size: int
    keys: int
    values: int


@dataclass(frozen=True)
class ModelWeights:
    """A decoder as data. Sizes are checked by `unsupported`."""

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    eps: float
    scale: float
    kv: KvStorage
    cosines: Floats  # [positions, head_dim / 2]
    sines: Floats
    final_norm: Floats
    embedding: Fused
    head: Fused
    layers: Sequence[LayerWeights] = field(repr=False)


def unsupported(*, hidden: int, inner: int, heads: int, kv_heads: int, head_dim: int) -> str | None:
    """Why the native step can't compute a model of these sizes, or None."""
    for name, value, unit in (
        ("hidden size", hidden, GROUP),
        ("inner size", inner, GROUP),
        ("attention width", heads * head_dim, GROUP),
        ("head size", head_dim, LANES),
    ):
        if value % unit:
            return f"its {name} {value} is not a multiple of {unit}"
    if head_dim > 256:
        return f"its head size {head_dim} is above 256"
    return f"{heads} query heads are not a multiple of {kv_heads} KV heads" if heads % kv_heads else None


class Library:
    """The loaded library. Calls release the GIL."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._c = c.CDLL(str(path))
        self._c.palmette_new.restype = c.c_void_p
        self._c.palmette_new.argtypes = (c.c_void_p, c.c_int32)
        self._c.palmette_delete.argtypes = (c.c_void_p,)
        self._c.palmette_forward.argtypes = (c.c_void_p, c.c_void_p)
        self._c.palmette_sample.argtypes = (c.c_void_p, c.c_void_p)
        self._c.palmette_layout.argtypes = (c.c_int32,)
        self._c.palmette_noise.argtypes, self._c.palmette_noise.restype = (c.c_uint64, c.c_int64), c.c_double
        for index, struct in enumerate((_Part, _Linear, _Layer, _Model, _Step, _AttentionCall, _SamplePlan)):
            assert self._c.palmette_layout(index) == c.sizeof(struct), f"{struct.__name__} differs from the sources"
        self.sample_bytes, self.scored_bytes, self.drawn_bytes = map(self._c.palmette_layout, (7, 8, 9))

    def engine(self, model: ModelWeights, threads: int) -> NativeEngine:
        return NativeEngine(self._c, model, threads)

    def linear(self, weight: Weight | Fused, x: Floats, out: Floats | None = None) -> Floats:
        """x [rows, inputs] → [rows, outputs], in one thread. `out`: [rows, outputs padded to 16]."""
        x, weights = np.ascontiguousarray(x, np.float32), _fused(weight)
        struct = _linear(weights)
        if out is None:
            out = np.full((len(x), struct.blocks * LANES), np.nan, np.float32)
        assert out.shape == (len(x), struct.blocks * LANES), f"an output of {out.shape}"
        self._c.palmette_linear(c.byref(struct), _at(x), len(x), _at(out))
        return out[:, : sum(part.outputs for part in weights)]

    def embed(self, weight: Weight | Fused, tokens: Ints) -> Floats:
        """Rows of a packed [vocabulary, hidden] → [tokens, hidden]."""
        tokens, struct = np.ascontiguousarray(tokens, np.int32), _linear(_fused(weight))
        out = np.full((len(tokens), struct.inputs), np.nan, np.float32)
        self._c.palmette_embed(c.byref(struct), _at(tokens), len(tokens), _at(out))
        return out

    def rms_norm(self, x: Floats, weight: Floats, eps: float) -> Floats:
        """See kernels/protocol.py. x [rows, width], width a multiple of 16."""
        x, weight = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(weight, np.float32)
        out = np.full_like(x, np.nan)
        self._c.palmette_norm(_at(x), _at(weight), *x.shape, c.c_float(eps), _at(out))
        return out

    def sample(self, **arrays: npt.NDArray[Any]) -> None:
        """Samples and scores in this thread; see `_sample`."""
        _sample(self._c, None, arrays)

    def exp(self, x: Floats) -> Floats:
        return self._lanes(self._c.palmette_exp, x)

    def tanh(self, x: Floats) -> Floats:
        return self._lanes(self._c.palmette_tanh, x)

    def noise(self, seed: int, index: int) -> float:
        """The noise of a draw, in [0, 1)."""
        found: float = self._c.palmette_noise(seed, index)
        return found

    def _lanes(self, function: Any, x: Floats) -> Floats:
        x = np.ascontiguousarray(x, np.float32)
        out = np.full_like(x, np.nan)
        function(_at(x), x.size, _at(out))
        return out

    def write_kv(self, pages: LayerPages, slots: Ints, k: Floats, v: Floats) -> None:
        """k, v [tokens, kv_heads, head_dim] into `slots` of a layer's pages, rounded as they store."""
        self._c.palmette_write_kv(
            KV_CODES[pages.kv], pages.page_size, *k.shape[1:], len(slots), _at(slots), _at(k), _at(v),
            c.c_void_p(pages.keys), c.c_void_p(pages.values),
        )  # fmt: skip

    def attention(
        self,
        q: Floats,
        pages: LayerPages,
        *,
        kv_heads: int,
        positions: Ints,
        row_starts: Ints,
        tables: Ints,
        attention: Attention = Attention(),
        threads: int = 1,
    ) -> Floats:
        """q [tokens, heads, head_dim], scaled, over each row's pages → the same shape. Rows: kernels/protocol.py."""
        q = np.ascontiguousarray(q, np.float32)
        out = np.full_like(q, np.nan)
        call = _AttentionCall(
            KV_CODES[pages.kv], 0, q.shape[1], kv_heads, q.shape[2], attention.struct(), len(q), len(row_starts) - 1,
            pages.page_size, tables.shape[1], _at(positions), _at(row_starts), _at(tables), _at(q), pages.keys,
            pages.values, _at(out),
        )  # fmt: skip
        self._c.palmette_attention(c.byref(call), threads)
        return out


class NativeEngine:
    """A model in the library, with its team of threads. One caller at a time."""

    def __init__(self, library: c.CDLL, model: ModelWeights, threads: int) -> None:
        self._c = library
        self._model = model  # keeps every array alive that the structs point to
        self._layers = (_Layer * len(model.layers))(*[_layer(layer) for layer in model.layers])
        self._struct = _Model(
            len(model.layers), model.hidden, model.inner, model.heads, model.kv_heads, model.head_dim,
            model.vocabulary, KV_CODES[model.kv], model.eps, model.scale, model.cosines.ctypes.data,
            model.sines.ctypes.data, model.final_norm.ctypes.data, _linear(model.embedding), _linear(model.head),
            self._layers,
        )  # fmt: skip
        self._handle: int | None = self._c.palmette_new(c.byref(self._struct), threads)

    def forward(
        self,
        *,
        tokens: Ints,
        positions: Ints,
        write_slots: Ints,
        row_starts: Ints,
        tables: Ints,
        logits_at: Ints,
        page_size: int,
        keys: npt.NDArray[np.uint64],
        values: npt.NDArray[np.uint64],
        out: Floats,
        states_at: Ints,
        states: Floats,
    ) -> None:
        """One step, see kernels/protocol.Batch. `tables` [rows, pages]; `keys`, `values`: a layer's address each.

        Fills `out` [logits, vocabulary] and `states` [P, hidden]. All arrays C-contiguous.
        """
        assert self._handle is not None, "the engine was closed"
        step = _Step(
            len(tokens), len(row_starts) - 1, len(logits_at), page_size, tables.shape[1], len(states_at), _at(tokens),
            _at(positions), _at(write_slots), _at(row_starts), _at(tables), _at(logits_at), _at(keys), _at(values),
            _at(out), _at(states_at), _at(states),
        )  # fmt: skip
        self._c.palmette_forward(self._handle, c.byref(step))

    def sample(self, **arrays: npt.NDArray[Any]) -> None:
        """Samples and scores over the engine's threads; see `_sample`."""
        assert self._handle is not None, "the engine was closed"
        _sample(self._c, self._handle, arrays)

    def close(self) -> None:
        """Ends the threads. Idempotent."""
        if self._handle is not None:
            self._c.palmette_delete(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()


def _layer(layer: LayerWeights) -> _Layer:
    return _Layer(
        layer.attention_norm.ctypes.data, _linear(layer.qkv), _linear(layer.out), layer.mlp_norm.ctypes.data,
        _linear(layer.gate_up), _linear(layer.down), layer.attention.struct(),
    )  # fmt: skip


def _linear(weights: Fused) -> _Linear:
    parts = [
        _Part(
            FORMAT_CODES[weight.format], weight.blocks, weight.data.ctypes.data,
            None if weight.bias is None else weight.bias.ctypes.data,
        )
        for weight in weights
    ]  # fmt: skip
    blocks = sum(weight.blocks for weight in weights)
    return _Linear(blocks, weights[0].inputs, len(parts), 0, (_Part * len(parts))(*parts))


def _fused(weight: Weight | Fused) -> Fused:
    return (weight,) if isinstance(weight, Weight) else weight


def _at(array: npt.NDArray[Any]) -> c.c_void_p:
    assert array.flags.c_contiguous, "the library reads arrays as they lie"
    return c.c_void_p(array.ctypes.data)
