"""Opens a model that resolve.py found. Called by the engine's loader; torch-free."""

from __future__ import annotations

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.gguf_file import GgufFile
from palmette.runtime.checkpoint.llama_gguf import LlamaGguf
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.safetensors_folder import SafetensorsFolder
from palmette.runtime.checkpoint.tiny import TinyModel


def open_checkpoint(files: ModelFiles) -> Checkpoint:
    """The model's configuration and tensors. Raises DamagedModel or UnknownArchitecture, naming the file."""
    match files.kind:
        case "gguf":
            return LlamaGguf(GgufFile(files.path))
        case "safetensors":
            return SafetensorsFolder(files.path)
        case "tiny":
            return TinyModel(files.path)
