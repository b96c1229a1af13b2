"""Who may import whom, how long a file may be, and that docs/architecture.md shows the tree as it is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("lang", "runtime", "radix_cache", "kernels")

# Leaves: everyone may import them, they import only what is listed for them.
LEAVES = {
    "runtime.errors": (),
    "runtime.messages": ("runtime.errors",),
    "runtime.config": (),
    "runtime.machine": (),
    "runtime.plan": (),
    "runtime.vocabulary": ("runtime.errors",),
}

# Module prefix → prefixes it may import, leaves and itself aside. The longest matching prefix counts.
ALLOWED = {
    "lang": (),
    "kernels": (),
    "radix_cache": (),
    "radix_cache.store": ("kernels",),
    "runtime.checkpoint": (),
    "runtime.roofline": ("runtime.checkpoint.config",),
    "runtime.step_time": ("runtime.roofline.cost", "runtime.roofline.device", "runtime.roofline.shape"),
    "runtime.text": ("runtime.checkpoint",),
    "runtime.grammar": (),
    "radix_cache.packed_store": ("kernels",),
    "runtime.models": ("runtime.checkpoint", "kernels", "radix_cache.store", "radix_cache.packed_store"),
    "runtime.worker": ("runtime.models", "kernels", "radix_cache.store"),
    "runtime.scheduler": ("radix_cache", "runtime.grammar", "runtime.step_time", "runtime.roofline.cost"),
    "runtime.simulation": ("radix_cache", "runtime.scheduler", "runtime.step_time", "runtime.roofline"),
    "runtime.link": (),
    "runtime.parsers": (),
    "runtime.recording": ("runtime.link",),
    "runtime.metrics": (),
    "runtime.frontend": ("runtime.text", "runtime.link", "runtime.metrics", "runtime.parsers"),
    "runtime.api": (
        "runtime.frontend",
        "runtime.link",
        "runtime.metrics",
        "runtime.parsers",
        "runtime.text",
        "runtime.grammar.protocol",
        "radix_cache.dump",
    ),
}

# They wire the parts and may know all of them.
WIRING = ("runtime.engine", "runtime.launch", "runtime.cli", "runtime.flags")

# The torch-free side: neither it nor what it imports may load torch.
TORCH_FREE = ("lang", "runtime.messages", "runtime.scheduler", "runtime.text", "runtime.checkpoint", "runtime.frontend",
              "runtime.api", "runtime.link", "runtime.roofline", "runtime.step_time",
              "runtime.simulation", "runtime.recording", "runtime.grammar", "runtime.parsers")  # fmt: skip
TORCH_FREE_CACHE = ("key", "node", "tree", "eviction", "pages", "cache", "invariants", "dump", "oracle", "hints",
                    "lease", "pins", "scores", "events", "belady", "quarantine")  # fmt: skip

# Modules that import ours inside a function, each with its reason.
LAZY = {"runtime.checkpoint.resolve": "a start that has its model shouldn't wait for the download's imports"}

# Files of others that ours speak of.
OF_OTHERS = {"encoding/encoding_dsv32.py"}

# Files that may be longer than 600 lines, each with its reason.
LONG_FILES: dict[str, str] = {}


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Modules that a file imports, with the line, and whether inside a function."""
    tree = ast.parse(path.read_text(), str(path))
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno, id(node) in inner
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield node.module or "", node.lineno, id(node) in inner
            for name in node.names:
                yield f"{node.module}.{name.name}", node.lineno, id(node) in inner


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def allowed(module: str) -> tuple[str, ...]:
    table = {**ALLOWED, **LEAVES}
    matching = [prefix for prefix in table if within(module, prefix)]
    assert matching, f"{module} has no rule: say in this test what it may import"
    prefix = max(matching, key=len)
    own = prefix if prefix.count(".") or prefix in ("lang", "kernels", "radix_cache") else module
    leaves = () if prefix in LEAVES else tuple(LEAVES)
    return (*table[prefix], *leaves, own)


def test_who_imports_whom(root: Path) -> None:
    known = {module for module, _ in modules(root)}
    wrong = []
    for module, path in modules(root):
        if module in PACKAGES or any(within(module, wiring) for wiring in WIRING):
            continue
        may = allowed(module)
        for imported, line, _ in imports(path):
            if not imported.startswith("palmette."):
                continue
            target = imported.removeprefix("palmette.")
            if target not in known:
                target = target.rpartition(".")[0]
            if target in PACKAGES or any(within(target, prefix) for prefix in may):
                continue
            wrong.append(f"{path.relative_to(root)}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_lang(root: Path) -> None:
    users = [
        f"{path.relative_to(root)}:{line}"
        for module, path in modules(root)
        if not module.startswith("lang") and not within(module, "runtime.cli")
        for imported, line, _ in imports(path)
        if imported.startswith("palmette.lang")
    ]
    assert not users


def test_torch_stays_on_its_side(root: Path) -> None:
    free = [f"radix_cache.{name}" for name in TORCH_FREE_CACHE] + list(TORCH_FREE)
    wrong = [
        f"{path.relative_to(root)}:{line}"
        for module, path in modules(root)
        if any(within(module, prefix) for prefix in free)
        for imported, line, _ in imports(path)
        if imported.split(".")[0] == "torch"
    ]
    assert not wrong


def test_no_import_hides_a_cycle(root: Path) -> None:
    """Inside functions only optional or heavy outside dependencies are imported; our own only by the wiring."""
    wrong = [
        f"{path.relative_to(root)}:{line} imports {imported}"
        for module, path in modules(root)
        if module not in LAZY and not any(within(module, wiring) for wiring in WIRING)
        for imported, line, inside in imports(path)
        if inside and imported.startswith("palmette")
    ]
    assert not wrong


def test_only_select_asks_for_cuda(root: Path) -> None:
    users = [
        str(path.relative_to(root))
        for module, path in modules(root)
        if "torch.cuda" in path.read_text() and module != "kernels.select"
    ]
    assert not users


def test_only_config_reads_the_environment(root: Path) -> None:
    users = [
        f"{path.relative_to(root)}:{number}"
        for module, path in modules(root)
        if module != "runtime.config"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bos\.(environ|getenv)\b", line)
    ]
    assert not users


@pytest.mark.parametrize("folder", [*PACKAGES, "examples", "benchmarks"])
def test_files_are_short(root: Path, folder: str) -> None:
    long = {
        str(path.relative_to(root)): lines
        for path in (root / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 600 and str(path.relative_to(root)) not in LONG_FILES
    }
    assert not long


def test_the_architecture_page_lists_every_file(root: Path) -> None:
    page = (root / "docs" / "architecture.md").read_text()
    listed = set(re.findall(r"^- `((?:lang|runtime|radix_cache|kernels)/[^`]+\.py)`", page, re.MULTILINE))
    present = {
        str(path.relative_to(root))
        for _, path in modules(root)
        if path.name != "__init__.py" or len(path.read_text().splitlines()) > 3
    }
    assert listed == present, f"not on the page: {sorted(present - listed)}; gone: {sorted(listed - present)}"


def test_files_that_are_spoken_of_exist(root: Path) -> None:
    """In docstrings and comments: a name alone is of the same folder or the one above, a path may leave out its
    beginning."""
    there = [str(path.relative_to(root)) for _, path in modules(root)]
    gone = []
    for _, path in modules(root):
        for spoken in re.findall(r"""(?<![\w"'`/.*])((?:\w+/)*\w+\.py)\b(?!["'])""", path.read_text()):
            beside = (path.parent / spoken, path.parent.parent / spoken, root / spoken)
            known = "/" in spoken and any(each.endswith(spoken) for each in there)
            if not (known or spoken in OF_OTHERS or any(each.exists() for each in beside)):
                gone.append(f"{path.relative_to(root)} speaks of {spoken}")
    assert gone == []


def test_the_line_that_picks_the_next_is_where_the_page_says(root: Path) -> None:
    page = " ".join((root / "docs" / "architecture.md").read_text().split())
    named = re.search(r"The line that picks the next one is `([^`]+)` in `([^`]+)`", page)
    assert named, "the page names the line and its file"
    line, path = named.groups()
    assert line in (root / path).read_text()


def test_test_files_have_names_of_their_own(root: Path) -> None:
    """Two of one name can't be collected in one run; running each folder alone wouldn't show it."""
    names = Counter(path.name for path in (root / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
