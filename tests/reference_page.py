"""`make reference`: writes docs/reference.md, the public names of `palmette`, from their docstrings and signatures.

A test compares the page with what the code gives, and finds names without a place or without a docstring.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import re
import sys
import textwrap
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

import palmette
from palmette.runtime import errors

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 110  # of a signature on one line

INTRODUCTION = """# Reference

Every public name of `palmette`, with its signature and docstring. `make reference` writes this page from the code, so
it is changed there. [The language](language.md) teaches the names, [the server's page](server.md) has the HTTP API.
"""

SECTIONS = {
    "Programs": ("function", "Program", "Batch", "ProgramState", "StateGroup"),
    "What a program appends": (
        "gen", "select", "any_order", "separate_reasoning", "ChoicesMethod", "token_length_normalized",
        "greedy_token_selection", "unconditional_likelihood_normalized",
    ),
    "Turns": (
        "system", "user", "assistant", "system_begin", "system_end", "user_begin", "user_end", "assistant_begin",
        "assistant_end",
    ),
    "Flow": ("when", "match", "repeat", "Graph"),
    "Tools and agents": (
        "tool", "Tool", "ToolCall", "ToolResult", "ToolSet", "McpServer", "agent", "Agent", "AgentResult", "AgentStep",
    ),
    "Traces": ("Trace", "Replay", "export_spans"),
    "Backends": ("set_default_backend", "flush_cache", "Runtime", "RuntimeEndpoint", "OpenAI", "ScriptedBackend"),
    "The engine": ("Engine", "EngineConfig", "SamplingParams", "grammar"),
    "Errors": ("PalmetteError", "ProgramError", "TraceError", "NotOfType"),
}  # fmt: skip

MEMBERS = {
    "Program": ("name", "bind", "run", "arun", "run_batch", "trace", "compile", "not_compiled"),
    "ProgramState": (
        "system", "user", "assistant", "var_scope", "set_var", "call", "get_var", "aget", "variables", "get_meta_info",
        "aget_meta_info", "text", "atext", "messages", "amessages", "text_iter", "text_async_iter", "sync", "async_",
        "error", "usage", "trace", "hint", "fork", "copy", "gather", "concatenate", "cancel",
    ),
    "Batch": (),
    "Graph": ("kinds", "named", "mermaid", "svg"),
    "ToolSet": ("schemas", "call", "run", "arun"),
    "Runtime": ("shutdown",),
    "RuntimeEndpoint": ("get_model_name", "shutdown"),
    "OpenAI": ("shutdown",),
    "ScriptedBackend": (),
    "Replay": (),
    "Engine": ("generate", "run", "close"),
    "SamplingParams": (),
    "grammar": ("compile",),
    "PalmetteError": (),
    "ProgramError": (),
}  # fmt: skip
"""What is shown of a name that has more, which the runtime alone calls. Of others: all that has no underscore."""

NOT_MADE = ("Program", "Batch", "ProgramState", "StateGroup", "Agent", "Trace", "PalmetteError", "ProgramError",
            "TraceError", "NotOfType")  # fmt: skip
"""Classes whose objects come from somewhere else; nobody calls their constructors."""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    anchors = _anchors()
    for title, names in SECTIONS.items():
        links = " · ".join(f"[`{name}`](#{anchors[name]})" for name in names)
        parts += [f"## {title}\n", f"{links}\n"]
        parts += [_entry(name, getattr(palmette, name)) for name in names]
    parts.append(_kinds_of_errors())
    return "\n".join(parts)


def members(name: str, value: Any) -> list[str]:
    """The names of what a class or module has for people."""
    if name in MEMBERS:
        return list(MEMBERS[name])
    if not inspect.isclass(value):
        return []
    kinds = (property, functools.cached_property, classmethod, staticmethod)
    own = vars(value).items()
    return [each for each, found in own if each[0] != "_" and (isinstance(found, kinds) or inspect.isfunction(found))]


def undocumented() -> list[str]:
    """Public names, and members of them, that say nothing of themselves."""
    found = {name: getattr(palmette, name) for name in palmette.__all__}
    silent = [name for name, value in found.items() if not _docstring(value)]
    shown = [(name, value, member) for name, value in found.items() for member in members(name, value)]
    return silent + [f"{name}.{member}" for name, value, member in shown if not _docstring(_called(value, member)[0])]


def _anchors() -> dict[str, str]:
    """Where each name's heading is; headings that differ in case alone are numbered."""
    seen: Counter[str] = Counter()
    anchors = {}
    for name in (name for names in SECTIONS.values() for name in names):
        slug = name.lower()
        anchors[name] = f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1
    return anchors


def _entry(name: str, value: Any) -> str:
    """A public name: heading, signature, docstring, fields and members."""
    fields = _fields(value)
    parts = [f"### {name}\n"]
    if callable(value) and name not in NOT_MADE and not fields:
        parts.append(_code(_signature(f"palmette.{name}", value)))
    parts.append(_prose(value))
    if fields:
        parts.append(_table(("field", "type", "default", "meaning"), fields))
    parts += [_member(f"{name}.{member}", value, member) for member in members(name, value)]
    return "\n".join(parts)


def _member(title: str, value: Any, name: str) -> str:
    func, is_property = _called(value, name)
    if is_property:
        return f"#### {title}\n\n`{_returned(func)}`. {_prose(func)}"
    return f"#### {title}\n\n{_code(_signature(name, func))}\n{_prose(func)}"


def _called(value: Any, name: str) -> tuple[Callable[..., Any], bool]:
    """A member's function, and whether it is a property."""
    found = inspect.getattr_static(value, name)
    if isinstance(found, property):
        assert found.fget is not None
        return found.fget, True
    if isinstance(found, functools.cached_property):
        return found.func, True
    member: Callable[..., Any] = getattr(value, name)
    return member, False


def _docstring(value: Any) -> str:
    """Its own docstring, "" where it has none of its own. A way to choose is described by its function."""
    if isinstance(value, palmette.ChoicesMethod):
        value = value.decide
    if inspect.isclass(value) and not vars(value).get("__doc__"):
        return ""
    return inspect.getdoc(value) or ""


def _prose(value: Any) -> str:
    """A docstring as Markdown: what stands in backticks is code already, and nothing else is HTML."""
    pieces = re.split(r"(`[^`]+`)", _docstring(value))
    return "".join(each if each.startswith("`") else each.replace("<", "&lt;") for each in pieces) + "\n"


def _signature(name: str, value: Any) -> str:
    """How it is called, without `self`; on one line where that fits."""
    given = [each for each in inspect.signature(value).parameters.values() if each.name not in ("self", "cls")]
    written = list(_parameters(given, value))
    kind = "class " if inspect.isclass(value) else "async def " if inspect.iscoroutinefunction(value) else "def "
    returns = "" if inspect.isclass(value) else f" -> {_returned(value)}"
    line = f"{kind}{name}({', '.join(written)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{kind}{name}(\n" + "".join(f"    {each},\n" for each in written) + f"){returns}"


def _parameters(given: list[inspect.Parameter], owner: Any) -> Iterator[str]:
    starred = False
    for each in given:
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        typed = "" if each.annotation is each.empty else f": {_type(each.annotation, owner)}"
        default = "" if each.default is each.empty else f"{' = ' if typed else '='}{_shown(each.default)}"
        yield f"{stars}{each.name}{typed}{default}"


def _returned(func: Any) -> str:
    annotation = inspect.signature(func).return_annotation
    return "Any" if annotation is inspect.Signature.empty else _type(annotation, func)


def _type(annotation: Any, owner: Any) -> str:
    """As the code writes it; a name for some literals is replaced by them."""
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    named = vars(sys.modules[owner.__module__]).get(written)
    if get_origin(named) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(named)))}]"
    return written.replace("_AnyType", "type")


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value.__name__ if inspect.isclass(value) else repr(value)


def _fields(value: Any) -> list[tuple[str, ...]]:
    """Rows of a struct's or dataclass's fields; what they mean stands in comments beside them."""
    if not inspect.isclass(value) or not (issubclass(value, msgspec.Struct) or hasattr(value, "__dataclass_fields__")):
        return []
    source = textwrap.dedent(inspect.getsource(value))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    return [
        (
            f"`{each.target.id}`",
            f"`{_type(ast.unparse(each.annotation), value)}`",
            _default(each.value, value),
            comments.get(each.lineno, ""),
        )
        for each in definition.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_"
    ]


def _default(value: ast.expr | None, owner: type) -> str:
    match value:
        case None:
            return ""
        case ast.Name(name):
            return f"`{_shown(vars(sys.modules[owner.__module__])[name])}`"
        case ast.Call(keywords=[ast.keyword("default_factory", factory)]):
            return f"`{ast.unparse(factory)}()`"
        case ast.Constant(constant):
            return f"`{_shown(constant)}`"
        case _:
            return f"`{ast.unparse(value)}`"


def _kinds_of_errors() -> str:
    rows = [
        (f"`{kind.__name__}`", str(kind.http_status), "yes" if kind.retryable else "", " ".join(_prose(kind).split()))
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.PalmetteError) and kind is not errors.PalmetteError
    ]
    head = "### Kinds of PalmetteError\n\nIn `palmette.runtime.errors`; over HTTP each has its status.\n"
    return f"{head}\n{_table(('error', 'status', 'may succeed later', 'meaning'), rows)}"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    (ROOT / "docs" / "reference.md").write_text(page())
