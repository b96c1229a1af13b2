"""Request bodies of the native surface (/generate, /tokenize, branches …)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.json_types import AnyText, AnyTokens, like, list_of, schema
from palmette.runtime.api.limits import MOST_CHOICES, MOST_DETOKENIZED, MOST_FORKS, MOST_OUTPUTS
from palmette.runtime.api.openai.chat_schemas import ChatMessage
from palmette.runtime.api.sampling_fields import SamplingFields, as_constraint
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS


class SamplingObject(SamplingFields):
    """The sampling parameters of one output, as an object."""

    max_tokens: Annotated[int | None, schema(minimum=0)] = None
    """Output tokens at most; the rest of the context where it is left out."""
    max_new_tokens: Annotated[int | None, schema(minimum=0)] = None
    """Another name of `max_tokens`."""
    logprobs: bool = False
    """Log-probabilities of the output's tokens."""
    top_logprobs: Annotated[int, schema(minimum=0, maximum=MAX_TOP_LOGPROBS)] = 0
    """And of so many of the likeliest at each place."""
    constraint: dict[str, Any] | None = None
    """Any kind of grammar, as our own clients send it: {"grammar": {"kind", "text", "options"}, "jump", "complete"}."""

    def grammar(self) -> Constraint | None:
        named = super().grammar()
        if self.constraint is None or named is None:
            return as_constraint(self.constraint) if self.constraint is not None else named
        raise InvalidRequest(
            f"constraint and {named.grammar.kind} were given together; an output follows one grammar.",
            hint="Give one of them.",
            param="constraint",
        )

    def limit(self) -> int | None:
        if self.max_new_tokens is not None and self.max_tokens not in (None, self.max_new_tokens):
            raise InvalidRequest(
                f"max_tokens={self.max_tokens!r} and max_new_tokens={self.max_new_tokens!r} differ.",
                hint="Give one of them.",
                param="max_new_tokens",
            )
        return self.max_tokens if self.max_new_tokens is None else self.max_new_tokens


class GenerateSampling(SamplingObject):
    """`sampling_params` of /generate."""

    n: Annotated[int, schema(minimum=1, maximum=MOST_OUTPUTS)] = 1
    """Outputs of each prompt."""


class GenerateBody(GenerateSampling, SchedulingFields):
    """One of `text`, `input_ids`, `messages`; sampling fields beside them or in `sampling_params`. What spells a
    special token in a text is that token."""

    text: AnyText = None
    """What is continued."""
    input_ids: AnyTokens = None
    """The same as token ids."""
    messages: Annotated[list[dict[str, Any]] | None, list_of(ChatMessage)] = None
    """A chat, through the model's template."""
    sampling_params: Annotated[dict[str, Any] | None, like(GenerateSampling)] = None
    """The sampling fields, where they don't stand beside the prompt."""
    stream: bool = False
    """Send the output as server-sent events, as it comes."""
    return_logprob: bool = False
    """Log-probabilities of the output's tokens."""
    top_logprobs_num: int = Field(default=0, ge=0, le=MAX_TOP_LOGPROBS)
    """And of so many of the likeliest at each place."""
    logprob_start_len: int | None = Field(default=None, ge=-1)
    """Log-probabilities of the prompt's tokens from this position on; -1: none."""
    rid: str | None = Field(default=None, min_length=1, max_length=256)
    """An id of one's own, by which /abort ends the request."""
    model: str = ""
    """One of the served names; the served model where it is left out."""

    unsupported: ClassVar[dict[str, str]] = {
        "lora_path": "adapters are not built yet",
        "image_data": "the model reads text only",
        "audio_data": "the model reads text only",
        "video_data": "the model reads text only",
        "input_embeds": "the model reads text only",
        "return_hidden_states": "hidden states stay in the engine",
        "custom_logit_processor": "code of clients is not run",
    }
    _fields: GenerateSampling | None = PrivateAttr(default=None)

    def prepare(self) -> None:
        super().prepare()
        self._fields = self.fields()
        if self._fields is not self:
            self._fields.prepare()

    def fields(self) -> GenerateSampling:
        """The sampling fields, wherever they stand."""
        if self._fields is not None:
            return self._fields
        if self.sampling_params is None:
            return self
        beside = self.model_fields_set & GenerateSampling.model_fields.keys() - {"logprobs", "top_logprobs"}
        if beside:
            raise InvalidRequest(
                f"{sorted(beside)!r} stand beside 'sampling_params'.",
                hint="Put every sampling field into one place.",
                param=sorted(beside)[0],
            )
        return self.nested(self.sampling_params, GenerateSampling, "sampling_params")


class TokenizeBody(Body):
    """One of `prompt` and `messages`."""

    prompt: str | None = None
    """A text, encoded as a run of its own."""
    messages: Annotated[list[dict[str, Any]] | None, list_of(ChatMessage)] = None
    """A chat, through the model's template, up to where the assistant's turn begins."""
    special: bool = False
    """What spells a special token in the text is that token."""
    add_special_tokens: bool = False
    """With what a model wants in front of a text (BOS): as /v1/completions reads a prompt, together with `special`."""
    return_token_strs: bool = False
    """The tokens as texts, too."""
    model: str = ""
    """One of the served names; the served model where it is left out."""


class DetokenizeBody(Body):
    tokens: list[int] = Field(max_length=MOST_DETOKENIZED)
    special: bool = False
    """Write special tokens out."""
    model: str = ""
    """One of the served names; the served model where it is left out."""


class AbortBody(Body):
    """One request, or every one (for administrators). It is answered with what it has, and the finish reason abort."""

    rid: str | None = None
    """Its id: `rid` of /generate, or the id in an answer's first event."""
    abort_all: bool = False
    """Every open request."""


class OpenBranchBody(SchedulingFields):
    """Whose pages the branch shares, and how soon its verbs are wanted."""


class CloseBranchesBody(Body):
    ids: list[str]


class TextPartBody(Body):
    """Text that is appended."""

    type: Literal["Text"]
    text: str


class TokensPartBody(Body):
    """Token ids that are appended as they are."""

    type: Literal["Tokens"]
    tokens: list[int]


class RolePartBody(Body):
    """Where a turn begins or ends."""

    type: Literal["BeginRole", "EndRole"]
    role: str


PARTS = (TextPartBody, TokensPartBody, RolePartBody)


class PartsBody(Body):
    parts: Annotated[list[dict[str, Any]], list_of(*PARTS)] = Field(default_factory=list)
    """What is appended first."""


class BranchGenerateBody(PartsBody):
    params: Annotated[dict[str, Any], like(SamplingObject)] = Field(default_factory=dict)
    """The sampling parameters."""
    return_text: bool = True
    """Whether chunks hold text, or token ids alone."""


class BranchScoreBody(PartsBody):
    choices: list[str] = Field(min_length=1, max_length=MOST_CHOICES)
    """Texts whose log-probabilities behind the branch are wanted."""
    unconditional: bool = False
    """And those behind nothing."""


class BranchForkBody(PartsBody):
    count: Annotated[int, schema(minimum=1, maximum=MOST_FORKS)] = 1
    """How many branches start from here."""


class TruncateBody(Body):
    position: int
    """Tokens that stay."""
