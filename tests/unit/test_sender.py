"""What a record names is sent to MLflow from the search's own folder alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest.mock import Mock

import pytest

from elsa_tune.errors import TrackingError
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal_records import Decision, LatePredictions
from elsa_tune.tracking.mlflow.sink import MlflowSink
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.record_names import REPORT
from tests.recorded_search import report, search_started, trial_ended, trial_started

TRIAL = "measure-N0-s0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a search's folder, beside a file that nobody wants to see in MLflow."""
    folder = tmp_path / "searches" / "first"
    (folder / "predictions").mkdir(parents=True)
    (folder / "predictions" / "a.npz").write_text("predictions")
    (folder / "report").mkdir()
    (folder / "report" / "index.html").write_text("a page")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("a key")
    (folder / "linked.npz").symlink_to(tmp_path / "private" / "key")
    (folder / "page").mkdir()
    (folder / "page" / "figure.png").symlink_to(tmp_path / "private" / "key")
    return folder


def sent(folder: Path, artifact: str) -> list[str]:
    """Return the files and folders that reach the store."""
    store = Mock(spec=MlflowWriter, uri="sqlite:////nowhere.db", files_uri="file:///nowhere")
    sender = MlflowSink(folder / "journal.jsonl", store)
    ended = dataclasses.replace(trial_ended(TRIAL, TrialStatus.COMPLETED, 0.5), artifact=artifact)
    report = Decision(what=REPORT, value=artifact)
    for record in (search_started(), trial_started(TRIAL), ended, report):
        sender.send([record])
    return [call.args[-1].name for call in store.add_artifact.call_args_list]


@pytest.mark.parametrize("artifact", ["predictions/a.npz", "report"])
def test_what_lies_in_the_folder_is_sent(artifact: str, folder: Path) -> None:
    assert sent(folder, artifact) == [Path(artifact).name] * 2


def test_late_predictions_are_sent_to_the_run_of_their_trial(folder: Path) -> None:
    store = Mock(spec=MlflowWriter, uri="sqlite:////nowhere.db", files_uri="file:///nowhere")
    sender = MlflowSink(folder / "journal.jsonl", store)
    ended = trial_ended(TRIAL, TrialStatus.COMPLETED, 0.5)
    late = LatePredictions(trial=TRIAL, artifact="predictions/a.npz")
    for record in (search_started(), trial_started(TRIAL), ended, late):
        sender.send([record])
    _, *logged = store.log.call_args.args
    assert logged == [TRIAL, [], {"predictions": late.artifact}]
    _, *added = store.add_artifact.call_args.args
    assert added == [TRIAL, folder / late.artifact]


@pytest.mark.parametrize("is_same_driver", [True, False])
def test_a_checkpoint_ahead_of_the_journal_leaves_no_gap(
    folder: Path, is_same_driver: bool
) -> None:
    """An attempt continues behind its third evaluation, of which earlier ones reported one."""
    store = Mock(spec=MlflowWriter, uri="sqlite:////nowhere.db", files_uri="file:///nowhere")
    store.lacks.return_value = False
    sender = MlflowSink(folder / "journal.jsonl", store)
    earlier = [search_started(), trial_started(TRIAL), report(TRIAL, 1, 0.5)]
    for record in earlier:
        if is_same_driver:
            sender.send([record])
        else:
            sender.learn(record)
    sender.send([trial_started(TRIAL, attempt=2)])
    reports = [report(TRIAL, number, 0.5, attempt=2) for number in (1, 2, 3, 4)]
    restored = [dataclasses.replace(each, restored=True) for each in reports[:3]]
    sender.send(restored[:2])
    sender.send([restored[2], reports[3]])
    points = []
    for call in store.log.call_args_list[-2:]:
        points += [each.evaluation for each in call.args[2]]
    assert points == [2, 3, 4]
    # Begun again at the same checkpoint, it has no point twice.
    sender.send([trial_started(TRIAL, attempt=3)])
    sender.send([dataclasses.replace(each, attempt=3) for each in restored])
    assert store.log.call_args.args[2] == []


@pytest.mark.parametrize(
    "artifact",
    ["../../private/key", "predictions/../../../private", "{}/private/key", "linked.npz", "page"],
)
def test_what_lies_elsewhere_is_refused(
    artifact: str, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert sent(folder, artifact.format(tmp_path)) == []
    assert caplog.text.count("leads out of the search's folder") == 2


def test_a_search_folder_may_be_a_link_itself(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to(folder)
    assert sent(tmp_path / "here", "report") == ["report"] * 2


def test_a_store_that_hides_an_experiment_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Mock(**{"get_experiment_by_name.return_value": None})
    writer = MlflowWriter("http://user:password@host")
    monkeypatch.setattr(writer, "client", lambda: client)
    monkeypatch.setattr(writer, "initialise", lambda: None)
    sender = MlflowSink(folder / "journal.jsonl", writer)
    with pytest.raises(TrackingError, match="does not show it") as caught:
        sender.send([search_started()])
    assert client.create_experiment.call_count == 1
    assert "password" not in str(caught.value)
