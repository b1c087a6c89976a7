"""Small, valid search specifications and requests for tests that train nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elsa_tune.searching.inputs import Inputs, SearchOptions
from elsa_tune.searching.request import Request, request_of
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.space import Space
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.testing import EXAMPLE_DEPTHS as DEPTHS
from elsa_tune.testing import example_spec as make_spec

__all__ = ["DEPTHS", "asked_for", "make_spec", "planned_request"]


def asked_for(
    folder: Path, space: Space, space_name: str, **changes: Any
) -> tuple[SearchOptions, Inputs]:
    """Return the options and inputs of a search in a folder, of MiniLM.

    changes: fields of Inputs or of SearchOptions that differ.
    """
    inputs = {
        "model": resolve_model("minilm"),
        "layers": 6,
        "task": resolve_task("stdlib"),
        "recipe": space.recipe(2),
        "space": space,
        "space_name": space_name,
    }
    options = {
        "model": "minilm",
        "task": ["stdlib"],
        "name": "s",
        "storage_path": str(folder),
        "tracking_uri": "sqlite:////nowhere/mlflow.db",
    }
    for name, value in changes.items():
        (inputs if name in inputs else options)[name] = value
    return SearchOptions(**options), Inputs(**inputs)


def planned_request(folder: Path, space: Space, space_name: str, **changes: Any) -> Request:
    """Return such a search as it is planned."""
    return request_of(*asked_for(folder, space, space_name, **changes))
