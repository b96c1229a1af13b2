"""A program run as it is and compiled, with all that its states say, to be compared."""

from __future__ import annotations

from typing import Any

import palmette as sgl

SEED = {"seed": 7, "temperature": 1.0, "max_new_tokens": 6}


def told(state: sgl.ProgramState) -> dict[str, Any]:
    """Everything that a program's state says, usage's cached part aside."""
    return {
        "text": state.text(),
        "messages": state.messages(),
        "variables": {name: state[name] for name in sorted(state.variables())},
        "calls": state.usage().calls,
        "prompts": state.usage().prompt_tokens,
        "result": state.ret_value,
        "trace": traced(state),
    }


def traced(state: sgl.ProgramState) -> list[tuple[Any, ...]]:
    """The calls, state by state. Which turns went alone is a matter of timing, so texts are left out."""
    calls = [call for call in state.trace() if call.kind != "text"]
    return sorted(
        ((call.state, call.kind, call.name, call.where, call.text, call.tokens, call.failed) for call in calls),
        key=lambda told: told[0],
    )


def both(program: Any, backend: Any, *args: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    plain = told(program.run(*args, backend=backend, **SEED, **options))
    return plain, told(program.compile().run(*args, backend=backend, **SEED, **options))
