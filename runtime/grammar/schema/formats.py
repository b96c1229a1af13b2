"""The formats that are enforced, each as a pattern over the whole string; other formats are annotations.

From RFC 3339 (dates), 5321 (e-mail), 1123 (host names), 2673 and 4291 (addresses), 4122 (UUID), 3986 (URI), 3987 (IRI),
6901 (JSON pointer), 6570 (URI template) and ISO 8601 appendix A of RFC 3339 (durations).
"""

from __future__ import annotations

from functools import lru_cache

from palmette.runtime.grammar.schema import ecma


def _alternatives(*patterns: str) -> str:
    return f"(?:{'|'.join(patterns)})"


_YEAR = r"\d{4}"
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = _alternatives(
    rf"{_YEAR}-(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])",
    rf"{_YEAR}-(?:0[469]|11)-(?:0[1-9]|[12]\d|30)",
    rf"{_YEAR}-02-(?:0[1-9]|1\d|2[0-8])",
    rf"{_LEAP_YEAR}-02-29",
)
_OFFSET = r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"


def _leap_seconds() -> str:
    """23:59:60 in UTC, as local time at the offsets that are in use: those of whole quarters of an hour."""
    seconds = r"60(?:\.\d+)?"
    times = [rf"23:59:{seconds}(?:[Zz]|[+-]00:00)"]
    for offset in range(15, 24 * 60, 15):
        for sign in (1, -1):
            local = (23 * 60 + 59 + sign * offset) % (24 * 60)
            shown = f"[{'+' if sign > 0 else '-'}]{offset // 60:02}:{offset % 60:02}"
            times.append(rf"{local // 60:02}:{local % 60:02}:{seconds}{shown}")
    return _alternatives(*times)


_TIME = _alternatives(rf"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?{_OFFSET}", _leap_seconds())
_DURATION_TIME = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DURATION = _alternatives(
    rf"P(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)(?:{_DURATION_TIME})?",
    rf"P{_DURATION_TIME}",
    r"P\d+W",
)
_ATOM = r"[A-Za-z0-9!#$%&'*+\/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"(?!.{{254}})(?!.*(?:^|\.)(?![Xx][Nn])..--){_LABEL}(?:\.{_LABEL})*"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_HEX = r"[0-9A-Fa-f]{1,4}"
_TAIL = rf"(?:{_HEX}:{_HEX}|{_IPV4})"
_IPV6 = _alternatives(
    rf"(?:{_HEX}:){{6}}{_TAIL}",
    rf"::(?:{_HEX}:){{5}}{_TAIL}",
    rf"(?:{_HEX})?::(?:{_HEX}:){{4}}{_TAIL}",
    *(rf"(?:(?:{_HEX}:){{0,{n}}}{_HEX})?::(?:{_HEX}:){{{4 - n}}}{_TAIL}" for n in range(1, 4)),
    rf"(?:(?:{_HEX}:){{0,4}}{_HEX})?::{_TAIL}",
    rf"(?:(?:{_HEX}:){{0,5}}{_HEX})?::{_HEX}",
    rf"(?:(?:{_HEX}:){{0,6}}{_HEX})?::",
)
_EMAIL = (
    rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*")'
    rf"@(?:{_LABEL}(?:\.{_LABEL})*|\[(?:{_IPV4}|IPv6:{_IPV6})\])"
)
_UUID = r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"


def _uri(more: str, private: str) -> tuple[str, str]:
    """URI and URI reference, with `more` unreserved characters, and `private` ones in queries."""
    free = rf"A-Za-z0-9\-._~{more}"
    encoded, sub = r"%[0-9A-Fa-f]{2}", r"!$&'()*+,;="
    pchar = rf"(?:[{free}{sub}:@]|{encoded})"
    user = rf"(?:(?:[{free}{sub}:]|{encoded})*@)?"
    host = rf"(?:\[(?:{_IPV6}|[vV][0-9A-Fa-f]+\.[{free}{sub}:]+)\]|(?:[{free}{sub}]|{encoded})*)"
    authority = rf"\/\/{user}{host}(?::\d*)?(?:\/{pchar}*)*"
    rooted = rf"\/(?:{pchar}+(?:\/{pchar}*)*)?"
    end = rf"(?:\?(?:{pchar}|[\/?{private}])*)?(?:#(?:{pchar}|[\/?])*)?"
    no_colon = rf"(?:[{free}{sub}@]|{encoded})+"
    absolute = rf"[A-Za-z][A-Za-z0-9+.\-]*:(?:{authority}|{rooted}|{pchar}+(?:\/{pchar}*)*|){end}"
    relative = rf"(?:{authority}|{rooted}|{no_colon}(?:\/{pchar}*)*|){end}"
    return absolute, _alternatives(absolute, relative)


_UCS = r"\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{1FFFD}\u{20000}-\u{2FFFD}\u{30000}-\u{3FFFD}"
_URI, _URI_REFERENCE = _uri("", "")
_IRI, _IRI_REFERENCE = _uri(_UCS, r"\uE000-\uF8FF")
_POINTER = r"(?:\/(?:[^~\/]|~[01])*)*"
_VARIABLE = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?:\*|:[1-9]\d{0,3})?"
_TEMPLATE = (
    r"(?:[!#$&(-;=?-\[\]_a-z~\u00A0-\uD7FF\uE000-\uFFEF\u{10000}-\u{10FFFD}]|%[0-9A-Fa-f]{2}"
    rf"|\{{[+#.\/;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)

PATTERNS: dict[str, str] = {
    name: f"^(?:{pattern})$"
    for name, pattern in {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}[Tt]{_TIME}",
        "duration": _DURATION,
        "email": _EMAIL,
        "hostname": _HOST,
        "ipv4": _IPV4,
        "ipv6": _IPV6,
        "uuid": _UUID,
        "uri": _URI,
        "uri-reference": _URI_REFERENCE,
        "iri": _IRI,
        "iri-reference": _IRI_REFERENCE,
        "uri-template": _TEMPLATE,
        "json-pointer": _POINTER,
        "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:#|{_POINTER})",
    }.items()
}
NOT_REGULAR = ("regex", "idn-hostname", "idn-email")
"""Formats of the standard that no grammar here enforces: an error, or best effort."""


@lru_cache(maxsize=64)
def tree(name: str) -> ecma.Node:
    return ecma.parse(PATTERNS[name])
