"""Small, valid search specifications for tests that need one and train nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.search import Asha, RateList, Resources, SamplerName, SearchSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.task_file import resolve_task

DEPTHS = (FULL_MODEL, FreezeDepth(3, True), FreezeDepth(6, True))


def make_spec(**changes: Any) -> SearchSpec:
    """A search over three depths of a six-layer model and two rates; any field can be replaced."""
    spec = SearchSpec(
        name="example",
        search_id="0123",
        model=resolve_model("minilm"),
        layers=6,
        task=resolve_task("stdlib"),
        recipe=Recipe(epochs=2, train_size=100),
        space="quick",
        depths=DEPTHS,
        explored=DEPTHS,
        rates=RateList(values=(2e-5, 5e-5)),
        tries=2,
        sampler=SamplerName.TPE,
        asha=Asha(),
        seeds=2,
        seed=0,
        resources=Resources(cpus=1, gpus=0),
        tracking_uri="sqlite:////nowhere/mlflow.db",
        chance=0.5,
        train_examples=100,
        evaluation_examples=50,
        fingerprints={"weights": "w" * 64, "data": "d" * 64},
    )
    return dataclasses.replace(spec, **changes)
