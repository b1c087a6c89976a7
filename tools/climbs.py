"""Which calls of a running search climb from a lower floor of the package to a higher one.

    python tools/climbs.py                # of this checkout
    python tools/climbs.py --tree FOLDER  # of another one

A tiny model is searched in earnest, in a temporary folder, and every call on the driver from
`launch.start` on is looked at (`sys.setprofile`): its caller is the nearest function of the package
above it, whatever library lies between. A module lies one floor above the highest that it imports,
and a climb is a pair of such functions of which the called one lies higher: a callback, mostly. The
fewer, the more a reader finds out by reading downwards.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

SPACE = """
depths: [0, 1, 2]
learning_rate: [1.0e-3, 3.0e-3]
seeds: 2
epochs: 2
batch_size: 8
linear_probe: false
"""


class Climbs:
    """Counts the calls that climb, as a profiler of any thread."""

    def __init__(self, tree: Path) -> None:
        self._package = str(tree / "elsa_tune") + os.sep
        self._floors = floors(tree)
        # By (caller, called): how often.
        self.up: Counter[tuple[str, str]] = Counter()
        self.down: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(self._package):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._package):
            if "importlib" in caller.f_code.co_filename:
                return  # a module is loaded
            caller = caller.f_back
        if caller is None:
            return
        above = self._floors.get(self._module(caller))
        below = self._floors.get(self._module(frame))
        if above is None or below is None or frame.f_code.co_name == "<genexpr>":
            return  # a generator's values are data
        pair = (self._name(caller), self._name(frame))
        if below > above:
            self.up[pair] += 1
        elif below < above:
            self.down[pair] += 1

    def _module(self, frame: FrameType) -> str:
        name = frame.f_code.co_filename[len(self._package) :].removesuffix(".py")
        return name.removesuffix("/__init__").replace(os.sep, ".")

    def _name(self, frame: FrameType) -> str:
        return f"{self._module(frame)}:{frame.f_code.co_qualname}"


def floors(tree: Path) -> dict[str, int]:
    """Return by module how high it lies: one above the highest that it imports, anywhere in it.

    Modules that import one another, within functions, lie equally high.
    """
    package = tree / "elsa_tune"
    files = {}
    for file in package.rglob("*.py"):
        name = str(file.relative_to(package).with_suffix("")).replace(os.sep, ".")
        files[name.removesuffix(".__init__")] = file
    imported = {name: _imports(file, files.keys()) - {name} for name, file in files.items()}
    circles = _circles(imported)
    heights = dict.fromkeys(files, 0)
    for _ in files:
        for name, others in imported.items():
            above = [heights[other] + 1 for other in others if other not in circles[name]]
            beside = [heights[other] for other in circles[name]]
            heights[name] = max([0, *above, *beside])
    return heights


def _imports(file: Path, modules: Collection[str]) -> set[str]:
    """Return the package's modules that a file imports when it runs."""
    names: set[str] = set()
    for node in _run_nodes(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elsa_tune."):
            module = (node.module or "").removeprefix("elsa_tune.")
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.ImportFrom) and node.module == "elsa_tune":
            names |= {alias.name for alias in node.names}
    return names & set(modules)


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _run_nodes(child)


def _circles(imported: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return by module the others that it reaches and that reach it."""
    reached = {}
    for name in imported:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            for other in imported[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reached[name] = seen
    return {
        name: {other for other in seen if other != name and name in reached[other]}
        for name, seen in reached.items()
    }


def traced_search(tree: Path) -> Climbs:
    """Search a tiny model in the working directory; returns the calls that were seen."""
    from tests.unit.tiny_models import make_tiny

    make_tiny("bert", Path("model"), layers=2)
    good = [f"a good and very fun film {number},yes" for number in range(40)]
    dull = [f"the worst plot and dull acting {number},no" for number in range(40)]
    Path("films.csv").write_text("\n".join(["text,label", *good, *dull]) + "\n")
    Path("space.yaml").write_text(SPACE)

    from elsa_tune.searching.inputs import SearchOptions
    from elsa_tune.searching.launch import start

    try:
        asking = importlib.import_module("elsa_tune.searching.request")
    except ImportError:  # as it was before
        asking = importlib.import_module("elsa_tune.searching.inputs")
    options = SearchOptions(model="model", task=["films.csv"], space="space.yaml", name="traced")
    [request] = asking.read_requests(options)
    climbs = Climbs(tree)
    threading.setprofile(climbs)
    sys.setprofile(climbs)
    try:
        finished = start(request, lambda line: None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert finished.answers, finished.message
    return climbs


def main() -> None:
    """Print the climbs of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("--tree", type=Path, default=root, help="The checkout. Default: this one.")
    tree: Path = parser.parse_args().tree.resolve()
    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)  # for the workers
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        climbs = traced_search(tree)
        os.chdir(tree)
    for (caller, called), count in sorted(climbs.up.items()):
        print(f"{caller} -> {called}  ({count} times)")
    print(f"{len(climbs.up)} calls climb, {len(climbs.down)} descend")


if __name__ == "__main__":
    main()
