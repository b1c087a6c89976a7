"""Four searches at once on one cluster, with one MLflow server on PostgreSQL."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from tests.integration.conftest import Server
from tests.integration.test_cluster import ray_start
from tests.integration.test_postgres import Postgres, postgres
from tests.recorded_search import journal_rows, store_rows, store_runs
from tests.searching import Bench, make_bench, of_kind, wait_for

__all__ = ["postgres"]
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]

# Room for four trials at once: as many as there are searches.
ROOM = 4
FIRST = "first"
LATER = ("second", "third", "fourth")
TRIALS = ("--set", "depths=[0, 2]", "--set", "learning_rate=0.003", "--cpus-per-trial", "1")
LONG = (*TRIALS, "--set", "epochs=30", "--seeds", "30")
SHORT = (*TRIALS, "--set", "epochs=15", "--seeds", "3")


@pytest.fixture
def server(postgres: Postgres, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server", tmp_path / "unused.db", postgres.new("many"))
    server.start()
    yield server
    server.kill()


def spans(bench: Bench, name: str) -> list[tuple[float, float]]:
    """Return when each trial of a search began and ended; one that runs has no end yet."""
    began: dict[str, float] = {}
    spans = []
    for record in bench.records(name):
        if record["kind"] == "trial_started":
            began[record["trial"]] = record["time"]
        if record["kind"] == "trial_ended":
            spans.append((began.pop(record["trial"]), record["time"]))
    return spans + [(start, float("inf")) for start in began.values()]


def most_at_once(spans: list[tuple[float, float]], since: float, until: float) -> int:
    """Return the most trials that ran at one time, of those that began within these times."""
    steps = []
    for start, end in spans:
        if since <= start <= until:
            steps += [(start, 1), (end, -1)]
    return max(accumulate(change for _, change in sorted(steps)), default=0)


def test_four_searches_share_a_cluster_and_a_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one had all of it to itself; it makes room for those that come later."""
    # A search of this process may have joined another cluster with a token.
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    bench = make_bench(tmp_path / "work", train=320)
    home = tmp_path / "home"
    home.mkdir()
    with ray_start(home, ROOM) as address:
        where = ("--address", address, "--tracking-uri", server.uri)
        drivers: dict[str, subprocess.Popen[str]] = {}
        drivers[FIRST] = bench.start(*bench.search(FIRST, *LONG, *where))
        wait_for(lambda: len(spans(bench, FIRST)) >= ROOM + 1, 300)
        for name in LATER:
            more = ("--max-workers", "1") if name == "fourth" else ()
            drivers[name] = bench.start(*bench.search(name, *SHORT, *where, *more))
        ended = {name: driver.communicate(timeout=1000) for name, driver in drivers.items()}
    for name, driver in drivers.items():
        assert driver.returncode in (0, 3), ended[name][1]

    ran = {name: spans(bench, name) for name in drivers}
    assert {name: len(trials) for name, trials in ran.items()} == {
        FIRST: 60,
        **dict.fromkeys(LATER, 6),
    }
    all_there = max(min(ran[name])[0] for name in LATER)
    gone = {name: max(end for _, end in ran[name]) for name in drivers}
    until = min(all_there + 20, *(gone[name] for name in LATER))
    assert all_there < until, "the later ones were never there at one time"
    # Each of the later ones has begun long before the first one is through, and from then on has
    # as much of the cluster.
    assert all_there < gone[FIRST]
    assert most_at_once(ran[FIRST], all_there, until) <= 2
    assert most_at_once(ran[FIRST], 0.0, min(ran["second"])[0]) == ROOM
    assert most_at_once(ran["fourth"], 0.0, float("inf")) == 1

    for name in drivers:
        runs = store_runs(server.uri, name)  # none of them twice
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert len(runs) == 1 + len(ran[name])
        assert store_rows(server.uri, search=name) == journal_rows(bench.journal(name))
        [answer] = of_kind(bench.records(name), "search_ended")
        assert answer["status"] == "completed"
