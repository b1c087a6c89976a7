"""A search whose trials are made up, of a model and data that are there: what an export needs."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elsa_tune.searching.record import facts_of
from elsa_tune.searching.specification import save_specification
from elsa_tune.searching.startup.fingerprints import inputs_of
from elsa_tune.searching.startup.versions import versions_here
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Phase, Recipe, TrialSpec, TrialStatus
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.adapt.methods import apply
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.model.encoder import load_classifier
from elsa_tune.training.saved import save_classifier
from tests.unit.search_examples import make_spec

# By frozen layers: what each seed measured. One of two layers keeps the quality, and surely.
CURVE: dict[int | str, tuple[float, ...]] = {
    0: (0.9, 0.91, 0.92),
    1: (0.9, 0.91, 0.91),
    2: (0.55, 0.5, 0.52),
}


def made_up_search(
    folder: Path,
    model: str,
    task: str,
    curve: Mapping[int | str, Sequence[float]] = CURVE,
    **changes: Any,
) -> SearchPaths:
    """Make a complete search with these qualities in `folder/searches`.

    curve: by frozen layers, or another way's label.
    """
    candidates = tuple(read_candidate(label) for label in curve)
    depths = [label for label in curve if isinstance(label, int)]
    values = {
        "name": "first",
        "model": resolve_model(model),
        "layers": max(depths),
        "task": resolve_task(task),
        "recipe": Recipe(epochs=2, max_length=32),
        "candidates": candidates,
        "explored": candidates,
        "seeds": len(next(iter(curve.values()))),
        "tracking_uri": f"sqlite:///{folder}/mlflow.db",
        "versions": versions_here(),
    }
    spec = make_spec(**{**values, **changes})
    data, fingerprints = inputs_of(spec)
    spec = dataclasses.replace(
        spec,
        fingerprints=fingerprints,
        train_examples=len(data.train),
        evaluation_examples=len(data.evaluation),
        chance=data.chance,
    )
    paths = SearchPaths(folder / "searches", spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    with Journal(paths.journal) as journal:
        for record in _records(spec, curve):
            journal.append(record)
    return paths


def _records(spec: SearchSpec, curve: Mapping[int | str, Sequence[float]]) -> list[Record]:
    records: list[Record] = [
        SearchStarted(
            name=spec.name,
            search_id=spec.search_id,
            attempt=1,
            model=spec.model.name,
            task=spec.task.name,
        )
    ]
    for label, qualities in curve.items():
        for seed, quality in zip(spec.measuring_seeds, qualities, strict=True):
            trial = spec.trial(Phase.MEASURE, read_candidate(label), 3e-3, seed)
            records += [
                TrialStarted(trial=trial.key, params=facts_of(spec, trial)),
                Report(trial=trial.key, evaluation=2, step=9, metrics={"quality": quality}),
                TrialEnded(
                    trial=trial.key, status=TrialStatus.COMPLETED, metrics={"quality": quality}
                ),
            ]
    return [*records, SearchEnded(status=SearchStatus.COMPLETED)]


def kept_predictions(paths: SearchPaths, key: str) -> np.ndarray:
    """Return what a trial predicted, as the search keeps it."""
    with np.load(paths.predictions / f"{key}.npz") as kept:
        return np.asarray(kept["predictions"])


def exported_model(
    folder: Path, base: Path | str, task: TaskSpec, frozen: int | str, **recipe: Any
) -> Path:
    """Write a folder as `elsa-tune export` does, whose trained part is made up."""
    seed = zlib.crc32(str(folder).encode())
    trial = TrialSpec(
        model=resolve_model(str(base)),
        task=task,
        recipe=Recipe(**{"epochs": 1, "max_length": 24, **recipe}),
        candidate=FreezeDepth.of(frozen),
        learning_rate=1e-3,
        seed=seed,
        phase=Phase.FINAL,
    )
    data = prepare(trial.model, task, trial.recipe)
    model = load_classifier(trial.model, task.outputs, seed)
    learnt = apply(model, trial.candidate).parameters
    draw = torch.Generator().manual_seed(seed)
    trained = {
        name: parameter + 0.05 * torch.randn(parameter.shape, generator=draw)
        for name, parameter in model.named_parameters()
        if name in learnt
    }
    folder.mkdir(parents=True)
    save_classifier(folder, trial, data, trained)
    return folder
