"""No module needs one that needs it, not even by an import within a function.

Python runs a circle whose one import stands within a function; a reader has to know both modules at
once all the same, and import-linter sees neither. Imports for type checking alone are left out: at
run time there are none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name; a package goes by its `__init__`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


def imported(tree: ast.AST, name: str, is_package: bool) -> Iterator[str]:
    """Yield the dotted names that a module's source imports anywhere.

    `from a import b` gives `a.b`.
    """
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.dump(tree.test):
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    if isinstance(tree, ast.ImportFrom):
        base = tree.module or ""
        if tree.level:
            parts = name.split(".")
            parts = parts[: len(parts) - tree.level + is_package]
            base = ".".join([*parts, base]) if base else ".".join(parts)
        yield from (f"{base}.{alias.name}" for alias in tree.names)
    for child in ast.iter_child_nodes(tree):
        yield from imported(child, name, is_package)


def graph(sources: Mapping[str, Path]) -> dict[str, set[str]]:
    """Which of these modules each of them imports."""
    edges: dict[str, set[str]] = {}
    for name, path in sources.items():
        edges[name] = set()
        for target in imported(ast.parse(path.read_text()), name, path.name == "__init__.py"):
            if target not in sources:
                target = target.rpartition(".")[0]  # a name within a module
            if target in sources and target != name:
                edges[name].add(target)
    return edges


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that need one another.

    They are Tarjan's strongly connected components.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for target in sorted(edges[name]):
            if target not in number:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], number[target])
        if lowest[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return groups


def test_no_module_needs_one_that_needs_it(root: Path) -> None:
    edges = graph(modules(root / "elsa_tune"))
    assert sum(map(len, edges.values())) > 300
    assert circles(edges) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"a": "import p.b", "b": "def f():\n    from p.a import g"}, [["p.a", "p.b"]]),
        (
            {"a": "from . import b", "b": "from .c import x", "c": "import p.a"},
            [["p.a", "p.b", "p.c"]],
        ),
        ({"a": "import p.b", "b": "if TYPE_CHECKING:\n    import p.a"}, []),
        ({"a": "from p import b, c", "b": "from p import c", "c": "x = 1"}, []),
    ],
)
def test_circles_are_found_within_functions_too(
    tmp_path: Path, sources: dict[str, str], expected: list[list[str]]
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text)
    assert circles(graph(modules(folder))) == expected
