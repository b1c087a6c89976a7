"""The versions of what decides results: recorded, and compared when a search goes on."""

import contextlib
import dataclasses
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from elsa_tune import __version__
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.output import Say
from elsa_tune.specs.adapt.candidates import method_packages
from elsa_tune.specs.search import SearchSpec

# What every search takes and is decided by.
_PACKAGES = ("torch", "transformers", "ray", "optuna", "mlflow")


def versions_here(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python, the packages that decide results, and this repository.

    more: packages that a search uses beside what every search takes.
    """
    versions = {"python": platform.python_version(), "elsa-tune": __version__}
    for package in _PACKAGES:
        versions[package] = metadata.version(package)
    for package in (*method_packages(), *more):  # decide results where they are installed
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    versions["git_commit"] = _commit()
    return {f"version.{name}": version for name, version in versions.items()}


def with_versions(spec: SearchSpec, say: Say) -> SearchSpec:
    """Return the search as this session records it.

    What is installed otherwise than at its start is said, for it decides how trials train. What
    comes next, and what is certified, is decided by the recorded policy.
    """
    here = versions_here(packages_of_search(spec))
    before = []
    now = []
    for tag, version in here.items():
        recorded = spec.versions.get(tag, version)
        if recorded != version:
            name = tag.removeprefix("version.")
            before.append(f"{name} {recorded[:12]}")
            now.append(f"{name} {version[:12]}")
    if before:
        say(
            f"note: search '{spec.name}' was started with {', '.join(before)}; this session trains "
            f"with {', '.join(now)}, and chooses and certifies by the policy that the search was "
            "started with"
        )
    return dataclasses.replace(spec, versions=here)


def _commit() -> str:
    """Return the commit of the repository that this package's files are of; else "unknown".

    One that only surrounds an installed package says nothing of it.
    """
    file = Path(__file__)
    # Git ends with an error where the commit does not have the file.
    what = ("HEAD", f"HEAD:./{file.name}")
    command = ["git", "-C", str(file.parent), "rev-parse", *what]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        commit, _ = run.stdout.split()
        return commit
    return "unknown"
