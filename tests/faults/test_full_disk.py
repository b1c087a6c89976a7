"""The disk of a search's journal stays full to its end, or somebody deletes its folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.searching import ONE_AT_A_TIME, Bench, make_bench, of_kind, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

SETTINGS = (
    *("--set", "epochs=3", "--set", "depths=[0, 2]", "--set", "learning_rate=0.003"),
    *("--seeds", "12", *ONE_AT_A_TIME),
)
TRIALS = 24


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path / "bench", train=320)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of one megabyte."""
    place = tmp_path / "small disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs `mount`, which is not here")
    if done.returncode:
        pytest.skip(f"needs the right to mount a small disk: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler


def once(records: list[dict[str, Any]]) -> bool:
    """Whether every trial was started once and ended once, completed."""
    started = Counter(one["trial"] for one in of_kind(records, "trial_started"))
    ended = Counter(one["trial"] for one in of_kind(records, "trial_ended"))
    statuses = {one["status"] for one in of_kind(records, "trial_ended")}
    return started == ended and set(started.values()) == {1} and statuses == {"completed"}


def test_a_disk_that_stays_full_costs_no_finished_trial_and_no_answer(
    bench: Bench, small: Path
) -> None:
    there = ("--storage-path", str(small))
    link = bench.journal("full").parent
    link.parent.mkdir(parents=True)
    link.symlink_to(small / "full")  # for `records`
    search = bench.start(*bench.search("full", *SETTINGS, *there))
    wait_for(lambda: bool(of_kind(bench.records("full"), "trial_ended")), 300)
    filler = fill(small)
    assert search.stderr is not None
    said = []
    for line in search.stderr:
        said.append(line)
        if "waiting up to" in line:
            search.send_signal(signal.SIGINT)  # it ends the wait
    out, _ = search.communicate(timeout=200)
    assert search.returncode == 1, said
    assert "model, task mood" in out and "95 %" in out
    [started] = of_kind(bench.records("full"), "search_started")
    overflow = Path(tempfile.gettempdir()) / f"elsa-tune-full-{started['search_id'][:16]}.jsonl"
    assert overflow.exists()
    last = said[-1]
    assert last.startswith("elsa-tune: the disk of ") and str(overflow) in last
    assert "stayed full" in last and "elsa-tune resume full" in last
    assert len(of_kind(bench.records("full"), "trial_ended")) < TRIALS

    # What is asked has it all, and so has a session on a disk that is still full.
    asked = bench.run("operating-point", "--search", "full", *there)
    assert asked.returncode in (0, 3) and asked.stdout.splitlines()[0] in out
    again = bench.run("resume", "full", *there)
    assert "had no room for count; they stay in" in again.stderr
    assert asked.stdout.splitlines()[0] in again.stdout

    filler.unlink()
    resumed = bench.run("resume", "full", *there)
    assert resumed.returncode in (0, 3), resumed.stderr
    assert "records that" in resumed.stderr and "had no room for count" in resumed.stderr
    assert not overflow.exists()
    assert once(bench.records("full"))
    assert len(of_kind(bench.records("full"), "trial_ended")) == TRIALS
    assert bench.query("select distinct status from runs") == [("FINISHED",)]


@pytest.mark.parametrize("what", ["journal", "folder"])
def test_a_journal_deleted_during_a_search_is_there_again_with_everything(
    bench: Bench, what: str
) -> None:
    search = bench.start(*bench.search("gone", *SETTINGS))
    wait_for(lambda: len(of_kind(bench.records("gone"), "trial_ended")) >= 2, 300)
    journal = bench.journal("gone")
    if what == "journal":
        os.unlink(journal)
    else:
        shutil.rmtree(journal.parent, ignore_errors=True)
    out, said = search.communicate(timeout=300)
    assert search.returncode in (0, 3), said
    told = [line for line in said.splitlines() if "was deleted or moved while" in line]
    assert told and str(journal) in told[0] and "with all records" in told[0]
    assert once(bench.records("gone"))
    assert len(of_kind(bench.records("gone"), "trial_ended")) == TRIALS
    asked = bench.run("operating-point", "--search", "gone")
    assert asked.returncode in (0, 3) and asked.stdout.splitlines()[0] in out
    assert "nothing is left to do" in bench.run("resume", "gone").stderr
