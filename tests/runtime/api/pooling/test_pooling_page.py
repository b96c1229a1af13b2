"""The page on embeddings, scores and rankings: its blocks run, and it names every field that is ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from live_server import LiveServer

from palmette.runtime.api.pooling.schemas import EmbeddingBody, PoolingFields, RerankBody, ScoreBody


def test_the_blocks_run(root: Path, tiny: LiveServer) -> None:
    page = (root / "docs" / "pooling.md").read_text()
    requests = re.findall(r"```http\nPOST (\S+)\n(.*?)```", page, re.DOTALL)
    assert {path for path, _ in requests} == {"/v1/embeddings", "/v1/rerank", "/v1/score"}
    with httpx.Client(base_url=tiny.url, timeout=60) as http:
        for path, body in requests:
            assert http.post(path, json=json.loads(body)).status_code == 200
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        scope: dict[str, Any] = {"url": tiny.url}
        exec(block, scope)
        assert scope["answer"].data


def test_every_field_is_named(root: Path) -> None:
    page = (root / "docs" / "pooling.md").read_text()
    fields = {name for body in (EmbeddingBody, ScoreBody, RerankBody) for name in body.model_fields}
    own = fields - PoolingFields.model_fields.keys() - {"text_1", "text_2"}
    assert [name for name in sorted(own) if f"`{name}`" not in page] == []
