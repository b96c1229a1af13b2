"""Our token ids against llama.cpp's, on lines of mixed text, special tokens parsed and taken as text."""

from __future__ import annotations

import httpx
import pytest
from mixed_lines import mixed_lines

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.text.load import load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.peers]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("special", [False, True], ids=["specials-as-text", "specials-parsed"])
def test_the_same_ids(llama_cpp: httpx.Client, model_files: ModelFiles, special: bool) -> None:
    tokenizer = load_tokenizer(model_files)
    lines = mixed_lines(2400)
    assert len(lines) >= 2000
    different: list[str] = []
    with_specials = 0
    for line in lines:
        body = {"content": line, "add_special": False, "parse_special": special}
        theirs = llama_cpp.post("/tokenize", json=body).raise_for_status().json()["tokens"]
        ours = tokenizer.encode(line, special=special)
        if ours != theirs:
            different.append(f"{line!r}:\n  ours   {ours}\n  theirs {theirs}")
        with_specials += any(token in tokenizer.vocabulary.special_pieces for token in theirs)
    assert not different, f"{len(different)} of {len(lines)} lines differ:\n" + "\n".join(different[:5])
    assert (with_specials > 20) == special  # the lines hold written specials, and only parsing makes ids of them
