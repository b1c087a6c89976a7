"""Hidden states on disk, memory-mapped, checked, within a budget.

An entry is one file, named by its key: a block of facts, written last, then the rows [tokens, H] of
one split after the other. Several processes share the store: who writes or reads an entry holds a
lock on it, and what is locked is never evicted. What a killed writer leaves has no facts, and is
written anew or evicted like any other. Nothing is written or deleted through a link.

The budget holds for all processes together: one at a time looks for room and takes it, and an entry
has its full length from its beginning.
"""

import contextlib
import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from elsa_tune.errors import UsageError
from elsa_tune.files import cache_dir
from elsa_tune.locks import is_locked, open_locked

BUDGET_VARIABLE = "ELSA_TUNE_PREFIX_CACHE_GB"
DEFAULT_BUDGET_GB = 20.0
# Never the last of the disk: other things on it stop working before it is full.
KEPT_FREE = 2**30

# Bytes of the block of facts: JSON, filled up with spaces.
_FACTS = 4096
_LONGEST_NAME = 500
_BLOCK = 2**24
# What `st_blocks` counts in, whatever the file system.
_DISK_BLOCK = 512
# What an entry without facts is called.
_DAMAGED = "damaged"
# What reading the facts of an unfinished or damaged entry may raise.
_NO_FACTS = (OSError, ValueError, KeyError, TypeError)

# Entries whose checksums this process has verified, with them.
_verified: set[tuple[Path, int]] = set()


class NotKeptError(Exception):
    """There is no room for what should be kept, or it is not worth it."""


def budget_bytes() -> int:
    """Return $ELSA_TUNE_PREFIX_CACHE_GB in bytes; 0 keeps nothing. Raises UsageError."""
    text = os.environ.get(BUDGET_VARIABLE, "")
    gigabytes = DEFAULT_BUDGET_GB
    if text:
        try:
            gigabytes = float(text)
        except ValueError:
            gigabytes = math.nan
    is_number = math.isfinite(gigabytes)
    if not is_number or gigabytes < 0:
        raise UsageError(f"{BUDGET_VARIABLE} is '{text}'; it must be a number of GB, 0 or more")
    return int(gigabytes * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an entry must hold."""

    tokens: Mapping[str, int]  # of each split, by name
    hidden_size: int  # numbers of one token
    dtype: torch.dtype  # of those numbers

    @property
    def bytes(self) -> int:
        """The bytes of all rows."""
        tokens = sum(self.tokens.values())
        return tokens * self.hidden_size * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """One entry as `elsa-tune cache ls` shows it."""

    key: str  # the file's name
    what: str  # model, task and depth in words, or `damaged`
    bytes: int  # on disk, once it is finished
    last_used: float  # seconds since the epoch
    in_use: bool  # whether some process reads or writes it, or may

    @property
    def is_damaged(self) -> bool:
        """Whether it cannot be read: unfinished, or not what was written."""
        return self.what == _DAMAGED


@dataclass(slots=True)
class Reading:
    """Hidden states that are read instead of computed."""

    hidden: dict[str, Tensor] = field(default_factory=dict)  # [tokens, H] by split
    file: BinaryIO | None = None  # the entry that is read, locked against eviction

    def close(self) -> None:
        """Let go of them; the tensors must not be used any more."""
        self.hidden = {}
        if self.file is not None:
            self.file.close()


class PrefixStore:
    """The entries of this node, in `folder`. budget: bytes."""

    def __init__(self) -> None:
        self.folder = cache_dir() / "prefix"
        self.budget = budget_bytes()

    def open(self, key: str, shape: Shape) -> Reading | None:
        """Return an entry to read, None for none or a damaged one. Waits for who writes it.

        Its size is compared at every opening, its checksum at the first one by this process.
        """
        entry = self.folder / key
        with contextlib.suppress(*_NO_FACTS), contextlib.ExitStack() as opened:
            file = opened.enter_context(open_locked(entry, shared=True))
            if _is_sound(entry, file, shape):
                with contextlib.suppress(OSError):  # another user's: it may be read all the same
                    os.utime(file.fileno())
                opened.pop_all()
                return Reading(_mapped(file, shape), file)
        return None

    @contextlib.contextmanager
    def building(self, what: str) -> Iterator[None]:
        """Let only one process of the node build `what` at a time; the others wait here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open_locked(self.folder / f"{what}.lock", "ab"):
            yield

    def taking_room(self) -> contextlib.AbstractContextManager[None]:
        """Let only one process at a time look for room and begin to write; the others wait here."""
        return self.building("room")

    def make_room(self, wanted: int) -> None:
        """Evict what was used longest ago until `wanted` bytes fit; else raise NotKeptError.

        Where they would not fit without everything that nobody uses either, nothing is evicted.
        Called within `taking_room`, in which the entries are begun, too.
        """
        entries = self.entries()
        unwritten = {entry.key: self._unwritten(entry) for entry in entries}
        used = sum(entry.bytes for entry in entries)
        unused = [entry for entry in entries if not entry.in_use]
        evictable = sum(entry.bytes for entry in unused)

        def fits(without: int) -> bool:
            is_within_budget = used - without + wanted <= self.budget
            free = self._free() - sum(unwritten.values())
            return is_within_budget and free + without >= wanted + KEPT_FREE

        if fits(evictable):
            for entry in reversed(unused):
                if fits(0):
                    break
                if self.evict(entry.key):
                    used -= entry.bytes
                    del unwritten[entry.key]
                evictable -= entry.bytes
        if fits(0):
            return
        needed_gb = wanted / 1e9
        budget_gb = self.budget / 1e9
        if wanted > self.budget:
            raise NotKeptError(
                f"{needed_gb:.1f} GB are needed, and {BUDGET_VARIABLE} allows {budget_gb:g}"
            )
        used_gb = (used - evictable) / 1e9
        free = self._free() - sum(unwritten.values()) + evictable
        free_gb = max(0, free) / 1e9
        raise NotKeptError(
            f"{needed_gb:.1f} GB are needed; of the {budget_gb:g} GB that {BUDGET_VARIABLE} allows "
            f"{used_gb:.1f} are being read or written, and without the rest {self.folder} would "
            f"have {free_gb:.1f} GB free"
        )

    def _unwritten(self, entry: EntrySummary) -> int:
        """Return how many bytes of an unfinished entry the disk has yet to take."""
        if not entry.is_damaged:
            return 0
        with contextlib.suppress(OSError):  # it has gone meanwhile
            status = (self.folder / entry.key).lstat()
            return max(0, status.st_size - status.st_blocks * _DISK_BLOCK)
        return 0

    def _free(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder).free

    @contextlib.contextmanager
    def writing(self, key: str, what: str, shape: Shape) -> Iterator[Callable[[Tensor], None]]:
        """Take the rows [tokens, H] of an entry block by block, in the order of the shape's splits.

        The entry can be read afterwards only; one of that name is replaced. Raises OSError.
        """
        entry = self.folder / key
        crc = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        entry.unlink(missing_ok=True)  # whoever reads it keeps it

        def append(hidden: Tensor) -> None:
            nonlocal crc
            on_host = hidden.to("cpu", shape.dtype).contiguous()
            data = on_host.view(torch.uint8).numpy().data
            file.write(data)
            crc = zlib.crc32(data, crc)

        with open_locked(entry, "xb") as file:
            try:
                # Every file system can do this: the disk takes the bytes as they are written.
                file.truncate(_FACTS + shape.bytes)
                file.seek(_FACTS)
                yield append
                # Not forced to disk: what a power cut leaves of it, its checksum finds.
                file.seek(0)
                facts = {"what": what[:_LONGEST_NAME], "crc32": crc}
                block = json.dumps(facts).encode()
                file.write(block.ljust(_FACTS))
                file.flush()
            except BaseException:
                entry.unlink(missing_ok=True)
                raise

    def entries(self) -> list[EntrySummary]:
        """Return every entry, also unfinished and damaged ones, the most recently used first."""
        summaries = []
        for entry in self.folder.glob("[!.]*"):
            if entry.suffix == ".lock":
                continue
            with contextlib.suppress(OSError):  # it has gone meanwhile
                summaries.append(_summary(entry))
        return sorted(summaries, key=lambda summary: summary.last_used, reverse=True)

    def evict(self, key: str) -> bool:
        """Remove an entry unless somebody reads or writes it; return whether it was removed."""
        entry = self.folder / key
        with contextlib.suppress(OSError):
            if not is_locked(entry):
                entry.unlink()
                return True
        return False


def _summary(entry: Path) -> EntrySummary:
    """Describe an entry. Raises OSError where there is none any more."""
    what = _DAMAGED
    with contextlib.suppress(*_NO_FACTS), entry.open("rb") as file:
        facts = _read_facts(file)
        what = str(facts["what"])
    status = entry.lstat()
    return EntrySummary(
        key=entry.name,
        what=what,
        bytes=status.st_size,
        last_used=status.st_mtime,
        in_use=is_locked(entry),
    )


def _read_facts(file: BinaryIO) -> dict[str, Any]:
    """Read an entry's block of facts. Raises one of _NO_FACTS where it has none."""
    block = file.read(_FACTS)
    facts: dict[str, Any] = json.loads(block)
    return facts


def _is_sound(entry: Path, file: BinaryIO, shape: Shape) -> bool:
    """Return whether the entry is complete. Raises one of _NO_FACTS where it has no facts."""
    size = os.fstat(file.fileno()).st_size
    if size != _FACTS + shape.bytes:
        return False
    expected = _read_facts(file)["crc32"]
    if (entry, expected) in _verified:
        return True
    crc = 0
    while block := file.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    if crc != expected:
        return False
    _verified.add((entry, expected))
    return True


def _mapped(file: BinaryIO, shape: Shape) -> dict[str, Tensor]:
    """Map each split's rows [tokens, H] into private pages: no change reaches the file."""
    size = (shape.bytes,)
    mapped = np.memmap(file, dtype=np.uint8, mode="c", offset=_FACTS, shape=size)
    numbers = torch.from_numpy(mapped).view(shape.dtype)
    rows = numbers.view(-1, shape.hidden_size)
    sizes = list(shape.tokens.values())
    parts = rows.split(sizes)
    return dict(zip(shape.tokens, parts, strict=True))
