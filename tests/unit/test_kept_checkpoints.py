"""What a search makes of its trials' checkpoints: how often, how large, and what counts once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ray.exceptions import GetTimeoutError

from elsa_tune.errors import UsageError
from elsa_tune.searching.checkpoint_size import checkpoint_text, size_text
from elsa_tune.searching.cluster.hangs import SHORTEST_HANG, TIMES
from elsa_tune.searching.eta import evaluation_seconds, seconds_left, time_range
from elsa_tune.searching.inputs import SearchOptions, read_checkpoint, search_command
from elsa_tune.searching.planning.known import KnownTrial, known_trial
from elsa_tune.searching.record import SearchRecord
from elsa_tune.searching.specification import (
    asked_settings,
    differing_settings,
    load_specification,
    more_of,
    save_specification,
)
from elsa_tune.searching.tune import checkpoints
from elsa_tune.searching.tune.checkpoints import DriversFolder, checkpoint_of
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Report, decode, encode
from elsa_tune.tracking.mlflow.sink import MlflowSink
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.checkpoints import FolderCheckpoints
from tests.recorded_search import search_started, trial_started
from tests.unit.search_examples import make_spec

RUNNING = TrialStatus.RUNNING


def test_how_often_is_a_word_or_a_time() -> None:
    assert read_checkpoint("auto") == read_checkpoint(" AUTO ") == "auto"
    assert read_checkpoint("never") == "never"
    assert read_checkpoint("90") == 90
    assert read_checkpoint("10m") == 600
    for wrong in ("0", "often", "", "-3", "1 fortnight"):
        with pytest.raises(UsageError) as caught:
            read_checkpoint(wrong)
        assert str(caught.value) == (
            f"`checkpoint` {wrong}: write auto, never, or a time above 0 such as 90s, 30m, 2h or 1d"
        )


def test_a_search_is_the_same_whatever_its_checkpoints(tmp_path: Path) -> None:
    often = make_spec(checkpoint=30.0)
    assert differing_settings(often, make_spec()) == []
    assert often.comparison == make_spec().comparison
    paths = SearchPaths(tmp_path, "example")
    paths.folder.mkdir()
    save_specification(often, paths)
    assert load_specification(paths).checkpoint == 30.0
    # One that an earlier version recorded says nothing of them.
    text = paths.specification.read_text()
    assert text.count(' "checkpoint": 30.0,\n') == 1
    paths.specification.write_text(text.replace(' "checkpoint": 30.0,\n', ""))
    assert load_specification(paths).checkpoint == "auto"
    options = SearchOptions(model="minilm", task=["rte"], checkpoint="never")
    assert "checkpoint" not in search_command(options)


def test_a_later_session_may_save_more_often() -> None:
    spec = make_spec(checkpoint="never")
    assert more_of(None, False) is None
    # The command that began it leaves it as recorded, unless it says more than the default.
    assert asked_settings(make_spec()) == {}
    assert asked_settings(spec) == {"checkpoint": "never"}
    often = more_of(None, False, {"checkpoint": 60.0})
    both = more_of(5, False, {"checkpoint": "auto", "gpu_hours": None})
    assert often is not None and both is not None
    assert often(spec) == dataclasses.replace(spec, checkpoint=60.0)
    changed = both(spec)
    assert (changed.seeds, changed.checkpoint) == (5, "auto")


def test_a_trial_has_the_checkpoint_that_its_search_asks_for(tmp_path: Path) -> None:
    kept = DriversFolder(folder=tmp_path, node="a", mailbox=None)
    versions = {"version.elsa-tune": "1.2", "version.git_commit": "abc"}
    for asked, every in (("auto", None), (30.0, 30.0)):
        spec = make_spec(checkpoint=asked, versions=versions)
        trial = spec.trial(Phase.MEASURE, FULL_MODEL, 2e-5, 1)
        checkpoint = checkpoint_of(trial, spec, kept)
        assert checkpoint is not None
        assert (checkpoint.key, checkpoint.every) == (trial.key, every)
        assert checkpoint.version == "1.2 abc"
        assert checkpoint_of(trial, spec, None) is None
    assert checkpoint_of(trial, make_spec(checkpoint="never"), kept) is None


def test_a_plan_says_how_large_a_checkpoint_becomes() -> None:
    spec = make_spec()
    text = checkpoint_text(spec)
    # MiniLM's 22.7 million parameters and two moments of each, 4 bytes a number.
    assert text.startswith("up to 273 MB (the full model), up to 1.8 MB (the head alone); first ")
    assert text.endswith("after 5 min 00 s of a trial, then for at most 1 % of its time")
    seconds = checkpoint_text(dataclasses.replace(spec, checkpoint=30.0))
    assert seconds.endswith("(the head alone); every 30 s of a trial")
    alone = make_spec(candidates=(read_candidate("6"),), explored=(), checkpoint=30.0)
    assert checkpoint_text(alone) == "up to 1.8 MB (the head alone); every 30 s of a trial"
    never = checkpoint_text(dataclasses.replace(spec, checkpoint="never"))
    assert never == "none: a trial that is cut short starts again"


def test_sizes_are_written_for_people() -> None:
    assert [size_text(size) for size in (1_340_000_000, 87_400_000, 9_870_000, 40_000)] == [
        "1.3 GB",
        "87 MB",
        "9.9 MB",
        "0.0 MB",
    ]


# The journal's side: a report that an earlier attempt made counts as one, and as no time.


def measuring() -> SearchSpec:
    """Four seeds of the full model alone, at one rate."""
    rates = RateList(values=(2e-5,))
    return make_spec(candidates=(FULL_MODEL,), explored=(), tries=0, seeds=4, rates=rates)


def ran(
    spec: SearchSpec, *reported: float, restored: int = 0, ended: float | None = None, seed: int = 1
) -> KnownTrial:
    """Return a trial that began at 0 and reported at these seconds."""
    status = RUNNING if ended is None else TrialStatus.COMPLETED
    return KnownTrial(
        trial=spec.trial(Phase.MEASURE, FULL_MODEL, 2e-5, seed),
        status=status,
        qualities=(0.7,) * len(reported),
        started=0.0,
        reported=reported,
        restored=restored,
        ended=ended,
    )


def test_restored_evaluations_tell_no_pace() -> None:
    """Its first one was restored at once, and the second, of 100 s, was nearly done already."""
    spec = measuring()
    alone = ran(spec, 1.0, 2.0, restored=1, ended=2.0)
    assert seconds_left(spec, [alone], 2.0) is None
    assert time_range(spec, [alone], 2.0) is None
    assert evaluation_seconds(spec, [alone], alone.trial) is None
    # Another one tells it: the two to come last as long as that.
    other = ran(spec, 100.0, 200.0, ended=200.0, seed=2)
    assert seconds_left(spec, [alone, other], 200.0) == 400.0
    assert evaluation_seconds(spec, [alone, other], alone.trial) == 100.0


def test_a_continued_trial_has_the_rest_to_come() -> None:
    spec = dataclasses.replace(measuring(), seeds=2)
    spec = dataclasses.replace(spec, recipe=dataclasses.replace(spec.recipe, epochs=4))
    other = ran(spec, 100.0, 200.0, 300.0, 400.0, ended=400.0, seed=2)
    # Two were restored, and two are left, of which one is under way since 1 s.
    running = ran(spec, 0.5, 1.0, restored=2)
    left = seconds_left(spec, [other, running], 1.0)
    assert left == pytest.approx(200.0, rel=0.1)
    # From its own third one on, it has a pace of its own: the last 90 s.
    own = ran(spec, 0.5, 1.0, 11.0, 101.0, restored=2, ended=101.0)
    assert evaluation_seconds(spec, [own], own.trial) == 90.0


def report(evaluation: int, attempt: int = 1, restored: bool = False) -> Report:
    return Report(
        trial="measure-N0-s1",
        attempt=attempt,
        evaluation=evaluation,
        step=10 * evaluation,
        metrics={"quality": 0.5 + evaluation / 100},
        restored=restored,
        time=float(10 * attempt + evaluation),
    )


def test_a_report_keeps_that_it_was_restored() -> None:
    restored = report(1, restored=True)
    assert decode(encode(restored)) == restored
    # Earlier versions' lines have no such word.
    plain = encode(report(1)).replace(',"restored":false', "")
    assert "restored" not in plain and decode(plain) == report(1)


def test_mlflow_is_sent_an_evaluation_once() -> None:
    writer = Mock(spec=MlflowWriter, uri="sqlite:////nowhere.db", files_uri="file:///nowhere")
    sink = MlflowSink(Path("/nowhere/journal.jsonl"), writer)
    sink.send([search_started()])
    sink.send([trial_started("measure-N0-s1")])
    sink.send([report(1), report(2)])
    sink.send([trial_started("measure-N0-s1", attempt=2)])
    sink.send([report(1, 2, restored=True), report(2, 2, restored=True), report(3, 2)])
    sent = []
    for call in writer.log.call_args_list:
        _, trial, reports, _ = call.args
        if trial:
            sent += [(report.attempt, report.evaluation) for report in reports]
    assert sent == [(1, 1), (1, 2), (2, 3)]
    # The search's state counts all of the last attempt.
    assert len(sink.state.trials["measure-N0-s1"].reports) == 3


@pytest.fixture
def record(tmp_path: Path) -> Iterator[SearchRecord]:
    spec = make_spec()
    paths = SearchPaths(tmp_path, spec.name)
    with Journal(paths.journal) as journal:
        unsent = Forwarder(paths, MlflowStore("sqlite://").sink(paths.journal))
        yield SearchRecord(spec, paths, journal, unsent, pytest.fail)


def test_the_journal_has_how_many_evaluations_were_restored(record: SearchRecord) -> None:
    trial = record.spec.trial(Phase.MEASURE, FULL_MODEL, 2e-5, 1)
    record.begin(trial)
    for evaluation in (1, 2):
        result = {
            "evaluation": evaluation,
            "step": evaluation,
            "metrics": {},
            "notes": (),
            "restored": evaluation == 1,
            "holdout_quality": None,
            **dict.fromkeys(("quality", "train_loss", "eval_loss", "epoch"), 0.5),
            **dict.fromkeys(("train_seconds", "examples_per_second", "peak_memory_mb"), 1.0),
            "trainable_parameters": 1,
            **dict.fromkeys(("precision", "micro_batch_size", "batches", "prefix"), "x"),
        }
        record.report(trial.key, result, {})
    recorded = record.trial(trial.key)
    assert recorded is not None
    known = known_trial(record.spec, recorded)
    assert len(known.reported) == 2 and known.restored == 1


def test_checkpoints_of_trials_that_go_on_are_kept_and_no_others(record: SearchRecord) -> None:
    kept = FolderCheckpoints(record.paths.checkpoints)
    trials = []
    for seed, status in enumerate(
        (TrialStatus.COMPLETED, TrialStatus.DIVERGED, TrialStatus.FAILED, TrialStatus.INTERRUPTED)
    ):
        trial = record.spec.trial(Phase.MEASURE, FULL_MODEL, 2e-5, seed)
        record.begin(trial)
        record.end(trial.key, status)
        kept.save(trial.key, lambda file: file.write(b"state"))
        trials.append(trial.key)
    record.tidy_checkpoints()
    assert [kept.load(key) for key in trials] == [None, None, b"state", b"state"]
    for key in trials:
        record.drop_checkpoint(key)
    record.tidy_checkpoints()
    assert not record.paths.checkpoints.exists()


def test_a_trial_that_saves_goes_on_before_it_counts_as_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its last news is an evaluation ago, a tenth of what may pass without news.
    assert checkpoints._SAVE_SECONDS < SHORTEST_HANG - SHORTEST_HANG / TIMES
    waited: list[float] = []

    def get(answer: object, timeout: float) -> object:
        waited.append(timeout)
        raise GetTimeoutError("Get timed out: some object(s) not ready.")

    monkeypatch.setattr(checkpoints.ray, "get", get)
    here = SimpleNamespace(get_node_id=lambda: "here")
    monkeypatch.setattr(checkpoints.ray, "get_runtime_context", lambda: here)
    saving = SimpleNamespace(remote=lambda *given: None)
    elsewhere = DriversFolder(
        folder=tmp_path, node="there", mailbox=SimpleNamespace(save_checkpoint=saving)
    )
    with pytest.raises(OSError, match=r"^the driver's machine did not answer within 240 s$"):
        elsewhere.save("measure-N1", lambda file: file.write(b"state"))
    assert waited == [checkpoints._SAVE_SECONDS]
