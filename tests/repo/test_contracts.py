"""The contract of import-linter that names what may be imported."""

from __future__ import annotations

import pytest
from grimp import ImportGraph
from importlinter.domain.helpers import MissingImport

from tests.repo.contracts import AllowedContract

# What imports what.
KEPT = {
    "ours": (),
    "ours.training": (),
    "ours.training.loop": ("torch", "json", "ours.specs.trial"),
    "ours.training.probe": ("sklearn",),
    "ours.specs": (),
    "ours.specs.trial": ("enum", "ours.errors"),
    "ours.specs.space": ("yaml",),
    "ours.errors": (),
    "ours.cli": ("typer", "ours.training.loop"),
}


def chains(imports: dict[str, tuple[str, ...]], *ignored: str) -> list[list[str]]:
    """Return what breaks the contract."""
    graph = ImportGraph()
    for importer, imported in imports.items():
        for name in (importer, *imported):
            graph.add_module(name, is_squashed=not name.startswith("ours"))
        for name in imported:
            graph.add_import(importer=importer, imported=name)
    options = {
        "source_modules": ["ours.training"],
        "allowed_modules": ["torch", "ours.specs", "ours.errors"],
        "ignore_imports": ["ours.training.probe -> sklearn", *ignored],
    }
    check = AllowedContract("a trial", {}, options).check(graph, verbose=False)
    found: list[list[str]] = check.metadata["chains"]
    assert check.kept == (not found)
    return found


def test_what_is_allowed_is_kept() -> None:
    assert chains(KEPT) == []


@pytest.mark.parametrize(
    ("importer", "imported", "chain"),
    [
        # Directly, and what nobody thought of.
        ("ours.training.loop", "six", ["ours.training.loop", "six"]),
        # Through what is allowed.
        ("ours.errors", "rich", ["ours.training.loop", "ours.specs.trial", "ours.errors", "rich"]),
        (
            "ours.specs.trial",
            "ours.specs.space",
            ["ours.training.loop", "ours.specs.trial", "ours.specs.space", "yaml"],
        ),
        # A module of ours that is not allowed, whatever that imports.
        ("ours.training", "ours.cli", ["ours.training", "ours.cli"]),
        # A package that a module lies in.
        ("ours", "yaml", ["ours.training", "ours", "yaml"]),
        ("ours.specs", "yaml", ["ours.training.loop", "ours.specs.trial", "ours.specs", "yaml"]),
    ],
)
def test_everything_else_is_found(importer: str, imported: str, chain: list[str]) -> None:
    imports = {**KEPT, importer: (*KEPT[importer], imported)}
    assert chains(imports) == [chain]
    if imported not in KEPT:
        assert chains(imports, f"{importer} -> {imported}") == []


def test_an_exception_for_nothing_is_an_error() -> None:
    with pytest.raises(MissingImport):
        chains(KEPT, "ours.errors -> yaml")
