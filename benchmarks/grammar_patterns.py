"""Fifty patterns that people constrain outputs with. Data of grammar.py."""

from __future__ import annotations

import random

_OCTET = r"(25[0-5]|2[0-4]\d|1?\d?\d)"
_YEAR, _MONTH, _DAY = r"\d{4}", r"(0[1-9]|1[0-2])", r"(0[1-9]|[12]\d|3[01])"
_STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'

PATTERNS: dict[str, str] = {
    "date": rf"{_YEAR}-{_MONTH}-{_DAY}",
    "date, ASCII digits": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "date, anchored": r"^\d{4}-\d{2}-\d{2}$",
    "date, US": r"\d{1,2}/\d{1,2}/\d{4}",
    "date, in words": r"(January|February|March|April|May|June|July|August|September|October|November|December) "
    r"[1-3]?[0-9], [12][0-9]{3}",
    "time": r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?",
    "date and time": rf"{_YEAR}-{_MONTH}-{_DAY}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "duration": r"P(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?",
    "weekday, any case": r"(?i)(mon|tues|wednes|thurs|fri|satur|sun)day",
    "e-mail": r"[\w.+-]+@[\w-]+\.[\w.-]+",
    "e-mail, ASCII": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}",
    "URL": r"https?://[^\s/$.?#][^\s]*",
    "domain": r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}",
    "IPv4": rf"({_OCTET}\.){{3}}{_OCTET}",
    "IPv4, ASCII digits": rf"({_OCTET}\.){{3}}{_OCTET}".replace(r"\d", "[0-9]"),
    "IPv6, in full": r"([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "MAC": r"([0-9A-F]{2}:){5}[0-9A-F]{2}",
    "port": r"6553[0-5]|655[0-2]\d|65[0-4]\d{2}|6[0-4]\d{3}|[1-5]?\d{1,4}",
    "UUID": r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "UUID, any case": r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "SHA-256": r"[0-9a-f]{64}",
    "hex colour": r"#(?:[0-9a-fA-F]{3}){1,2}",
    "integer": r"-?(0|[1-9]\d*)",
    "integer, ASCII digits": r"-?(0|[1-9][0-9]*)",
    "number": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?",
    "percentage": r"(100|[1-9]?[0-9])(\.[0-9]+)?%",
    "money": r"\$[1-9][0-9]{0,2}(,[0-9]{3})*\.[0-9]{2}",
    "roman numeral": r"M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})",
    "version": r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?",
    "telephone": r"\+?[0-9]{1,3}[ -]?(\([0-9]{1,4}\)[ -]?)?[0-9]{3,4}([ -]?[0-9]{2,4}){1,3}",
    "credit card": r"([0-9]{4}[ -]?){3}[0-9]{4}",
    "ISBN": r"97[89]-[0-9]{1,5}-[0-9]{1,7}-[0-9]{1,6}-[0-9]",
    "post code, UK": r"[A-Z]{1,2}[0-9][A-Z0-9]? [0-9][A-Z]{2}",
    "coordinates": r"-?[0-9]{1,2}\.[0-9]{1,6}, ?-?[0-9]{1,3}\.[0-9]{1,6}",
    "identifier": r"[A-Za-z_][A-Za-z0-9_]*",
    "identifier, Unicode": r"[^\W\d]\w*",
    "snake case": r"[a-z]+(_[a-z0-9]+)*",
    "file name": r"[\w,\s-]+\.[A-Za-z]{3}",
    "path": r"(/[^/\x00\n]+)+/?",
    "yes or no": r"(yes|no|maybe)",
    "letter of an answer": r"The answer is \(([A-D])\)\.",
    "sentence": r"[A-Z][^.!?\n]*[.!?]",
    "short text": r'[^"\n]{1,200}',
    "long text": r"(?s).{1,1000}",
    "words": r"\w+( \w+){0,9}",
    "quoted": _STRING,
    "object": rf'\{{"name": {_STRING}, "age": [0-9]{{1,3}}, "city": {_STRING}\}}',
    "list of numbers": r"\[(-?[0-9]+(, -?[0-9]+)*)?\]",
    "password": r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[!-~]{8,20}",
}


def enumeration(count: int, seed: int = 0) -> str:
    """`count` words as alternatives: the fiftieth pattern."""
    chance = random.Random(seed)
    words: set[str] = set()
    while len(words) < count:
        syllables = chance.choices(["ba", "ri", "ton", "mel", "os", "ki", "ver", "un", "da", "qu", "_", "X"], k=4)
        words.add("".join(syllables) + str(chance.randint(0, 99)))
    return "|".join(sorted(words))


PATTERNS["enumeration of 1,000"] = enumeration(1000)
