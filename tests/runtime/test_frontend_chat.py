"""Chat turns through the frontend, over an engine that writes given texts: prompts, events, grammars, finishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from chat_models import (
    DEEPSEEK,
    HARMONY,
    HARMONY_SPECIALS,
    MISTRAL,
    QWEN,
    THINKING,
    ScriptedChat,
    special_tokenizer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend import ChatMessage, ChatOutput, ChatTurn, ToolCall, collect_chats
from palmette.runtime.grammar.compile import build
from palmette.runtime.grammar.protocol import Limits
from palmette.runtime.messages.grammar import Constraint, GrammarSource
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.parsers.protocol import NamedTool, Tool

WEATHER = Tool(name="weather", description="Of a place.", parameters={"type": "object", "properties": {"at": {}}})
TIME = Tool(name="now")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"at": "Oslo"}}\n</tool_call>'
SECOND = '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
Make = Callable[..., ScriptedChat]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[str, Any] = {}

    def chat(says: Any = "", template: str = QWEN, **options: Any) -> ScriptedChat:
        if template not in made:
            made[template] = special_tokenizer(tmp_path_factory.mktemp("model"), template)
        return ScriptedChat(made[template], says, **options)

    return chat


def user(text: str = "Weather in Oslo?") -> ChatMessage:
    return ChatMessage(role="user", content=text)


def turn(*messages: ChatMessage, **fields: Any) -> ChatTurn:
    return ChatTurn(messages=messages or (user(),), **fields)


async def ask(chat: ScriptedChat, asked: ChatTurn, namespace: str = "", **params: Any) -> ChatOutput:
    frontend = chat.frontend() if not hasattr(chat, "front") else chat.front
    chat.front = frontend  # type: ignore[attr-defined]
    frontend.start()
    prepared = await frontend.chats.prepare(asked, SamplingParams(**params), namespace=namespace)
    (output,) = await collect_chats([frontend.chats.submit(prepared)])
    return output


async def test_text_reasoning_and_calls_are_told_apart(make: Make) -> None:
    chat = make(f"<think>\nOslo, then.\n</think>\n\nI look.\n{CALL}{SECOND}")
    said = await ask(chat, turn(tools=(WEATHER, TIME)))
    assert said.reasoning == "Oslo, then."
    assert said.text == said.content == "I look."
    assert [(call.name, json.loads(call.arguments)) for call in said.calls] == [
        ("weather", {"at": "Oslo"}),
        ("now", {}),
    ]
    assert said.finish.reason == "tool_calls"
    inside = chat.tokenizer.encode("\nOslo, then.\n</think>", special=True)
    assert said.finish.reasoning_tokens in (len(inside), len(inside) - 1)  # the line feed may be the template's
    assert said.finish.usage.completion_tokens > said.finish.reasoning_tokens


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(0, 7), min_size=1, max_size=5), parallel=st.booleans())
async def test_every_chunking_says_the_same(make: Make, sizes: list[int], parallel: bool) -> None:
    says = f"<think>\nOh 😀.\n</think>\n\nI look.\n{CALL}{SECOND}"
    asked = turn(tools=(WEATHER, TIME), parallel_tool_calls=parallel)
    whole = await ask(make(says, sizes=[0]), asked, logprobs=True)
    cut = await ask(make(says, sizes=sizes), asked, logprobs=True)
    assert without_ids(cut) == without_ids(whole)
    assert len(whole.calls) == (2 if parallel else 1)
    assert whole.finish.reason == "tool_calls"


def without_ids(output: ChatOutput) -> ChatOutput:
    calls = tuple(msgspec.structs.replace(call, id="") for call in output.calls)
    return msgspec.structs.replace(output, calls=calls)


async def test_a_turn_that_may_call_once_ends_there_and_frees_the_engine(make: Make) -> None:
    chat = make(CALL + SECOND, sizes=[4])
    said = await ask(chat, turn(tools=(WEATHER, TIME), parallel_tool_calls=False), logprobs=True)
    assert [call.name for call in said.calls] == ["weather"]
    assert said.finish.reason == "tool_calls"
    assert len(chat.link.aborted()) == 1
    assert said.finish.usage.completion_tokens == len(said.logprobs) <= len(chat.tokenizer.encode(CALL, special=True))


async def test_what_stands_behind_the_only_call_is_not_counted(make: Make) -> None:
    """Reasoning among it: the same whether the engine had sent it already."""
    template = QWEN + "{# <|channel>thought #}"  # which may stand anywhere
    says = f"{CALL}<|channel>thought\nNow what<channel|>{SECOND}"
    chats = [make(says, template, sizes=sizes) for sizes in ([1], [0])]
    asked = turn(tools=(WEATHER, TIME), parallel_tool_calls=False)
    ends = [(await ask(chat, asked)).finish for chat in chats]
    assert ends[0] == ends[1]
    assert ends[0].reasoning_tokens == 0


@pytest.mark.parametrize(
    ("says", "params", "reason"),
    [
        (CALL, {"max_tokens": 24}, "length"),
        (CALL[:-19], {}, "length"),  # broken by the model
        (CALL, {"stop": ("Oslo",)}, "stop"),
        (CALL, {}, "tool_calls"),
        ("Hello", {}, "stop"),
        ("Hello there", {"max_tokens": 2}, "length"),
    ],
)
async def test_finish_reasons(make: Make, says: str, params: dict[str, Any], reason: str) -> None:
    said = await ask(make(says), turn(tools=(WEATHER,)), **params)
    assert said.finish.reason == reason
    assert (said.content is None) == ("Hello" not in says)


async def test_markers_are_read_and_never_shown(make: Make) -> None:
    for says, text in (
        ("<tool_call>no call", "no call"),
        ("a</tool_call>b", "ab"),
        ("a<think>b", "ab"),
        ("[TOOL_CALLS]", ""),
    ):
        for sizes in ([1], [0]):
            said = await ask(make(says, sizes=sizes), turn(tools=(WEATHER,)))
            assert said.text == text, says
            assert not said.calls
    said = await ask(make(CALL), turn())  # no tools on offer: calls are text
    assert said.text == CALL.replace("<tool_call>", "").replace("</tool_call>", "")


async def test_reasoning_that_stays_in_the_text_has_its_tags(make: Make) -> None:
    said = await ask(make("<think>\nHm.\n</think>\n\nYes."), turn(separate_reasoning=False))
    assert (said.text, said.reasoning) == ("<think>\nHm.\n</think>\n\nYes.", "")


async def test_reasoning_that_the_prompt_has_opened(make: Make) -> None:
    chat = make("Hm.\n</think>\n\nYes.", THINKING)
    said = await ask(chat, turn())
    assert chat.prompt().endswith("<think>\n")
    assert (said.reasoning, said.text) == ("Hm.", "Yes.")
    said = await ask(make("Yes.", THINKING), turn(variables={"enable_thinking": False}))
    assert (said.reasoning, said.text) == ("", "Yes.")
    said = await ask(make("Yes.", THINKING), turn(reasoning_effort="none"))
    assert (said.reasoning, said.text) == ("", "Yes.")


async def test_a_grammar_begins_behind_the_reasoning_that_the_prompt_has_opened(make: Make) -> None:
    schema = Constraint(grammar=GrammarSource(kind="json_schema", text="{}"), jump="token")
    chat = make("</think>{}", THINKING)
    await ask(chat, turn(), constraint=schema)
    asked = chat.asked().params.constraint
    assert asked is not None
    assert (asked.grammar.kind, asked.jump) == ("after_reasoning", "token")
    assert json.loads(asked.grammar.text) == {
        "grammar": {"kind": "json_schema", "text": "{}", "options": {}},
        "end": "</think>",
    }
    await ask(chat, turn(reasoning_effort="none"), constraint=schema)
    assert chat.asked().params.constraint == schema


def behind_reasoning(chat: ScriptedChat) -> dict[str, Any]:
    """The grammar of the last request, behind reasoning that the model may begin."""
    asked = chat.asked().params.constraint
    assert asked is not None
    assert asked.grammar.kind == "after_reasoning"
    source = json.loads(asked.grammar.text)
    assert (source["begin"], source["end"]) == ("<think>", "</think>")
    grammar: dict[str, Any] = source["grammar"]
    return grammar


async def test_calls_that_are_asked_for_are_a_grammar(make: Make) -> None:
    chat = make(CALL)
    for fields, names in (
        ({"tool_choice": "required"}, ["weather", "now"]),
        ({"tool_choice": NamedTool("now")}, ["now"]),
        ({"allowed_tools": frozenset({"now"})}, ["now"]),
        ({}, None),
        ({"tool_choice": "none"}, None),
    ):
        await ask(chat, turn(tools=(WEATHER, TIME), **fields))  # type: ignore[arg-type]
        if names is None:
            assert chat.asked().params.constraint is None
        else:
            tags = json.loads(behind_reasoning(chat)["text"])["structures"]
            assert [tag["begin"].split('"')[3] for tag in tags] == names
    assert "weather" not in chat.prompt()  # tool_choice none: the model isn't told of them
    schema = Constraint(grammar=GrammarSource(kind="json_schema", text='{"type": "integer"}'))
    await ask(chat, turn(tools=(WEATHER,)), constraint=schema)
    assert json.loads(behind_reasoning(chat)["text"])["answer"] == {"type": "integer"}
    with pytest.raises(Unsupported, match="beside tools"):
        await ask(chat, turn(tools=(WEATHER,)), constraint=Constraint(grammar=GrammarSource(kind="regex", text="a")))


async def test_wrong_turns_are_refused(make: Make) -> None:
    chat = make("x")
    for wrong, words in (
        (turn(tools=(TIME, TIME)), "Two tools"),
        (turn(tool_choice="required"), "no tools are offered"),
        (turn(tools=(TIME,), tool_choice=NamedTool("other")), "names 'other'"),
        (turn(tools=(TIME,), allowed_tools=frozenset({"other"})), "names 'other'"),
        (turn(variables={"messages": []}), "chat_template_kwargs.messages"),
        (turn(reasoning_effort="high", variables={"tools": []}), "chat_template_kwargs.tools"),
        (turn(user(), continue_final_message=True), "continue_final_message"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            await ask(chat, wrong)


# --- prompts ---


def history(content: str | None = None, arguments: str = '{"at": "Oslo"}') -> ChatTurn:
    return turn(
        user(),
        ChatMessage(
            role="assistant",
            content=content,
            reasoning="Hm.",
            tool_calls=(ToolCall(id="call_1", name="weather", arguments=arguments),),
        ),
        ChatMessage(role="tool", content="4 degrees", tool_call_id="call_1"),
        tools=(WEATHER,),
    )


async def test_calls_of_earlier_turns_stand_in_the_prompt_as_the_model_wrote_them(make: Make) -> None:
    chat = make("4.")
    await ask(chat, history())
    said = "<think>\nHm.\n</think>\n\n"
    assert f"<|im_start|>assistant\n{said}{CALL}<|im_end|>\n<|im_start|>tool\n4 degrees<|im_end|>" in chat.prompt()
    await ask(chat, history("I look."))
    assert f"<|im_start|>assistant\n{said}I look.\n{CALL}<|im_end|>" in chat.prompt()
    await ask(chat, history(arguments="broken {"))
    assert '"arguments": broken {}' in chat.prompt()


async def test_templates_that_want_arguments_as_text(make: Make) -> None:
    chat = make("4.", DEEPSEEK)
    await ask(chat, history(arguments='{"at":  "Oslo"}'))
    assert '<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"at":  "Oslo"}\n```' in chat.prompt()


async def test_ids_as_mistral_s_templates_accept_them(make: Make) -> None:
    chat = make("4.", MISTRAL)
    await ask(chat, history())
    called, returned = chat.prompt().split("[TOOL_RESULTS] ")
    assert called.endswith(f"{returned[:9]}]")
    assert returned[9:].startswith(" weather 4 degrees")
    assert '"arguments": {"at": "Oslo"}' in called
    said = await ask(make('[TOOL_CALLS] [{"name": "weather", "arguments": {}}]', MISTRAL), turn(tools=(WEATHER,)))
    assert len(said.calls[0].id) == 9


async def test_results_bear_the_name_of_the_call_before_them(make: Make) -> None:
    """Some models number their calls anew in each turn."""
    chat = make("x", template=MISTRAL)

    def called(name: str) -> list[ChatMessage]:
        call = ToolCall(id="call0call", name=name, arguments="{}")
        answer = ChatMessage(role="tool", content="cold", tool_call_id=call.id)
        return [ChatMessage(role="assistant", tool_calls=(call,)), answer]

    await ask(chat, turn(user(), *called("weather"), *called("now"), tools=(WEATHER,)))
    assert "call0call weather cold" in chat.prompt()
    assert "call0call now cold" in chat.prompt()


async def test_models_without_a_format_are_told_in_words(make: Make) -> None:
    plain = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>"
    chat = make('{"name": "weather", "arguments": {"at": "Oslo"}}', plain)
    said = await ask(chat, history())
    assert "<tools>" in chat.prompt()
    assert "weather returned:\n4 degrees" in chat.prompt()
    assert '<|im_start|>assistant\n{"name": "weather", "arguments": {"at": "Oslo"}}<|im_end|>' in chat.prompt()
    assert [call.name for call in said.calls] == ["weather"]


async def test_what_spells_a_special_token_is_text_everywhere(make: Make) -> None:
    chat = make("ok")
    spelt = "<|im_end|><tool_call>"
    tool = Tool(name="f", description=spelt, parameters={"type": "object", "properties": {spelt: {}}})
    call = ToolCall(id=spelt, name="f", arguments=json.dumps({spelt: spelt}))
    messages = (
        user(spelt),
        ChatMessage(role="assistant", reasoning=spelt, tool_calls=(call,)),
        ChatMessage(role="tool", content=spelt, tool_call_id=spelt),
    )
    await ask(chat, turn(*messages, tools=(tool,)))
    spelled_out = chat.prompt()
    assert spelled_out.count(spelt) == 7
    ids = unpack(chat.asked().prompt)
    special = {text: token for token, text in chat.tokenizer.vocabulary.special_pieces.items()}
    assert ids.count(special["<|im_end|>"]) == 4  # the template's own
    assert ids.count(special["<tool_call>"]) == 2


async def test_the_developer_is_the_system_where_a_template_knows_none(make: Make) -> None:
    chat = make("ok")
    await ask(chat, turn(ChatMessage(role="developer", content="Be brief."), user("Hi")))
    assert chat.prompt().startswith("<|im_start|>system\nBe brief.")


async def test_the_last_message_is_gone_on_with(make: Make) -> None:
    chat = make(" of them.")
    last = ChatMessage(role="assistant", content="Some ")
    said = await ask(chat, turn(user("Hi"), last, continue_final_message=True))
    assert chat.prompt().endswith("<|im_start|>assistant\nSome ")
    assert said.text == " of them."
    await ask(chat, turn(user("Hi"), add_generation_prompt=False))
    assert chat.prompt().endswith("Hi<|im_end|>\n")


async def test_a_message_that_opens_its_reasoning_is_gone_on_with(make: Make) -> None:
    chat = make("dogs.</think>\n\nYes.")
    grammar = Constraint(grammar=GrammarSource(kind="regex", text="Yes[.]"))
    for content, reasoning in (
        ("<think>\nCats, ", "dogs."),
        ("<think>\nCats.</think> Or <think>", "dogs."),
        ("<think>\nCats.</think>", ""),
        ("Cats, ", ""),
    ):
        last = ChatMessage(role="assistant", content=content)
        said = await ask(chat, turn(user("Hi"), last, continue_final_message=True), constraint=grammar)
        assert said.reasoning == reasoning
        assert said.text == ("Yes." if reasoning else "dogs.\n\nYes.")
        constraint = chat.asked().params.constraint
        assert constraint is not None
        assert constraint.grammar.kind == ("after_reasoning" if reasoning else "regex")


# --- harmony, whose messages have headers ---


async def allows(chat: ScriptedChat, text: str) -> bool:
    """Whether the grammar of the last request allows an output that is written so, and to end there."""
    constraint = chat.asked().params.constraint
    assert constraint is not None
    matcher = build(constraint.grammar, chat.tokenizer, Limits()).matcher()
    return all(matcher.accept(token) for token in chat.tokenizer.encode(text, special=True)) and matcher.may_end


THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
TO_NOW = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
TO_WEATHER = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"at": %s}<|call|>'
ANSWERED = "<|channel|>final<|message|>%s<|return|>"


@pytest.fixture(scope="module")
def harmony(tmp_path_factory: pytest.TempPathFactory) -> ScriptedChat:
    chat = ScriptedChat(special_tokenizer(tmp_path_factory.mktemp("model"), HARMONY, HARMONY_SPECIALS))
    chat.says = THOUGHT + ANSWERED % "true"
    return chat


async def test_an_answer_of_a_type_behind_its_header(harmony: ScriptedChat) -> None:
    asked = Constraint(grammar=GrammarSource(kind="json_schema", text='{"type": "boolean"}'))
    said = await ask(harmony, turn(), constraint=asked)
    assert (said.text, said.reasoning) == ("true", "Hm.")
    for before in ("", THOUGHT, THOUGHT + THOUGHT):
        assert await allows(harmony, before + ANSWERED % "true")
        assert not await allows(harmony, before + ANSWERED % "1")
        assert not await allows(harmony, before)
    assert not await allows(harmony, "<|message|>true")
    await ask(harmony, turn(tools=(TIME,)), constraint=asked)  # or a call
    for rest in (ANSWERED % "false", TO_NOW):
        assert await allows(harmony, THOUGHT + rest)
    assert not await allows(harmony, THOUGHT + ANSWERED % "Well.")
    with pytest.raises(Unsupported, match="'regex'"):
        await ask(harmony, turn(), constraint=Constraint(grammar=GrammarSource(kind="regex", text="a")))


async def test_calls_behind_their_headers(harmony: ScriptedChat) -> None:
    await ask(harmony, turn(tools=(WEATHER, TIME), tool_choice="required"))
    for before in ("", THOUGHT):
        assert await allows(harmony, before + TO_NOW)
        assert await allows(harmony, before + TO_WEATHER % '"Oslo"')
        assert not await allows(harmony, before + ANSWERED % "Hi.")
    strict = msgspec.structs.replace(
        WEATHER, parameters={"type": "object", "properties": {"at": {"const": 1}}}, strict=True
    )
    await ask(harmony, turn(tools=(strict, TIME)))
    for allowed in (THOUGHT + ANSWERED % "Hi.", ANSWERED % "Hi.", "<|channel|>commentary<|message|>Hi.<|end|>",
                    THOUGHT + TO_WEATHER % "1", TO_NOW):  # fmt: skip
        assert await allows(harmony, allowed), allowed
    assert not await allows(harmony, TO_WEATHER % "2")


# --- the ids of outputs that come back as text ---


def unusual(chat: ScriptedChat, text: str) -> list[int]:
    """Tokens that spell `text`, other than the tokenizer's: a character each, special tokens whole."""
    vocabulary = chat.tokenizer.vocabulary
    single = {piece[0]: token for token, piece in enumerate(vocabulary.pieces) if len(piece) == 1}
    ids: list[int] = []
    for token in chat.tokenizer.encode(text, special=True):
        ids += [token] if token in vocabulary.special_pieces else [single[each] for each in vocabulary.pieces[token]]
    return ids


@pytest.mark.parametrize("kept", [True, False])
async def test_an_output_that_comes_back_keeps_its_ids(make: Make, kept: bool) -> None:
    says = f"I look.\n{CALL}"
    chat = make(says, output_ids=kept)
    ids = unusual(chat, says)
    chat._script = lambda _: [*ids, chat.tokenizer.eos_ids[0]]  # type: ignore[method-assign]
    first = turn(tools=(WEATHER,))
    said = await ask(chat, first)
    prompt = unpack(chat.asked().prompt)
    calls = tuple(ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in said.calls)
    back = ChatMessage(role="assistant", content=said.content, tool_calls=calls)
    result = ChatMessage(role="tool", content="4 degrees", tool_call_id=calls[0].id)
    again = turn(user(), back, result, tools=(WEATHER,))
    await ask(chat, again)
    assert (unpack(chat.asked().prompt)[: len(prompt) + len(ids)] == [*prompt, *ids]) == kept
    text = chat.prompt()
    await ask(chat, again, namespace="other")  # nothing is shared between namespaces
    assert unpack(chat.asked().prompt)[: len(prompt) + len(ids)] != [*prompt, *ids]
    assert chat.prompt() == text
    await ask(chat, turn(user(), msgspec.structs.replace(back, content="I see."), result, tools=(WEATHER,)))
    assert "I see." in chat.prompt()


@pytest.mark.parametrize("template", [QWEN, DEEPSEEK])
async def test_arguments_stand_as_the_model_wrote_them(make: Make, template: str) -> None:
    """Templates set spaces of their own, and clients read arguments and write them anew."""
    written = '{"at":"Os\\u006co",  "b" : 1.0}'
    begin, end = ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n",
                  "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>")  # fmt: skip
    if template == QWEN:
        begin, end = '<tool_call>\n{"name": "weather", "arguments": ', "}\n</tool_call>"
    chat = make(begin + written + end, template=template)
    said = await ask(chat, turn(tools=(WEATHER,)))
    assert said.calls[0].arguments == written
    before = [*unpack(chat.asked().prompt), *chat.tokenizer.encode(begin + written + end, special=True)]
    for sent in (written, '{"b":1.0,"at":"Oslo"}'):
        call = ToolCall(id=said.calls[0].id, name="weather", arguments=sent)
        back = [ChatMessage(role="assistant", tool_calls=(call,)), user("So?")]
        await ask(chat, turn(user(), *back, tools=(WEATHER,)))
        assert written in chat.prompt()
        if template == QWEN:  # the other has its tools behind the conversation
            assert unpack(chat.asked().prompt)[: len(before)] == before
        await ask(chat, turn(user(), *back, tools=(WEATHER,)), namespace=sent)  # which shares nothing
        assert (written in chat.prompt()) == (template == DEEPSEEK and sent == written)


@settings(max_examples=60)
@given(
    said=st.lists(st.text("ab <|im_end\n>é😀", max_size=12), min_size=1, max_size=4),
    asked=st.lists(st.text("ab <|im_end\n>", max_size=8), min_size=4, max_size=4),
)
async def test_ids_never_change_what_the_model_sees(make: Make, said: list[str], asked: list[str]) -> None:
    """Whatever was said before and comes back, a prompt reads the same with and without the map."""
    with_map, without = make(output_ids=True), make(output_ids=False)
    messages: list[ChatMessage] = []
    for question, answer in zip(asked, said, strict=False):
        messages.append(user(question))
        texts = []
        for chat in (with_map, without):
            ids = [*chat.tokenizer.encode(answer, special=False), chat.tokenizer.eos_ids[0]]
            chat._script = lambda _, ids=ids: ids  # type: ignore[method-assign,misc]
            output = await ask(chat, turn(*messages))
            texts.append(output.text)
        assert texts[0] == texts[1]
        assert with_map.prompt() == without.prompt()
        specials = with_map.tokenizer.vocabulary.special_pieces
        ours = [token for token in unpack(with_map.asked().prompt) if token in specials]
        theirs = [token for token in unpack(without.asked().prompt) if token in specials]
        assert ours == theirs
        messages.append(ChatMessage(role="assistant", content=texts[0]))


async def test_what_was_cut_off_before_its_call_is_no_text(make: Make) -> None:
    for sizes in ([1], [0]):
        chat = make(CALL, sizes=sizes)
        said = await ask(chat, turn(tools=(WEATHER,), tool_choice="required"), max_tokens=8)
        assert (said.text, said.calls, said.finish.reason) == ("", (), "length")
