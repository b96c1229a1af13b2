"""Bodies and answers of /v1/embeddings, /v1/score and /v1/rerank, named as OpenAI, vLLM, SGLang, Jina and Cohere do."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from palmette.runtime.api.json_types import AnyPrompt, AnyText
from palmette.runtime.api.limits import MOST_LABELS
from palmette.runtime.api.openai.answers import Answer, PromptTokensDetails
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.messages.requests import PoolingKind

TEXT = {"type": "string"}
TEXT_OBJECT = {"type": "object", "properties": {"text": TEXT}, "required": ["text"], "additionalProperties": False}
Document = Annotated[Any, WithJsonSchema({"anyOf": [TEXT, TEXT_OBJECT]})]


class PoolingFields(SchedulingFields):
    model: str = ""

    without_effect: ClassVar[frozenset[str]] = frozenset({"tpot_target"})
    unsupported: ClassVar[dict[str, str]] = {"truncate_prompt_tokens": "a text is used whole or refused"}


class EmbeddingBody(PoolingFields):
    input: AnyPrompt
    """A text, token ids, or a list of either; none of them empty."""
    encoding_format: Literal["float", "base64"] = "float"
    """`base64`: the same numbers as float32, little-endian."""
    dimensions: int | None = None
    """The model's own size, or left out: its vectors can't be shortened."""
    pooling: PoolingKind = "mean"
    """`mean` of the hidden states of all tokens, or that of the `last` one."""
    normalize: bool = True
    """To length 1, as OpenAI's are."""

    unsupported: ClassVar[dict[str, str]] = {"messages": "an embedding is of a text, not of a chat"}


class JudgeFields(PoolingFields):
    method: Literal["likelihood", "yes_no"] = "likelihood"
    """How the model judges: by the query's likelihood behind the document, or by what it answers when asked."""
    instruction: str | None = None
    """What the model is told to do, in place of writing a query that the document answers, or of deciding whether the
    document is relevant."""


class ScoreBody(JudgeFields):
    """Pairs of texts (`text_1`, `text_2`), or labels behind a prompt (`query` and `items`, with `label_token_ids` or
    `choices`)."""

    text_1: AnyText = None
    """A text, or a list of as many as `text_2` has; one text is paired with each of `text_2`."""
    text_2: AnyText = None
    """A text or a list of texts."""
    queries: AnyText = None
    """Another name of `text_1`."""
    documents: AnyText = None
    """Another name of `text_2`."""
    query: AnyPrompt = None
    """The prompt whose next token is scored, or what each of `items` comes behind: a text or token ids."""
    items: AnyPrompt = None
    """A prompt for each: `query` and the item, put together as one text or one list of token ids."""
    item_first: bool = False
    """The item before the query."""
    label_token_ids: list[int] | None = Field(default=None, min_length=1, max_length=MOST_LABELS)
    """Token ids that may come next."""
    choices: list[str] | None = Field(default=None, min_length=1, max_length=MOST_LABELS)
    """Texts that may come next, each encoded as a run of its own, of one token or more."""
    apply_softmax: bool = False
    """`scores` are shares of the labels' probability, and add up to 1."""


class RerankBody(JudgeFields):
    query: str
    documents: list[Document]
    """Texts, or objects with a `text`."""
    top_n: int | None = Field(default=None, ge=0)
    """How many of the best to return; 0 is all of them."""
    return_documents: bool = True

    unsupported: ClassVar[dict[str, str]] = {
        "max_tokens_per_doc": "a document is judged whole or refused",
        "max_chunks_per_doc": "a document is judged whole or refused",
        "rank_fields": "a document's text is judged, and it has no other fields",
    }


class PoolingUsage(Answer):
    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class EmbeddingObject(Answer):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of them as float32."""


class EmbeddingAnswer(Answer):
    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: PoolingUsage


class PairScore(Answer):
    index: int
    object: Literal["score"]
    score: float
    """From 0 to 1; above a half where the document makes the query likelier, or Yes is likelier than No."""


class ScoreAnswer(Answer):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PairScore]
    usage: PoolingUsage


class LabelAnswer(Answer):
    id: str
    object: Literal["scoring"]
    created: int
    model: str
    scores: list[list[float]]
    """Of each prompt, each label's probability; with `apply_softmax` its share."""
    logprobs: list[list[float]]
    """Log-probabilities, of the whole vocabulary; a choice's is the sum of its tokens'."""
    usage: PoolingUsage


class RankedText(Answer):
    text: str


class RankedDocument(Answer):
    index: int
    """Among the documents of the request."""
    relevance_score: float
    document: RankedText | None = None


class RerankAnswer(Answer):
    id: str
    object: Literal["list"]
    model: str
    results: list[RankedDocument]
    """Best first."""
    usage: PoolingUsage
