"""A real export from MLflow, as its users write one, asked for the operating point."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.results.results_csv import import_results
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.tracking.store import RefusedError
from tests.conftest import ROOT

QUALITIES = {0: 0.92, 9: 0.90, 12: 0.70}


def log_runs(client: MlflowClient, experiment: str) -> None:
    """Log a parent, three depths with three seeds each, and a failed attempt.

    The failed attempt comes before its repetition.
    """
    parent = client.create_run(experiment, run_name="sweep").info.run_id
    client.set_terminated(parent)

    def log(frozen: int, seed: int, accuracy: float | None) -> None:
        run = client.create_run(experiment, tags={"mlflow.parentRunId": parent}).info.run_id
        params = {
            "model_name_or_path": "bert-base-uncased",
            "task_name": "sst2",
            "num_hidden_layers": 12,
            "num_frozen_layers": frozen,
            "learning_rate": 3e-5,
            "seed": seed,
            "num_train_epochs": 3.0,
        }
        for name, value in params.items():
            client.log_param(run, name, value)
        client.log_metric(run, "learning_rate", 0.0, step=3)
        if accuracy is None:
            client.set_terminated(run, "FAILED")
            return
        for step in range(1, 4):
            client.log_metric(run, "eval_accuracy", accuracy - (3 - step) / 10, step=step)
            client.log_metric(run, "train_accuracy", 0.99, step=step)
        client.set_terminated(run)

    log(9, 2, None)
    for (frozen, quality), seed in itertools.product(QUALITIES.items(), (1, 2, 3)):
        log(frozen, seed, quality + (seed - 2) / 100)


def export(places: StorePaths, file: Path) -> None:
    mlflow.set_tracking_uri(places.tracking_uri())
    try:
        client = MlflowClient()
        experiment = client.create_experiment(
            "freezing", artifact_location=str(places.artifact_root)
        )
        log_runs(client, experiment)
        frame = mlflow.search_runs([experiment])
    finally:
        mlflow.set_tracking_uri(None)
    assert isinstance(frame, pd.DataFrame)
    frame.to_csv(file, index=False)


def test_an_export_is_answered_without_any_mapping(places: StorePaths, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    export(places, file)
    imported = import_results(file)
    assert [row.status for row in imported.rows] == [TrialStatus.COMPLETED] * 9
    assert {row.learning_rate for row in imported.rows} == {3e-5}  # the parameter, not the metric
    (answer,) = answer_rows(imported.rows)
    assert (answer.model, answer.task, answer.metric) == ("bert-base-uncased", "sst2", "accuracy")
    assert [(p.candidate.frozen_layers, p.seeds) for p in answer.points] == [
        (0, 3),
        (9, 3),
        (12, 3),
    ]
    assert answer.operating_point is not None
    assert answer.operating_point.fine_tuned_layers == 3
    for line in (
        f"{file}:",
        "frozen_layers <- params.num_frozen_layers",
        "quality <- metrics.eval_accuracy",
        "status <- status",
        "9 rows: 9 completed; 9 measuring, 0 exploring",
        "left out: 1 with neither frozen layers nor quality",
        "left out: 1 of attempts that were repeated",
    ):
        assert line in imported.notes


def test_chance_can_be_told_beside_the_export(places: StorePaths, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    export(places, file)
    imported = import_results(file, mapping=["chance==0.509"])
    (answer,) = answer_rows(imported.rows)
    assert answer.chance == 0.509 and answer.corrected_operating_point is not None


@pytest.mark.parametrize(
    "recorded", ["demo", pytest.param("ways/minilm_sst2", marks=pytest.mark.thorough)]
)
def test_an_export_of_our_own_searches_gives_the_same_curve(
    recorded: str, places: StorePaths, tmp_path: Path
) -> None:
    """With LoRA and BitFit beside depths, too; the run of the search itself is no trial."""
    source = ROOT / "bench" / "results" / recorded
    sink = MlflowStore(places.tracking_uri()).sink(tmp_path / "journal.jsonl")
    for one in read_journal(source / "journal.jsonl"):
        with contextlib.suppress(RefusedError):  # its predictions and report are not copied here
            sink.send([one])
    file = tmp_path / "runs.csv"
    mlflow.set_tracking_uri(places.tracking_uri())
    try:
        frame = mlflow.search_runs(search_all_experiments=True)
    finally:
        mlflow.set_tracking_uri(None)
    assert isinstance(frame, pd.DataFrame)
    frame.to_csv(file, index=False)
    imported = import_results(file)
    assert "left out: 1 of whole searches" in imported.notes
    rows = rows_of(read_state(source / "journal.jsonl"), source)
    [planned_target] = {row.planned_target for row in rows}
    assert {row.planned_target for row in imported.rows} == {planned_target}
    exported = way_curves(imported.rows)
    journalled = way_curves(rows)
    assert [shown(curve) for curve in exported] == [shown(curve) for curve in journalled]


def shown(curve: FreezeCurve) -> list[tuple[str, float, int]]:
    return [(point.candidate.label, point.quality, point.seeds) for point in curve.points]
