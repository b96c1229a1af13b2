"""The tokenizer of a model that checkpoint/resolve.py found. Called by the frontend, and by the engine for its
vocabulary."""

from __future__ import annotations

from pathlib import Path

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.gguf_file import GgufFile
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.text.folder_tokenizer import folder_tokenizer
from palmette.runtime.text.gguf_tokenizer import gguf_tokenizer
from palmette.runtime.text.tokenizer import Tokenizer


def load_tokenizer(files: ModelFiles, *, chat_template: str | Path | None = None) -> Tokenizer:
    """`chat_template`: a jinja file instead of the model's own template.

    Raises DamagedModel, ModelError or Unsupported naming the file, InvalidRequest for an unreadable template file.
    """
    template = read_template(Path(chat_template)) if chat_template is not None else None
    if files.kind == "gguf":
        return gguf_tokenizer(GgufFile(files.path).metadata, files.path, template)
    return folder_tokenizer(files.path, template)


def read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"The chat template {str(path)!r} can't be read: {error}.",
            hint="Give the path of a jinja file in UTF-8.",
            param="chat_template",
        ) from error
