"""Names of our code in backquotes, in documentation and in the package, name what is there."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "elsa_tune"
FLOORS = sorted(path.stem for path in PACKAGE.iterdir() if not path.name.startswith("_"))
# `training.model.encoder`, `elsa_tune.specs.space.load_space`
DOTTED = re.compile(rf"`(?:elsa_tune\.)?((?:{'|'.join(FLOORS)})(?:\.\w+)+)(?:\(\))?`")
# `model/parts.py`, `searching/session.py: SearchRun.run`, `plan.py: one, another`
FILE = re.compile(r"`([\w/]+\.py)(?:: ([\w., \n]+))?`")
# **Slot, KnownTrial** (`sampler.py`, `known.py`)
BOLD = re.compile(r"\*\*(\w+(?:, \w+)*)\*\*\s\(((?:`[\w/]+\.py`(?:, )?)+)")
# `search.json` and `report.html` are files that a search leaves.
SUFFIXES = {"csv", "db", "html", "json", "jsonl", "py", "svg", "txt", "yaml"}


@functools.cache
def members(path: Path) -> dict[str, ast.AST]:
    """What a module defines, and `Class.member`, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= {name: node for name in defined(node)}
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                found |= {f"{node.name}.{name}": inner for name in defined(inner)}
    return found


def defined(node: ast.AST) -> Iterator[str]:
    """The names that a statement gives, those of attributes of `self` too."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Attribute):
            yield target.attr


def resolves(dotted: str) -> bool:
    """Whether folders, a module and what it defines can be found in turn."""
    place, parts = PACKAGE, dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    module = (place / parts.pop(0)).with_suffix(".py")
    return module.is_file() and (not parts or ".".join(parts) in members(module))


@functools.cache
def modules() -> list[Path]:
    """Every module of the package, the tests, the tools and the benches."""
    folders = ("elsa_tune", "tests", "tools", "bench")
    return [path for name in folders for path in (ROOT / name).rglob("*.py")]


def there(file: str, names: str) -> bool:
    """Whether some module's path ends so and defines every name; the tests' and benches' too."""
    found = [path for path in modules() if f"/{path.as_posix()}".endswith(f"/{file}")]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return any(all(name in members(path) for name in wanted) for path in found)


def broken(text: str) -> list[str]:
    """The names in a text that lead nowhere."""
    dotted = [name for name in DOTTED.findall(text) if name.rsplit(".", 1)[1] not in SUFFIXES]
    found = [name for name in dotted if not resolves(name)]
    found += [f"{file}: {names}" for file, names in FILE.findall(text) if not there(file, names)]
    for names, files in BOLD.findall(text):
        places = re.findall(r"[\w/]+\.py", files)
        for name in names.split(", "):
            if not any(there(file, name) for file in places):
                found.append(f"{name} in {files}")
    return found


def texts() -> list[Path]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "STYLE.md")]
    return [*pages, *sorted((ROOT / "docs").rglob("*.md")), *sorted(PACKAGE.rglob("*.py"))]


def test_every_name_in_backquotes_is_there() -> None:
    found = {
        str(path.relative_to(ROOT)): broken(path.read_text(encoding="utf-8")) for path in texts()
    }
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`elsa_tune.specs.space.load_space`, `specs.space`, `search.json`", []),
        ("`specs.spaces`", ["specs.spaces"]),
        ("`errors.NoSuchError`", ["errors.NoSuchError"]),
        ("`searching/session.py: SearchRun.run`", []),
        ("`model/parts.py: divide,\nfrieze`", ["model/parts.py: divide,\nfrieze"]),
        ("`model/nowhere.py`", ["model/nowhere.py: "]),
        ("**propose, KnownTrial** (`sampler.py`, `known.py`)", []),
        ("**propose, Tray** (`sampler.py`)", ["Tray in `sampler.py`"]),
    ],
)
def test_a_name_that_leads_nowhere_is_found(text: str, names: list[str]) -> None:
    assert broken(text) == names
