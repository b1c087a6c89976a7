"""How a trial ends is judged by what it reported, whatever Ray says of it."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elsa_tune.searching.cluster.repeats import Repeats
from elsa_tune.searching.record import SearchRecord
from elsa_tune.searching.tune import ray_callback
from elsa_tune.searching.tune.ray_callback import Recorder
from elsa_tune.searching.tune.trainable import DIVERGED, NODE, TRIAL
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL
from elsa_tune.specs.trial import Phase, Recipe, Selection, TrialSpec, TrialStatus
from elsa_tune.testing import Pretended
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import RecordedTrial, SearchState
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import make_data


def quality(candidate: Candidate, learning_rate: float, seed: int, epoch: float) -> float:
    return 0.75


class Recorded:
    """A trial that Ray Tune begins and tells of, and what becomes of it in the record."""

    def __init__(self, record: SearchRecord, monkeypatch: pytest.MonkeyPatch) -> None:
        self.record = record
        self.said: list[str] = []
        self.repeats = Repeats()
        data = make_data()
        self._left = np.zeros_like(data.evaluation.labels)  # in the mailbox
        self.timeouts = 0  # how often the mailbox does not answer in time
        monkeypatch.setattr(ray_callback, "ray", SimpleNamespace(get=self._get))
        self.forgotten: list[str] = []  # there
        mailbox = SimpleNamespace(
            held=SimpleNamespace(remote=lambda key: key),
            forget=SimpleNamespace(remote=self.forgotten.append),
        )
        parts: Any = {
            "scheduler": SimpleNamespace(stopped=set()),
            "work": SimpleNamespace(mailbox=mailbox, data=data),
            "board": SimpleNamespace(say=self.said.append, ended=lambda trial: None),
            "probing": None,
        }
        self.recorder = Recorder(record, repeats=self.repeats, **parts)
        self.begin(record.spec.trial(Phase.MEASURE, FULL_MODEL, 3e-5, 1))

    def begin(self, spec: TrialSpec) -> None:
        """Have this trial begin, and be the one that is told of."""
        self.spec = spec
        # As Ray Tune has it: one that failed without a word.
        self.trial: Any = SimpleNamespace(
            config={TRIAL: spec}, trial_id=str(spec.seed), pickled_error_file=None
        )
        self.recorder.on_trial_start(0, [], self.trial)

    def _get(self, key: str, timeout: float) -> np.ndarray:
        if self.timeouts:
            self.timeouts -= 1
            raise TimeoutError
        return self._left

    def report(self, evaluations: int) -> None:
        """Have the trial report its first evaluations."""
        pretended = Pretended(quality, chance=0.5)
        spec = self.record.spec
        results = pretended(
            self.spec,
            None,
            share=spec.resources,
            candidates=spec.candidates,
            checkpoint=None,
        )
        for _ in range(evaluations):
            result = dataclasses.asdict(next(results)) | {NODE: "node-1"}
            self.recorder.on_trial_result(0, [], self.trial, result)

    def error(self) -> None:
        self.recorder.on_trial_error(0, [], self.trial)

    @property
    def ended(self) -> RecordedTrial:
        """The trial as it is recorded, once it has ended."""
        [trial] = self.record.state().trials.values()
        assert not trial.runs
        return trial


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    paths = SearchPaths(tmp_path, "example")
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    with Journal(paths.journal) as journal:
        record = SearchRecord(make_spec(), paths, journal, nowhere, print)
        yield Recorded(record, monkeypatch)


def test_a_pretended_trial_with_a_holdout_ends_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(epochs=2, train_size=100, selection=Selection.HOLDOUT)
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    paths = SearchPaths(tmp_path, "example")
    with Journal(paths.journal) as journal:
        record = SearchRecord(make_spec(recipe=recipe), paths, journal, nowhere, print)
        recorded = Recorded(record, monkeypatch)
        recorded.report(2)
        recorded.error()
        end = recorded.ended.end
    assert end is not None and end.status is TrialStatus.COMPLETED
    assert end.metrics["quality"] == 0.75


def test_one_that_reported_everything_lost_nothing_with_its_worker(recorded: Recorded) -> None:
    recorded.report(2)
    recorded.error()
    end = recorded.ended.end
    assert end is not None and end.status is TrialStatus.COMPLETED
    assert end.metrics["quality"] == 0.75 and end.message == ""
    assert end.artifact is not None and (recorded.record.paths.folder / end.artifact).exists()
    # Nothing failed.
    assert recorded.repeats.too_many is None and recorded.repeats._failures == 0
    assert recorded.said == []


def test_one_that_lacks_an_evaluation_has_failed(recorded: Recorded) -> None:
    recorded.report(1)
    recorded.error()
    end = recorded.ended.end
    assert end is not None and end.status is TrialStatus.FAILED
    assert end.message == "RuntimeError: it ended without saying why"
    assert end.artifact is None and recorded.repeats._failures == 1


def test_one_that_diverged_has_no_second_end(recorded: Recorded) -> None:
    recorded.report(1)
    recorded.recorder.on_trial_result(0, [], recorded.trial, {DIVERGED: "the loss is nan"})
    recorded.error()
    assert recorded.ended.status is TrialStatus.DIVERGED
    assert recorded.ended.start.attempt == 1 and recorded.repeats._failures == 0


def test_one_that_could_not_begin_again_has_failed(recorded: Recorded) -> None:
    recorded.report(1)
    recorded.error()
    recorded.trial = SimpleNamespace(**vars(recorded.trial))  # Ray Tune makes another of it
    recorded.error()
    assert recorded.ended.status is TrialStatus.FAILED and recorded.ended.start.attempt == 2


@pytest.mark.parametrize(
    ("evaluations", "status"), [(1, TrialStatus.INTERRUPTED), (2, TrialStatus.COMPLETED)]
)
def test_what_ray_lets_go_without_a_word(
    recorded: Recorded, evaluations: int, status: TrialStatus
) -> None:
    recorded.report(evaluations)
    recorded.recorder.end_the_rest()
    end = recorded.ended.end
    assert end is not None and end.status is status
    has_predictions = end.artifact is not None
    assert has_predictions == (status is TrialStatus.COMPLETED)


def test_late_predictions_are_fetched_at_the_end(recorded: Recorded) -> None:
    recorded.timeouts = 1
    recorded.report(2)
    recorded.recorder.on_trial_complete(0, [], recorded.trial)
    before = recorded.ended.end
    assert before is not None and before.status is TrialStatus.COMPLETED
    assert before.artifact is None and recorded.forgotten == []
    late = f"the predictions of {recorded.spec.key} did not arrive (TimeoutError); they are asked "
    assert recorded.said == [f"{late}for again"]
    recorded.recorder.end_the_rest()
    end = recorded.ended.end
    assert end is not None and end.artifact is not None
    assert end == dataclasses.replace(before, artifact=end.artifact)
    assert (recorded.record.paths.folder / end.artifact).exists()
    assert recorded.forgotten == [recorded.spec.key] and len(recorded.said) == 1
    # Whoever reads the journal finds them.
    records = read_journal(recorded.record.paths.journal)
    assert SearchState.replay(records).trials[recorded.spec.key].end == end
    recorded.recorder.end_the_rest()
    assert read_journal(recorded.record.paths.journal) == records


def test_late_predictions_are_fetched_as_soon_as_those_of_another_trial_arrive(
    recorded: Recorded,
) -> None:
    recorded.timeouts = 1
    recorded.report(2)
    recorded.recorder.on_trial_complete(0, [], recorded.trial)
    assert recorded.ended.end is not None and recorded.ended.end.artifact is None
    first = recorded.spec
    recorded.begin(dataclasses.replace(first, seed=first.seed + 1))
    recorded.report(2)
    recorded.recorder.on_trial_complete(0, [], recorded.trial)
    trials = recorded.record.state().trials
    ends = [trials[key].end for key in (first.key, recorded.spec.key)]
    assert all(end is not None and end.artifact is not None for end in ends)
    assert recorded.forgotten == [recorded.spec.key, first.key]
    assert len(recorded.said) == 1


@pytest.mark.parametrize(("timeouts", "ray_answers"), [(2, True), (1, False)])
def test_predictions_that_never_come_are_said_to_be_lost(
    recorded: Recorded, timeouts: int, ray_answers: bool
) -> None:
    recorded.timeouts = timeouts
    recorded.report(2)
    recorded.recorder.on_trial_complete(0, [], recorded.trial)
    recorded.recorder.end_the_rest(ray_answers=ray_answers)
    assert recorded.said[1:] == [f"the predictions of {recorded.spec.key} are lost"]
    end = recorded.ended.end
    assert end is not None and end.artifact is None
    assert recorded.timeouts == 0


def test_a_ray_without_its_node_is_asked_for_nothing(recorded: Recorded) -> None:
    recorded.report(2)
    recorded.recorder.end_the_rest(ray_answers=False)
    end = recorded.ended.end
    assert end is not None and end.status is TrialStatus.COMPLETED and end.artifact is None
    assert recorded.said == [f"the predictions of {recorded.spec.key} are lost with Ray's node"]


# ---- what goes wrong while a trial is recorded costs no trial ----


def broken(*_: Any) -> Any:
    raise ValueError("no such key")


def broken_recorder(said: list[str]) -> Recorder:
    """Return one whose record and whose mailbox fail. said: what it says."""
    record: Any = SimpleNamespace(begin=broken)
    work: Any = SimpleNamespace(mailbox=SimpleNamespace(held=SimpleNamespace(remote=broken)))
    board: Any = SimpleNamespace(say=said.append)
    unused: Any = SimpleNamespace()
    return Recorder(record, unused, work, board, unused, unused)


def test_predictions_that_find_no_room_are_said_once_and_cost_no_trial(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("elsa_tune.searching.record.write_aside", full)
    first = recorded.spec
    recorded.report(2)
    recorded.recorder.on_trial_complete(0, [], recorded.trial)
    recorded.begin(dataclasses.replace(first, seed=first.seed + 1))
    recorded.report(2)
    recorded.recorder.on_trial_complete(0, [], recorded.trial)
    for trial in recorded.record.state().trials.values():
        end = trial.end
        assert end is not None and end.status is TrialStatus.COMPLETED
        assert end.metrics["quality"] == 0.75 and end.artifact is None
    [line] = capsys.readouterr().out.splitlines()
    folder = recorded.record.paths.predictions
    assert line.startswith(f"cannot keep predictions in {folder}: ")
    assert "No space left on device" in line


def test_a_record_that_cannot_be_made_is_said_and_raises_nothing() -> None:
    said: list[str] = []
    trial = make_spec().trial(Phase.EXPLORE, FULL_MODEL, 2e-5, 0)
    ray_trial: Any = SimpleNamespace(config={TRIAL: trial})
    broken_recorder(said).on_trial_start(0, [], ray_trial)
    assert said == ["a record could not be made (ValueError: no such key)"]


def test_predictions_that_do_not_arrive_are_said_and_cost_no_trial() -> None:
    said: list[str] = []
    assert broken_recorder(said)._predictions_in_time("measure-N0") is None
    (line,) = said
    assert line.startswith("the predictions of measure-N0 did not arrive (ValueError); ")
