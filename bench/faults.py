"""Breaks a search at random moments, resumes it, and compares it with one that nobody disturbed.

    python bench/faults.py --kills 30

Kinds: killed are the driver, a trial's worker, the mailbox of predictions, Ray's raylet, an MLflow
server; a raylet is stopped until Ray gives its node up (`paused`); the journal's disk is full to
the session's end (`full`, which takes the right to mount one); the journal's folder is deleted
(`deleted`); driver and MLflow server are killed, and the server is back only after a `resume`
(`no_store`); of a cluster of `ray start` a node that trains is killed, raylet and workers, and
another one joins (`node`), or its worker is stopped until it counts as hung (`hung`). The search
repeats the trial by itself; only one that hangs twice in a session counts as failed, which ends
that session. The cluster's head and the driver are killed together and the driver's record is
deleted (`head`); the search goes on from its artifact store on another cluster. A process of a job
that was submitted is killed (`job`), and the same command submits it again. Each search (a tiny
BERT, a task of its own, 12 trials of 10 evaluations) is broken up to five times; then every trial
must have ended once, with the quality and, at each evaluation, the losses that it has in the
undisturbed search, and every point of its last attempt must be in MLflow. Writes
bench/results/faults.json after every fault, and goes on from there: delete that file to begin anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import machine
from fault_places import JobsOfCluster, NodesOfCluster

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.integration.conftest import Server  # noqa: E402
from tests.searching import ONE_AT_A_TIME, Bench, family, make_bench, of_kind  # noqa: E402

# The beginning of each victim's name; the driver is the command's own child.
VICTIMS = {
    "driver": "python",
    "worker": "ray::Impl",
    "mailbox": "ray::Mail",
    "raylet": "raylet",
    "paused": "raylet",
    "no_store": "python",
}
ON_NODES = ("node", "hung", "head")
ON_CLUSTER = (*ON_NODES, "job")
KINDS = (*VICTIMS, "server", "full", "deleted", *ON_CLUSTER)
ENDS_THE_SESSION = ("driver", "raylet", "paused", "no_store", "full", "head", "job")
WITH_SERVER = ("server", "no_store")
# How long a `resume` may take to say that its store does not answer.
STORE_SECONDS = 120
# How long a cluster may take to learn that a job of its own is dead.
JOB_SECONDS = 120
DISK = "8m"  # of the kind `full`
# Until Ray gives a node up; a minute otherwise.
PAUSED = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
KILLS_A_SEARCH, MOST_SESSIONS = 5, 12
HUNG_AFTER = "12s"
SETTINGS = (
    *("--set", "epochs=10", "--set", "depths=[0, 2]", "--set", "asha=null"),
    *("--set", "learning_rate=[0.002, 0.003, 0.005]", "--set", "tries=3", "--seeds", "3"),
    # Else each search measures with other seeds than the undisturbed one, which it finds beside it.
    *("--set", "seed=0"),
    *ONE_AT_A_TIME,
)
# The last word counts of an option that is given twice.
OPTIONS_ON_NODES = ("--cpus-per-trial", "1", "--hung-after", HUNG_AFTER, "--max-failures", "0")
NAME = "faults"
LOSSES = ("train_loss", "eval_loss")
Found = dict[str, Any]


class Search:
    """One search, through as many sessions as it takes."""

    def __init__(
        self,
        bench: Bench,
        name: str,
        store: tuple[str, ...],
        cluster: NodesOfCluster | None = None,
        artifacts: Path | None = None,
    ) -> None:
        """Prepare a search. artifacts: the folder to which its record is copied, if any."""
        self.bench = bench
        self.name = name
        self._store = store
        self._cluster = cluster
        self._artifacts = artifacts
        self.session: Popen[str] | None = None
        self.sessions = 0
        self._records_before = 0
        self._began = 0.0

    def start(self) -> None:
        """Start the next session; `search` where there is nothing to resume yet."""
        where: tuple[str, ...] = self._store
        settings = SETTINGS
        if self._cluster is not None:
            where = (*where, "--address", self._cluster.address)
            settings = (*SETTINGS, *OPTIONS_ON_NODES)
        if self._artifacts is not None:
            where = (*where, "--artifacts", str(self._artifacts))
        words = (
            ["resume", self.name] if self._is_saved() else self.bench.search(self.name, *settings)
        )
        self._records_before = len(self.records)
        self._began = time.monotonic()
        self.session = self.bench.start(*words, *where)
        self.sessions += 1

    def _is_saved(self) -> bool:
        """Whether there is something to resume, here or in its store."""
        places = [self.folder]
        if self._artifacts is not None:
            places.append(self._artifacts / self.name)
        return any((place / "search.json").exists() for place in places)

    @property
    def records(self) -> list[dict[str, Any]]:
        return self.bench.records(self.name)

    @property
    def is_whole(self) -> bool:
        ends = of_kind(self.records, "search_ended")
        return bool(ends) and ends[-1]["status"] == "completed"

    def wait_until(self, what: Callable[[], bool]) -> bool:
        """Whether it came before the session's end."""
        assert self.session is not None
        while self.session.poll() is None:
            if what():
                return True
            time.sleep(0.05)
        return False

    def trains(self) -> bool:
        """Whether this session has begun a trial."""
        return bool(of_kind(self.records[self._records_before :], "trial_started"))

    @property
    def folder(self) -> Path:
        return self.bench.journal(self.name).parent

    def end(self) -> tuple[int, str]:
        """Wait for the session; its status and its last words."""
        assert self.session is not None
        _, said = self.session.communicate(timeout=600)
        return self.session.returncode, (said.splitlines() or [""])[-1]

    def hit(self, kind: str, draw: random.Random) -> bool:
        """Break a part of the cluster; False where there is none just now."""
        assert self._cluster is not None and self.session is not None
        if kind == "head":
            self._cluster.lose_head(self.session.pid, self.folder)
            return True
        return self._cluster.break_one(kind, draw)

    def moment(self) -> str:
        """Seconds into the session, and what was recorded last."""
        since = self.records[self._records_before :]
        what = f"{since[-1]['kind']} {since[-1].get('trial', '')}".strip() if since else "start-up"
        return f"{time.monotonic() - self._began:.1f} s: {what}"


class Job(Search):
    """One search that is submitted to a cluster as often as it takes; a session is a job."""

    def __init__(self, here: Bench, name: str, jobs: JobsOfCluster) -> None:
        super().__init__(Bench(jobs.folder), name, ())
        self._here = here  # where it is typed
        self._jobs = jobs

    def start(self) -> None:
        """Submit it, as soon as the cluster knows that an earlier job of it has ended; watch it."""
        self._records_before = len(self.records)
        self._began = time.monotonic()
        where = ("--address", self._jobs.address)
        words = ["submit", *self._here.search(self.name, *SETTINGS, *where)[1:]]
        words += ["--cpus-per-trial", "1"]
        while (sent := self._here.run(*words)).returncode != 0:
            assert time.monotonic() < self._began + JOB_SECONDS, sent.stderr
            time.sleep(1)
        self.session = self._here.start("watch", self.name, *where)
        self.sessions += 1

    def hit(self, kind: str, draw: random.Random) -> bool:
        return self._jobs.break_one(draw)


def hit(search: Search, kind: str, server: Server | None, draw: random.Random) -> str | None:
    """Break something at a random moment; None where the session ended first."""
    began = time.monotonic()
    delay = draw.uniform(0, 9 if kind in ENDS_THE_SESSION else 5)
    if kind in ENDS_THE_SESSION and draw.random() < 1 / 3:
        delay *= 2  # anywhere, the start-up included
    elif not search.wait_until(search.trains):
        return None
    else:
        began = time.monotonic()
    if not search.wait_until(lambda: time.monotonic() >= began + delay):
        return None
    moment = search.moment()
    if kind == "full":
        full_to_the_end(search)
        return moment
    if kind == "deleted":
        for _ in range(3):  # its driver writes there meanwhile
            shutil.rmtree(search.folder, ignore_errors=True)
        return moment
    if kind in ON_CLUSTER:
        return hit_cluster(search, kind, draw, moment)
    if kind == "server":
        assert server is not None
        server.kill()
        time.sleep(draw.uniform(0, 3))
        server.start()
        return moment
    victims: list[int] = []

    def is_there() -> bool:
        assert search.session is not None
        found = family(search.session.pid)
        victims[:] = [pid for pid, name in found.items() if name.startswith(VICTIMS[kind])]
        # A trial that fails twice in a session is given up, and then other rates are measured.
        again = kind == "worker" and of_kind(search.records, "trial_started")[-1]["attempt"] > 1
        return bool(victims) and not again

    if not search.wait_until(is_there):
        return None
    moment = search.moment()
    try:
        os.kill(victims[0], signal.SIGSTOP if kind == "paused" else signal.SIGKILL)
    except ProcessLookupError:
        return None
    if kind == "no_store":
        assert server is not None
        server.kill()
    return moment


def hit_cluster(search: Search, kind: str, draw: random.Random, moment: str) -> str | None:
    """Break a part of the cluster, and wait until a search that goes on has noticed."""
    noticed = interrupted(search)
    if not search.wait_until(lambda: search.hit(kind, draw)):
        return None
    if kind in ENDS_THE_SESSION:
        return moment
    # A trial that loses its node again before it is begun again would not be another fault.
    search.wait_until(lambda: interrupted(search) > noticed)
    return moment


def interrupted(search: Search) -> int:
    """Return how many trials' ends are recorded that were interrupted."""
    ends = of_kind(search.records, "trial_ended")
    return sum(end["status"] == "interrupted" for end in ends)


def full_to_the_end(search: Search) -> None:
    """Leave the journal's disk no byte until the session ends."""
    filler = search.folder.parent / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)

    def waits() -> bool:
        found = search.bench.folder.glob(f"elsa-tune-{search.name}-*.jsonl")
        return any("search_ended" in file.read_text() for file in found)

    assert search.session is not None
    if search.wait_until(waits):
        search.session.send_signal(signal.SIGINT)  # it need not wait for room
        search.session.wait(600)
    filler.unlink()


def disturbed(
    search: Search, kind: str, server: Server | None, keep: Callable[[str], bool]
) -> Found:
    """Kill and resume until the search is whole; what is wrong with its record in between.

    keep: takes the moment of every kill; False when it was the last one wanted of this search.
    """
    draw = random.Random(search.name)
    for name, value in PAUSED.items():
        if kind == "paused":
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    wanted, opened, words = True, 0, Counter[str]()
    while not search.is_whole and search.sessions < MOST_SESSIONS:
        search.start()
        while wanted and (moment := hit(search, kind, server, draw)) is not None:
            wanted = keep(moment)
            if kind in ENDS_THE_SESSION:
                break
        status, said = search.end()
        if kind == "no_store" and server is not None and not server.is_up:
            search.start()
            assert search.session is not None
            _, without = search.session.communicate(timeout=STORE_SECONDS)
            words[f"without a store: {(without.splitlines() or [''])[-1][:160]}"] += 1
            server.start()
        if not search.is_whole:
            words[f"exit {status}: {said[:160].replace(search.name, 'NAME')}"] += 1
        opened += running(search)
    return {"left_running_before_resume": opened, "last_words": words}


def running(search: Search) -> int:
    try:
        ((count,),) = search.bench.query("select count(*) from runs where status = 'RUNNING'")
    except Exception:  # no store yet
        return 0
    return int(count)


def qualities(ends: list[dict[str, Any]]) -> dict[str, float]:
    """Return each trial's quality."""
    return {end["trial"]: end["metrics"]["quality"] for end in ends}


def losses(records: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the losses of each trial's last attempt, by trial and step."""
    return {
        (report["trial"], report["step"]): tuple(report["metrics"][name] for name in LOSSES)
        for report in of_kind(records, "report")
    }


def compared(search: Search, undisturbed: Search) -> Found:
    """Return what a search has too little or too much, by its journal and by MLflow's database."""
    records = search.records
    ends = [r for r in of_kind(records, "trial_ended") if r["status"] == "completed"]
    found = qualities(ends)
    wanted = qualities(of_kind(undisturbed.records, "trial_ended"))
    losses_found = losses(records)
    losses_wanted = losses(undisturbed.records)
    started = of_kind(records, "search_started")
    tag = "join tags t on t.run_uuid = {0}.run_uuid and t.key = 'elsa_tune.trial' "
    own = f"join tags s on s.run_uuid = t.run_uuid and s.value = '{started[0]['search_id']}' "
    runs = search.bench.query(
        f"select t.value, count(*) from runs r {tag.format('r')} {own} "
        "where r.lifecycle_stage = 'active' group by 1"
    )
    points = search.bench.query(
        f"select t.value, m.step, m.timestamp from metrics m {tag.format('m')} {own} "
        "where m.key = 'quality'"
    )
    last = {r["trial"]: r["attempt"] for r in of_kind(records, "trial_started")}
    reported = [
        (r["trial"], r["step"], round(r["time"] * 1000))
        for r in of_kind(records, "report")
        if r["attempt"] == last[r["trial"]]
    ]
    return {
        "trials_lost": len(wanted.keys() - found.keys()) + len(wanted.keys() - dict(runs).keys()),
        "trials_of_another_quality": sum(found.get(key) != wanted.get(key) for key in found),
        "losses_compared": len(losses_found),
        "losses_that_differ": sum(losses_found[at] != losses_wanted.get(at) for at in losses_found),
        "trials_doubled": len(ends) - len(found) + sum(count - 1 for _, count in runs),
        "points_lost": len(set(reported) - set(points)),
        "points_doubled": len(points) - len(set(points)),
        "left_running": running(search),
        "predictions_lost": sum(end["artifact"] is None for end in ends),
        "ended_as_failed": sum(
            end["status"] == "failed" for end in of_kind(records, "trial_ended")
        ),
    }


class Scene:
    """All that the searches of one kind need, in a folder of its own; gone with its `with`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._open = contextlib.ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix=f"elsa-tune-faults-{kind}-"))
        self._bench = make_bench(self._folder, train=320)
        self._cluster: NodesOfCluster | None = None
        self._jobs: JobsOfCluster | None = None
        self.server: Server | None = None
        if kind == "full":
            self._mount_disk()
        if kind in ON_NODES:
            self._cluster = NodesOfCluster()
            self._open.callback(self._cluster.end)
        if kind == "job":
            self._jobs = JobsOfCluster(self._folder)
            self._open.callback(self._jobs.end)

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _mount_disk(self) -> None:
        storage = self._bench.journal("any").parent.parent
        storage.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(storage)]
        subprocess.run(mount, check=True)
        self._open.callback(subprocess.run, ["umount", "--lazy", str(storage)], check=True)

    def start_server(self) -> None:
        """Start the store that the searches are to have from now on, where the kind is of it."""
        if self._kind in WITH_SERVER:
            database = self._bench.folder / "mlruns" / "mlflow.db"
            self.server = Server(self._folder / "server", database)
            self.server.start()
            self._open.callback(self.server.kill)

    def search(self, name: str) -> Search:
        """Return a search that has not begun."""
        if self._jobs is not None:
            return Job(self._bench, name, self._jobs)
        store: tuple[str, ...] = ()
        if self.server is not None:
            store = ("--tracking-uri", self.server.uri)
        artifacts = None
        if self._kind == "head":
            artifacts = self._folder / "artifacts"
            artifacts.mkdir(exist_ok=True)
        return Search(self._bench, name, store, self._cluster, artifacts)


def of_one_kind(kind: str, kills: int, found: Found, write: Callable[[], None]) -> None:
    """Inject what is missing of so many kills of one kind."""
    with Scene(kind) as scene:
        undisturbed = scene.search("undisturbed")
        undisturbed.start()
        assert undisturbed.end()[0] in (0, 3) and undisturbed.is_whole
        scene.start_server()
        while len(found.setdefault("moments", [])) < kills:
            break_one_search(scene, kind, kills, undisturbed, found, write)


def break_one_search(
    scene: Scene,
    kind: str,
    kills: int,
    undisturbed: Search,
    found: Found,
    write: Callable[[], None],
) -> None:
    """Break one search as often as it takes and may be, compare it, and add what was found."""
    moments: list[str] = found["moments"]
    counts = Counter(found.get("counts", {}))
    words = Counter(found.get("last_words", {}))
    search = scene.search(f"{NAME}-{kind}-{len(moments)}")
    own: list[str] = []
    found["not_compared_yet"] = own
    most = min(KILLS_A_SEARCH, kills - len(moments))

    def keep(moment: str) -> bool:
        own.append(moment)
        write()
        print(f"{kind}: {moment}", flush=True)
        return len(own) < most

    between = disturbed(search, kind, scene.server, keep)
    words.update(between.pop("last_words"))
    counts.update(between, whole=search.is_whole, searches=1, sessions=search.sessions)
    counts.update(compared(search, undisturbed))
    del found["not_compared_yet"]
    moments += own
    found |= {"injected": len(moments), "counts": dict(counts), "last_words": dict(words)}
    found["moments"] = found.pop("moments")
    write()
    print(json.dumps(found["counts"]), flush=True)


def main() -> None:
    """Go on from what is written until there are enough kills of every kind."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=30, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    file = machine.RESULTS / "faults.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    for found in results.values():
        found.pop("not_compared_yet", None)
    note = "broken at random moments, then `resume`; counts over all searches of a kind"
    for kind in options.kinds:
        found = results.setdefault(kind, {})
        if len(found.get("moments", [])) < options.kills:
            of_one_kind(kind, options.kills, found, lambda: machine.write("faults", results, note))
    print(json.dumps({kind: found["counts"] for kind, found in results.items()}, indent=1))


if __name__ == "__main__":
    main()
