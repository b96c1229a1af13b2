"""Lines of mixed text for comparing tokenizers: code, prose, numbers, CJK, emoji, spaces, specials as text.

Seeded: lines of the repository's own files, of the data folder where there is one, and made-up ones.
Also a script: `python mixed_lines.py [--count N] [--data DIR | --data-less]` writes one JSON string a line.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DEFAULT_DATA = ROOT.parent / "shared" / "data"
LONGEST = 400  # characters of a line

_SPECIALS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<s>", "</s>", "<unk>", "[INST]", "<0x0A>",
    "<repo_name>", "<|tool|>", "<|im_", "im_end|>", "▁",
]  # fmt: skip
_CJK = "日本語の文章中文字符串漢字仮名ひらがなカタカナ한국어문장繁體简体，。「」！？"
_EMOJI = ["🎉", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷", "❤️", "☕", "🧑‍💻", "1️⃣", "😀"]
_SCRIPTS = ["Привет, мир", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Ξεσκεπάζω", "Zażółć gęślą jaźń"]
_ODD = ["\u200b", "\u00a0", "\u3000", "e\u0301", "\ufeff", "½", "²", "①", "Ⅷ", "٣٤", "\u2028", "\x7f", "ﬁ", "İ", "ß"]
_WORDS = [
    "the", "quick", "brown", "fox", "doesn't", "can't", "WE'LL", "I'd", "it's", "jumps", "over", "lazy", "dogs",
    "HTTPServer", "camelCase", "snake_case", "naïve", "don’t",
]  # fmt: skip


def mixed_lines(count: int = 2400, *, data: Path | None = DEFAULT_DATA, seed: int = 0) -> list[str]:
    """At least `count` distinct, non-empty lines without line breaks. `data` None: without the data folder."""
    rng = random.Random(seed)
    lines = dict.fromkeys(_made_up(rng, count // 2))
    own = [line for path in _own_files() for line in _file_lines(path)]
    given = [line for path in _data_files(data) for line in _file_lines(path)]
    for source, share in ((own, count // 3), (given, count // 6)):
        lines |= dict.fromkeys(rng.sample(source, min(share, len(source))))
    while len(lines) < count:
        lines |= dict.fromkeys(_made_up(rng, count - len(lines)))
    return list(lines)


def _own_files() -> list[Path]:
    folders = ("lang", "runtime", "radix_cache", "kernels", "examples", "docs")
    found = [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".json")
    ]
    return [*found, *sorted(ROOT.glob("*.md"))]


def _data_files(data: Path | None) -> list[Path]:
    if data is None or not data.is_dir():
        return []
    found = sorted(path for path in data.rglob("*") if path.suffix in (".json", ".jsonl", ".txt", ".csv"))
    return found[:40]


def _file_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="ignore") as file:
        for number, line in enumerate(file):
            if number == 2000:
                return
            text = line.rstrip("\r\n")[:LONGEST]
            if text.strip():
                yield text


def _made_up(rng: random.Random, count: int) -> Iterator[str]:
    kinds = (_numbers, _cjk, _emoji, _spaced, _specials, _scripts, _odd, _words)
    for index in range(count):
        yield kinds[index % len(kinds)](rng) or "x"


def _numbers(rng: random.Random) -> str:
    number = rng.randrange(10 ** rng.randint(1, 18))
    return rng.choice(
        [
            f"{number}",
            f"{number:,}",
            f" {number / 1000}",
            f"-{number}e{rng.randint(-9, 9)}",
            f"x{number}y 0x{number:x} {number}%",
        ]
    )


def _cjk(rng: random.Random) -> str:
    text = "".join(rng.choices(_CJK, k=rng.randint(1, 24)))
    return text + rng.choice(["", " abc", f"{rng.randrange(999)}年", " " + rng.choice(_CJK)])


def _emoji(rng: random.Random) -> str:
    return rng.choice(["", "ok ", " "]).join(rng.choices(_EMOJI, k=rng.randint(1, 6))) + rng.choice(["", "!", " done"])


def _spaced(rng: random.Random) -> str:
    words = rng.choices(_WORDS, k=rng.randint(1, 6))
    return (
        " " * rng.randint(0, 9)
        + (" " * rng.randint(1, 4) + "\t" * rng.randint(0, 2)).join(words)
        + " " * rng.randint(0, 3)
    )


def _specials(rng: random.Random) -> str:
    parts = rng.choices([*_SPECIALS, *_WORDS, " ", "user", "42"], k=rng.randint(1, 6))
    return rng.choice([rng.choice(_SPECIALS), ""]) + rng.choice(["", " "]).join(parts)


def _scripts(rng: random.Random) -> str:
    return rng.choice([" ", ", ", "\t"]).join(rng.sample(_SCRIPTS, rng.randint(1, 3)))


def _odd(rng: random.Random) -> str:
    return "".join(rng.choices([*_ODD, *_WORDS, " ", "  "], k=rng.randint(2, 8))).replace("\u2028", " ")


def _words(rng: random.Random) -> str:
    return "".join(
        word + rng.choice([" ", " ", ", ", "...", "--", "\t", "!? ", "'s "])
        for word in rng.choices(_WORDS, k=rng.randint(1, 12))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--data-less", action="store_true")
    options = parser.parse_args()
    for line in mixed_lines(options.count, data=None if options.data_less else options.data, seed=options.seed):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
