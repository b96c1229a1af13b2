"""What becomes of every keyword of JSON Schema: the table of docs/structured-generation.md is made from it.

`python -m palmette.runtime.grammar.schema.keywords` prints the table; a test compares the page, and checks that each
keyword that the code reads is here and behaves as the table says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from palmette.runtime.grammar.schema import formats

How = Literal["enforced", "rewritten", "partly", "annotation"]


@dataclass(frozen=True)
class Keyword:
    """`how`: enforced as it stands; rewritten into equivalent claims on properties, items and values; partly (`limits`
    says what is refused with an error); or an annotation, which says nothing about a value."""

    name: str
    how: How
    meaning: str
    limits: str = ""


_STANDARD_FORMATS = ", ".join(f"`{name}`" for name in formats.PATTERNS)

KEYWORDS: tuple[Keyword, ...] = (
    Keyword("type", "enforced", "integers are written without fraction or exponent"),
    Keyword("enum", "enforced", "values that the rest of the schema excludes are left out; objects as given"),
    Keyword("const", "enforced", "one value, of any type"),
    Keyword("minimum", "enforced", "exact in decimal digits, also beyond floats"),
    Keyword("maximum", "enforced", "as `minimum`"),
    Keyword("exclusiveMinimum", "enforced", "also draft 4's boolean form"),
    Keyword("exclusiveMaximum", "enforced", "also draft 4's boolean form"),
    Keyword("multipleOf", "partly", "exact in decimal digits", "steps of more than 5 digits; denied, unless it is 1"),
    Keyword("minLength", "enforced", "in code points, also beside `pattern` and `format`"),
    Keyword("maxLength", "enforced", "in code points, also beside `pattern` and `format`"),
    Keyword(
        "pattern",
        "partly",
        "ECMA-262, found anywhere in the string unless anchored; look-ahead, look-behind and `\\b` included",
        "back-references, flags but `(?i)` at the start, repeated assertions, `\\p{Script=…}`",
    ),
    Keyword(
        "format",
        "partly",
        f"{_STANDARD_FORMATS}; other names are annotations; `formats=False` makes all of them so",
        ", ".join(f"`{name}`" for name in formats.NOT_REGULAR),
    ),
    Keyword("items", "enforced", "also the older drafts' list form"),
    Keyword("prefixItems", "enforced", "items at the front"),
    Keyword("additionalItems", "rewritten", "of drafts up to 2019-09: `items` behind `prefixItems`"),
    Keyword("minItems", "enforced", ""),
    Keyword("maxItems", "enforced", ""),
    Keyword("contains", "rewritten", "an automaton that counts the items that match"),
    Keyword("minContains", "rewritten", "as `contains`"),
    Keyword("maxContains", "rewritten", "the items that aren't counted meet the opposite"),
    Keyword(
        "uniqueItems",
        "partly",
        "of at most 64 values each once; other items are remembered by the matcher",
        "`multipleOf` with a fraction, beside `maxContains`, some arrays at a place only",
    ),
    Keyword("unevaluatedItems", "partly", "items behind those that some subschema has looked at", "beside `contains`"),
    Keyword("properties", "enforced", "in the order given"),
    Keyword("required", "enforced", "names without a schema of their own come after those in `properties`"),
    Keyword("additionalProperties", "enforced", "after the named ones, in any order"),
    Keyword("patternProperties", "partly", "overlapping ones too", "more than 256 ways to overlap; denied"),
    Keyword("propertyNames", "partly", "any schema for the names", "denied"),
    Keyword("minProperties", "partly", "rules that count", "where two or more names outside `properties` are needed"),
    Keyword("maxProperties", "rewritten", "rules that count"),
    Keyword("dependentRequired", "rewritten", "a choice: the property is absent, or the others are there"),
    Keyword("dependentSchemas", "rewritten", "a choice: the property is absent, or the schema holds"),
    Keyword("dependencies", "rewritten", "of drafts up to 2019-09: both of the above"),
    Keyword("unevaluatedProperties", "partly", "worked out for each way to meet the schema", "denied"),
    Keyword("allOf", "rewritten", "merged"),
    Keyword("anyOf", "rewritten", "a choice"),
    Keyword("oneOf", "rewritten", "a choice in which the other branches fail; those that exclude one another need not"),
    Keyword("not", "rewritten", "the opposite of each keyword inside, as far as it can be expressed"),
    Keyword("if", "rewritten", "`if` and `then`, or not `if` and `else`"),
    Keyword("then", "rewritten", "see `if`"),
    Keyword("else", "rewritten", "see `if`"),
    Keyword("$ref", "enforced", "within the document, also recursive; nothing is fetched"),
    Keyword("$dynamicRef", "partly", "as `$ref`", "more than one `$dynamicAnchor` of the name"),
    Keyword("$recursiveRef", "partly", "as `$ref`", "more than one `$recursiveAnchor`"),
    Keyword("$defs", "enforced", "also `definitions`"),
    Keyword("definitions", "enforced", "as `$defs`"),
    Keyword("$id", "enforced", "base of references"),
    Keyword("$anchor", "enforced", "names of references"),
    Keyword("$dynamicAnchor", "enforced", "names of references"),
    Keyword(
        "$schema",
        "enforced",
        "drafts 3, 4, 6, 7, 2019-09 and 2020-12, also by publishers' names (Iglu, CloudFormation); others: 2020-12",
        "dialects of 2019-09 and 2020-12, whose vocabularies may leave keywords out",
    ),
    *(
        Keyword(name, "annotation", "")
        for name in ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
                     "contentEncoding", "contentMediaType", "contentSchema")
    ),
)  # fmt: skip


def keywords() -> tuple[Keyword, ...]:
    """Every keyword of JSON Schema, and what becomes of it. Names that aren't here are annotations."""
    return KEYWORDS


def table() -> str:
    """The keywords as a Markdown table."""
    lines = ["| keyword | here | how | refused with an error |", "|---|---|---|---|"]
    said = [keyword for keyword in KEYWORDS if keyword.how != "annotation"]
    lines += [f"| `{each.name}` | {each.how} | {each.meaning} | {each.limits} |" for each in said]
    rest = ", ".join(f"`{each.name}`" for each in KEYWORDS if each.how == "annotation")
    lines.append(f"| {rest}, and unknown ones | annotation | say nothing about a value | |")
    return "\n".join(line.replace("|  |", "| |") for line in lines)


if __name__ == "__main__":
    print(table())
