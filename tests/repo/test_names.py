"""Names of our code and paths in backquotes, in documents and in the package, lead somewhere.

A name that has a dot, a slash or two capitals is taken for one of ours unless it stands in one of
the lists below, so that a name goes stale also where the module or the folder that it begins with
is gone.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import elsa_tune
from elsa_tune.tracking import record_names
from elsa_tune.tracking.mlflow import names as mlflow_names

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "elsa_tune"
# Where a path in a document may begin.
PLACES = (ROOT, PACKAGE, ROOT / "tests")

FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`]+)`")
# `model/parts.py`, `session.py: SearchRun.run`, `plan.py: one, another`, `unit/test_x.py::test_y`
FILE = re.compile(r"([\w./-]+\.py)(?:::?\s*([\w., ]+))?")
# `docs/reference`, `training/`, `bench/lab/*.parquet`
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)+/?|[\w.-]+/")
# `training.model.encoder`, `elsa_tune.specs.space.load_space`, `Source.rows()`
DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.\w+)+)(?:\(.*\))?")
# `SearchSpec`, but not `MLFLOW_TRACKING_URI` and not `TASK_prediction`
CLASS = re.compile(r"[A-Z][a-z]+[A-Z][A-Za-z]*|[A-Z]{2,}[a-z][A-Za-z]*")
# **Slot, KnownTrial** (`proposals.py`, `known.py`)
BOLD = re.compile(r"\*\*(\w+(?:, \w+)*)\*\*\s\(((?:`[\w/]+\.py`(?:, )?)+)")

# The ends of files that a search leaves or that a user has, such as `search.json`.
DATA_FILES = {
    "csv",
    "db",
    "html",
    "ipynb",
    "json",
    "jsonl",
    "md",
    "onnx",
    "parquet",
    "png",
    "pyi",
    "safetensors",
    "svg",
    "toml",
    "tsv",
    "txt",
    "yaml",
}
# The first part of names that other packages define.
PACKAGES = {
    "aten",
    "datasets",
    "gc",
    "mlflow",
    "nn",
    "os",
    "pyfunc",
    "ray",
    "time",
    "torch",
    "tune",
}
# Classes and settings of other software, names within a model, a user's variables, and keys of an
# answer's JSON.
OTHERS = {
    "AutoModelForSequenceClassification",
    "ClassLabel",
    "DataFrame",
    "DatasetDict",
    "GPSampler",
    "GroupedMetadata",
    "InvalidAuthToken",
    "KillWait",
    "MLmodel",
    "PartialFixedSampler",
    "ReadWriteMany",
    "ResultGrid",
    "Trial",
    "found.answer",
    "metrics.eval_accuracy",
    "model.train",
    "operating_point.saves",
    "output.dense",
    "query.base_layer.weight",
    "query.weight",
}
# The first folder of paths that lie with the reader, on the hub, or in another tool's table.
FOLDERS = {
    "FacebookAI",
    "N",
    "RTE",
    "adapter",
    "SST-2",
    "branches",
    "config",
    "figures",
    "glue",
    "google-bert",
    "mlruns",
    "nyu-mll",
    "onnx",
    "out",
    "owner",
    "path",
    "refs",
    "tickets-model",
    "tweet_eval",
    "val",
}


@functools.cache
def members(path: Path) -> dict[str, ast.AST]:
    """Return what a module defines, and `Class.member`, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= {name: node for name in defined(node)}
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                found |= {f"{node.name}.{name}": inner for name in defined(inner)}
    return found


def defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement gives, those of attributes of `self` too."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Attribute):
            yield target.attr


@functools.cache
def modules() -> list[Path]:
    """Every module of the package, the tests, the tools and the benches."""
    folders = [ROOT / name for name in ("elsa_tune", "tests", "bench", "tools")]
    return [path for folder in folders for path in folder.rglob("*.py")]


@functools.cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class by its name; the package's, where a test has another one of that name."""
    by_name: dict[str, ast.ClassDef] = {}
    for path in modules():
        for name, node in members(path).items():
            if isinstance(node, ast.ClassDef):
                by_name.setdefault(name, node)
    return by_name


def has_member(class_name: str, member: str) -> bool:
    """Whether a class of ours, or a class it is made from, has an attribute of this name."""
    node = classes().get(class_name)
    if node is None:
        return False
    if any(member in defined(inner) for inner in ast.walk(node)):
        return True
    return any(has_member(base.id, member) for base in node.bases if isinstance(base, ast.Name))


def file_defines(file: str, names: str) -> bool:
    """Whether some module's path ends so and defines every one of these names."""
    paths = [path for path in modules() if f"/{path.as_posix()}".endswith(f"/{file}")]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return any(all(name in members(path) for name in wanted) for path in paths)


def path_exists(path: str) -> bool:
    """Whether a path leads to something in the repository, the package or the tests.

    The end of a folder's path is enough where a slash says that it is a folder. A name in capitals
    stands for any name, as in `bench/results/NAME.json`.
    """
    path = re.sub(r"\b[A-Z]{3,}\b", "*", path)
    if any(any(place.glob(path.rstrip("/"))) for place in PLACES):
        return True
    return path.endswith("/") and any(PACKAGE.rglob(path.rstrip("/")))


def dotted_exists(dotted: str) -> bool:
    """Whether folders, a module and what it defines can be found in turn, or an attribute."""
    if dotted in persisted_names():
        return True
    parts = dotted.split(".")
    if parts[0] == "elsa_tune":
        is_public = len(parts) == 2 and parts[1] in elsa_tune.__all__
        return is_public or in_package(parts[1:])
    return in_package(parts) or in_some_module(parts) or is_attribute(parts)


def in_package(parts: list[str]) -> bool:
    """Whether this is a path from the package's top: folders, a module, a name in it."""
    place = PACKAGE
    while parts and (place / parts[0]).is_dir():
        place /= parts[0]
        parts = parts[1:]
    if not parts:
        return place != PACKAGE
    module = place / f"{parts[0]}.py"
    return module.is_file() and (len(parts) == 1 or ".".join(parts[1:]) in members(module))


def in_some_module(parts: list[str]) -> bool:
    """Whether this is the end of a module's path and a name in it, as in `planning.plan.Plan`."""
    splits = range(1, len(parts))
    return any(
        file_defines("/".join(parts[:split]) + ".py", ".".join(parts[split:])) for split in splits
    )


def is_attribute(parts: list[str]) -> bool:
    """Whether this is `Class.member`, or an instance's: `trial.seed` of a `TrialSpec`."""
    if len(parts) != 2:
        return False
    owner, member = parts
    if owner[0].isupper():
        return has_member(owner, member)
    if (PACKAGE / owner).is_dir():
        return False  # the name of a floor stands for the floor
    wanted = owner.replace("_", "")
    return any(wanted in name.lower() and has_member(name, member) for name in classes())


@functools.cache
def persisted_names() -> set[str]:
    """Return the texts under which MLflow keeps what we record, such as a tag's name."""
    values = [*vars(mlflow_names).values(), *vars(record_names).values()]
    return {value for value in values if isinstance(value, str)}


def leads_nowhere(name: str) -> bool:
    """Whether a text in backquotes looks like a name or a path of ours, and is none."""
    if match := FILE.fullmatch(name):
        return not file_defines(match[1], match[2] or "")
    if PATH.fullmatch(name.removeprefix("./")):
        name = name.removeprefix("./")
        first = name.split("/", 1)[0]
        return first not in FOLDERS and not first.isdigit() and not path_exists(name)
    if match := DOTTED.fullmatch(name):
        root, last = match[1].split(".", 1)[0], match[1].rsplit(".", 1)[1]
        is_others = last in DATA_FILES or root in PACKAGES | OTHERS or match[1] in OTHERS
        return not is_others and not dotted_exists(match[1])
    if CLASS.fullmatch(name):
        return name not in OTHERS and name not in classes() and not hasattr(builtins, name)
    return False


def broken(text: str) -> list[str]:
    """Return the names in a text that lead nowhere."""
    quoted = [" ".join(name.split()) for name in QUOTED.findall(FENCED.sub("", text))]
    found = [name for name in quoted if leads_nowhere(name)]
    for names, files in BOLD.findall(text):
        places = re.findall(r"[\w/]+\.py", files)
        for name in names.split(", "):
            if not any(file_defines(file, name) for file in places):
                found.append(f"{name} in {files}")
    return found


def texts() -> list[Path]:
    """Every document, and every module of the package and the benches."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "STYLE.md", "CHANGELOG.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    return [*pages, *sorted(PACKAGE.rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]


def test_every_name_in_backquotes_is_there() -> None:
    found = {
        str(path.relative_to(ROOT)): broken(path.read_text(encoding="utf-8")) for path in texts()
    }
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    "text",
    [
        "`elsa_tune.specs.space.load_space`, `specs.space`, `search.json`",
        "`elsa_tune.search(...)`, `elsa_tune.errors`",
        "`searching/search_run.py: SearchRun.run`",
        "`repo/test_names.py::test_every_name_in_backquotes_is_there`",
        "`training/`, `docs/reference`, `tests/repo`, `bench/lab/*.parquet`, `forward/`",
        "`SearchSpec`, `ValueError`, `SearchSpec.seeds`, `mlflow.pyfunc.load_model`, `8/12`",
        "**SearchSpec, Looks** (`search.py`)",
        "```\n`specs.spaces`\n```",
    ],
)
def test_a_name_that_leads_somewhere_is_not_reported(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`specs.spaces`", ["specs.spaces"]),
        ("`errors.NoSuchError`", ["errors.NoSuchError"]),
        # A room that has another name now.
        ("`search.planning.known.KnownTrial`", ["search.planning.known.KnownTrial"]),
        ("`search/planning/`, `old_room/plan`", ["search/planning/", "old_room/plan"]),
        ("`model/parts.py: divide,\nfrieze`", ["model/parts.py: divide, frieze"]),
        ("`model/nowhere.py`", ["model/nowhere.py"]),
        ("`repo/test_names.py::test_of_nothing`", ["repo/test_names.py::test_of_nothing"]),
        ("`bench/lab/*.tape`", ["bench/lab/*.tape"]),
        ("`SearchSpecs`, `SearchSpec.sets`", ["SearchSpecs", "SearchSpec.sets"]),
        ("`elsa_tune.serach(...)`", ["elsa_tune.serach(...)"]),
        ("**SearchSpec, Tray** (`search.py`)", ["Tray in `search.py`"]),
    ],
)
def test_a_name_that_leads_nowhere_is_found(text: str, names: list[str]) -> None:
    assert broken(text) == names
