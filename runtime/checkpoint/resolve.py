"""A model's name → its files on this machine, fetched if they must be. The first step of every start."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from palmette.runtime.checkpoint import tiny
from palmette.runtime.checkpoint.catalogue import CATALOGUE
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.errors import ModelNotFound

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+\.gguf)?")


def resolve(name: str, progress: Callable[..., None] | None = None) -> ModelFiles:
    """`name`: of the catalogue, "tiny", a .gguf file, a folder of safetensors, or a hub name (org/name).

    `progress` is called with download.Progress while something is fetched. The files are opened once, so that a
    damaged or unknown model is refused here. Raises ModelNotFound, ModelError, DamagedModel, UnknownArchitecture.
    """
    files = _find(name, progress)
    open_checkpoint(files)
    return files


def _find(name: str, progress: Callable[..., None] | None) -> ModelFiles:
    if name == tiny.NAME:
        return ModelFiles(name=name, kind="tiny", path=tiny.FOLDER)
    if name in CATALOGUE:
        entry = CATALOGUE[name]
        if not entry.is_fetched:
            # Downloading takes httpx and more; a start that has its model shouldn't wait for their import.
            from palmette.runtime.checkpoint import fetch

            fetch.fetch(entry, progress or fetch.silent)
        return ModelFiles(name=name, kind="gguf", path=entry.path)
    local = Path(name).expanduser()
    if name and local.exists():
        return _local(name, local)
    if _HUB_NAME.fullmatch(name) and not name.startswith(".") and local.suffix != ".safetensors":
        from palmette.runtime.checkpoint import hub

        return _local(name, hub.fetch_hub(name))
    raise ModelNotFound(f"There is no model {name!r}.", hint=_advice(name, local))


def _local(name: str, path: Path) -> ModelFiles:
    if path.is_file():
        if path.suffix == ".safetensors":
            raise ModelNotFound(
                f"{str(path)!r} is one file of a model.", hint=f"Give its folder, {str(path.parent)!r}, instead."
            )
        return ModelFiles(name=name, kind="gguf", path=path)
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        return ModelFiles(name=name, kind="safetensors", path=path)
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return ModelFiles(name=name, kind="gguf", path=ggufs[0])
    if ggufs:
        raise ModelNotFound(
            f"{str(path)!r} holds {len(ggufs)} GGUF files.", hint=f"Give one, such as {str(ggufs[0])!r}."
        )
    missing = "config.json" if any(path.glob("*.safetensors")) else "a .safetensors or .gguf file"
    raise ModelNotFound(
        f"The folder {str(path)!r} holds no model: it has no {missing.removeprefix('a ')}.",
        hint="A model's folder has config.json, *.safetensors and tokenizer.json (or .model), or one .gguf file.",
    )


def _advice(name: str, path: Path) -> str:
    known = [*CATALOGUE, tiny.NAME]
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if path.parent.is_dir() and (path.suffix or "/" in name):
        neighbours = [entry.name for entry in path.parent.iterdir() if entry.is_dir() or entry.suffix == ".gguf"]
        near = difflib.get_close_matches(path.name, neighbours, n=3, cutoff=0.5)
        close += [str(path.parent / entry) for entry in near]
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    return f"Give one of {', '.join(known)}, a .gguf file, a folder of safetensors, or a hub name (org/name)."
