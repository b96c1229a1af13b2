"""From requests to sequences: what a sequence is given to carry."""

from __future__ import annotations

from engine_harness import generate
from hash_harness import VOCABULARY

from palmette.runtime.scheduler.intake import Intake


def test_only_the_repetition_penalty_looks_at_the_prompt() -> None:
    """Frequency and presence count output tokens: a long prompt must not travel with every step."""
    intake = Intake(VOCABULARY, context_length=100, pool_tokens=100)

    def seen(**options: float) -> dict[int, int] | None:
        generation = intake.generate(generate("x", [1, 2, 2], max_tokens=3, **options)).generation
        assert generation is not None
        generation.count(5)
        return generation.seen

    assert seen() is None
    assert seen(frequency_penalty=0.5) == seen(presence_penalty=-0.5) == {5: 1}
    assert seen(repetition_penalty=1.2, presence_penalty=0.5) == {1: 0, 2: 0, 5: 1}
