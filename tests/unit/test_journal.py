"""The journal: what was written is read, whatever happened to the writer in between."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import math
import os
import pwd
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.errors import StorageError
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal import (
    Journal,
    TakenError,
    is_held,
    read_journal,
    running_error,
)
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStatus,
    TrialEnded,
    decode,
    encode,
)
from elsa_tune.tracking.paths import lock_of
from elsa_tune.tracking.record_names import GPUS_TAG
from elsa_tune.tracking.state import SearchState
from tests.recorded_search import (
    report,
    search_started,
    trial_ended,
    trial_started,
    whole_search,
)

EVERY_KIND = [
    search_started(),
    trial_started("measure-N3-s1", rate=None, flag=True, text="ä\u2028\n"),
    report("measure-N3-s1", 2, 0.5),
    TrialEnded(
        trial="measure-N3-s1",
        status=TrialStatus.STOPPED_EARLY,
        metrics={"train_seconds": 1.5},
        message="ASHA",
        artifact="predictions/measure-N3-s1.npz",
    ),
    Decision(what="plan", value={"explore": [1, 2.5, None, True], "of": {"x": "y"}}),
    SearchEnded(status=SearchStatus.TIME_UP, message="2 h"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "search" / "journal.jsonl"


@pytest.mark.parametrize("record", EVERY_KIND, ids=lambda record: record.kind)
def test_every_kind_is_one_line_and_reads_back(record: Record) -> None:
    line = encode(record)
    assert "\n" not in line
    assert decode(line) == record
    assert json.loads(line)["kind"] == record.kind


def test_a_number_that_is_not_finite_is_null_in_the_file() -> None:
    line = encode(Report(trial="t", evaluation=1, step=1, metrics={"train_loss": math.inf}))
    assert json.loads(line)["metrics"] == {"train_loss": None}
    read = decode(line)
    assert isinstance(read, Report) and math.isnan(read.metrics["train_loss"])


def test_half_a_character_is_written_out_in_the_file() -> None:
    """As a path has it that is not UTF-8, which a trial names as it fails."""
    failed = TrialEnded(trial="t", status=TrialStatus.FAILED, message="no d\udce9t/t.csv")
    assert decode(encode(failed)) == dataclasses.replace(failed, message="no d\\udce9t/t.csv")
    decided = Decision(what="x", value={"\udce9": ["a", ("\ud800", 1, math.nan)]})
    value = {"\\udce9": ["a", ["\\ud800", 1, None]]}
    assert decode(encode(decided)) == Decision(what="x", value=value)


def test_a_field_of_a_later_version_is_passed_over_and_an_unknown_kind_is_not(path: Path) -> None:
    line = encode(EVERY_KIND[5])
    assert decode(line[:-1] + ',"colour":"red"}') == EVERY_KIND[5]
    path.parent.mkdir()
    path.write_text(line + '\n{"kind":"telepathy","time":1}\n')
    with pytest.raises(StorageError, match=r"line 2 .*telepathy.*newer elsa-tune"):
        read_journal(path)


def test_records_come_back_in_order_over_several_writers(path: Path) -> None:
    assert read_journal(path) == []
    written: list[Record] = []
    for _ in range(2):
        with Journal(path) as journal:
            written += [journal.append(record) for record in whole_search(trials=2)]
    assert read_journal(path) == written
    times = [record.time for record in written]
    assert all(later - earlier > 0.0009 for earlier, later in itertools.pairwise(times))


class Clocks:
    """A machine's two clocks, which go on when a test lets time pass."""

    def __init__(self) -> None:
        self.wall = 1000.0
        self.since_boot = 50.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.since_boot

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Return the clocks by which journals stamp records."""
    clocks = Clocks()
    monkeypatch.setattr("elsa_tune.tracking.journal.time", clocks)
    return clocks


def test_times_grow_also_when_the_clock_goes_back(path: Path, clocks: Clocks) -> None:
    with Journal(path) as journal:
        first = journal.append(Decision(what="a", value=1))
        second = journal.append(Decision(what="b", value=2))
    clocks.wall = 10.0
    with Journal(path) as journal:
        third = journal.append(Decision(what="c", value=3))
    assert [first.time, second.time, third.time] == [1000.0, 1000.001, 1000.002]
    assert third.milliseconds == 1000002


@pytest.mark.parametrize("step", [-600.0, 3600.0], ids=["set back", "set forward, or slept"])
def test_durations_stay_what_they_are_whatever_the_clock_does(
    path: Path, clocks: Clocks, step: float
) -> None:
    with Journal(path) as journal:
        begun = journal.append(Decision(what="a", value=1))
        clocks.wall += step
        clocks.wait(120)
        reported = journal.append(Decision(what="b", value=2))
        clocks.wait(30)
        ended = journal.append(Decision(what="c", value=3))
        clocks.wait(10)
        now = journal.now()
    assert [begun.time, reported.time, ended.time, now] == [1000.0, 1120.0, 1150.0, 1160.0]
    clocks.wall = 9000.0
    with Journal(path) as journal:  # the next session
        assert journal.append(Decision(what="d", value=4)).time == 9000.0


def test_no_gpu_hour_is_counted_that_did_not_pass(path: Path, clocks: Clocks) -> None:
    started = dataclasses.replace(search_started(), tags={GPUS_TAG: "0.5"})
    with Journal(path) as journal:
        state = SearchState()
        for record in (started, trial_started("measure-N3-s1")):
            state.add(journal.append(record))
        clocks.wait(1800)
        clocks.wall += 8 * 3600  # the machine slept for a night
        assert state.gpu_hours(journal.now()) == pytest.approx(0.25, abs=1e-6)
        clocks.wait(1800)
        state.add(journal.append(trial_ended("measure-N3-s1", TrialStatus.COMPLETED, 0.5)))
        assert state.gpu_hours(journal.now()) == pytest.approx(0.5)


def test_a_line_cut_anywhere_is_passed_over_and_then_removed(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(Decision(what="whole", value="ä"))
        journal.append(Decision(what="torn", value="ö"))
    content = path.read_bytes()
    whole = content.index(b"\n") + 1
    for length in range(whole, len(content)):
        path.write_bytes(content[:length])
        assert [record.what for record in read_journal(path)] == ["whole"]  # type: ignore[attr-defined]
    with Journal(path) as journal:
        journal.append(Decision(what="after", value=0))
    assert [record.what for record in read_journal(path)] == ["whole", "after"]  # type: ignore[attr-defined]


def test_zeros_that_a_power_failure_left_at_the_end_are_passed_over(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(Decision(what="whole", value=1))
    with path.open("ab") as file:
        file.write(b"\0" * 100 + b"\n")
    assert len(read_journal(path)) == 1


def test_a_damaged_line_in_the_middle_is_named(path: Path) -> None:
    with Journal(path) as journal:
        for number in range(3):
            journal.append(Decision(what="d", value=number))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:10] + "\n" + lines[2])
    with pytest.raises(StorageError, match=r"line 2 cannot be read.*copy"):
        read_journal(path)
    with pytest.raises(StorageError, match="line 2"):
        Journal(path)
    assert not is_held(lock_of(path))


WRITER = """
import sys
from pathlib import Path
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision
journal = Journal(Path(sys.argv[1]))
number = 0
while True:
    journal.append(Decision(what="number", value=[number, "x" * 5000]))
    number += 1
    print(number, flush=True)
"""


def test_a_lock_of_another_machine_says_how_to_go_on_where_that_has_died(path: Path) -> None:
    """A network file system may keep it for ever, and nobody here can end its holder."""
    with Journal(path):
        own = str(running_error(path))
        lock_of(path).with_suffix(".holder").write_text("process 7 on node-3")
        with pytest.raises(StorageError) as refused:
            Journal(path)
    assert own.endswith("wait for it or end it")
    assert f"process 7 on node-3 writes {path}; wait for it or end it there" in str(refused.value)
    assert str(refused.value).endswith(f"starts again: if it never will, delete {lock_of(path)}")
    lock_of(path).unlink()
    Journal(path).close()


def test_a_group_may_write_a_journal_where_the_umask_lets_it(path: Path) -> None:
    before = os.umask(0o002)
    try:
        Journal(path).close()
    finally:
        os.umask(before)
    for file in (path, lock_of(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o664


@pytest.mark.parametrize("refused", [".lock", ".jsonl"])
def test_a_search_of_another_user_is_said_to_be_theirs(
    path: Path, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its place: another one does not help."""
    Journal(path).close()
    open_here = os.open

    def open_file(name: Any, *given: Any) -> int:
        if str(name).endswith(refused):
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_here(name, *given)

    monkeypatch.setattr(os, "open", open_file)
    owner = path.owner()
    said = f"{refused}: Permission denied; search '{path.parent.name}' is {owner}'s, who may go on"
    with pytest.raises(StorageError, match=re.escape(said)):
        Journal(path)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    number = path.stat().st_uid
    with pytest.raises(StorageError, match=f"is user {number}'s"):
        Journal(path)


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(path: Path, root: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 20:
        pass
    with pytest.raises(StorageError, match=f"is running: process {writer.pid} on .* end it"):
        Journal(path)
    assert is_held(lock_of(path))
    read_journal(path)  # a reader may look at any moment
    writer.send_signal(signal.SIGKILL)
    acknowledged = int((writer.stdout.read().split() or ["20"])[-1])
    writer.wait()
    writer.stdout.close()
    # The system frees a dead driver's lock; all but the record that it was writing is there.
    assert not is_held(lock_of(path))
    with Journal(path) as journal:
        journal.append(Decision(what="number", value=["after"]))
    values = [record.value[0] for record in read_journal(path)]  # type: ignore[attr-defined]
    assert values.pop() == "after"
    assert values == list(range(len(values)))
    assert len(values) >= acknowledged


def test_one_process_cannot_write_twice_either(path: Path) -> None:
    with Journal(path), pytest.raises(StorageError, match=f"process {os.getpid()}"):
        Journal(path)
    Journal(path).close()


def test_a_full_disk_is_an_error_and_the_records_follow_when_there_is_room(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(Decision(what="first", value="x" * 300))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The size limit of a file fails like a full disk: in the middle of a line.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, hard))
        try:
            for what in ("second", "third"):
                with pytest.raises(StorageError, match=r"cannot write .*journal\.jsonl"):
                    journal.append(Decision(what=what, value="y" * 300))
            assert len(read_journal(path)) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.append(Decision(what="fourth", value=4))
    names = [record.what for record in read_journal(path)]  # type: ignore[attr-defined]
    assert names == ["first", "second", "third", "fourth"]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory for what the journal has no room for."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@contextlib.contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """No file may grow beyond the size that this one has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_refuses_to_the_end_waits_elsewhere_and_comes_back(
    path: Path, elsewhere: Path
) -> None:
    written: list[Record] = []
    with Journal(path) as journal:
        written.append(journal.append(search_started()))
        written.append(journal.append(Decision(what="long", value="x" * 5000)))
        with full_disk(path):
            for number in range(3):
                written.append(journal.stamp(Decision(what="refused", value=number)))
                with pytest.raises(StorageError, match=f"wait for room in {elsewhere}"):
                    journal.append(written[-1])
            count, place = journal.missing
            assert count == 3 and place is not None
            journal.close()
            # Whoever reads has them, and so has a next writer on a disk that is still full.
            assert read_journal(path) == written
            with Journal(path) as still:
                assert (still.earlier, still.taken_back, still.missing) == (written, 3, (3, place))
                written.append(still.stamp(SearchEnded(status=SearchStatus.FAILED)))
                with pytest.raises(StorageError, match=r"No space|too large"):
                    still.append(written[-1])
    assert len(path.read_bytes().splitlines()) == 2
    with Journal(path) as journal:
        assert journal.earlier == written and journal.missing == (0, None)
    assert not list(elsewhere.iterdir())
    assert read_journal(path) == written
    assert len(path.read_bytes().splitlines()) == len(written)


def test_records_of_a_writer_killed_on_a_full_disk_are_not_lost(
    path: Path, elsewhere: Path
) -> None:
    child = os.fork()
    if child == 0:
        journal = Journal(path)
        journal.append(search_started())
        journal.append(Decision(what="long", value="x" * 5000))
        with full_disk(path), contextlib.suppress(StorageError):
            journal.append(Decision(what="refused", value=1))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with Journal(path) as journal:
        assert journal.taken_back == 1 and len(journal.earlier) == 3
    assert len(read_journal(path)) == 3


def test_room_that_comes_back_ends_the_overflow(path: Path, elsewhere: Path) -> None:
    with Journal(path) as journal:
        journal.append(search_started())
        journal.append(Decision(what="long", value="x" * 5000))
        with full_disk(path), pytest.raises(StorageError):
            journal.append(Decision(what="refused", value=1))
        assert len(list(elsewhere.iterdir())) == 1
        journal.append(Decision(what="after", value=2))
        assert not list(elsewhere.iterdir()) and journal.missing == (0, None)
    assert len(read_journal(path)) == 4


def test_nothing_is_taken_from_a_file_that_another_user_or_a_link_put_there(
    path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(path) as journal:
        journal.append(search_started())
    forged = elsewhere / "forged"
    forged.write_text(encode(Decision(what="forged", value=1, time=9e9)) + "\n")
    name = f"elsa-tune-search-{search_started().search_id[:16]}.jsonl"
    (elsewhere / name).symlink_to(forged)
    assert len(read_journal(path)) == 1
    (elsewhere / name).unlink()
    forged.rename(elsewhere / name)
    assert len(read_journal(path)) == 2
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert len(read_journal(path)) == 1


def test_a_record_is_on_the_disk_before_its_writer_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[tuple[int, int]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        forced.append((status.st_ino, status.st_size))

    with Journal(path) as journal:
        monkeypatch.setattr(os, "fsync", noted)
        journal.append(Decision(what="a", value=1))
        status = path.stat()
        assert forced == [(status.st_ino, status.st_size)]


@pytest.mark.parametrize("what", ["journal", "folder", "moved", "replaced"])
def test_a_journal_that_is_deleted_under_its_writer_is_written_anew(path: Path, what: str) -> None:
    with Journal(path) as journal:
        written = [journal.append(search_started()), journal.append(Decision(what="a", value=1))]
        assert journal.renewed == 0
        if what == "journal":
            path.unlink()
        elif what == "folder":
            shutil.rmtree(path.parent)
        elif what == "moved":
            path.parent.rename(path.parent.with_name("elsewhere"))
        else:
            path.with_name("other").write_text("")
            path.with_name("other").rename(path)
        written.append(journal.append(Decision(what="b", value=2)))
        written.append(journal.append(Decision(what="c", value=3)))
        assert journal.renewed == 1
        assert read_journal(path) == written
        # Nobody else becomes its writer.
        assert is_held(lock_of(path))
        with pytest.raises(StorageError, match="is running"):
            Journal(path)
    assert not is_held(lock_of(path))
    with Journal(path) as journal:
        assert journal.earlier == written


@pytest.mark.parametrize("runs", [True, False], ids=["that runs", "that has ended"])
def test_nothing_is_written_over_another_search_in_the_place_of_a_deleted_one(
    path: Path, runs: bool
) -> None:
    with Journal(path) as old:
        old.append(search_started())
        shutil.rmtree(path.parent)
        with contextlib.ExitStack() as until_its_end:
            new = until_its_end.enter_context(Journal(path))
            written = [new.append(search_started(search_id="another"))]
            if not runs:
                until_its_end.close()
            why = f"process {os.getpid()} on .* records there now" if runs else "recorded there"
            for number in range(2):
                with pytest.raises(TakenError, match=rf"'search' was deleted .*{why}"):
                    old.append(Decision(what="late", value=number))
                assert old.missing == (0, None) and old.renewed == 0
            assert old.is_taken() and not new.is_taken()
            assert is_held(lock_of(path)) is runs
            if runs:
                written.append(new.append(Decision(what="b", value=2)))
    assert read_journal(path) == written


def test_whoever_asks_first_finds_the_place_taken_or_takes_it_back(path: Path) -> None:
    with Journal(path) as old:
        written = old.append(search_started())
        assert not old.is_taken()
        shutil.rmtree(path.parent)
        assert not old.is_taken()
        assert read_journal(path) == [written] and is_held(lock_of(path))
        shutil.rmtree(path.parent)
        with Journal(path) as new:
            assert old.is_taken() and not new.is_taken()
    assert old.is_taken()
    assert read_journal(path) == []


def test_a_copy_of_the_own_journal_in_the_place_of_a_deleted_one_is_written_anew(
    path: Path, tmp_path: Path
) -> None:
    with Journal(path) as journal:
        written = [journal.append(search_started())]
        copy = shutil.copyfile(path, tmp_path / "copy")
        written.append(journal.append(Decision(what="a", value=1)))
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        copy.rename(path)
        written.append(journal.append(Decision(what="b", value=2)))
        assert read_journal(path) == written and is_held(lock_of(path))


def test_no_journal_is_written_anew_without_its_lock(path: Path, elsewhere: Path) -> None:
    with Journal(path) as journal:
        written = [journal.append(search_started())]
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        lock_of(path).symlink_to("nowhere")  # cannot be locked
        written.append(journal.stamp(Decision(what="a", value=1)))
        with pytest.raises(StorageError, match="wait for room in"):
            journal.append(written[-1])
        assert not path.exists()
        lock_of(path).unlink()
        written.append(journal.append(Decision(what="b", value=2)))
        assert read_journal(path) == written and is_held(lock_of(path))


def test_a_stamped_record_keeps_its_time(path: Path) -> None:
    with Journal(path) as journal:
        stamped = journal.stamp(Decision(what="a", value=1))
        later = journal.stamp(Decision(what="b", value=2))
        assert journal.append(stamped) == stamped
        assert journal.append(later) == later
    assert read_journal(path) == [stamped, later]


def test_a_closed_journal_takes_nothing(path: Path) -> None:
    journal = Journal(path)
    journal.close()
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        journal.append(Decision(what="a", value=1))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="`storage_path`"):
        Journal(tmp_path / "file" / "journal.jsonl")


def test_any_folder_name_will_do(tmp_path: Path) -> None:
    path = tmp_path / "a b'c\"d\ne%20#ü" / "journal.jsonl"
    with Journal(path) as journal:
        journal.append(Decision(what="a", value=1))
    assert len(read_journal(path)) == 1
