"""Searches whose trials only pretend to train, for tests of a strategy, a store or a display.

    from elsa_tune import testing

    def quality(candidate, learning_rate, seed, epoch):
        return 0.9 - 0.02 * candidate.rank - 1000 * abs(learning_rate - 3e-5)

    spec = testing.example_spec(seeds=3)
    state = testing.search(spec, quality, tmp_path)
    assert [trial.status for trial in state.planned_trials] == ...

All else is as in any search: Ray runs the trials, ASHA stops some of them, and the journal, MLflow
and the report have what they reported. Neither weights nor data are read, and the workers import
nothing that trains, so that a search takes seconds.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from elsa_tune.errors import DivergedError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.search import Asha, Resources, SamplerName, SearchSpec
from elsa_tune.specs.trial import EvaluationResult, Recipe, Selection, TrialSpec
from elsa_tune.tasks.task_file import resolve_task

if TYPE_CHECKING:
    from elsa_tune.tracking.state import SearchState
    from elsa_tune.training.checkpoints import TrialCheckpoint
    from elsa_tune.training.data.tokens import TaskData

EXAMPLE_DEPTHS = (FULL_MODEL, FreezeDepth.of(3), FreezeDepth.of(6))


class Quality(Protocol):
    """What a pretended trial reports."""

    def __call__(
        self, candidate: Candidate, learning_rate: float, seed: int, epoch: float
    ) -> float:
        """Return the headline metric in [-1, 1] after `epoch` passes over the training set.

        With `selection: holdout` it is that of the rows held out, too.
        Called in a worker, once for each evaluation in its order. If it returns nan the trial has
        diverged; if it raises, the trial has failed; if it sleeps, the trial takes as long.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pretended:
    """A trial that trains nothing, in place of `searching.tune.trainable.train_here`."""

    quality: Quality
    chance: float  # the quality of the best constant answer

    def __call__(
        self,
        trial: TrialSpec,
        data: object,
        *,
        share: Resources,
        candidates: Sequence[Candidate],
        checkpoint: TrialCheckpoint | None,
    ) -> Iterator[EvaluationResult]:
        """Yield a result for each evaluation of the trial's recipe."""
        recipe = trial.recipe
        for evaluation in range(1, recipe.evaluations + 1):
            epoch = evaluation / recipe.evaluations_per_epoch
            quality = self.quality(trial.candidate, trial.learning_rate, trial.seed, epoch)
            if not math.isfinite(quality):
                raise DivergedError(f"{trial.key}: the pretended quality is {quality}")
            holdout_quality = None
            if recipe.selection is Selection.HOLDOUT:
                holdout_quality = quality
            yield EvaluationResult(
                evaluation=evaluation,
                evaluations=recipe.evaluations,
                epoch=epoch,
                step=evaluation,
                steps=recipe.evaluations,
                quality=quality,
                holdout_quality=holdout_quality,
                metrics={trial.task.metric.value: quality},
                train_loss=0.5,
                eval_loss=0.5,
                train_seconds=float(evaluation),
                examples_per_second=1.0,
                peak_memory_mb=1.0,
                trainable_parameters=1,
                micro_batch_size=recipe.batch_size,
                precision="fp32",
                chance=self.chance,
            )


def example_spec(**changes: Any) -> SearchSpec:
    """Return a search over three depths of a six-layer model and two rates.

    `changes` replaces any of its fields.
    """
    spec = SearchSpec(
        name="example",
        search_id="0123",
        model=resolve_model("minilm"),
        layers=6,
        task=resolve_task("stdlib"),
        recipe=Recipe(epochs=2, train_size=100),
        space="quick",
        candidates=EXAMPLE_DEPTHS,
        explored=EXAMPLE_DEPTHS,
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
    return replace(spec, **changes)


def search(
    spec: SearchSpec,
    quality: Quality,
    working_directory: Path,
    tracking_uri: str | None = None,
) -> SearchState:
    """Carry out a search, or what is left of it, with pretended trials; returns its record.

    It is recorded as one that was started in `working_directory`: `elsa-tune operating-point` and
    the other commands read it there. tracking_uri: of another store than MLflow's file there,
    absolute. A Ray that runs in this process already is used, and goes on. Ctrl-C is raised once
    all is recorded, as KeyboardInterrupt.
    """
    from elsa_tune.searching.cluster.ray_session import ray_session
    from elsa_tune.searching.session import run_session
    from elsa_tune.searching.specification import save_specification
    from elsa_tune.tracking.journal import Journal
    from elsa_tune.tracking.journal_records import SearchStatus
    from elsa_tune.tracking.paths import SearchPaths
    from elsa_tune.tracking.places import StorePaths
    from elsa_tune.tracking.state import read_state
    from elsa_tune.tracking.stores import store_at
    from elsa_tune.tracking.uris import shown_uri

    places = StorePaths(working_directory)
    uri = tracking_uri or f"sqlite:///{places.database}"
    spec = replace(spec, tracking_uri=shown_uri(uri))
    store = store_at(uri)
    paths = SearchPaths(places.storage, spec.name)
    paths.check_writable()
    with ray_session(spec.address) as session, _sent_by_value(quality):
        store.initialise(lambda line: None)
        session.ready()
        if not paths.exists:
            save_specification(spec, paths)
        no_data = cast("TaskData", None)
        pretended = Pretended(quality, spec.chance)
        with Journal(paths.journal, spec.search_id) as journal:
            finished = run_session(spec, journal, no_data, store, train=pretended)
    if finished.status is SearchStatus.INTERRUPTED:
        raise KeyboardInterrupt
    return read_state(paths.journal)


@contextlib.contextmanager
def _sent_by_value(function: object) -> Iterator[None]:
    """Have Ray send a function's code: importing the function's module may take a worker long."""
    from ray import cloudpickle

    module = inspect.getmodule(function) if inspect.isfunction(function) else None
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
