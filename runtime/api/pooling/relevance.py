"""How well a document answers a query, judged by the served (generating) model itself, by log-probabilities.

Method "likelihood": the model is asked for a query that the document answers, and the given query is scored as its
answer (query likelihood: Ponte and Croft 1998; with an instructed model: Sachan et al. 2022). The score is
p / (p + p₀), p being the query's probability a token behind the document and p₀ behind none: above a half, the document
makes the query likelier.

Method "yes_no": the model is asked whether the document is relevant; the score is P(Yes) / (P(Yes) + P(No)).

What comes before the document (with "yes_no" the query, too) is computed once for all documents, and with "likelihood"
a document once for all queries. Used by score.py and rerank.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from palmette.runtime.api.access import Caller
from palmette.runtime.api.pooling.inputs import Continued, Cost, at, check_room, score_all, share
from palmette.runtime.api.pooling.schemas import JudgeFields
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend.chat_turn import ChatMessage, ChatTurn
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import count, pack

WRITE = "Write a question or query that this document answers."
DECIDE = "Is the document relevant to the query? Reply with Yes or No."
ANSWERS = ("Yes", "No")
NO_DOCUMENT = ""


@dataclass(frozen=True)
class Pair:
    """`path`: of the document in the request's body."""

    query: str
    document: str
    path: str


@dataclass(frozen=True)
class Judged:
    """`scores[i]`: of pair i, from 0 to 1."""

    scores: list[float]
    cost: Cost


async def judge(surface: Surface, pairs: Sequence[Pair], fields: JudgeFields, caller: Caller) -> Judged:
    """Raises InvalidRequest or ContextLengthExceeded for a pair that can't be judged, before any is sent."""
    namespace, scheduling = fields.cache_namespace(caller), fields.scheduling(caller)
    prompter = Prompter(surface, namespace)
    likelihood = fields.method == "likelihood"
    ask = _likelihoods if likelihood else _decisions
    ours = WRITE if likelihood else DECIDE
    asked = await ask(prompter, pairs, ours if fields.instruction is None else fields.instruction)
    for pair, each in zip(pairs, asked, strict=False):
        check_room(surface, each.longest, pair.path)
    found, cost = await score_all(surface, asked, namespace=namespace, scheduling=scheduling)
    if not likelihood:
        return Judged([share(yes, no) for yes, no in found], cost)
    alone = {query: logprob for query, (logprob,) in zip(_queries(pairs), found[len(pairs) :], strict=True)}
    scores = []
    for pair, each, (logprob,) in zip(pairs, asked, found, strict=False):
        length = count(each.continuations[0])
        scores.append(share(logprob / length, alone[pair.query] / length))
    return Judged(scores, cost)


class Prompter:
    """Prompts that end where the model answers: a chat turn, or plain text where it has no chat template."""

    def __init__(self, surface: Surface, namespace: str) -> None:
        self._surface = surface
        self._namespace = namespace
        self._chats = surface.frontend.chats.available

    async def prompt(self, text: str, path: str) -> bytes:
        frontend = self._surface.frontend
        await asyncio.sleep(0)  # others have their turn between any two
        try:
            if not self._chats:
                return pack(await frontend.tokens_of(f"{text}\n\nAnswer:"))
            turn = ChatTurn(messages=(ChatMessage(role="user", content=text),), reasoning_effort="none")
            prepared = await frontend.chats.prepare(turn, SamplingParams(), namespace=self._namespace)
        except InvalidRequest as error:
            raise at(error, path) from None
        return prepared.prompt.tokens

    async def answer(self, text: str) -> bytes:
        return pack(await self._surface.frontend.encode(text if self._chats else f" {text}"))


def _queries(pairs: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(pair.query for pair in pairs))


async def _likelihoods(prompter: Prompter, pairs: Sequence[Pair], instruction: str) -> list[Continued]:
    """Each pair's query behind its document; then every query behind no document."""
    answers = {query: await prompter.answer(query) for query in _queries(pairs)}
    for query, tokens in answers.items():
        if not tokens:
            raise InvalidRequest(f"The query {query!r} has no tokens, so it has no probability.", param="query")
    asked = []
    for query, document, path in [
        *((pair.query, pair.document, pair.path) for pair in pairs),
        *((query, NO_DOCUMENT, "query") for query in answers),
    ]:
        prompt = await prompter.prompt(f"{instruction}\n\nDocument: {document}\n\nQuery:", path)
        asked.append(Continued(prompt, [answers[query]]))
    return asked


async def _decisions(prompter: Prompter, pairs: Sequence[Pair], instruction: str) -> list[Continued]:
    answers = [await prompter.answer(answer) for answer in ANSWERS]
    asked = []
    for pair in pairs:
        text = f"{instruction}\n\nQuery: {pair.query}\n\nDocument: {pair.document}\n\nYes or No:"
        asked.append(Continued(await prompter.prompt(text, pair.path), answers))
    return asked
