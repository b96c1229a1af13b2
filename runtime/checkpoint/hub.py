"""Models by their Hugging Face hub name, when online. Called by resolve.py only for such a name."""

from __future__ import annotations

from pathlib import Path

import httpx
import huggingface_hub
from huggingface_hub import constants, errors

from palmette.runtime.errors import ModelError, ModelNotFound

CONNECT_SECONDS = 8.0
_SMALL = [
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "added_tokens.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
]  # fmt: skip


def fetch_hub(name: str) -> Path:
    """The model's folder, or its GGUF file, in the hub's own cache.

    `name`: org/name, or org/name/file.gguf. Raises ModelNotFound, or ModelError where the hub can't be reached.
    """
    organisation, repository, *rest = name.split("/")
    repo = f"{organisation}/{repository}"
    wanted = "/".join(rest)
    try:
        httpx.head(constants.ENDPOINT, timeout=CONNECT_SECONDS)  # the hub's library tries for 20 s and more
        files = huggingface_hub.HfApi().list_repo_files(repo)
    except errors.GatedRepoError as error:
        raise ModelNotFound(
            f"The hub model {repo!r} asks for its terms to be accepted.",
            hint="Accept them on its page, log in with `hf auth login`, and try again.",
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise ModelNotFound(
            f"There is no hub model {repo!r}, or it is private.",
            hint="Check its spelling; for a private one log in with `hf auth login`.",
        ) from error
    except Exception as error:  # the library's transport, and so its errors, differ between its versions
        return _cached(repo, wanted, error)
    patterns = _patterns(repo, files, wanted)
    try:
        folder = Path(huggingface_hub.snapshot_download(repo, allow_patterns=patterns))
    except Exception as error:
        return _cached(repo, wanted, error)
    return _inside(folder, wanted)


def _patterns(repo: str, files: list[str], wanted: str) -> list[str]:
    """What to download: the named GGUF file, else safetensors, else the only GGUF file."""
    ggufs = [file for file in files if file.endswith(".gguf")]
    if wanted:
        if wanted not in files:
            raise ModelNotFound(
                f"The hub model {repo!r} has no file {wanted!r}.", hint=f"It has {', '.join(ggufs) or 'no GGUF file'}."
            )
        return [wanted]
    if any(file.endswith(".safetensors") and "/" not in file for file in files):
        return [*_SMALL, "*.safetensors", "*.safetensors.index.json"]
    if len(ggufs) == 1:
        return ggufs
    raise ModelNotFound(
        f"The hub model {repo!r} has {len(ggufs)} GGUF files and no safetensors.",
        hint=f"Name one: {', '.join(f'{repo}/{file}' for file in ggufs[:8])}." if ggufs else "Take another model.",
    )


def _cached(repo: str, wanted: str, reason: Exception) -> Path:
    """What an earlier download left, when the hub can't be reached."""
    try:
        folder = Path(huggingface_hub.snapshot_download(repo, local_files_only=True))
    except errors.LocalEntryNotFoundError as error:
        raise ModelError(
            f"The hub can't be reached for {repo!r} ({type(reason).__name__}), and it wasn't downloaded before.",
            hint="Go online, or give the path of a GGUF file or a folder with config.json and safetensors.",
        ) from error
    return _inside(folder, wanted)


def _inside(folder: Path, wanted: str) -> Path:
    if wanted:
        return folder / wanted
    ggufs = sorted(folder.rglob("*.gguf"))
    return ggufs[0] if len(ggufs) == 1 and not (folder / "config.json").is_file() else folder
