"""A complete search as a user runs it.

Real Ray, Optuna and MLflow, a tiny model, every record checked.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import numpy as np
import pytest

from elsa_tune.cli.app import app
from elsa_tune.cli.printing import with_options
from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.specs.adapt.candidates import recorded_candidate
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Phase
from elsa_tune.tasks.types.scores import score
from tests.conftest import Outcome, Run
from tests.recorded_search import journal_rows, store_rows
from tests.searching import ONE_AT_A_TIME, Bench, make_bench, of_kind, without_export

pytestmark = pytest.mark.timeout(600)

SETTINGS = (
    *("--set", "epochs=3", "--set", "depths=[0, embeddings, 1, 2]"),
    *("--set", "learning_rate=[0.001, 0.002]", "--set", "tries=2", "--seeds", "2"),
    *("--set", "linear_probe=true"),
    *ONE_AT_A_TIME,
)
# Eight trials of each phase, and the linear probe.
RUNS = 17


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("search bench"), train=256)


@pytest.fixture(scope="module")
def once() -> list[Outcome]:
    """Return what the search of this module said, as soon as there is one."""
    return []


@pytest.fixture
def finished(
    bench: Bench, once: list[Outcome], ray: Capacity, run: Run, monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    if not once:
        monkeypatch.chdir(bench.folder)
        once.append(run(*bench.search("first", *SETTINGS)))
    return once[0]


def test_it_ends_well_and_says_where_everything_is(bench: Bench, finished: Outcome) -> None:
    assert finished.status == 0, finished.err
    assert "Traceback" not in finished.err
    assert "full model" in finished.out
    assert str(bench.journal("first")) in finished.err
    assert "elsa-tune export first" in finished.out


@pytest.mark.usefixtures("finished")
def test_the_plan_was_carried_out(bench: Bench) -> None:
    ended = of_kind(bench.records("first"), "trial_ended")
    exploring = [record for record in ended if record["trial"].startswith("explore")]
    measuring = [record for record in ended if record["trial"].startswith("measure")]
    assert len(exploring) == 8 and len(measuring) == 8
    assert all(record["status"] in ("completed", "stopped_early") for record in exploring)
    assert all(record["status"] == "completed" for record in measuring)
    for depth in ("0", "embeddings", "1", "2"):
        tries = [record for record in exploring if f"-N{depth}-" in record["trial"]]
        assert len(tries) == 2
        # Rungs are per depth: whatever the depth, its best trial ran to its end.
        assert any(record["status"] == "completed" for record in tries)


@pytest.mark.usefixtures("finished")
def test_measuring_repeats_each_depths_best_rate_with_fresh_seeds(bench: Bench) -> None:
    records = bench.records("first")
    rates = {r["what"]: r["value"] for r in of_kind(records, "decision")}["learning_rates"]
    started = of_kind(records, "trial_started")
    assert {r["params"]["seed"] for r in started if r["params"]["phase"] == "explore"} == {0}
    assert [r["trial"] for r in started if r["params"]["phase"] == "probe"] == ["probe-N2"]
    for record in started:
        params = record["params"]
        if params["phase"] == "measure":
            label = recorded_candidate(params["candidate"]).label
            assert params["learning_rate"] == rates[label]
            assert params["seed"] in (1, 2)


@pytest.mark.usefixtures("finished")
def test_mlflow_has_one_parent_all_children_and_none_running(bench: Bench) -> None:
    runs = bench.query("select run_uuid, status from runs where lifecycle_stage = 'active'")
    assert len(runs) == 1 + RUNS
    assert {status for _, status in runs} <= {"FINISHED", "KILLED"}
    parents = bench.query("select distinct value from tags where key = 'mlflow.parentRunId'")
    assert len(parents) == 1
    experiments = bench.query("select name from experiments where name like 'elsa-tune/%'")
    assert experiments == [("elsa-tune/mood",)]
    statuses = dict(
        bench.query("select value, count(*) from tags where key = 'status' group by value")
    )
    assert sum(statuses.values()) == 1 + RUNS and "running" not in statuses


@pytest.mark.usefixtures("finished")
def test_how_each_trial_ran_is_recorded(bench: Bench) -> None:
    """Frozen layers were read from what the first trial kept; embeddings-only records N = 0."""
    ways = bench.query(
        "select params.value, tags.value, count(*) from params join tags using (run_uuid) "
        "where params.key = 'frozen_layers' and tags.key = 'prefix' group by 1, 2 order by 1"
    )
    assert ways == [("0", "none", 8), ("1", "cached", 4), ("2", "cached", 4)]
    batches = bench.query("select distinct value from tags where key = 'batches'")
    assert batches == [("packed",)]


@pytest.mark.usefixtures("finished")
def test_the_journal_and_mlflow_give_the_same_rows(bench: Bench) -> None:
    uri = f"sqlite:///{bench.folder}/mlruns/mlflow.db"
    from_store = store_rows(uri, search="first")
    from_journal = journal_rows(bench.journal("first"))
    key = lambda row: row.trial  # noqa: E731 - one use
    assert sorted(from_store, key=key) == sorted(from_journal, key=key)
    assert len(from_store) == RUNS
    (probe,) = (row for row in from_store if row.phase is Phase.PROBE)
    assert (probe.trial, probe.probe_examples, probe.examples) == ("probe-N2", 256, 64)
    assert probe.learning_rate is probe.seed is None


@pytest.mark.usefixtures("finished")
def test_the_linear_probe_is_counted_nowhere(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    store = ("--tracking-uri", "sqlite:///mlruns/mlflow.db")
    for more in ((), ("--storage-path", "elsewhere", *store)):  # from the journal, from the store
        listed = run("searches", "--format", "json", *more)
        (found,) = json.loads(listed.out)
        assert (found["trials_done"], found["trials_planned"]) == (16, 16)
    trials = bench.journal("first").parent / "report" / "trials.csv"
    assert len(trials.read_text().splitlines()) == 1 + 16


@pytest.mark.usefixtures("finished")
def test_predictions_of_completed_trials_are_kept(bench: Bench) -> None:
    ended = of_kind(bench.records("first"), "trial_ended")
    completed = [record for record in ended if record["status"] == "completed"]
    dev = (bench.folder / "dev.csv").read_text().splitlines()[1:]
    labels = np.array([line.endswith("good") for line in dev])
    for record in completed:
        kept = np.load(bench.journal("first").parent / record["artifact"])
        assert kept["predictions"].dtype == kept["labels"].dtype == np.int8
        assert (kept["labels"] == labels).all()
        quality = score(
            Metric(str(kept["metric"])), kept["predictions"], kept["labels"], int(kept["classes"])
        )
        assert quality == record["metrics"]["quality"]
    artifacts = list((bench.folder / "mlruns" / "artifacts").rglob("*.npz"))
    assert len(artifacts) == len(completed)


@pytest.mark.usefixtures("finished")
def test_the_answer_can_be_asked_for_again(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    asked = run("operating-point", "--search", "first", "--format", "json")
    assert asked.status == 0, asked.err
    (answer,) = json.loads(asked.out)
    assert answer["full"]["seeds"] == 2 and answer["layers"] == 2
    assert {point["frozen_layers"] for point in answer["curve"]} >= {0, 1, 2}
    assert answer["operating_point"] is not None
    assert all(point["explored"] == 2 for point in answer["curve"])
    assert answer["linear_probe"]["train_examples"] == 256
    assert 0.6 < answer["linear_probe"]["quality"] <= 1
    table = run("operating-point", "--search", "first")
    assert "Linear probe on the frozen model: " in table.out


@pytest.mark.usefixtures("finished")
def test_the_same_command_again_answers_and_another_one_is_refused(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    before = bench.journal("first").read_bytes()
    again = run(*bench.search("first", *SETTINGS))
    assert again.status == 0, again.err
    assert "is recorded with the same options" in again.err and "complete" in again.err
    resumed = run("resume", "first")
    assert (resumed.status, resumed.out) == (0, again.out)
    other = run(*bench.search("first", *SETTINGS, "--set", "epochs=4", "--seeds", "3"))
    assert other.status == 2
    assert "other settings: epochs 4 (recorded: 3); seeds 3 (recorded: 2)" in other.err
    assert "elsa-tune resume first" in other.err and "--name" in other.err
    assert bench.journal("first").read_bytes() == before


@pytest.mark.usefixtures("finished")
def test_the_report_lies_beside_the_journal_and_with_mlflows_parent_run(bench: Bench) -> None:
    page = bench.journal("first").parent / "report" / "index.html"
    text = page.read_text(encoding="utf-8")
    assert "elsa-tune report first" in text
    [(parent,)] = bench.query("select distinct value from tags where key = 'mlflow.parentRunId'")
    logged = list((bench.folder / "mlruns" / "artifacts").rglob("report/index.html"))
    assert [file.parent.parent.parent.name for file in logged] == [parent]
    assert logged[0].samefile(page) and list(logged[0].parent.rglob("*.svg"))
    assert f", {platform.node()}, {os.cpu_count()} cores</dd>" in text
    assert "Linear probe on the frozen model: " in text


# Quickly, of plans, in tests/unit/test_reproduction.py; of predictions, in test_predictions.py.
@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_more_seeds_are_measured_and_count(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, train=256)
    monkeypatch.chdir(bench.folder)
    shallow = ("--set", "depths=[0, 1]", "--set", "linear_probe=false")
    first = run(*bench.search("first", *SETTINGS, *shallow))
    assert first.status == 0, first.err
    fewer = run("resume", "first", "--seeds", "1")
    assert fewer.status == 2
    assert "--seeds is 1, but search 'first' has 2 already" in fewer.err
    question = ("operating-point", "--search", "first", "--format", "json")
    (before,) = json.loads(run(*question).out)
    assert all(point["seeds"] == 2 for point in before["curve"])

    done = run("resume", "first", "--seeds", "3")
    assert done.status == 0, done.err
    ended = of_kind(bench.records("first"), "trial_ended")
    assert sorted(r["trial"] for r in ended if r["trial"].endswith("-s3")) == sorted(
        r["trial"].replace("-s2", "-s3") for r in ended if r["trial"].endswith("-s2")
    )
    (after,) = json.loads(run(*question).out)
    # They count for the curve: what is certified rests on the two that were planned.
    assert all(point["seeds"] == 3 for point in after["curve"])
    assert (after["certified"], after["reason"]) == (before["certified"], before["reason"])
    assert [point["contrast"] for point in after["curve"]] == [
        point["contrast"] for point in before["curve"]
    ]

    # Without the search's folder the predictions come from MLflow. Nothing is left to export.
    folder = bench.journal("first").parent
    folder.rename(folder.with_name("elsewhere"))
    asked = run(*question)
    folder.with_name("elsewhere").rename(folder)
    assert json.loads(asked.out) == [without_export(after)]

    # Damaged in both places: what is sure is lost, the answer is not.
    for kept in (folder / "predictions", bench.folder / "mlruns" / "artifacts"):
        for file in kept.rglob("*.npz"):
            file.write_bytes(file.read_bytes()[:-40])
    for place in (folder, folder.with_name("elsewhere")):
        folder.rename(place)
        asked = run(*question)
        place.rename(folder)
        (without,) = json.loads(asked.out)
        assert asked.status == 0 and without["operating_point"] == after["operating_point"]
        unused = [one for one in without["warnings"] if one["code"] == "predictions_not_used"]
        (said,) = [one["text"] for one in unused]
        assert said.endswith("are lost or damaged")
        assert "by seeds and evaluation examples" not in str(without["certified"])


def test_a_dry_run_prints_the_plan_and_touches_nothing(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    plan = run(*bench.search("never", *SETTINGS, "--dry-run"))
    assert plan.status == 0, plan.err
    assert "8 trials\n" in plan.out and "at most 288 (18" in plan.out
    outward = run(*bench.search("never", *SETTINGS, "--set", "extend=true", "--dry-run"))
    assert "8 to 40 trials" in outward.out
    assert "at most 864 (18 per trial)" in outward.out
    assert "18 optimiser steps per trial are few" in plan.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--trials", "0"), ["--trials is 0", "1 or more"]),
        (("--trials", "2"), ["--trials is 2", "3 depths", "at least 3"]),
        (("--seeds", "0"), ["--seeds is 0"]),
        (("--train-size", "5000"), ["train_size is 5,000", "96"]),
        (("--set", "depths=[0, 7]"), ["frozen_layers is 7", "2 layers"]),
        (("--set", "learning_rate=0"), ["learning_rate", "above 0"]),
        (("--set", "max_length=4000"), ["max_length is 4000", "positions"]),
        (("--max-time", "soon"), ["--max-time soon", "30m"]),
        (("--metric", "bleu"), ["bleu", "accuracy"]),
        (("--tracking-uri", "http://127.0.0.1:9"), ["127.0.0.1:9", "does not answer"]),
        (("--storage-path", "/proc/none"), ["/proc/none", "--storage-path"]),
        (("--set", "evaluations_per_epoch=9"), ["evaluations_per_epoch is 9", "6 steps an epoch"]),
        (("--set", "learning_rate.step=1e-4"), ["step (0.0001) must fit"]),
        (("--set", "learning_rate=true"), ["learning_rate", "above 0"]),
        (("--task", "all"), ["name each of the tasks"]),
    ],
)
def test_bad_input_is_refused_before_any_work_starts(
    tmp_path: Path,
    options: tuple[str, ...],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = make_bench(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        app(bench.search("bad", *options), standalone_mode=False)
    message = with_options(str(refused.value))
    assert "\n" not in message
    for word in words:
        assert word in message
    assert refused.value.exit_status == 2
    assert capsys.readouterr().out == ""
    assert not bench.journal("bad").exists()


# Quickly, of tables, in tests/unit/test_bad_tables.py.
@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_shuffled_labels_teach_nothing_and_the_command_says_so(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MiniLM's real weights on shuffled labels: no operating point, exit 3."""
    bench = Bench(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run(
        *("search", "--model", "minilm", "--task", "stdlib_shuffled", "--name", "nothing"),
        *("--space", "demo", "--train-size", "64", "--set", "epochs=1", "--set", "depths=[0, 6]"),
        *("--set", "learning_rate=5e-5", "--set", "max_length=12", "--seeds", "2", *ONE_AT_A_TIME),
        *("--set", "extend=false", "--set", "linear_probe=false"),
    )
    assert done.status == 3, done.err
    assert "Get the full model to learn first" in done.out
    assert (done.out + done.err).count("Get the full model to learn first") == 1
    assert "Traceback" not in done.err
    assert bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]


@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_a_question_that_is_asked_again_gets_seeds_of_its_own_and_says_so(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, train=96)
    monkeypatch.chdir(bench.folder)
    small = ("--set", "depths=[0, 1]", "--set", "epochs=1", "--set", "linear_probe=false")
    asked = (*SETTINGS, *small)
    first = run(*bench.search("first", *asked))
    assert "of this question here" not in first.err + first.out
    planned = run(*bench.search("second", *asked, "--dry-run"))
    assert "by first, if weights and data are the same" in planned.out
    second = run(*bench.search("second", *asked))
    assert (
        "search 'second' is the second of this question here, after first: each has its own error; "
        "its measuring seeds are 4 to 5, which none of them had" in second.err
    )
    begun = of_kind(bench.records("second"), "trial_started")
    assert {one["params"]["seed"] for one in begun} == {3, 4, 5}
    specification = json.loads((bench.journal("second").parent / "search.json").read_text())
    assert specification["earlier"] == {"names": ["first"], "seeds_are_fresh": True}
    # The same command goes on with it, and neither it nor the first one is asked anew.
    again = run(*bench.search("second", *asked))
    assert again.status == second.status and "continuing it" in again.err
    assert again.out == second.out
    (found,) = json.loads(run("operating-point", "second", "--format", "json").out)
    assert found["earlier_searches"] == ["first"]
    (found,) = json.loads(run("operating-point", "first", "--format", "json").out)
    assert "earlier_searches" not in found
    # From MLflow alone, where the journals are elsewhere.
    (bench.folder / "mlruns" / "searches").rename(bench.folder / "elsewhere")
    third = run(*bench.search("third", *asked, "--set", "seed=0"))
    assert "'third' is the third of this question here, after first and second" in third.err
    assert "its measuring seeds, 1 to 2, are not fresh" in third.err
