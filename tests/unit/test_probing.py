"""The probe beside a search's trials: recorded when it is ready, and never at the search's cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elsa_tune.errors import ModelError
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.process.interruption import Interruption
from elsa_tune.searching.record import SearchRecord
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune import probing
from elsa_tune.searching.tune.probing import Probing
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training.probe import ProbeResult
from tests.recorded_search import whole_search
from tests.unit.search_examples import make_spec
from tests.unit.tiny_trials import make_data

RESULT = ProbeResult(
    quality=0.75,
    predictions=np.zeros(30, dtype=np.int64),
    metrics={"accuracy": 0.75},
    train_examples=40,
    evaluation_examples=30,
    seconds=2.0,
)


class Cluster:
    """Ray, as far as a probe asks it.

    answer: gives what the worker left, None while it is not there. shares: of the tasks that were
    begun.
    """

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.shares: list[dict[str, float]] = []
        self.taken: list[str] = []
        self.forgotten: list[str] = []
        # As the mailbox has them.
        self.held = SimpleNamespace(remote=self._taken)
        self.forget = SimpleNamespace(remote=self.forgotten.append)

    def _taken(self, key: str) -> str:
        self.taken.append(key)
        return "what the worker left"

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0" * 56)

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(options=self._options)

    def _options(self, *, scheduling_strategy: Any = None, **share: float) -> Any:
        if scheduling_strategy is not None:  # beside the driver
            assert scheduling_strategy.node_id == "0" * 56 and scheduling_strategy.soft
        self.shares.append(share)
        return SimpleNamespace(remote=lambda *given: "task")

    def wait(self, tasks: list[str], timeout: float) -> tuple[list[str], list[str]]:
        return ([], tasks) if self.answer() is None else (tasks, [])

    def get(self, task: str, timeout: float) -> Any:
        return self.answer()


@dataclasses.dataclass
class Session:
    cluster: Cluster
    record: SearchRecord
    interruption: Interruption
    said: list[str]

    def probing(self) -> Probing:
        return Probing(make_data(), self.record, self.interruption, self.cluster)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    said: list[str] = []
    paths = SearchPaths(tmp_path, "example")
    cluster = Cluster(lambda: (RESULT, "node-1"))
    monkeypatch.setattr(probing, "ray", cluster)
    with Journal(paths.journal) as journal:
        nowhere: Any = SimpleNamespace(offer=lambda record: None)
        spec = make_spec(linear_probe=True, resources=Resources(cpus=4, gpus=0.5))
        record = SearchRecord(spec, paths, journal, nowhere, said.append)
        yield Session(cluster, record, Interruption(), said)


def test_a_result_is_recorded_once_with_its_predictions(session: Session) -> None:
    one = session.probing()
    assert one.trial is not None
    key = one.trial.key
    one.worked()
    one.collect()
    one.collect()
    (row,) = session.record.rows()
    assert (row.trial, row.phase, row.quality) == ("probe-N6", Phase.PROBE, 0.75)
    assert (row.probe_examples, row.examples, row.train_seconds) == (40, 30, 2.0)
    assert (
        row.learning_rate is row.seed is None and row.comparison == session.record.spec.comparison
    )
    (trial,) = session.record.state().trials.values()
    assert trial.end is not None and trial.end.artifact == "predictions/probe-N6.npz"
    assert session.record.state().planned_trials == [] and session.said == []
    # A resumed session does not probe again.
    assert session.probing().trial is None
    assert session.cluster.taken == session.cluster.forgotten == [key]
    # The regression takes no share of the trials'.
    assert session.cluster.shares == [{"num_cpus": 0}]


@pytest.mark.parametrize("written", [1, 2])
def test_half_of_one_is_made_again(session: Session, written: int) -> None:
    """The driver was killed between its records."""
    one = session.probing()
    one.worked()
    write = session.record.write
    records: list[Any] = []
    session.record.write = records.append  # type: ignore[method-assign]
    one.collect()
    for record in records[:written]:
        write(record)
    session.record.write = write  # type: ignore[method-assign]
    again = session.probing()
    assert again.trial is not None
    again.worked()
    again.collect()
    (trial,) = session.record.state().trials.values()
    assert trial.end is not None and (trial.start.attempt, trial.end.attempt) == (2, 2)
    assert [row.quality for row in session.record.rows()] == [0.75]
    assert session.probing().trial is None


def test_a_search_that_has_ended_without_its_probe_is_not_complete(session: Session) -> None:
    """`resume` makes it, as it does whatever trial is missing."""
    record = session.record
    for entry in whole_search(trials=3):
        record.write(entry)
    candidates = tuple(FreezeDepth.of(frozen) for frozen in range(3))
    spec = dataclasses.replace(record.spec, candidates=candidates, explored=candidates, seeds=1)
    plan = Plan(spec, record.state, record.paths.folder)
    assert not plan.left and plan.lacks_probe and not plan.is_complete
    without = dataclasses.replace(spec, linear_probe=False)
    assert Plan(without, record.state, record.paths.folder).is_complete
    one = session.probing()
    one.worked()
    one.collect()
    assert not plan.lacks_probe and plan.is_complete


def test_on_cpus_it_is_a_task_of_its_own_with_a_trials_share(session: Session) -> None:
    resources = Resources(cpus=4, gpus=0)
    session.record.spec = dataclasses.replace(session.record.spec, resources=resources)
    one = session.probing()
    assert one.trial is None
    one.start()
    one.collect()
    assert [row.trial for row in session.record.rows()] == ["probe-N6"]
    session.probing().start()  # a resumed session does not probe again
    assert session.cluster.shares == [{"num_cpus": 4}] and session.cluster.taken == []


def test_what_got_lost_on_its_way_is_said(session: Session) -> None:
    session.cluster.get = lambda task, timeout: None  # type: ignore[method-assign]
    one = session.probing()
    one.worked()
    one.collect()
    assert session.said == [
        "no linear probe was made: RunError: what its worker found was lost; the search goes on "
        "without it, and `resume` tries again"
    ]


def test_one_judged_by_a_part_of_the_rows_keeps_no_predictions(session: Session) -> None:
    part = dataclasses.replace(RESULT, evaluation_examples=20, notes=("20 of 30 rows",))
    session.cluster.answer = lambda: (part, "node-1")
    one = session.probing()
    one.worked()
    one.collect()
    (row,) = session.record.rows()
    assert row.examples == 20 and row.predictions is None
    assert session.said == ["note: 20 of 30 rows"]


def test_a_search_that_wants_none_starts_none(session: Session) -> None:
    session.record.spec = dataclasses.replace(session.record.spec, linear_probe=False)
    one = session.probing()
    assert one.trial is None
    one.collect(60)
    assert session.record.rows() == []


def test_one_that_fails_is_said_once(session: Session) -> None:
    def fail() -> None:
        error = RuntimeError("ray::_fit() pid=1\n  Traceback")
        error.cause = ModelError("the weights of minilm\ncannot be read")  # type: ignore[attr-defined]
        raise error

    session.cluster.answer = fail
    one = session.probing()
    one.worked()
    one.collect()
    one.collect(60)
    assert session.said == [
        "no linear probe was made: ModelError: the weights of minilm; cannot be read; the search "
        "goes on without it, and `resume` tries again"
    ]
    assert session.record.rows() == []


def test_an_attempt_that_fails_is_said_only_where_no_other_one_succeeds(session: Session) -> None:
    one = session.probing()
    one.failed(RuntimeError("a worker died"))
    assert session.said == []  # another worker may do it
    one.worked()
    one.collect()
    assert session.said == [] and len(session.record.rows()) == 1


def test_what_no_worker_could_do_is_said_once_the_trials_have_ended(session: Session) -> None:
    one = session.probing()
    for _ in range(2):
        one.failed(RuntimeError("a worker died"))
    one.collect()
    one.collect(60)
    assert session.said == [
        "no linear probe was made: RuntimeError: a worker died; the search goes on without it, "
        "and `resume` tries again"
    ]


def test_one_that_is_late_is_left(session: Session) -> None:
    session.cluster.answer = lambda: None
    one = session.probing()
    one.worked()
    one.collect(0.2)
    assert session.record.rows() == [] and session.said == []
    session.cluster.answer = lambda: (RESULT, "node-1")
    session.interruption.requested = True
    one.collect(60)
    assert session.record.rows() == []  # Ray may be gone
    session.interruption.requested = False
    one.collect()
    assert len(session.record.rows()) == 1


@pytest.mark.parametrize(
    ("seconds_left", "waits"), [(0.0, 5.0), (120.0, 120.0), (3600.0, 600.0), (math.inf, 600.0)]
)
def test_the_end_waits_as_long_as_the_session_has_time(
    session: Session, monkeypatch: pytest.MonkeyPatch, seconds_left: float, waits: float
) -> None:
    """A limit that leaves hours is no reason to lose the probe."""
    one = session.probing()
    waited: list[float] = []
    monkeypatch.setattr(one, "collect", waited.append)
    one.finish(seconds_left)
    assert waited == [waits]


def test_one_that_no_worker_began_in_time_is_said(session: Session) -> None:
    session.probing().finish(0)
    assert session.said == [
        "no linear probe was made: the session's time was over before it began; this session ends "
        "without it, and `resume` tries again"
    ]


def test_one_that_is_not_waited_for_is_said(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_LITTLE_PATIENCE", 0.2)
    session.cluster.answer = lambda: None
    one = session.probing()
    one.worked()
    one.finish(0)
    assert session.said == [
        "no linear probe was made: it was not ready 0 s after the trials had ended; this session "
        "ends without it, and `resume` tries again"
    ]
    session.cluster.answer = lambda: (RESULT, "node-1")
    again = session.probing()
    again.worked()
    again.finish(0)
    assert len(session.record.rows()) == 1 and len(session.said) == 1


def test_what_a_session_has_left_of_its_time() -> None:
    now = [100.0]
    limits = [TimeLimit(60.0, lambda: now[0]), TimeLimit(None, lambda: now[0])]
    used = TimeLimit(60.0, lambda: now[0], gpu_hours=2.0, used=lambda: 2.0)
    assert [limit.seconds_left for limit in limits] == [60.0, math.inf]
    assert used.has_passed() and used.seconds_left == 0.0
    now[0] = 170.0
    assert [limit.seconds_left for limit in limits] == [0.0, math.inf]
