"""What goes wrong while a trial is recorded costs no trial."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from elsa_tune.searching.tune.ray_callback import Recorder
from elsa_tune.searching.tune.trainable import TRIAL
from elsa_tune.specs.adapt.freeze import FULL_MODEL
from elsa_tune.specs.trial import Phase
from tests.unit.search_examples import make_spec


def broken(*_: Any) -> Any:
    raise ValueError("no such key")


def recorder(said: list[str]) -> Recorder:
    """Return a recorder whose record and whose mailbox fail. said: what it says."""
    record: Any = SimpleNamespace(begin=broken)
    work: Any = SimpleNamespace(mailbox=SimpleNamespace(take=SimpleNamespace(remote=broken)))
    board: Any = SimpleNamespace(say=said.append)
    unused: Any = SimpleNamespace()
    return Recorder(record, unused, work, board, unused, unused)


def test_a_record_that_cannot_be_made_is_said_and_raises_nothing() -> None:
    said: list[str] = []
    trial = make_spec().trial(Phase.EXPLORE, FULL_MODEL, 2e-5, 0)
    ray_trial: Any = SimpleNamespace(config={TRIAL: trial})
    recorder(said).on_trial_start(0, [], ray_trial)
    assert said == ["a record could not be made (ValueError: no such key)"]


def test_predictions_that_do_not_arrive_are_said_and_cost_no_trial() -> None:
    said: list[str] = []
    assert recorder(said)._predictions("measure-N0") is None
    assert said == ["the predictions of measure-N0 did not arrive (ValueError)"]
