"""What a state holds so far, as text and as turns."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Transcript:
    """What a state holds so far. Positions are indices into `pieces`, so nothing is copied to remember one."""

    pieces: list[str] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    role: str | None = None
    content: list[str] = field(default_factory=list)

    def copy(self) -> Transcript:
        return Transcript(list(self.pieces), [dict(m) for m in self.messages], self.role, list(self.content))

    def write(self, text: str) -> None:
        """Content of the open turn."""
        if self.role is not None:
            self.content.append(text)

    def begin(self, role: str) -> None:
        self.role, self.content = role, []

    def end(self) -> None:
        if self.role is not None:
            self.messages.append({"role": self.role, "content": "".join(self.content)})
        self.role, self.content = None, []

    def all_messages(self) -> list[dict[str, str]]:
        """Whole turns, and the open one as far as it goes."""
        open_turn = [{"role": self.role, "content": "".join(self.content)}] if self.role is not None else []
        return [dict(message) for message in self.messages] + open_turn
