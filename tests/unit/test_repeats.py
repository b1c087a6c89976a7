"""A trial whose node went away is begun again; one that fails by itself soon is not."""

from __future__ import annotations

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    RayActorError,
    WorkerCrashedError,
)

from elsa_tune.errors import LeavingError
from elsa_tune.searching.cluster.repeats import (
    ATTEMPTS,
    FAILURES_AT_FIRST,
    LOSSES,
    Repeats,
    TrialEnd,
    lost_its_node,
)
from elsa_tune.specs.trial import TrialStatus

KEY = "measure-N0-lr3e-05-s1"
FAILED = TrialEnd(TrialStatus.FAILED, "OSError: no space left on device")


def dead(message: str) -> RayActorError:
    """Return what Ray raises of a worker that died; the messages are its own (2.60)."""
    error = ActorDiedError()
    error.args = (message,)
    error.error_msg = message
    assert message in str(error)
    return error


NODE_GONE = dead("The actor died because its node has died. Node Id: 97812bd4\n\treceived SIGTERM")
WORKER_GONE = dead("The actor is dead because its worker process has died. SYSTEM_ERROR")


def test_what_counts_as_a_lost_node() -> None:
    preempted = RayActorError(actor_id="0", error_msg="", preempted=True)
    for error in (
        NODE_GONE,
        preempted,
        NodeDiedError("its node died"),
        ActorUnavailableError("the connection broke", None),
    ):
        assert lost_its_node(error), error
    for other in (WORKER_GONE, WorkerCrashedError(), OSError("its node has died"), MemoryError()):
        assert not lost_its_node(other), other


def test_a_lost_node_does_not_count() -> None:
    repeats = Repeats(max_failures=0)
    end = repeats.end_of(KEY, NODE_GONE, 0, "received SIGTERM")
    repeats.count(end, has_completed=False)
    assert end == TrialEnd(TrialStatus.INTERRUPTED, "its node was lost: received SIGTERM")
    assert repeats.counted(KEY, begun=1) == 0 and repeats.too_many is None
    end = repeats.end_of(KEY, LeavingError("it left"), 0, "")
    assert end == TrialEnd(TrialStatus.INTERRUPTED, "it left")
    assert repeats.counted(KEY, begun=2) == 0


def test_a_trial_that_takes_its_node_down_each_time_fails() -> None:
    repeats = Repeats()
    for begun in range(1, LOSSES):
        assert repeats.end_of(KEY, NODE_GONE, 2, "gone").status is TrialStatus.INTERRUPTED
        assert repeats.counted(KEY, begun) == 0
    end = repeats.end_of(KEY, NODE_GONE, 2, "gone")
    assert end.status is TrialStatus.FAILED
    assert end.message == (
        "its node was lost 4 times before it got further, so the trial itself may end it, as by "
        "taking all memory: gone"
    )
    assert repeats.counted(KEY, begun=LOSSES) >= ATTEMPTS  # this session gives it up
    assert repeats.counted("another", begun=1) == 1


def test_a_trial_that_gets_further_each_time_may_lose_any_number_of_nodes() -> None:
    repeats = Repeats()
    for evaluations in range(1, 3 * LOSSES):
        end = repeats.end_of(KEY, NODE_GONE, evaluations, "gone")
        assert end.status is TrialStatus.INTERRUPTED
    # It does not get further by reporting again what it had reported.
    for _ in range(LOSSES - 2):
        assert repeats.end_of(KEY, NODE_GONE, 5, "gone").status is TrialStatus.INTERRUPTED
    assert repeats.end_of(KEY, NODE_GONE, 5, "gone").status is TrialStatus.FAILED


def test_a_second_hang_is_a_failure() -> None:
    repeats = Repeats()
    assert repeats.hung(KEY, "hung") == TrialEnd(TrialStatus.INTERRUPTED, "hung")
    assert repeats.counted(KEY, begun=1) == 1
    assert repeats.hung(KEY, "hung") == TrialEnd(TrialStatus.FAILED, "hung")
    assert repeats.counted(KEY, begun=2) == ATTEMPTS


@pytest.mark.parametrize("first_hangs", [True, False])
def test_a_failure_and_a_hang_are_two_tries(first_hangs: bool) -> None:
    repeats = Repeats()
    if first_hangs:
        repeats.hung(KEY, "hung")
        end = repeats.end_of(KEY, WORKER_GONE, 0, "killed")
    else:
        repeats.end_of(KEY, WORKER_GONE, 0, "killed")
        end = repeats.hung(KEY, "hung")
    assert end.status is TrialStatus.FAILED
    assert repeats.counted(KEY, begun=2) == ATTEMPTS


@pytest.mark.parametrize("most", [0, 1, 3])
def test_more_failures_than_may_be_end_the_session(most: int) -> None:
    repeats = Repeats(most)
    for _ in range(most):
        repeats.count(FAILED, has_completed=True)
        assert repeats.too_many is None
    repeats.count(TrialEnd(TrialStatus.INTERRUPTED, "hung"), has_completed=True)
    assert repeats.too_many is None
    repeats.count(TrialEnd(TrialStatus.FAILED, "of another kind"), has_completed=True)
    said = repeats.too_many or ""
    assert f", more than the {most} that may; the first said: " in said
    assert said.endswith("OSError: no space left on device" if most else "of another kind")


def test_by_default_ten_may_fail_before_the_first_completes() -> None:
    repeats = Repeats()
    for _ in range(FAILURES_AT_FIRST):
        repeats.count(FAILED, has_completed=False)
    assert repeats.too_many is None
    repeats.count(FAILED, has_completed=True)
    assert repeats.too_many is None
    repeats.count(FAILED, has_completed=False)
    assert repeats.too_many == (
        "12 trials failed, more than 10 before any has completed; the first said: OSError: no "
        "space left on device"
    )
