"""A Python process as on a machine that only trains.

It has torch, transformers, a few packages beside them, and what these require. Whatever else is
installed here cannot be imported there, and who asks for it does not find it.

`site/sitecustomize.py` does that in every process that starts in this environment, and in whatever
processes those start.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SITE = Path(__file__).resolve().parent / "site"
# As site/sitecustomize.py reads it.
VARIABLE = "ELSA_TUNE_BARE_MACHINE"
TRIAL = ("torch", "transformers", "numpy", "safetensors", "huggingface_hub", "tokenizers")
# Required by typer since 0.29, and so by transformers, whose command line alone uses typer. With an
# older typer there is none of it, nor of annotated_types, which comes with it.
ABSENT = ("pydantic",)


def environment(*others: str) -> dict[str, str]:
    """Return the environment of a process on a machine with what a trial needs.

    others: distributions that are there too, with what they require.
    """
    there = required([*TRIAL, *others])
    told = {
        "distributions": sorted(there),
        "modules": sorted(
            module
            for module, owners in importlib.metadata.packages_distributions().items()
            if there & {canonicalize_name(owner) for owner in owners}
        ),
        "folders": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
    }
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    path = os.pathsep.join([str(SITE), *before])
    return {**os.environ, "PYTHONPATH": path, VARIABLE: json.dumps(told)}


def required(wanted: Iterable[str]) -> set[str]:
    """Return these distributions and all that they require here, by their canonical names."""
    found: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), "") for name in wanted]
    while waiting:
        name, extra = one = waiting.pop()
        if one in found or name in ABSENT:
            continue
        found.add(one)
        for line in importlib.metadata.distribution(name).requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                waiting += [(needed, ""), *((needed, more) for more in requirement.extras)]
    return {name for name, _ in found}
