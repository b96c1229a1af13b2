"""Writes a GGUF model in other forms: a Hugging Face folder (bf16), or a GGUF file of plain float32 or float16.

The folder and the float16 file are for peers that read nothing else. The float32 file is for comparing with llama.cpp
sharply: on quantised weights it quantises activations to 8 bits too. Exports lie in the cache, are made once for a
file, and are whole or not there. Called by vllm_cpu.py, openvino.py and tests/peers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.model import files_of
from benchmarks.peers.base import PeerError
from palmette.runtime.checkpoint.config import FrequencyRope, LinearRope, Llama3Rope, ModelConfig
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.config import cache_folder
from palmette.runtime.text.byte_level import LibraryTokenizer
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.tokenizer import Tokenizer


def export_folder(model: Path) -> Path:
    """The folder of `model`, made now if it isn't there. Raises PeerError for a model that can't be written so."""
    folder = export_place(model, "")
    if folder.is_dir():
        return folder
    files = files_of(model)
    checkpoint, tokenizer = open_checkpoint(files), load_tokenizer(files)
    if not isinstance(tokenizer, LibraryTokenizer):
        raise PeerError(f"{model.name} has no byte-level BPE tokenizer; only those are exported.")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _write_json(partial / "config.json", config_json(checkpoint.config, tokenizer))
    _write_json(partial / "tokenizer_config.json", _tokenizer_config(checkpoint.config, tokenizer))
    _write_json(partial / "tokenizer.json", _tokenizer_json(tokenizer))
    save_file(_tensors(checkpoint), partial / "model.safetensors", metadata={"format": "pt"})
    partial.rename(folder)
    return folder


def export_float32(model: Path) -> Path:
    """The same weights and metadata in a GGUF file whose tensors are all float32."""
    return _export_plain(model, ".gguf", gguf.LlamaFileType.ALL_F32, np.float32)


def export_float16(model: Path) -> Path:
    """The same in a GGUF file whose matrices are float16, and whose vectors are float32."""
    return _export_plain(model, ".f16.gguf", gguf.LlamaFileType.MOSTLY_F16, np.float16)


def _export_plain(
    model: Path, suffix: str, kind: gguf.LlamaFileType, matrices: type[np.float32] | type[np.float16]
) -> Path:
    target = export_place(model, suffix)
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    reader = gguf.GGUFReader(model)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(partial, architecture)
    own = (gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE)
    for field in reader.fields.values():
        if field.name not in own and not field.name.startswith("GGUF."):
            value_type, element = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), value_type, sub_type=element)
    writer.add_file_type(kind)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        form = matrices if values.ndim > 1 else np.float32
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, dtype=form))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(target)
    return target


def export_place(model: Path, suffix: str) -> Path:
    """Where an export of this very file lies."""
    stat = model.stat()
    key = hashlib.sha256(f"{model.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    return cache_folder() / "exported" / f"{model.stem}-{key}{suffix}"


def _tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    names = checkpoint.tensor_names()
    return {name: torch.from_numpy(to_float32(checkpoint.tensor(name)).copy()).bfloat16() for name in names}


def config_json(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """Hugging Face's config.json of a llama model. Raises PeerError for rope factors that it can't say."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(config),
        "max_position_embeddings": config.context_length,
        "tie_word_embeddings": config.tie_embeddings,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": list(tokenizer.eos_ids),
    }


def _rope_scaling(config: ModelConfig) -> dict[str, Any] | None:
    match config.rope_scaling:
        case None:
            return None
        case LinearRope(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Rope() as scaling:
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_context_length,
            }
        case FrequencyRope():
            raise PeerError("This model's rope has a factor for each frequency; config.json can't say that.")


def _tokenizer_json(tokenizer: LibraryTokenizer) -> dict[str, Any]:
    """With a decoder, which we have no use for: without one a peer writes tokens as they stand in the vocabulary."""
    content: dict[str, Any] = json.loads(tokenizer.to_json())
    return {**content, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}}


def _tokenizer_config(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokenizer.bos_token or None,
        "eos_token": tokenizer.eos_token or None,
        "chat_template": tokenizer.chat_template,
        "model_max_length": config.context_length,
    }


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
