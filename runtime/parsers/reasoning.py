"""Reasoning: what a model thinks before it answers, between a begin and an end tag.

The tags stand at the beginning of an output, or the template has put the begin tag into the prompt. Composes with every
tool format: what follows the end tag is the rest of the output. Harmony's reasoning is its analysis channel
(formats/harmony.py).
"""

from __future__ import annotations

import msgspec

from palmette.runtime.errors import InvalidRequest


class ReasoningTags(msgspec.Struct, frozen=True, kw_only=True):
    """`anywhere`: the begin tag counts later in the output too. `answer`: tags around the answer, which are dropped."""

    name: str
    begin: str
    end: str
    anywhere: bool = False
    answer: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.begin.strip(), self.end.strip(), *self.answer)

    def opening(self, prompt: str) -> str:
        """The begin tag, where the prompt ends with it."""
        return self.begin if prompt.rstrip().endswith(self.begin.strip()) else ""


# Sources: the chat templates of deepseek-ai/DeepSeek-R1, Qwen/Qwen3-8B, zai-org/GLM-4.6 and others; of
# mistralai/Magistral-Small-2509; of google/gemma-4-31B-it; of ibm-granite/granite-3.3-8b-instruct and
# granite-3.2-8b-instruct; of ByteDance-Seed/Seed-OSS-36B-Instruct.
REASONING_TAGS = {
    tags.name: tags
    for tags in (
        ReasoningTags(name="think", begin="<think>", end="</think>"),
        ReasoningTags(name="mistral", begin="[THINK]", end="[/THINK]"),
        ReasoningTags(name="gemma4", begin="<|channel>thought", end="<channel|>", anywhere=True),
        ReasoningTags(name="granite", begin="<think>", end="</think>", answer=("<response>", "</response>")),
        ReasoningTags(name="granite_32", begin="Here is my thought process:", end="Here is my response:"),
        ReasoningTags(name="seed", begin="<seed:think>", end="</seed:think>"),
    )
}
BETWEEN = "..."


def reasoning_tags(name: str) -> ReasoningTags:
    """The tags of that name, or own ones written as BEGIN...END. Raises InvalidRequest for anything else."""
    known = REASONING_TAGS.get(name)
    if known is not None:
        return known
    begin, between, end = name.partition(BETWEEN)
    if not (between and begin.strip() and end.strip()) or begin in end or end in begin:
        raise InvalidRequest(
            f"The reasoning format {name!r} is not known.",
            hint=f"Take one of {', '.join(REASONING_TAGS)}, harmony, none, or two tags as in <reason>...</reason>.",
            param="reasoning_parser",
        )
    return ReasoningTags(name=name, begin=begin, end=end)
