"""Branches: tokenisation seams, roles, what stays after stops, aborts and errors, forks and truncation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_link import ScriptedLink

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.errors import Aborted, BranchLost, EngineDied, InvalidRequest, ModelError
from palmette.runtime.frontend import Frontend
from palmette.runtime.frontend.state import BranchState, StateEditor
from palmette.runtime.messages.branches import BeginRole, EndRole, Part, Text, Tokens
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack, unpack
from palmette.runtime.text.chat_template import ChatTemplate
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.turns import TurnRenderer

TOKENIZER = load_tokenizer(resolve("tiny"))
EDITOR = StateEditor(TOKENIZER, TurnRenderer.of(TOKENIZER))


def plain(text: str) -> list[int]:
    return TOKENIZER.encode(text, special=False)


def front(
    script: Callable[[Generate], Sequence[int]] | str = " world", template: TurnRenderer | None = None
) -> tuple[Frontend, ScriptedLink]:
    said = plain(script) if isinstance(script, str) else []
    link = ScriptedLink(TOKENIZER.vocabulary, script if callable(script) else lambda _: said)
    frontend = Frontend(link, TOKENIZER, template or TurnRenderer.of(TOKENIZER), model="tiny", context_length=256)
    frontend.start()
    return frontend, link


async def test_pending_text_is_encoded_as_one_run() -> None:
    frontend, link = front()
    branch = await frontend.open_branch()
    assert await branch.extend([Text("tok")]) == "tok"
    assert await branch.extend([Text("ens and ")]) == "ens and "
    chunks = [chunk async for chunk in branch.generate([Text("self")], SamplingParams())]
    assert link.prompts() == [pack(plain("tokens and self"))]
    assert chunks[0].appended == "self"
    assert all(chunk.appended == "" for chunk in chunks[1:])
    assert unpack(branch.state.tokens) == plain("tokens and self") + plain(" world")


async def test_roles_are_the_difference_of_two_renderings() -> None:
    frontend, link = front("yes")
    branch = await frontend.open_branch()
    parts: list[Part] = [BeginRole("user"), Text("Is it <|im_end|>?"), EndRole("user"), BeginRole("assistant")]
    chunks = [chunk async for chunk in branch.generate(parts, SamplingParams())]
    appended = "<|im_start|>user\nIs it <|im_end|>?<|im_end|>\n<|im_start|>assistant\n"
    assert chunks[0].appended == appended
    assert frontend.text_of(unpack(link.prompts()[0]), special=True) == appended
    assert unpack(link.prompts()[0]).count(2) == 1
    assert await branch.extend([EndRole("assistant")]) == "<|im_end|>\n"
    assert [turn.content for turn in branch.state.turns] == ["Is it <|im_end|>?", "yes"]


async def test_roles_out_of_order_are_refused_and_change_nothing() -> None:
    frontend, _ = front()
    branch = await frontend.open_branch()
    with pytest.raises(InvalidRequest, match="no role is open"):
        await branch.extend([Text("x"), EndRole("user")])
    assert branch.state == BranchState()
    await branch.extend([BeginRole("user")])
    with pytest.raises(InvalidRequest, match="role 'user' is open"):
        await branch.extend([BeginRole("assistant")])


async def test_a_model_without_template_has_no_roles() -> None:
    frontend, _ = front()
    frontend.editor = StateEditor(TOKENIZER, None)
    with pytest.raises(ModelError, match="no chat template"):
        await (await frontend.open_branch()).extend([BeginRole("user")])


async def test_a_template_that_rewrites_earlier_turns_is_encoded_anew() -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and not loop.last %}(cut){% else %}{{ m.content }}{% endif %}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    template = ChatTemplate(source, special=TOKENIZER.vocabulary.special_pieces.values())
    frontend, _ = front(template=TurnRenderer(template))
    branch = await frontend.open_branch()
    await branch.extend([Text("Preface."), BeginRole("user"), Text("q"), EndRole("user")])
    await branch.extend([BeginRole("assistant"), Text("long answer"), EndRole("assistant")])
    assert "long answer" in frontend.text_of(unpack(branch.state.tokens))
    await branch.extend([BeginRole("user"), Text("next"), EndRole("user")])
    assert frontend.text_of(unpack(branch.state.tokens), special=True) == (
        "Preface.<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n(cut)<|im_end|>\n"
        "<|im_start|>user\nnext<|im_end|>\n"
    )


async def test_a_stop_inside_a_token_leaves_its_first_bytes_pending() -> None:
    token = next(id for id, piece in enumerate(TOKENIZER.vocabulary.pieces) if piece == b"tokens")
    frontend, _ = front(lambda _: [*plain("a"), token])
    branch = await frontend.open_branch()
    text = "".join([c.text async for c in branch.generate([Text("x")], SamplingParams(stop=("kens",)))])
    assert text == "ato"
    assert unpack(branch.state.tokens) == plain("x") + plain("a")
    assert branch.state.pending == "to"
    await branch.extend([Text("tal")])
    assert branch.state.pending == "total"


async def test_closing_a_generation_keeps_what_was_handed_out() -> None:
    frontend, link = front("one two three")
    link.go.clear()
    branch = await frontend.open_branch()
    stream = branch.generate([Text("count: ")], SamplingParams())
    chunk = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert len(link.aborted()) == 1
    assert unpack(branch.state.tokens) == plain("count: ") + unpack(chunk.tokens)
    assert await branch.extend([Text("!")]) == "!"


async def test_an_error_leaves_the_branch_as_it_was() -> None:
    frontend, link = front("one two three")
    branch = await frontend.open_branch()
    await branch.extend([Text("count: ")])
    before = branch.state
    link.go.clear()
    stream = branch.generate([Text("go ")], SamplingParams())
    await anext(stream)
    link.die()
    with pytest.raises(EngineDied):
        await anext(stream)
    assert branch.state == before
    with pytest.raises(InvalidRequest):
        await anext(branch.generate([Text("go ")], SamplingParams(top_p=2.0)))
    assert branch.state == before
    link.go.set()
    assert "".join([c.text async for c in branch.generate([Text("go ")], SamplingParams())]) == "one two three"


async def test_forks_go_their_own_ways_and_continue_the_rng_counter() -> None:
    frontend, link = front("ab")
    branch = await frontend.open_branch("mine")
    first = [c async for c in branch.generate([Text("x")], SamplingParams(seed=1))]
    assert first[-1].finish is not None
    left, right = await branch.fork([Text(" and")], 2)
    assert left.state == right.state == branch.state
    assert branch.state.pending == ""
    _ = [c async for c in left.generate([Text("L")], SamplingParams(seed=1))]
    assert right.state == branch.state != left.state
    requests = [request for request in link.sent if isinstance(request, Generate)]
    assert [request.first_output_index for request in requests] == [0, len(plain("ab"))]
    assert {request.namespace for request in requests} == {"mine"}
    with pytest.raises(InvalidRequest, match="count=0"):
        await branch.fork([], 0)


async def test_scores_append_the_parts_only() -> None:
    frontend, link = front()
    branch = await frontend.open_branch()
    scores = await branch.score([Text("is it ")], ["yes", "no"])
    assert scores.appended == "is it "
    assert unpack(branch.state.tokens) == plain("is it ")
    request = link.sent[-1]
    assert isinstance(request, Score)
    assert [unpack(each) for each in request.continuations] == [plain("yes"), plain("no")]


async def test_truncation_restores_the_roles_at_that_place() -> None:
    frontend, _ = front()
    branch = await frontend.open_branch()
    await branch.extend([BeginRole("user"), Text("hello"), EndRole("user")])
    inside = branch.state.marks[1].position + 1
    await branch.truncate(inside)
    assert branch.state.role == "user"
    assert branch.state.content == frontend.text_of(plain("hello")[:1])
    await branch.truncate(0)
    assert branch.state == BranchState()
    with pytest.raises(InvalidRequest, match="position 1: the branch has 0 tokens"):
        await branch.truncate(1)


async def test_close_ends_a_running_verb_and_every_later_one() -> None:
    frontend, link = front("one two")
    link.go.clear()
    branch = await frontend.open_branch()

    async def read() -> None:
        async for _ in branch.generate([Text("x")], SamplingParams()):
            pass

    reader = asyncio.ensure_future(read())
    waiting = asyncio.ensure_future(branch.extend([Text("later")]))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await branch.close()
    await branch.close()
    with pytest.raises(Aborted):
        await reader
    with pytest.raises(BranchLost):
        await waiting
    assert len(link.aborted()) == 1
    assert branch.state == BranchState()


async def test_tokens_reopen_a_branch() -> None:
    frontend, _ = front()
    branch = await frontend.open_branch()
    appended = await branch.extend([Text("a"), Tokens(pack([1, *plain("user")]))])
    assert appended == "a<|im_start|>user"
    assert unpack(branch.state.tokens) == [*plain("a"), 1, *plain("user")]


texts = st.text(st.sampled_from("ab ñ€😀\n<|>imend_"), max_size=6)


@given(st.lists(texts, max_size=6), st.data())
def test_how_text_is_cut_into_parts_changes_no_token(pieces: list[str], data: st.DataObject) -> None:
    whole, _ = EDITOR.append(BranchState(), [Text("".join(pieces))])
    state = BranchState()
    for piece in pieces:
        state, appended = EDITOR.append(state, [Text(piece)])
        assert appended == piece
    assert EDITOR.encoded(state) == EDITOR.encoded(whole)
    position = data.draw(st.integers(0, EDITOR.encoded(whole).length))
    cut = EDITOR.truncated(EDITOR.encoded(whole), position)
    assert cut.length == position
