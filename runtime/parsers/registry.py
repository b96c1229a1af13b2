"""The formats by name, and which of them a chat template asks for.

A template is looked through for the markers that it renders calls and reasoning with; a name given by whoever starts
the server comes first. Knows all formats; used by parser.py, constraints.py and the surfaces.
"""

from __future__ import annotations

import re

import msgspec

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.parsers.formats.bare_json import GENERIC_JSON, LLAMA_JSON
from palmette.runtime.parsers.formats.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from palmette.runtime.parsers.formats.function_tags import QWEN_CODER, SEED_OSS
from palmette.runtime.parsers.formats.gemma import FUNCTION_GEMMA, GEMMA4
from palmette.runtime.parsers.formats.glm import GLM
from palmette.runtime.parsers.formats.harmony import HARMONY
from palmette.runtime.parsers.formats.invokes import DEEPSEEK_V4, DEEPSEEK_V32, MINIMAX_M2
from palmette.runtime.parsers.formats.kimi import KIMI
from palmette.runtime.parsers.formats.mistral import MISTRAL, MISTRAL_NAMED
from palmette.runtime.parsers.formats.pythonic import LFM2, PYTHONIC, TOOL_CODE
from palmette.runtime.parsers.formats.tagged_json import GRANITE, HERMES, NEMOTRON
from palmette.runtime.parsers.reasoning import REASONING_TAGS, reasoning_tags
from palmette.runtime.parsers.tool_format import ToolFormat

NONE = "none"
AUTO = "auto"

_ALL: tuple[ToolFormat, ...] = (
    GENERIC_JSON, HERMES, QWEN_CODER, LLAMA_JSON, PYTHONIC, MISTRAL, MISTRAL_NAMED, DEEPSEEK_V3, DEEPSEEK_V31,
    DEEPSEEK_V32, DEEPSEEK_V4, MINIMAX_M2, GLM, KIMI, HARMONY, GEMMA4, FUNCTION_GEMMA, TOOL_CODE, GRANITE, LFM2,
    NEMOTRON, SEED_OSS,
)  # fmt: skip
_TOOL_FORMATS = {format.name: format for format in _ALL}

# What a template that renders calls in a format contains, all of a row's texts. The first row that fits counts.
_TOOL_SIGNS: tuple[tuple[tuple[str, ...], ToolFormat], ...] = (
    (("<|channel|>", "<|message|>", "to=functions"), HARMONY),
    (("｜DSML｜", "function_calls"), DEEPSEEK_V32),
    (("｜DSML｜",), DEEPSEEK_V4),
    (("<｜tool▁calls▁begin｜>", "```json"), DEEPSEEK_V3),
    (("<｜tool▁calls▁begin｜>",), DEEPSEEK_V31),
    (("<|tool_calls_section_begin|>",), KIMI),
    (("tool_declare<|im_middle|>",), KIMI),
    (("<minimax:tool_call>",), MINIMAX_M2),
    (("<arg_key>",), GLM),
    (("<seed:tool_call>",), SEED_OSS),
    (("<function=", "<parameter="), QWEN_CODER),
    (("<TOOLCALL>",), NEMOTRON),
    (("<|tool_call_start|>",), LFM2),
    (("<start_function_call>",), FUNCTION_GEMMA),
    (("<|tool_call>",), GEMMA4),
    (("<|tool_call|>",), GRANITE),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_NAMED),
    (("[TOOL_CALLS]",), MISTRAL),
    (("<tool_call>",), HERMES),
    (("```tool_code",), TOOL_CODE),
    (("[func_name1(",), PYTHONIC),
    (("<|python_tag|>",), LLAMA_JSON),
    (('"parameters": ', "<|start_header_id|>"), LLAMA_JSON),
    (('"parameters": ', "<|header_start|>"), LLAMA_JSON),
    (("<|header_start|>",), PYTHONIC),
)

_REASONING_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|channel|>analysis",), HARMONY.name),
    (("<|channel|>", "<|message|>", "analysis"), HARMONY.name),
    (("<|channel>thought",), "gemma4"),
    (("[THINK]",), "mistral"),
    (("<seed:think>",), "seed"),
    (("<think>", "<response></response>"), "granite"),
    (("<think>",), "think"),
    (("</think>",), "think"),
    (("Here is my thought process:",), "granite_32"),
)

_USES_TOOLS = re.compile(r"\{[{%][^}%]*\btools\b")


class Formats(msgspec.Struct, frozen=True, kw_only=True):
    """The names of an output's formats; "none" for one that there is none of."""

    tools: str = GENERIC_JSON.name
    reasoning: str = NONE

    @property
    def marks(self) -> frozenset[str]:
        """The markers of both. A detokenizer keeps the special tokens that are spelt like one of them."""
        found: set[str] = set()
        if self.tools != NONE:
            found.update(tool_format(self.tools).marks)
        if self.reasoning == HARMONY.name:
            found.update(HARMONY.marks)
        elif self.reasoning != NONE:
            found.update(reasoning_tags(self.reasoning).marks)
        return frozenset(found)


class FormatNames(msgspec.Struct, frozen=True):
    tools: tuple[str, ...]
    reasoning: tuple[str, ...]


def names() -> FormatNames:
    """What may be asked for by name, beside "auto" and "none"."""
    return FormatNames(tuple(_TOOL_FORMATS), (*REASONING_TAGS, HARMONY.name))


def tool_format(name: str) -> ToolFormat:
    """Raises InvalidRequest for a name that isn't known."""
    found = _TOOL_FORMATS.get(name)
    if found is None:
        raise InvalidRequest(
            f"The tool-call format {name!r} is not known.",
            hint=f"Take one of {', '.join(_TOOL_FORMATS)}, auto or none.",
            param="tool_call_parser",
        )
    return found


def knows_tools(chat_template: str | None) -> bool:
    """Whether a template renders the tools that it is given. Else prompting.py tells the model of them."""
    return chat_template is not None and _USES_TOOLS.search(chat_template) is not None


def detect(chat_template: str | None, *, tools: str = AUTO, reasoning: str = AUTO) -> Formats:
    """The formats of a model with that template; names other than "auto" override what it says.

    Raises InvalidRequest for a name that isn't known.
    """
    template = chat_template or ""
    if tools == AUTO:
        tools = next((format.name for signs, format in _TOOL_SIGNS if all(sign in template for sign in signs)), "")
        tools = tools or GENERIC_JSON.name
    elif tools != NONE:
        tool_format(tools)
    if reasoning == AUTO:
        reasoning = next((name for signs, name in _REASONING_SIGNS if all(sign in template for sign in signs)), NONE)
    elif reasoning not in (NONE, HARMONY.name):
        reasoning_tags(reasoning)
    return Formats(tools=tools, reasoning=reasoning)
