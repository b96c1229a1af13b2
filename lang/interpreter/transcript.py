"""What a state holds so far, as text and as turns."""

from __future__ import annotations

from dataclasses import dataclass, field

from palmette.lang.nodes import RoleBegin, RoleEnd, TextNode


@dataclass(slots=True)
class Transcript:
    """What a state holds so far. Positions are indices into `pieces`, so nothing is copied to remember one."""

    pieces: list[str] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    role: str | None = None
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)

    def copy(self) -> Transcript:
        messages = [dict(message) for message in self.messages]
        return Transcript(list(self.pieces), messages, self.role, list(self.content), list(self.reasoning))

    def write(self, text: str, reasoning: str = "") -> None:
        """Content of the open turn, and what was thought before it."""
        if self.role is not None:
            self.content.append(text)
            if reasoning:
                self.reasoning.append(reasoning)

    def take(self, node: object) -> None:
        """A node that computes nothing."""
        match node:
            case TextNode(text):
                self.write(text)
            case RoleBegin(role):
                self.role, self.content, self.reasoning = role, [], []
            case RoleEnd():
                self.messages += self._open_turn()
                self.role, self.content, self.reasoning = None, [], []

    def append(self, other: Transcript, *, since_turn: int, since_content: int) -> None:
        """What `other`, a fork of this one, has had since: its turns, or its part of the open turn."""
        self.messages += [dict(message) for message in other.messages[since_turn:]]
        if self.role is not None and other.role == self.role and len(other.messages) == since_turn:
            self.content += other.content[since_content:]

    def all_messages(self) -> list[dict[str, str]]:
        """Whole turns, and the open one as far as it goes."""
        return [dict(message) for message in self.messages] + self._open_turn()

    def _open_turn(self) -> list[dict[str, str]]:
        if self.role is None:
            return []
        turn = {"role": self.role, "content": "".join(self.content)}
        return [turn | {"reasoning_content": "".join(self.reasoning)} if self.reasoning else turn]
