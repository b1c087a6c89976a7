"""A machine that only trains has torch and transformers, and nothing else of what is declared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import bare_machine


def run_there(folder: Path, program: str, *others: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, in a process as on that machine."""
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env=bare_machine.environment(*others),
        timeout=200,
    )


# Prints of each distribution what finds it: import, whoever asks whether it can be imported, its
# version, the list of all.
ASKS = """
import importlib, importlib.metadata, importlib.util

DISTRIBUTIONS = {"ray": "ray", "pydantic": "pydantic", "annotated_types": "annotated-types",
                 "sklearn": "scikit-learn", "pytest": "pytest", "tqdm": "tqdm", "numpy": "numpy"}
listed = {found.name.lower() for found in importlib.metadata.distributions()}
for module, distribution in DISTRIBUTIONS.items():
    finds = ["list"] if distribution in listed else []
    if importlib.util.find_spec(module):
        finds.append("spec")
    try:
        importlib.import_module(module)
        finds.append("import")
    except ModuleNotFoundError:
        pass
    try:
        importlib.metadata.version(distribution)
        finds.append("version")
    except importlib.metadata.PackageNotFoundError:
        pass
    print(module, *finds)
"""
IN_ANOTHER = """
import subprocess, sys
subprocess.run([sys.executable, "asks.py"], check=True)
"""


@pytest.mark.thorough
def test_what_that_machine_lacks_is_not_found_there_nor_in_its_processes(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    lacks = ["ray", "pydantic", "annotated_types", "sklearn"]
    has = [f"{name} list spec import version" for name in ("pytest", "tqdm", "numpy")]
    for program in (ASKS, IN_ANOTHER):
        assert run_there(tmp_path, program, "pytest").stdout.splitlines() == [*lacks, *has]
    assert run_there(tmp_path, ASKS).stdout.splitlines() == [*lacks, "pytest", *has[1:]]


EVERY_MODULE = """
import importlib, pkgutil
import elsa_tune.training

names = [found.name for found in pkgutil.walk_packages(
    elsa_tune.training.__path__, "elsa_tune.training.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_every_module_of_training_loads_there(root: Path) -> None:
    done = run_there(root, EVERY_MODULE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20
