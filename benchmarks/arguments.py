"""Types of command-line arguments that several benchmarks take."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """An argument type: a comma-separated list of names, all of them in `known`."""

    def names(value: str) -> list[str]:
        chosen = value.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return names
