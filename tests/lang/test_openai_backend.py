"""Programs over an OpenAI-compatible API, which is this project's own server; and what such an API can't do."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from live_server import LiveServer

import palmette as sgl
from palmette import OpenAI, agent, assistant, function, gen, select, tool, user
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.errors import EngineDied, Forbidden, InvalidRequest, PalmetteError, Unsupported
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink

pytestmark = pytest.mark.server


def _frontend() -> Frontend:
    config = EngineConfig(model="tiny", kv_tokens=16384, threads=1)
    return build_frontend(config, resolve("tiny"), LocalLink(build_core(config, resolve("tiny"))))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LiveServer(_frontend) as server:
        yield server.url + "/v1"


@pytest.fixture
def api(url: str) -> Iterator[OpenAI]:
    backend = OpenAI("tiny", url)
    yield backend
    backend.shutdown()


@function
def chat(s):
    s += sgl.system("Be brief.") + user("Hello")
    s += assistant(gen("a", max_tokens=6))
    s += user("More: " + s["a"])
    forks = s.fork(2)
    forks += assistant(gen("b", max_tokens=4))
    forks.join()


def test_a_chat_writes_what_it_writes_on_the_engine(url: str, api: OpenAI) -> None:
    state = chat.run(temperature=0, backend=api)
    own = chat.run(temperature=0, backend=sgl.RuntimeEndpoint(url))
    assert state["a"] == own["a"], "what follows differs, as this text isn't wholly UTF-8"
    assert len(state["b"]) == 2
    assert state.messages()[:3] == own.messages()[:3]
    assert state.text() == f"system: Be brief.\nuser: Hello\nassistant: {state['a']}\nuser: More: {state['a']}\n"
    meta, there = state.get_meta_info("a"), own.get_meta_info("a")
    assert meta["prompt_tokens"] == there["prompt_tokens"]
    assert meta["finish_reason"]["type"] == "length"


def test_text_goes_over_completions(url: str, api: OpenAI) -> None:
    @function
    def program(s):
        s += "One, two," + gen("a", max_tokens=4, stop="\n", seed=1) + " and" + gen("b", max_tokens=3, seed=2)

    state, own = program.run(backend=api), program.run(backend=sgl.RuntimeEndpoint(url))
    assert state["a"] == own["a"]
    assert state.text() == f"One, two,{state['a']} and{state['b']}"
    assert "".join(program.run(backend=api, stream=True).text_iter("a")) == own["a"]


def test_an_agent_over_the_api(api: OpenAI) -> None:
    @tool
    def lamp(on: bool) -> str:
        """Switches the lamp."""
        return f"it is {'on' if on else 'off'}"

    result = agent([lamp], steps=1, least_calls=1, step_tokens=80, answer_tokens=80).run("Light!", seed=1, backend=api)
    assert result.steps[0].calls[0].name == "lamp"
    assert result.steps[0].results[0].text.startswith("it is o")


@pytest.mark.parametrize("kind", ["openai", "server"])
def test_an_agent_with_calls_in_the_models_own_format(url: str, api: OpenAI, kind: str) -> None:
    @tool
    def lamp(on: bool) -> str:
        """Switches the lamp."""
        return f"it is {'on' if on else 'off'}"

    backend = api if kind == "openai" else sgl.RuntimeEndpoint(url)
    helper = agent([lamp], mode="native", steps=2, least_calls=1, step_tokens=80, answer_tokens=12, instructions="Hi.")
    for result in (
        helper.run("Light!", seed=1, backend=backend),
        *helper.run_batch(["Light!"], seed=1, backend=backend),
    ):
        assert result.error is None
        [each] = result.steps[0].results
        assert each.text.startswith("it is o")
        assert isinstance(result.answer, str)
        assert result.usage.calls == len(result.steps) + 1
        assert [call.kind for call in result.trace()][:3] == ["gen", "tool", "gen"]
    if kind == "server":
        with sgl.Engine(model="tiny", kv_tokens=16384, threads=1) as engine:
            here, there = (helper.run("Light!", seed=1, backend=each) for each in (engine, backend))
        assert (here.answer, here.calls, here.ended) == (there.answer, there.calls, there.ended)
    elsewhere = helper.run("Light!", stop_regex="x+", namespace="n", backend=backend)
    if kind == "openai":
        assert "namespace='n'" in str(elsewhere.error)
        assert "stop_regex=" in str(helper.run("Light!", stop_regex="x+", backend=backend).error)
    else:
        assert elsewhere.error is None, "the server knows both"
    error = helper.run("Light!", backend=sgl.ScriptedBackend([])).error
    assert "the backend 'scripted' has no chat with tools" in str(error)
    with pytest.raises(InvalidRequest, match="answers are text"):
        agent([lamp], mode="native", answer=int)
    backend.shutdown()


@pytest.fixture
def form_url() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An API whose model knows a form by heart, and writes on where the prompt ends."""
    text = "Name: Ada\nAge: 36\nTown: London\nEnd"
    asked: list[dict[str, Any]] = []

    class Form(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append(body)
            known = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, body["prompt"], strict=False))
            )
            rest = text[known:][: body["max_tokens"]]
            for stop in body.get("stop", ()):
                rest = rest.split(stop)[0]
            self.send_response(200)
            self.end_headers()
            for event in ({"choices": [{"text": rest}]}, {"choices": [], "usage": {"prompt_tokens": 7}}):
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Form) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()


def test_one_call_answers_several_gens_where_it_wrote_what_is_between(form_url: tuple[str, list[Any]]) -> None:
    @function
    def form(s, second="Age"):
        s += (
            "Name:" + gen("name", stop="\n", max_tokens=10)
            + f"\n{second}:" + gen("age", stop="\n", max_tokens=10)
            + "\nTown:" + gen("town", stop="\n", max_tokens=5)
        )  # fmt: skip

    url, asked = form_url
    plain, spec = OpenAI("m", url), OpenAI("m", url, spec_tokens=40)
    for backend, calls in ((plain, 3), (spec, 2)):
        state = form.run(backend=backend, temperature=0)
        assert (state["name"], state["age"], state["town"]) == (" Ada", " 36", " Lond"), "town is longer than 5 tokens"
        assert state.text() == "Name: Ada\nAge: 36\nTown: Lond"
        assert backend.calls == calls
    assert asked[3]["max_tokens"] == 50
    assert "stop" not in asked[3]
    before = spec.calls
    other = form.run("Job", backend=spec, temperature=0)
    assert other.text().startswith("Name: Ada\nJob:")
    assert spec.calls == before + 3, "nothing but the first gen was in the call"
    for backend in (plain, spec):
        backend.shutdown()


def refused(backend: OpenAI, *nodes: Any, **options: Any) -> PalmetteError:
    @function
    def program(s):
        for node in nodes:
            s += node

    error = program.run(backend=backend, **options).error()
    backend.shutdown()
    assert isinstance(error, sgl.ProgramError)
    assert isinstance(error.cause, PalmetteError)
    return error.cause


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([user("x"), select("y", choices=["a", "b"])], "select: an OpenAI-compatible API doesn't score"),
        ([user("x"), gen("y")], "gen in no turn"),
        ([user("x" + gen("y"))], "gen in the turn of user"),
        ([user("x"), "y" + gen("z")], "text outside of turns"),
        (["x", user("y")], "turns behind text"),
        ([user("x"), assistant("So " + gen("y"))], "gen behind text"),
        ([user("x"), assistant(gen("y", type=int))], "stop_regex="),
        ([user("x"), assistant(gen("y", regex="a+"))], "follows a regex is not possible"),
        (["x" + gen("y", json_schema={"type": "object"})], "follows a json schema in completions"),
        (["x" + gen("y", top_k=3)], "top_k=3"),
        (["x" + gen("y", logprobs=True)], "logprobs=True"),
        (["x" + gen("y", priority=1)], "priority=1"),
        (["x" + sgl.separate_reasoning(gen("y"))], "separate_reasoning"),
    ],
)
def test_what_an_api_cannot_do_is_refused_by_name(api: OpenAI, nodes: list[Any], said: str) -> None:
    error = refused(api, *nodes)
    assert isinstance(error, Unsupported)
    assert said in str(error)


def test_servers_that_know_more(url: str) -> None:
    backend = OpenAI("tiny", url, extensions=True)

    @function
    def program(s):
        s += user("x")
        s += assistant("So " + gen("y", max_tokens=4, top_k=1, min_tokens=4, ignore_eos=True))

    state = program.run(backend=backend)
    assert state["y"] == program.run(backend=sgl.RuntimeEndpoint(url))["y"]
    assert state.messages()[1]["content"] == "So " + state["y"]
    backend.shutdown()


def test_apis_that_refuse_or_are_not_there(url: str) -> None:
    assert "status 40" in str(refused(OpenAI("other", url), "x" + gen("y")))
    assert isinstance(refused(OpenAI("x", "http://127.0.0.1:9/v1"), "x" + gen("y")), EngineDied)
    assert isinstance(refused(OpenAI("tiny", url), "x" + gen("y"), namespace="n"), Unsupported)
    with pytest.raises(InvalidRequest, match="is not a URL"):
        OpenAI("x", "localhost")
    with pytest.raises(Unsupported, match="flush"):
        sgl.flush_cache(OpenAI("x", url))
    assert Forbidden.http_status == 403
