"""Whole numbers that name no classes are learnt, probed, kept and resampled as their type says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.statistics.hidden_mistakes import FEW_MISTAKES
from elsa_tune.analysis.statistics.resampling import resample
from elsa_tune.exporting.model import train_final
from elsa_tune.searching.record import SearchRecord, started
from elsa_tune.searching.startup.rows import rows_in_use
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Phase, Precision, Recipe, TrialSpec
from elsa_tune.tasks.task_file import read_task_file
from elsa_tune.tasks.types.scores import score
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.training import probe
from elsa_tune.training.data.preparation import prepare
from tests.registering import registered
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import make_trial, tiny_bert

WORDS = ("bad plot", "a story", "never dull", "good fun", "the very best film")
DESCRIBED = """
name: stars
kind: stars
files: [rows.tsv]
text: [text]
label: stars
evaluation_share: 0.4
"""
# In place of what sends records to MLflow.
NOBODY: Any = SimpleNamespace(offer=lambda record: None)


@pytest.fixture(scope="module")
def stars() -> Iterator[Any]:
    with registered("tests.stars") as module:
        yield module


@pytest.fixture(scope="module")
def task(stars: Any, tmp_path_factory: pytest.TempPathFactory) -> TaskSpec:
    folder = tmp_path_factory.mktemp("stars")
    draw = np.random.default_rng(0)
    rows = ["text\tstars"]
    for number in range(150):
        level = int(draw.integers(0, 5))
        rows.append(f"{WORDS[level]} {number}\t{level + 1}")
    (folder / "rows.tsv").write_text("\n".join(rows))
    (folder / "stars.yaml").write_text(DESCRIBED)
    return read_task_file(folder / "stars.yaml")


@pytest.fixture(scope="module")
def trial(task: TaskSpec, tmp_path_factory: pytest.TempPathFactory) -> TrialSpec:
    model = tiny_bert(tmp_path_factory.mktemp("models") / "bert", layers=2)
    recipe = Recipe(epochs=2, precision=Precision.FP32, max_length=16)
    return dataclasses.replace(make_trial(model, 1), task=task, recipe=recipe, learning_rate=1e-2)


def test_trials_are_scored_kept_and_resampled(trial: TrialSpec, tmp_path: Path) -> None:
    depths = (FreezeDepth.of(0), FreezeDepth.of(1))
    data = prepare(trial.model, trial.task, trial.recipe)
    spec = make_spec(
        name="stars",
        model=trial.model,
        layers=2,
        task=trial.task,
        recipe=trial.recipe,
        candidates=depths,
        explored=depths,
        seeds=2,
        chance=data.chance,
        train_examples=len(data.train),
        evaluation_examples=len(data.evaluation),
    )
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    with Journal(paths.journal) as journal:
        record = SearchRecord(spec, paths, journal, NOBODY, pytest.fail)
        record.write(started(spec, 1))
        for depth in depths:
            for seed in spec.measuring_seeds:
                measured = spec.trial(Phase.MEASURE, depth, 1e-2, seed)
                train_final(spec, measured, data, record, lambda line: None)
    rows = rows_of(read_state(paths.journal), paths.folder)
    assert len(rows) == 4
    for row in rows:
        kept = KeptPredictions()(row)
        assert kept is not None and kept.classes == 0 and not kept.are_values
        assert kept.labels.tolist() == data.evaluation.labels.tolist()
        assert score(trial.task.metric, kept.predictions, kept.labels, 0) == row.quality
    [answer] = answer_rows(rows, evidence=KeptPredictions())
    assert not [warning for warning in answer.warnings if "predictions" in warning.text]
    assert answer.uncertainty.examples is not None


def test_the_probe_answers_with_whole_numbers_that_there_are(
    trial: TrialSpec, stars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = prepare(trial.model, trial.task, trial.recipe)
    found = probe.linear_probe(trial.model, trial.task, trial.recipe, data)
    assert set(found.predictions) <= {1, 2, 3, 4, 5}
    labels = data.evaluation.labels
    assert found.quality == score(stars.GAIN, found.predictions, labels, 0)
    far = np.linspace(-3.0, 9.0, len(labels), dtype=np.float32)
    monkeypatch.setattr(probe, "_ridge", lambda *given: far)
    found = probe.linear_probe(trial.model, trial.task, trial.recipe, data)
    assert found.predictions.min() == 1 and found.predictions.max() == 5


def test_what_guessing_scores_is_known_before_a_search(task: TaskSpec) -> None:
    recipe = Recipe(precision=Precision.FP32)
    assert 0.6 < rows_in_use(task, recipe).chance < 0.8


def test_a_share_says_which_whole_numbers_are_mistakes(stars: Any) -> None:
    """One star off is none by the share of answers that are at most one off."""
    labels = np.resize(np.arange(1, 6), 200)
    near = np.clip(labels + 1, 1, 5)
    wrong = near.copy()
    wrong[0] = 5
    runs = [Predictions(predictions=each, labels=labels, classes=0) for each in (near, wrong)]
    hidden = resample(runs, "within_one_star", 20).hidden
    assert (hidden.flawless, hidden.unsure) == ({0}, {1})
    columns = {FreezeDepth.of(0): [0], FreezeDepth.of(1): [1]}
    shares = hidden.shares(columns)
    assert shares[FreezeDepth.of(1), FreezeDepth.of(0)] == 1 - 1 / FEW_MISTAKES


def test_by_other_metrics_each_answer_unlike_its_label_is_one(stars: Any) -> None:
    """The costliest mistake on the rarest number counts, as of classes in an order."""
    labels = np.repeat(np.arange(1, 6), [200, 200, 200, 200, 10])
    given = labels.copy()
    given[0] = 2
    runs = [Predictions(predictions=each, labels=labels, classes=0) for each in (labels, given)]
    hidden = resample(runs, "mean_gain", 20).hidden
    assert (hidden.flawless, hidden.unsure) == ({0}, {1})
    assert hidden.cost == pytest.approx(4 / 5 / len(labels))
