"""Exports of other tools: how they are known, what their columns mean, and what is told of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import ElsaTuneError, ResultsError, UnknownNameError, UsageError
from elsa_tune.results.columns import (
    is_better_when_lower,
    metric_of,
    possible_columns,
    read_mapping,
)
from elsa_tune.results.results_csv import Imported, import_results
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.trial import Phase, TrialStatus

EXPORTS = Path(__file__).parent / "exports"
MLFLOW_HEADER = (
    "run_id,experiment_id,status,params.model,params.task,params.layers,params.frozen_layers,"
    "params.seed,metrics.eval_accuracy,tags.mlflow.runName"
)


def read(path: Path, *mapping: str) -> Imported:
    return import_results(path, mapping=mapping)


def save(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "export.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_ray_tune() -> None:
    imported = read(EXPORTS / "ray_tune.csv", "layers==6")
    rows = imported.rows
    assert Counter(row.status for row in rows) == {
        TrialStatus.COMPLETED: 8,
        TrialStatus.STOPPED_EARLY: 8,
        TrialStatus.FAILED: 2,  # the ones that raised: fewer reports, and nobody stopped them
    }
    assert {row.phase for row in rows} == {Phase.MEASURE}
    assert {(row.model, row.task, row.metric) for row in rows} == {("minilm", "sst2", "accuracy")}
    assert {row.learning_rate for row in rows} == {1e-5, 3e-5}
    assert {row.candidate for row in rows} == {
        FULL_MODEL,
        FreezeDepth(3, True),
        FreezeDepth(5, True),
    }
    (answer,) = answer_rows(rows)
    assert answer.operating_point is not None
    assert answer.operating_point.fine_tuned_layers == 3
    told = "\n".join(imported.notes)
    for line in (
        "ray_tune.csv:",
        "frozen_layers <- config/frozen_layers",
        "learning_rate <- config/lr",
        "layers <- '6' in every row",
        "metric <- 'accuracy', by the name of eval_accuracy",
        "status <- status",
        "18 rows: 8 stopped early, 8 completed, 2 failed; 18 measuring",
    ):
        assert line in told


def ray_statuses(tmp_path: Path, columns: str, *lines: str) -> list[TrialStatus]:
    header = f"training_iteration,done,seed,config/model,config/task,{columns}eval_accuracy"
    path = save(tmp_path, header, *lines)
    return [row.status for row in read(path, "layers==6", "frozen_layers==0").rows]


def test_reports_of_ray_with_decimals(tmp_path: Path) -> None:
    # pandas writes a count so where another trial has none.
    lines = ("9.0,True,2,m,t,0.7", "10.0,False,1,m,t,0.8", "2.0,False,3,m,t,0.6", ",False,4,m,t,")
    assert ray_statuses(tmp_path, "", *lines) == [
        TrialStatus.STOPPED_EARLY,
        TrialStatus.COMPLETED,
        TrialStatus.FAILED,
        TrialStatus.FAILED,
    ]


def test_trials_of_ray_are_as_long_as_others_of_their_model_and_task(tmp_path: Path) -> None:
    lines = (
        "3,False,1,m,t,0.8",
        "3,False,1,n,t,0.8",
        "10,False,1,m,u,0.8",
        "3,True,2,m,u,0.7",
        ",False,1,n,u,",  # the only one of its kind, and it reported nothing
    )
    completed = TrialStatus.COMPLETED
    others = [TrialStatus.STOPPED_EARLY, TrialStatus.FAILED]
    assert ray_statuses(tmp_path, "", *lines) == [completed, completed, completed, *others]


def test_trials_of_ray_are_as_long_as_others_of_their_epochs(tmp_path: Path) -> None:
    lines = ("3,False,1,m,t,3,0.8", "2,True,2,m,t,3,0.7", "5,False,3,m,t,5,0.8")
    assert ray_statuses(tmp_path, "config/epochs,", *lines) == [
        TrialStatus.COMPLETED,
        TrialStatus.STOPPED_EARLY,
        TrialStatus.COMPLETED,
    ]


def test_statuses_of_mlflow(tmp_path: Path) -> None:
    statuses = ("FINISHED", "FAILED", "KILLED", "RUNNING", "SCHEDULED")
    path = save(
        tmp_path,
        MLFLOW_HEADER,
        *(
            f"r{seed},1,{status},m,t,6,0,{seed},{0.8 if status == 'FINISHED' else ''},name"
            for seed, status in enumerate(statuses)
        ),
    )
    assert [row.status for row in read(path).rows] == [
        TrialStatus.COMPLETED,
        TrialStatus.FAILED,
        TrialStatus.INTERRUPTED,
        TrialStatus.RUNNING,
        TrialStatus.PLANNED,
    ]


def test_python_none_in_a_param_or_tag_of_mlflow_is_an_empty_cell(tmp_path: Path) -> None:
    columns = ("params.train_size", "params.chance", "params.method", "tags.search", "notes")
    header = ",".join((MLFLOW_HEADER, *columns))
    path = save(
        tmp_path,
        header,
        "r1,1,FINISHED,m,t,6,0,1,0.8,None,None,None,None,None,None",
        "r2,1,FINISHED,None,None,None,None,None,,parent,None,None,None,None,None",
    )
    imported = read(path)
    (row,) = imported.rows
    assert (row.train_size, row.chance, row.search) == (None, None, None)
    assert row.candidate == FULL_MODEL
    assert "left out: 1 with neither frozen layers nor quality" in imported.notes


def test_none_is_a_name_elsewhere_and_in_lower_case_empty_in_our_runs(tmp_path: Path) -> None:
    header = "model,task,method,quality,seed"
    (row,) = read(save(tmp_path, header, "m,t,None,0.8,1")).rows
    assert row.candidate.label == "None"
    header = MLFLOW_HEADER.replace("params.frozen_layers", "params.method")
    line = "r1,1,FINISHED,m,t,6,none,1,0.8,x"
    (row,) = read(save(tmp_path, header, line)).rows
    assert row.candidate.label == "none"
    header = f"{MLFLOW_HEADER},params.chance,tags.elsa_tune.trial"
    (row,) = read(save(tmp_path, header, "r1,1,FINISHED,m,t,6,0,1,0.8,x,none,N0-s1")).rows
    assert row.chance is None


def test_a_trial_of_ours_has_the_quality_of_the_evaluation_that_its_selection_chose(
    tmp_path: Path,
) -> None:
    header = (
        f"{MLFLOW_HEADER.replace('eval_accuracy', 'quality')},metrics.trial_quality,"
        "tags.elsa_tune.trial"
    )
    path = save(
        tmp_path,
        header,
        "r1,1,FINISHED,m,t,6,0,1,0.80,best,0.85,N0-s1",
        "r2,1,FINISHED,m,t,6,0,2,0.81,last,,N0-s2",
        "r3,1,FINISHED,m,t,6,0,3,0.82,other,0.89,",
    )
    imported = read(path)
    assert [row.quality for row in imported.rows] == [0.85, 0.81, 0.82]
    assert "quality <- metrics.trial_quality, in trials of elsa-tune that have one" in (
        imported.notes
    )
    imported = read(path, "quality=metrics.quality")
    assert [row.quality for row in imported.rows] == [0.80, 0.81, 0.82]
    assert not any("trial_quality" in note for note in imported.notes)


def test_a_trial_of_ours_has_the_target_that_its_search_was_planned_for(tmp_path: Path) -> None:
    header = (
        f"{MLFLOW_HEADER},tags.elsa_tune.search_id,tags.elsa_tune.trial,params.target,params.looks"
    )
    looks = '"after N=0, from seed 1, at 0.045: 3/3"'
    path = save(
        tmp_path,
        header,
        f"r1,1,FINISHED,m,t,6,0,1,0.80,x,a,N0-s1,,{looks}",
        f"r2,1,FINISHED,m,t,6,0,2,0.80,x,b,N0-s2,,{looks}",
        f"r3,1,FINISHED,m,t,6,0,3,0.80,x,c,N0-s3,,{looks}",
        "r4,1,FINISHED,m,t,,,,,x,b,,0.95,",
        "r5,1,FINISHED,m,t,,,,,x,a,,0.9,",
        "r6,1,FINISHED,m,t,6,0,4,0.80,x,,,0.85,",  # of another tool, where it may mean anything
    )
    imported = read(path)
    assert [row.planned_target for row in imported.rows] == [0.9, 0.95, None, None]
    assert "planned_target <- params.target, of whole searches" in imported.notes
    imported = read(path, "planned_target==0.7")
    assert [row.planned_target for row in imported.rows] == [0.7] * 4
    assert "planned_target <- params.target, of whole searches" not in imported.notes


def test_a_table_of_no_known_tool_by_mapping_alone(tmp_path: Path) -> None:
    path = save(tmp_path, "net,frozen,acc,SEED,lr", "m,0,0.9,1,3e-5", "m,3,0.8,1,3e-5")
    lacks = r"missing .* frozen_layers \(a depth\) or method .*`map` model="
    with pytest.raises(ResultsError, match=lacks):
        read(path)
    says = ("model=net", "task==t=1", "layers==6", "frozen_layers=frozen")
    imported = read(path, *says)
    assert [(row.model, row.task, row.seed) for row in imported.rows] == [("m", "t=1", 1)] * 2
    assert {row.learning_rate for row in imported.rows} == {3e-5}
    assert imported.notes[1:] == (
        "model <- net",
        "frozen_layers <- frozen",
        "quality <- acc",
        "seed <- SEED",
        "learning_rate <- lr",
        "task <- 't=1' in every row",
        "layers <- '6' in every row",
        "metric <- 'accuracy', by the name of acc",
        "2 rows: 2 completed; 2 measuring, 0 exploring",
    )


def test_a_table_with_our_own_names_has_nothing_to_tell(tmp_path: Path) -> None:
    path = save(tmp_path, "model,task,layers,frozen_layers,quality,seed", "m,t,6,0,0.9,1")
    assert read(path).notes == ()
    told = read(path, "model==other").notes
    assert "model <- 'other' in every row" in told and "model <- model" not in told


def test_rows_without_seeds_can_be_runs(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        MLFLOW_HEADER.replace("params.seed", "params.note"),
        "r1,1,FINISHED,m,t,6,0,x,0.90,one",
        "r2,1,FINISHED,m,t,6,0,x,0.91,two",
    )
    with pytest.raises(ResultsError, match=r"seed .*`map` runs==1 \(a row is a run\)"):
        read(path)
    assert [row.seed for row in read(path, "runs==1").rows] == [None, None]


def test_of_several_metrics_one_must_be_chosen(tmp_path: Path) -> None:
    header = MLFLOW_HEADER.replace("metrics.eval_accuracy", "metrics.eval_accuracy,metrics.eval_f1")
    path = save(tmp_path, header, "r1,1,FINISHED,m,t,6,0,1,0.84,0.89,one")
    with pytest.raises(ResultsError, match=r"eval_f1; choose one, as in `map` quality=metrics\."):
        read(path)
    (row,) = read(path, "quality=metrics.eval_f1").rows
    assert (row.quality, row.metric) == (0.89, "f1")
    (row,) = read(path, "quality=metrics.eval_f1", "metric==F1_macro").rows
    assert row.metric == "f1_macro"


def test_an_export_without_trials_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, MLFLOW_HEADER, "r1,1,FINISHED,,,,,,,parent")
    with pytest.raises(ResultsError, match="no rows"):
        read(path)


def test_runs_that_finished_with_different_results_contradict(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        MLFLOW_HEADER,
        "r1,1,FINISHED,m,t,6,0,1,0.90,one",
        "r2,1,FINISHED,m,t,6,0,1,0.91,two",
    )
    with pytest.raises(ResultsError, match=r"seed 1: two rows disagree \(0\.9 and 0\.91\)"):
        answer_rows(read(path).rows)


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("quality", UsageError, "`map` is 'quality'; it must be OURS=THEIRS"),
        ("=acc", UsageError, "it must be OURS=THEIRS"),
        ("quality=", UsageError, "it must be OURS=THEIRS"),
        ("quality==", UsageError, "it must be OURS=THEIRS"),
        ("search==\udcffz", UsageError, "half of a character .*take it out"),
        ("qualty=acc", UnknownNameError, "unknown column 'qualty': did you mean 'quality'"),
    ],
)
def test_what_cannot_be_mapped(text: str, error: type[ElsaTuneError], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        read_mapping([text])


def test_a_column_is_mapped_once_and_from_a_column_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names seed twice"):
        read_mapping(["seed=a", "seed==1"])
    path = save(tmp_path, MLFLOW_HEADER, "r1,1,FINISHED,m,t,6,0,1,0.9,one")
    with pytest.raises(
        UnknownNameError, match=r"did you mean 'params\.frozen_layers'.*export\.csv"
    ):
        read(path, "frozen_layers=params.frozen_layer")


def test_a_wide_header_is_not_repeated_whole(tmp_path: Path) -> None:
    path = save(tmp_path, "run_id," + ",".join(f"params.p{n}" for n in range(100)), "1" + "," * 100)
    with pytest.raises(ResultsError, match=r"params\.p18, \.\.\."):
        read(path)


@pytest.mark.parametrize(
    ("header", "column", "found"),
    [
        (["params.lr", "params.learning_rate"], "learning_rate", [1]),
        (["metrics.learning_rate", "params.lr"], "learning_rate", [1]),
        (["params.a.lr", "params.b.lr"], "learning_rate", [0, 1]),
        (["status", "tags.status"], "status", [1]),
        (["metrics.train_accuracy", "metrics.eval_accuracy"], "quality", [1]),
        (["metrics.quality", "metrics.eval_accuracy"], "quality", [0]),
        (["seed", "config/train_loop_config/seed"], "seed", [1]),
        (["config/accuracy", "eval_matthews_correlation"], "quality", [1]),
        (["train/learning_rate", "lr"], "learning_rate", [1]),
        (["val/acc", "test/acc"], "quality", [0, 1]),
        (["accuracy_per_class", "best_epoch"], "quality", []),
        (["Status", "Seed"], "seed", [1]),
    ],
)
def test_what_a_column_can_be(header: list[str], column: str, found: list[int]) -> None:
    assert possible_columns(header, column) == [header[place] for place in found]


@pytest.mark.parametrize(
    ("column", "metric"),
    [
        ("metrics.eval_accuracy", "accuracy"),
        ("eval/matthews_correlation", "matthews"),
        ("mean_accuracy", "accuracy"),
        ("test_f1_macro", "f1_macro"),
        ("metrics.dev.spearmanr", "spearman"),
        ("quality", None),
        ("eval_loss", None),
        ("eval_macro_f1", "f1_macro"),
        ("top1_accuracy", "accuracy"),
        ("eval_balanced_accuracy", None),
        ("eval_bal_acc", None),
        ("eval_mean_class_accuracy", None),
        ("eval_mean_token_accuracy", None),
        ("weighted_accuracy", None),
        ("weighted_f1", None),
        ("eval_micro_f1", None),
        ("top5_accuracy", None),
    ],
)
def test_the_metric_by_its_name(column: str, metric: str | None) -> None:
    assert metric_of(column) == metric


@pytest.mark.parametrize(
    ("name", "is_error"),
    [
        ("rmse", True),
        ("MAE", True),
        ("metrics.eval_loss", True),
        ("evalLoss", True),
        ("testRMSE", True),
        ("cross_entropy", True),
        ("crossentropy", True),
        ("logloss", True),
        ("brier_score", True),
        ("ece", True),
        ("eer", True),
        ("deviance", True),
        ("negLogLoss", False),
        ("errorDetection_f1", False),
        ("brier_skill_score", False),
        ("deviance_explained", False),
        ("val/perplexity", True),
        ("mean squared error", True),
        ("word-error-rate", True),
        ("top1-error", True),
        ("neg_rmse", False),
        ("negative mean squared error", False),
        ("-loss", False),
        ("1-error", False),
        ("metrics.1-error", False),
        ("1 - wer", False),
        ("one_minus_error", False),
        ("lossless", False),
        ("error_detection_f1", False),
        ("accuracy", False),
        ("", False),
    ],
)
def test_an_error_is_known_by_its_name(name: str, is_error: bool) -> None:
    assert is_better_when_lower(name) == is_error


def test_a_column_that_is_better_when_lower_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "model,task,layers,frozen_layers,seed,eval_loss,score", "m,t,6,0,1,0.3,1")
    complaint = "line 1: quality is column eval_loss, which is better when lower, but larger must"
    with pytest.raises(ResultsError, match=complaint):
        read(path, "quality=eval_loss")
    complaint = "line 2: metric is 'RMSE', which is better when lower, but larger must be better"
    with pytest.raises(ResultsError, match=complaint):
        read(path, "quality=score", "metric==RMSE")
