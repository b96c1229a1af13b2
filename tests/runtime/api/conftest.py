"""A real server on a loopback socket over a scripted engine, and one over the tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from chat_models import QWEN, ScriptedChat, special_tokenizer
from frontends import make_scripted_frontend, tiny_frontend
from live_server import LiveServer

from palmette.runtime.frontend import Frontend


@pytest.fixture(scope="package")
def server() -> Iterator[LiveServer]:
    with LiveServer(make_scripted_frontend) as live:
        yield live


@pytest.fixture(scope="package")
def tiny() -> Iterator[LiveServer]:
    with LiveServer(tiny_frontend) as live:
        yield live


@pytest.fixture
def scripted_frontend() -> Callable[[], Frontend]:
    return make_scripted_frontend


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> ScriptedChat:
    """A model with a chat template and tools, which says what a test wants."""
    return ScriptedChat(special_tokenizer(tmp_path_factory.mktemp("model"), QWEN))


@pytest.fixture(scope="module")
def live(chat: ScriptedChat) -> Iterator[LiveServer]:
    with LiveServer(chat.frontend) as server:
        yield server
