"""Hidden states on disk: whole or not there, checked, shared by processes, within a budget."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from elsa_tune.errors import UsageError
from elsa_tune.training.forward.prefix_store import (
    KEPT_FREE,
    NotKeptError,
    PrefixStore,
    Reading,
    Shape,
    budget_bytes,
)
from tests.forked import Nursery, nursery

SHAPE = Shape(tokens={"train": 100, "evaluation": 40}, hidden_size=8, dtype=torch.float32)


def write(store: PrefixStore, key: str, shape: Shape = SHAPE) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(hash(key) % 1000)
    rows = {}
    with store.writing(key, f"made up {key}", shape) as append:
        for split, tokens in shape.tokens.items():
            rows[split] = torch.randn(tokens, shape.hidden_size, generator=draw)
            for block in rows[split].split(33):
                append(block)
    return rows


class Store(PrefixStore):
    """A store that remembers what it opened, to close it after the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.budget = folder, 10**9

    def open(self, key: str, shape: Shape) -> Reading | None:
        reading = super().open(key, shape)
        if reading is not None:
            OPENED.append(reading)
        return reading


OPENED: list[Reading] = []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PrefixStore]:
    yield Store(tmp_path / "prefix")
    while OPENED:
        OPENED.pop().close()


def test_what_is_written_is_read(store: PrefixStore) -> None:
    rows = write(store, "a")
    reading = store.open("a", SHAPE)
    assert reading is not None
    for split, expected in rows.items():
        assert torch.equal(reading.hidden[split], expected)
    # Whatever a trial does to what it was given, the next one reads the file.
    reading.hidden["train"].zero_()
    again = store.open("a", SHAPE)
    assert again is not None and torch.equal(again.hidden["train"], rows["train"])
    assert store.open("b", SHAPE) is None


def test_what_another_user_wrote_is_read(
    store: PrefixStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its owner may say when it was used last."""
    rows = write(store, "a")

    def refuse(*_: object) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refuse)
    reading = store.open("a", SHAPE)
    assert reading is not None and torch.equal(reading.hidden["train"], rows["train"])


def test_half_precision_takes_half_the_disk(store: PrefixStore) -> None:
    shape = Shape(tokens=SHAPE.tokens, hidden_size=8, dtype=torch.bfloat16)
    rows = write(store, "a", shape)
    reading = store.open("a", shape)
    assert reading is not None and shape.bytes == SHAPE.bytes // 2
    assert torch.equal(reading.hidden["train"], rows["train"].bfloat16())


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "facts", "no facts"])
def test_a_damaged_entry_is_found_and_replaced(store: PrefixStore, damage: str) -> None:
    write(store, "a")
    entry = store.folder / "a"
    data = bytearray(entry.read_bytes())
    if damage == "flip":
        data[-1234] ^= 1
    elif damage == "cut":
        del data[-1:]
    elif damage == "grow":
        data += b"1234"
    elif damage == "facts":
        data[:1] = b"["
    elif damage == "no facts":
        data[:4096] = b"{}".ljust(4096)
    entry.write_bytes(data)
    if damage == "facts":
        assert store.entries()[0].what == "damaged" and store.entries()[0].bytes == len(data)
    assert store.open("a", SHAPE) is None
    rows = write(store, "a")
    reading = store.open("a", SHAPE)
    assert reading is not None and torch.equal(reading.hidden["train"], rows["train"])


def test_an_unfinished_entry_is_held_and_goes_with_its_error(store: PrefixStore) -> None:
    held = write(store, "a"), store.open("a", SHAPE)
    with pytest.raises(KeyError), store.writing("a", "made up", SHAPE) as append:
        append(torch.zeros(100, 8))
        [entry] = store.entries()
        assert entry.in_use and entry.what == "damaged" and not store.evict("a")
        raise KeyError
    assert not list(store.folder.iterdir())
    # Who read the one that was replaced reads on.
    assert held[1] is not None and torch.equal(held[1].hidden["train"], held[0]["train"])


@pytest.fixture(scope="module")
def fork() -> Iterator[Nursery]:
    with nursery("elsa_tune.training.forward.prefix_store") as parent:
        yield parent


KILLED = """
import os, sys
from pathlib import Path
import torch
from elsa_tune.training.forward.prefix_store import PrefixStore, Shape
store = PrefixStore()
store.folder = Path(sys.argv[1])
shape = Shape(tokens={"train": 100, "evaluation": 40}, hidden_size=8, dtype=torch.float32)
with store.writing("a", "made up", shape) as append:
    for tokens in shape.tokens.values():
        append(torch.zeros(tokens, 8))
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_writer_leaves_is_never_read_and_goes(
    store: PrefixStore, fork: Nursery
) -> None:
    for follow in (lambda: store.evict("a"), lambda: write(store, "a")):
        assert fork.run(KILLED, str(store.folder)).returncode == -9
        assert store.open("a", SHAPE) is None
        [entry] = store.entries()
        assert (entry.what, entry.in_use) == ("damaged", False)
        assert follow()
    assert store.open("a", SHAPE) is not None


def test_the_least_recently_used_goes_first_and_what_is_read_stays(store: PrefixStore) -> None:
    for number, key in enumerate("abc"):
        write(store, key)
        os.utime(store.folder / key, (number, number))
    size = store.entries()[0].bytes
    held = store.open("a", SHAPE)  # now the most recently used, and in use
    assert held is not None
    store.budget = 3 * size
    store.make_room(SHAPE.bytes)
    assert sorted(entry.key for entry in store.entries()) == ["a", "c"]
    store.budget = 2 * size
    store.make_room(SHAPE.bytes)
    assert [entry.key for entry in store.entries()] == ["a"]
    store.budget = size
    with pytest.raises(NotKeptError, match=r"are being read"):
        store.make_room(SHAPE.bytes)
    assert store.entries()[0].in_use and not store.evict("a")
    held.close()
    store.make_room(SHAPE.bytes)
    assert store.entries() == []
    write(store, "d")
    with pytest.raises(NotKeptError, match=r"GB are needed, and ELSA_TUNE_PREFIX_CACHE_GB allows"):
        store.make_room(10 * size)
    assert [entry.key for entry in store.entries()] == ["d"]  # nothing was evicted in vain


def test_what_is_read_on_nfs_is_not_evicted(store: PrefixStore, nfs: None) -> None:
    for key in "ab":
        write(store, key)
    reading = store.open("a", SHAPE)
    assert reading is not None
    assert {entry.key: entry.in_use for entry in store.entries()} == {"a": True, "b": False}
    os.utime(store.folder / "a", (1, 1))  # it would be the first to go
    store.budget = 2 * store.entries()[0].bytes
    store.make_room(SHAPE.bytes)
    assert [entry.key for entry in store.entries()] == ["a"]
    reading.close()
    assert store.evict("a")


def test_nothing_is_evicted_where_that_would_not_do(
    store: PrefixStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in "abc":
        write(store, key)
    size = store.entries()[0].bytes
    # The disk: 3 entries could go, and 7 are wanted where there is room for 1.
    monkeypatch.setattr(PrefixStore, "_free", lambda self: KEPT_FREE + size)
    with pytest.raises(NotKeptError, match=r"0\.0 are being read or .* have 1\.1 GB free"):
        store.make_room(7 * size)
    assert len(store.entries()) == 3
    # The budget: of 3 entries that it holds one is being read, and 3 are wanted.
    monkeypatch.setattr(PrefixStore, "_free", lambda self: 2 * KEPT_FREE)
    store.budget = 3 * size
    assert store.open("a", SHAPE) is not None
    with pytest.raises(NotKeptError, match="are being read"):
        store.make_room(3 * size)
    assert len(store.entries()) == 3
    store.make_room(2 * size)
    assert [entry.key for entry in store.entries()] == ["a"]


def test_as_much_of_a_disk_is_freed_as_is_wanted(
    store: PrefixStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, key in enumerate("abc"):
        write(store, key)
        os.utime(store.folder / key, (number, number))
    size = store.entries()[0].bytes

    def free(self: PrefixStore) -> int:
        return KEPT_FREE + size * (4 - len(self.entries()))

    monkeypatch.setattr(PrefixStore, "_free", free)
    store.make_room(2 * size)
    assert [entry.key for entry in store.entries()] == ["c", "b"]


def test_a_full_disk_is_no_room(store: PrefixStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrefixStore, "_free", lambda self: 10)
    with pytest.raises(NotKeptError, match=r"0\.0 GB free"):
        store.make_room(SHAPE.bytes)


def test_what_others_write_counts_from_its_beginning(store: PrefixStore) -> None:
    write(store, "a")
    size = store.entries()[0].bytes
    store.budget = 2 * size
    with store.writing("b", "made up", SHAPE):
        assert [entry.bytes for entry in store.entries()] == [size, size]
        store.make_room(SHAPE.bytes)
        assert [entry.key for entry in store.entries()] == ["b"]
        store.budget = size
        with pytest.raises(NotKeptError, match="are being read"):
            store.make_room(SHAPE.bytes)


def test_the_disk_has_yet_to_take_what_others_write(
    store: PrefixStore, monkeypatch: pytest.MonkeyPatch, fork: Nursery
) -> None:
    shape = Shape(tokens={"train": 1000}, hidden_size=1000, dtype=torch.float32)
    room = int(1.5 * shape.bytes)
    taken = 0
    monkeypatch.setattr(PrefixStore, "_free", lambda self: KEPT_FREE + room - taken)
    with store.writing("a", "made up", shape) as append:
        with pytest.raises(NotKeptError, match=r"would have 1\.1 GB free"):
            store.make_room(shape.bytes)
        append(torch.ones(1000, 1000))
        taken = shape.bytes
        store.make_room(shape.bytes // 4)
    assert store.evict("a")
    # What a killed process left takes little of the disk, and no more is to be expected of it.
    taken = 0
    assert fork.run(KILLED, str(store.folder)).returncode == -9
    with (store.folder / "a").open("rb+") as left:
        left.truncate(shape.bytes)
    with pytest.raises(NotKeptError):
        store.make_room(2 * shape.bytes)
    assert [entry.key for entry in store.entries()] == ["a"]  # nothing was evicted in vain
    store.make_room(shape.bytes)
    assert store.entries() == []


def everything(folder: Path) -> dict[Path, tuple[float, bytes]]:
    return {
        file: (file.stat().st_mtime, file.read_bytes())
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("link", ["entry", "to nowhere"])
def test_nothing_is_written_or_deleted_through_a_link(store: PrefixStore, link: str) -> None:
    foreign = Store(store.folder.parent / "foreign")
    write(foreign, "a")
    write(store, "a")
    entry = store.folder / "a"
    store.evict("a")
    entry.symlink_to(foreign.folder / ("a" if link == "entry" else "none"))
    for file in foreign.folder.rglob("*"):
        os.utime(file, (1, 1))
    before = everything(foreign.folder)
    assert store.open("a", SHAPE) is None
    rows = write(store, "a")
    assert not entry.is_symlink()
    reading = store.open("a", SHAPE)
    assert reading is not None and torch.equal(reading.hidden["train"], rows["train"])
    assert everything(foreign.folder) == before


def test_a_link_is_evicted_without_what_it_leads_to(store: PrefixStore) -> None:
    foreign = Store(store.folder.parent / "foreign")
    write(foreign, "a")
    store.folder.mkdir()
    (store.folder / "b").symlink_to(foreign.folder / "a")
    (store.folder / "all.lock").symlink_to(foreign.folder / "made")
    before = everything(foreign.folder)
    assert store.evict("b")
    with pytest.raises(OSError), store.building("all"):
        pass
    assert [left.name for left in store.folder.iterdir()] == ["all.lock"]
    assert everything(foreign.folder) == before


BUILDER = """
import sys, time
from pathlib import Path
import torch
from elsa_tune.training.forward.prefix_store import PrefixStore, Shape
store = PrefixStore()
store.folder = Path(sys.argv[1])
shape = Shape(tokens={"train": 100, "evaluation": 40}, hidden_size=8, dtype=torch.float32)
with store.building("all"):
    if not store.entries():
        with store.writing("a", "made up", shape) as append:
            for tokens in shape.tokens.values():
                append(torch.zeros(tokens, 8))
                time.sleep(0.3)
        print("built")
"""


def test_two_processes_build_once(store: PrefixStore, fork: Nursery) -> None:
    both = [fork.start(BUILDER, str(store.folder)) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(said) == ["", "built\n"]
    assert store.open("a", SHAPE) is not None


def test_the_budget_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELSA_TUNE_PREFIX_CACHE_GB", raising=False)
    assert budget_bytes() == 20_000_000_000
    monkeypatch.setenv("ELSA_TUNE_PREFIX_CACHE_GB", "0.5")
    assert budget_bytes() == 500_000_000
    for wrong in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv("ELSA_TUNE_PREFIX_CACHE_GB", wrong)
        with pytest.raises(UsageError, match=f"is '{wrong}'; it must be a number of GB"):
            budget_bytes()
