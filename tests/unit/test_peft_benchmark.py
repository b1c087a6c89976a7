"""Reading the JSON results of peft's method_comparison: rows, names of ways, and every refusal.

The files are made up, of the shape that the benchmark writes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.api import curve
from elsa_tune.errors import NoAnswerError, ResultsError, UsageError
from elsa_tune.results.peft_benchmark import is_benchmark, read_benchmark
from elsa_tune.results.results_csv import import_results, write_results
from elsa_tune.sources.source import Question
from elsa_tune.sources.tables import Table
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.trial import Phase, TrialStatus

LORA: dict[str, Any] = {"peft_type": "LORA", "r": 32, "target_modules": ["q", "v"]}


def result(
    experiment: str = "lora/net-3.2-1B-rank32",
    accuracy: float | None = 660 / 1319,
    rate: Any = 1e-4,
    peft_config: dict[str, Any] | None = LORA,
    **changes: Any,
) -> dict[str, Any]:
    """Return a run of the text suite."""
    metrics: list[dict[str, Any]] = [{"step": 250, "valid accuracy": 0.3}]
    if accuracy is not None:
        metrics.append({"step": 500, "test accuracy": accuracy, "train loss": 0.6})
    values: dict[str, Any] = {
        "run_info": {
            "created_at": "2026-01-01T00:00:00+00:00",
            "experiment_name": experiment,
            "train_config": {
                "model_id": "maker/Net-3.2-1B",
                "seed": 0,
                "optimizer_kwargs": {"lr": rate, "weight_decay": 0.1},
                "query_template": "Q: {query}",
            },
            "peft_config": peft_config,
        },
        "train_info": {
            "status": "success",
            "accelerator_memory_max": 3 * 2**20,
            "train_time": 12.5,
            "num_trainable_params": 1000,
            "metrics": metrics,
        },
        "meta_info": {"package_info": {"torch-version": "2.0"}},
    }
    for path, value in changes.items():
        part, name = path.split("__")
        holder = values["train_info"]
        if part == "config":
            holder = values["run_info"]["train_config"]
        if value is None:
            holder.pop(name)
        else:
            holder[name] = value
    return values


def save(folder: Path, name: str, values: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_one_file_is_one_row(tmp_path: Path) -> None:
    imported = read_benchmark(save(tmp_path, "a", result()))
    (one,) = imported.rows
    assert one.candidate == NamedWay("lora rank32")
    assert (one.model, one.task, one.metric) == ("maker/Net-3.2-1B", "MetaMathQA", "accuracy")
    assert one.quality == 660 / 1319 and one.examples == 1319
    assert (one.learning_rate, one.seed, one.runs) == (1e-4, 0, 1)
    assert (one.train_seconds, one.peak_memory_mb, one.trainable_parameters) == (12.5, 3, 1000)
    assert one.layers is None
    assert one.phase is Phase.MEASURE and one.status is TrialStatus.COMPLETED
    assert imported.notes[1] == "maker/Net-3.2-1B on MetaMathQA: 1 run of 1 way"


@pytest.mark.parametrize(
    ("experiment", "label"),
    [
        ("lora/net-3.2-1B-rank32", "lora rank32"),
        ("vera/net-3.2-1B-default", "vera default"),
        ("ia3/net-3.2-1B-lr_0.001", "ia3 default"),
        ("ia3/net-3.2-1B-all-attn-5k-lr0.005", "ia3 all-attn-5k"),
        ("prefix/net-3.2-1B-lr_5e-3_zero_init", "prefix zero_init"),
        ("shira/net-3.2-1B-lr_0.0003-random_seed_42", "shira random_seed_42"),
        ("lora/another-model-rank32", "lora another-model-rank32"),
        ("lora", "lora default"),
    ],
)
def test_a_way_is_named_without_model_and_rate(tmp_path: Path, experiment: str, label: str) -> None:
    (one,) = read_benchmark(save(tmp_path, "a", result(experiment))).rows
    assert one.candidate.label == label


def test_one_way_at_two_rates(tmp_path: Path) -> None:
    save(tmp_path, "a", result("ia3/net-3.2-1B-default"))
    other_order = {**LORA, "target_modules": ["v", "q"], "task_type": "CAUSAL_LM"}
    save(tmp_path, "b", result("ia3/net-3.2-1B-lr_0.001", rate=1e-3, peft_config=other_order))
    first, second = read_benchmark(tmp_path).rows
    assert first.candidate == second.candidate == NamedWay("ia3 default")
    assert {first.learning_rate, second.learning_rate} == {1e-4, 1e-3}


def test_configurations_that_differ_are_not_one_way(tmp_path: Path) -> None:
    save(tmp_path, "a", result("prefix/net-3.2-1B-lr_0.001", rate=1e-3))
    save(
        tmp_path, "b", result("prefix/net-3.2-1B-lr_0.01", rate=1e-2, peft_config={**LORA, "r": 8})
    )
    labels = [one.candidate.label for one in read_benchmark(tmp_path).rows]
    assert labels == ["prefix/net-3.2-1B-lr_0.001", "prefix/net-3.2-1B-lr_0.01"]


def test_two_rates_with_unlike_weight_decay_are_not_one_way(tmp_path: Path) -> None:
    save(tmp_path, "a", result("ia3/net-3.2-1B-default"))
    alone = {"lr": 1e-3}
    save(tmp_path, "b", result("ia3/net-3.2-1B-lr_0.001", config__optimizer_kwargs=alone))
    labels = [one.candidate.label for one in read_benchmark(tmp_path).rows]
    assert labels == ["ia3/net-3.2-1B-default", "ia3/net-3.2-1B-lr_0.001"]


def test_what_changes_no_result_is_no_other_way(tmp_path: Path) -> None:
    save(tmp_path, "a", result("ia3/net-3.2-1B-default", config__eval_steps=250))
    changes = {"config__eval_steps": 50, "config__use_gc": True, "config__batch_size_eval": 1}
    save(tmp_path, "b", result("ia3/net-3.2-1B-lr_0.001", rate=1e-3, **changes))
    assert {one.candidate.label for one in read_benchmark(tmp_path).rows} == {"ia3 default"}


def test_suites_are_compared_apart(tmp_path: Path) -> None:
    save(tmp_path, "a", result())
    save(tmp_path, "b", result(config__dataset_id="cats"))
    assert {one.candidate.label for one in read_benchmark(tmp_path).rows} == {"lora rank32"}


def test_two_seeds_of_unlike_length_are_refused(tmp_path: Path) -> None:
    save(tmp_path, "a", result(config__max_steps=5000))
    save(tmp_path, "b", result(config__max_steps=100, config__seed=1))
    with pytest.raises(
        ResultsError, match=r"both of .*train_config\.max_steps is 5000 in one and 100 in the other"
    ):
        read_benchmark(tmp_path)


def test_full_fine_tuning_of_unlike_length_is_refused(tmp_path: Path) -> None:
    name = "full-finetuning/net-3.2-1B"
    first = save(tmp_path, "a", result(name, peft_config=None, config__max_steps=5000))
    values = result(f"{name}-short", peft_config=None, config__max_steps=10, config__seed=1)
    second = save(tmp_path, "b", values)
    with pytest.raises(ResultsError) as caught:
        read_benchmark(tmp_path)
    assert str(caught.value) == (
        f"{first} and {second} are both full fine-tuning, but train_config.max_steps is 5000 in "
        "one and 10 in the other; remove one"
    )


def test_two_seeds_of_one_name_and_unlike_settings_are_refused(tmp_path: Path) -> None:
    first = save(tmp_path, "a", result())
    second = save(tmp_path, "b", result(config__seed=1, peft_config={**LORA, "r": 8}))
    with pytest.raises(ResultsError) as caught:
        read_benchmark(tmp_path)
    assert str(caught.value) == (
        f"{first} and {second} are both of 'lora/net-3.2-1B-rank32', but r is 32 in one and 8 in "
        "the other; give each its own run_info.experiment_name, or remove one"
    )


def test_a_setting_that_one_version_of_peft_alone_names_is_no_difference(tmp_path: Path) -> None:
    save(tmp_path, "a", result())
    save(tmp_path, "b", result(config__seed=1, peft_config={**LORA, "use_more": False}))
    first, second = read_benchmark(tmp_path).rows
    assert first.candidate == second.candidate
    assert (first.seed, second.seed) == (0, 1)


def test_a_setting_that_the_first_file_does_not_name_is_compared_too(tmp_path: Path) -> None:
    save(tmp_path, "a", result(peft_config={"r": 32}))
    values = result(config__seed=1, peft_config={"r": 32, "use_dora": True})
    second = save(tmp_path, "b", values)
    values = result(config__seed=2, peft_config={"r": 32, "use_dora": False})
    third = save(tmp_path, "c", values)
    complaint = f"{second} and {third} are both .*, but use_dora is True in one and False in the"
    with pytest.raises(ResultsError, match=complaint):
        read_benchmark(tmp_path)


def test_full_fine_tuning_is_the_reference(tmp_path: Path) -> None:
    path = save(tmp_path, "a", result("full-finetuning/net-3.2-1B-lr_0.00001", peft_config=None))
    (one,) = read_benchmark(path).rows
    assert one.candidate == REFERENCE


def test_a_folder_leaves_out_other_json(tmp_path: Path) -> None:
    save(tmp_path / "results", "lora--net", result())
    save(tmp_path / "experiments" / "lora", "adapter_config", LORA)
    save(tmp_path, "list", [1, 2])
    imported = read_benchmark(tmp_path)
    assert len(imported.rows) == 1
    assert imported.notes[-1] == "left out: 2 other JSON files"


def test_images_are_another_task(tmp_path: Path) -> None:
    values = result(config__query_template=None, config__dataset_id="cats", config__test_size=4)
    values["train_info"]["metrics"][-1] = {"step": 9, "test dino_similarity": 0.7}
    (one,) = read_benchmark(save(tmp_path, "a", values)).rows
    assert (one.task, one.metric, one.examples) == ("cats", "dino_similarity", 4)


def test_a_loss_among_the_test_metrics_is_passed_over(tmp_path: Path) -> None:
    values = result()
    values["train_info"]["metrics"][-1] = {"test loss": 0.4, "test accuracy": 0.5}
    (one,) = read_benchmark(save(tmp_path, "a", values)).rows
    assert (one.metric, one.quality) == ("accuracy", 0.5)
    values["train_info"]["metrics"][-1] = {"test loss": 0.4}
    path = save(tmp_path, "b", values)
    with pytest.raises(ResultsError, match="ends without a test metric of which larger is better"):
        read_benchmark(path)


def test_a_suite_that_is_not_known_has_no_known_size(tmp_path: Path) -> None:
    (one,) = read_benchmark(save(tmp_path, "a", result(config__query_template=None))).rows
    assert (one.task, one.examples) == ("method_comparison", None)


def test_an_accuracy_of_another_number_of_rows_claims_no_size(tmp_path: Path) -> None:
    (one,) = read_benchmark(save(tmp_path, "a", result(accuracy=0.5))).rows
    assert one.examples is None


@pytest.mark.parametrize(
    ("status", "expected"), [("failed", TrialStatus.FAILED), ("canceled", TrialStatus.INTERRUPTED)]
)
def test_runs_that_did_not_end_well(tmp_path: Path, status: str, expected: TrialStatus) -> None:
    (one,) = read_benchmark(save(tmp_path, "a", result(accuracy=None, train__status=status))).rows
    assert one.status is expected and one.quality is None


@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_a_run_that_did_not_end_well_is_compared_as_such(tmp_path: Path, status: str) -> None:
    save(tmp_path, "a", result())
    save(tmp_path, "b", result(config__seed=1, accuracy=None, train__status=status))
    save(tmp_path, "c", result("full-finetuning/net-3.2-1B", peft_config=None))
    source = Table(tmp_path)
    rows = source.ask(Question(each_size=True), print)
    assert {one.metric for one in rows} == {"accuracy"}
    [ways] = source.ways(Question(each_size=True), rows)
    counted = {way.candidate.label: way.seeds for way in ways.measured}
    assert counted == {"0": 1, "lora rank32": 1}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (LORA, "is no result of peft's method_comparison"),
        ([], "is no result of peft's method_comparison"),
        ("text", "is no result of peft's method_comparison"),
        (result(accuracy=50.4), "'test accuracy' is 50.4; it must be a fraction, at most 1"),
        (result(accuracy=float("nan")), "'test accuracy' is nan; it must be a fraction"),
        (result(accuracy=None), "ends without a test metric"),
        (result(train__metrics=[]), "ends without a test metric"),
        (result(train__status="strange"), "train_info.status is 'strange'; it must be success"),
        (result(rate=2.0), "optimizer_kwargs.lr is 2.0; it must be above 0, at most 1"),
        (result(rate="fast"), "optimizer_kwargs.lr is 'fast'"),
        (result(rate=True), "optimizer_kwargs.lr is True"),
        (result(accuracy=True), "'test accuracy' is True"),
        (result(train__train_time=float("inf")), "'train_info.train_time' must be a finite number"),
        (result(config__model_id=None), "'run_info.train_config.model_id' is missing"),
        (result(config__seed=-1), "'run_info.train_config.seed' must be"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, values: object, complaint: str) -> None:
    path = save(tmp_path, "a", values)
    with pytest.raises(ResultsError, match=re.escape(complaint)) as caught:
        read_benchmark(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ResultsError, match=r"a\.json cannot be read as JSON"):
        read_benchmark(tmp_path)
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ResultsError, match="as JSON: it is nested too deeply"):
        read_benchmark(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(result()), encoding="utf-8-sig")
    assert len(read_benchmark(path).rows) == 1


def test_an_empty_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="holds no JSON result of peft's method_comparison"):
        read_benchmark(tmp_path)
    with pytest.raises(ResultsError, match=r"missing\.json does not exist"):
        read_benchmark(tmp_path / "missing.json")


def test_a_rate_that_is_not_named(tmp_path: Path) -> None:
    (one,) = read_benchmark(save(tmp_path, "a", result(config__optimizer_kwargs={}))).rows
    assert one.learning_rate is None


def test_it_is_told_from_a_csv_by_its_kind(tmp_path: Path) -> None:
    assert is_benchmark(tmp_path) and is_benchmark(tmp_path / "a.json")
    assert not is_benchmark(tmp_path / "a.csv") and not is_benchmark(tmp_path / "journal.jsonl")


def test_from_reads_it_and_says_what_it_understood(tmp_path: Path) -> None:
    save(tmp_path, "a", result())
    save(tmp_path, "b", result("full-finetuning/net-3.2-1B", peft_config=None))
    said: list[str] = []
    source = Table(tmp_path)
    rows = source.ask(Question(each_size=True), said.append)
    assert len(rows) == 2
    assert "2 runs of 2 ways" in said[0]
    with pytest.raises(NoAnswerError, match="has results of lora rank32, and of no frozen layers"):
        source.curves(Question(each_size=True), rows)
    with pytest.raises(NoAnswerError, match="elsa-tune compare"):
        curve(str(tmp_path / "a.json"))


@pytest.mark.parametrize("table", [{"percent": True}, {"columns": ("model==a",)}])
def test_options_of_a_csv_are_refused(tmp_path: Path, table: dict[str, Any]) -> None:
    source = Table(save(tmp_path, "a", result()), **table)
    with pytest.raises(UsageError, match="leave out `map` and `scale`"):
        source.rows(Question(), print)


def test_the_same_run_twice_is_kept_for_whoever_compares(tmp_path: Path) -> None:
    save(tmp_path / "results", "a", result())
    save(tmp_path / "older", "a", result())
    first, second = read_benchmark(tmp_path).rows
    assert first == second


def test_its_rows_become_a_csv_and_come_back(tmp_path: Path) -> None:
    save(tmp_path, "a", result())
    save(tmp_path, "b", result("full-finetuning/net-3.2-1B", peft_config=None))
    rows = read_benchmark(tmp_path).rows
    path = tmp_path / "written.csv"
    path.write_text(write_results(rows), encoding="utf-8")
    assert import_results(path).rows == rows
