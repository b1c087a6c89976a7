"""Ray as a search opens it: what it refuses, and what it leaves behind."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import services

from elsa_tune.errors import RunError, UsageError
from elsa_tune.searching.cluster import environment, ray_session
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.output import printing

# As ray._private.utils.check_version_info says it.
MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.59.0
    Python: 3.11.7
This process on node 10.0.0.2 was started with:
    Ray: 2.60.0
    Python: 3.12.1
"""


def test_a_cluster_of_another_version_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(address: str, **settings: object) -> None:
        raise RuntimeError(MISMATCH)

    monkeypatch.setattr(ray_session, "knock", lambda address: None)
    monkeypatch.setattr(ray_session, "_look_for_node", lambda address: None)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(UsageError) as refused:
        ray_session._start_ray("head:6379")
    assert str(refused.value) == (
        "the cluster at `address` head:6379 runs Ray 2.59.0 on Python 3.11.7, and this machine has "
        "Ray 2.60.0 on Python 3.12.1; install the same here or there"
    )


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (True, "the cluster at `address` head:6379 asks for a token; copy ~/.ray/auth_token from"),
        (False, "no Ray cluster answers at `address` head:6379: refused; start one with"),
    ],
)
def test_a_cluster_that_refuses_for_want_of_a_token_says_so(
    asks: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(address: str, **settings: object) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(ray_session, "knock", lambda address: None)
    monkeypatch.setattr(ray_session, "_look_for_node", lambda address: None)
    monkeypatch.setattr(ray_session, "asks_for_token", lambda address: asks)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(UsageError) as refused:
        ray_session._start_ray("head:6379")
    assert str(refused.value).startswith(said)
    assert asks or str(refused.value).endswith("or give `address` none to run on this machine")


@pytest.mark.parametrize(
    ("address", "asked"), [("head", "head:6379"), ("auto", "auto"), (None, "local")]
)
def test_ray_is_asked_for_a_port_where_none_is_given(
    address: str | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr(ray_session, "knock", lambda address: None)
    monkeypatch.setattr(ray_session, "_look_for_node", lambda address: None)
    monkeypatch.setattr(ray, "init", lambda address, **settings: given.append(address))
    ray_session._start_ray(address)
    assert given == [asked]


@pytest.mark.parametrize("is_seen_at_once", [True, False])
def test_a_cluster_without_a_node_on_this_machine_says_so(
    is_seen_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another cluster's node runs here, as Ray finds out in a minute."""
    asked: list[str] = []

    def init(address: str, **settings: object) -> None:
        asked.append(address)
        cause = RuntimeError(
            "No node info found matching attributes: '' when trying to resolve node to connect to."
        )
        raise ConnectionError("Failed to connect to Ray cluster at head:6379") from cause

    monkeypatch.setattr(ray_session, "knock", lambda address: None)
    monkeypatch.setattr(ray_session, "answers", lambda address: True)
    monkeypatch.setattr(services, "find_node_ids", lambda: [] if is_seen_at_once else ["other"])
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(UsageError) as refused:
        ray_session._start_ray("head:6379")
    assert asked == ([] if is_seen_at_once else ["head:6379"])
    assert str(refused.value) == (
        "the cluster at `address` head:6379 answers, but no node of it runs on this machine, from "
        "which a search would join; `ray start --address=head:6379` makes it one, or `elsa-tune "
        "submit` sends the search to the cluster's dashboard"
    )


TIMED_OUT = "The current node timed out during startup. This could happen because some failed."


@pytest.mark.parametrize("failures", [1, 2])
def test_a_start_that_took_too_long_is_tried_once_more(
    failures: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[str] = []

    def init(**settings: object) -> None:
        events.append("init")
        if events.count("init") <= failures:
            raise RuntimeError(TIMED_OUT)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: events.append("shutdown"))
    if failures == 1:
        ray_session._start_ray(None)
        assert events == ["init", "shutdown", "init"]
    else:
        with pytest.raises(RunError, match="too busy: try again when it has less to do"):
            ray_session._start_ray(None)
        assert events == ["init", "shutdown", "init", "shutdown"]
    assert "trying once more" in capsys.readouterr().err


class PretendedRay:
    """Stands for Ray in this process: whether it runs, and with which nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nodes: str) -> None:
        self.runs = bool(nodes)
        self.nodes = nodes
        self.asked: list[list[str]] = []  # which nodes were asked for their versions
        monkeypatch.setattr(ray, "init", self._init)
        monkeypatch.setattr(ray, "shutdown", self._shutdown)
        monkeypatch.setattr(ray, "is_initialized", lambda: self.runs)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: self)
        monkeypatch.setattr(ray_session, "_open_at", set())
        monkeypatch.setattr(ray_session, "_in_use", threading.RLock())
        monkeypatch.setattr(ray_session, "nodes_that_train", self._that_train)
        monkeypatch.setattr(ray_session, "check_nodes", self._check_nodes)
        monkeypatch.setattr(ray_session, "_capacity", lambda: Capacity.of_nodes([{"CPU": 1.0}]))

    def _check_nodes(self, nodes: list[str], packages: Iterable[str]) -> None:
        self.asked.append(nodes)

    def get_node_id(self) -> str:
        return "own"

    def _init(self, **settings: Any) -> None:
        self.runs = True

    def _shutdown(self) -> None:
        self.runs = False

    def _that_train(self) -> list[dict[str, Any]]:
        return [{"NodeID": node} for node in self.nodes]


@pytest.mark.parametrize(
    ("nodes", "asked"), [(["own"], []), (["own", "other"], [["own", "other"]])]
)
def test_a_programs_own_ray_has_its_other_nodes_asked_and_goes_on(
    nodes: list[str], asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended = PretendedRay(monkeypatch, *nodes)
    with ray_session.ray_session(None) as session:
        session.ready()
    assert pretended.asked == asked
    assert pretended.runs


def test_a_search_within_another_shares_its_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = PretendedRay(monkeypatch)
    with ray_session.ray_session(None) as session:
        session.ready()
        with ray_session.ray_session(None) as inner:
            inner.ready()
        assert pretended.runs
    assert (pretended.runs, pretended.asked) == (False, [])


def test_two_threads_do_not_search_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = PretendedRay(monkeypatch)
    said: list[str] = []

    def search() -> None:
        try:
            with ray_session.ray_session(None) as session:
                session.ready()
        except UsageError as error:
            said.append(str(error))

    with ray_session.ray_session(None) as session:
        session.ready()
        second = threading.Thread(target=search)
        second.start()
        second.join()
        assert pretended.runs
    [refusal] = said
    assert refusal.startswith("a search runs in another thread of this program")
    third = threading.Thread(target=search)
    third.start()
    third.join()
    assert len(said) == 1


def test_a_ray_that_a_program_starts_meanwhile_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretended = PretendedRay(monkeypatch)

    def init(**settings: Any) -> None:
        pretended.runs = True  # by another thread
        raise RuntimeError("Maybe you called ray.init twice by accident?")

    monkeypatch.setattr(ray, "init", init)
    with (
        pytest.raises(RunError, match="does not start on this machine"),
        ray_session.ray_session(None) as session,
    ):
        session.ready()
    assert pretended.runs


@pytest.mark.parametrize("nodes", [[], ["own"]])
def test_what_a_search_sets_for_ray_is_put_back(
    nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the Ray is the program's own."""
    PretendedRay(monkeypatch, *nodes)
    for name in environment._ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")  # the user's own
    loggers = [logging.getLogger("ray"), logging.getLogger("ray.tune")]
    for logger in loggers:
        monkeypatch.setattr(logger, "level", logging.INFO)
    before = dict(os.environ)
    with ray_session.ray_session(None) as session:
        session.ready()
        assert os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] == "1"
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"
        assert [logger.level for logger in loggers] == [logging.ERROR, logging.CRITICAL]
    assert dict(os.environ) == before
    assert [logger.level for logger in loggers] == [logging.INFO, logging.INFO]


def test_what_ray_says_of_a_lost_node_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    """By Ray's own thread, which prints on stdout."""
    from ray._private import worker

    is_over = threading.Event()

    def poll() -> tuple[None, dict[str, Any]]:
        is_over.set()
        return None, {"job_id": None, "error_message": "The node with node id: 0 is dead."}

    errors = SimpleNamespace(subscribe=lambda: None, poll=poll)
    of_ray = SimpleNamespace(gcs_error_subscriber=errors, current_job_id=ray.JobID.from_int(1))
    with printing():
        thread = threading.Thread(target=worker.listen_error_messages, args=(of_ray, is_over))
        thread.start()
        thread.join()
        print("a result")
    said = capsys.readouterr()
    assert said.out == "a result\n"
    assert "is dead" in said.err
