"""What import-linter cannot say by itself: which packages may be imported, not which may not.

`[tool.importlinter]` in pyproject.toml names this class; `make lint` runs it.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application.contract_utils import AlertLevel, remove_ignored_imports_and_report


class AllowedContract(Contract):
    """A contract: some modules import the standard library and what is allowed, nothing else.

    That holds for what they reach through what is allowed, too.

    source_modules: packages, with all that is in them. allowed_modules: the same; other projects'
    by their top-level names. ignore_imports: as in import-linter's own contracts; one that is no
    longer there is an error. Imports within functions and those for type checking count like any
    other. So do the packages that a module lies in: Python runs their `__init__.py` first.
    """

    type_name = "allowed"

    source_modules = fields.SetField(subfield=fields.ModuleField())
    allowed_modules = fields.SetField(subfield=fields.ModuleField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        # Declared as fields, they are what the fields have read.
        ignored: Any = self.ignore_imports
        source_modules: Any = self.source_modules
        allowed_modules: Any = self.allowed_modules
        removal = remove_ignored_imports_and_report(graph, ignored, AlertLevel.ERROR)
        sources = {module.name for module in source_modules}
        allowed = {module.name for module in allowed_modules}
        if unknown := sorted(sources - graph.modules):
            raise ValueError(f"no such modules: {', '.join(unknown)}")
        chains = _chains(graph, sources, allowed | sources)
        return ContractCheck(
            kept=not chains,
            warnings=list(removal.warnings),
            ignored_import_count=removal.ignored_import_count,
            metadata={"chains": chains},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        for chain in check.metadata["chains"]:
            output.print_error(f"{chain[-1]} is not allowed: {' -> '.join(chain)}")
        output.new_line()


def _chains(graph: ImportGraph, sources: set[str], allowed: set[str]) -> list[list[str]]:
    """Return the shortest chain of imports to everything that is imported and not allowed."""
    # By module: what imports it, None for where a chain begins.
    importers: dict[str, str | None] = {
        name: None for name in sorted(graph.modules) if _is_within(name, sources)
    }
    waiting = deque(importers)
    chains = []
    while waiting:
        name = waiting.popleft()
        if name.partition(".")[0] in sys.stdlib_module_names:
            continue
        if not _is_allowed(name, allowed):
            chains.append(_chain(name, importers))
            continue
        for imported in sorted(_imported(graph, name)):
            if imported not in importers:
                importers[imported] = name
                waiting.append(imported)
    return chains


def _imported(graph: ImportGraph, name: str) -> set[str]:
    """Return what a module imports, and the packages that it lies in."""
    if graph.is_module_squashed(name):
        return set()  # another project's package
    parent = name.rpartition(".")[0]
    return graph.find_modules_directly_imported_by(name) | ({parent} if parent else set())


def _is_within(name: str, packages: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def _is_allowed(name: str, allowed: set[str]) -> bool:
    """Also the packages that something allowed lies in, without the rest of them."""
    return _is_within(name, allowed) or any(one.startswith(f"{name}.") for one in allowed)


def _chain(name: str, importers: dict[str, str | None]) -> list[str]:
    chain = [name]
    while (importer := importers[chain[-1]]) is not None:
        chain.append(importer)
    return chain[::-1]
