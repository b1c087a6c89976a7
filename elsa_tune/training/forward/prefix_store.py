"""Hidden states on disk: flat rows of a depth and split, memory-mapped, checked, within a budget.

It must not know models or tasks. An entry is a folder named by its key; it holds one file per
split, [tokens, H] in the order of the split's flat arrays, and `facts.json` with sizes and
checksums. It is written aside and renamed, so that an entry is there whole or not at all. Several
processes of a node share the store: who reads an entry holds a lock on it, and what is locked is
never evicted. A link in the store is a damaged entry: nothing is written or deleted through it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from elsa_tune.errors import UsageError
from elsa_tune.training.cache import cache_dir

BUDGET_VARIABLE = "ELSA_TUNE_PREFIX_CACHE_GB"
DEFAULT_BUDGET_GB = 20.0
# Never the last of the disk: other things on it stop working before it is full.
KEPT_FREE = 2**30

_FACTS = "facts.json"
_LOCK = "in-use"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_BLOCK = 2**24


# Entries whose checksums this process has verified, with the time of their facts.
_verified: set[tuple[str, float]] = set()


class NotKeptError(Exception):
    """There is no room for what should be kept, or it is not worth it."""


def budget_bytes() -> int:
    """$ELSA_TUNE_PREFIX_CACHE_GB in bytes, 20 GB by default; 0 keeps nothing.

    Raises UsageError for anything but a number of 0 or more.
    """
    text = os.environ.get(BUDGET_VARIABLE, "")
    try:
        gigabytes = float(text) if text else DEFAULT_BUDGET_GB
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise UsageError(f"{BUDGET_VARIABLE} is '{text}'; it must be a number of GB, 0 or more")
    return int(gigabytes * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an entry must hold. tokens: of each split, by name. dtype: `fp32` or `bf16`."""

    tokens: Mapping[str, int]
    hidden_size: int
    dtype: str

    @property
    def kept_as(self) -> torch.dtype:
        """torch's name for `dtype`."""
        return _DTYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Of one token."""
        return self.hidden_size * self.kept_as.itemsize

    @property
    def bytes(self) -> int:
        """Of the whole entry."""
        return sum(self.tokens.values()) * self.row_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySummary:
    """One entry as `elsa-tune cache ls` shows it. last_used: seconds since the epoch."""

    key: str
    what: str
    bytes: int
    last_used: float
    in_use: bool


@dataclass(slots=True)
class Reading:
    """Hidden states that are being read, [tokens, H] by split; mapped from an entry's files, the
    lock that keeps it from eviction.
    """

    hidden: dict[str, Tensor] = field(default_factory=dict)
    lock: BinaryIO | None = None

    def close(self) -> None:
        """Let go of them; the tensors must not be used any more."""
        self.hidden = {}
        if self.lock is not None:
            self.lock.close()


class PrefixStore:
    """The entries of this node, in `folder`."""

    def __init__(self, folder: Path | None = None, budget: int | None = None) -> None:
        """folder: by default `prefix/` in the cache. budget: bytes, by default $ELSA_TUNE_...'s."""
        self.folder = folder if folder is not None else cache_dir() / "prefix"
        self.budget = budget_bytes() if budget is None else budget

    def open(self, key: str, shape: Shape) -> Reading | None:
        """An entry to read, None where there is none. One that is damaged is removed.

        Its size is compared at every opening, its checksum at the first one by this process.
        """
        entry = self.folder / key
        try:
            lock = (entry / _LOCK).open("rb")
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            # Evicted between opening and locking: the file that is locked has no name any more.
            if os.fstat(lock.fileno()).st_nlink == 0:
                lock.close()
                return None
            if not self._is_sound(entry, shape):
                lock.close()
                self._remove(entry)
                return None
            os.utime(entry / _LOCK)
            return Reading({name: _map(entry, name, shape) for name in shape.tokens}, lock)
        except BaseException as error:
            lock.close()
            if isinstance(error, OSError | ValueError | KeyError):
                return None
            raise

    def _is_sound(self, entry: Path, shape: Shape) -> bool:
        try:
            if any(file.is_symlink() for file in (entry, *entry.iterdir())):
                return False
            facts = json.loads((entry / _FACTS).read_text())
            files = facts["files"]
            stamp = (str(entry), (entry / _FACTS).stat().st_mtime)
            for name, tokens in shape.tokens.items():
                size = tokens * shape.row_bytes
                if files[name]["bytes"] != size or (entry / name).stat().st_size != size:
                    return False
                if stamp not in _verified and _crc(entry / name) != files[name]["crc32"]:
                    return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
        _verified.add(stamp)
        return True

    @contextlib.contextmanager
    def building(self, what: str) -> Iterator[None]:
        """Only one process of the node builds `what` at a time; the others wait here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with open(os.open(self.folder / f"{what}.lock", flags, 0o644), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def make_room(self, wanted: int) -> None:
        """Evict what was used longest ago until `wanted` bytes fit; else raise NotKeptError."""
        if wanted > self.budget:
            raise NotKeptError(
                f"{wanted / 1e9:.1f} GB are needed, and {BUDGET_VARIABLE} allows "
                f"{self.budget / 1e9:g}"
            )
        used = sum(entry.bytes for entry in self.entries())
        for entry in sorted(self.entries(), key=lambda one: one.last_used):
            if used + wanted <= self.budget and self._free() >= wanted + KEPT_FREE:
                break
            if self.evict(entry.key):
                used -= entry.bytes
        if used + wanted > self.budget:
            raise NotKeptError(
                f"{wanted / 1e9:.1f} GB are needed, and of the {self.budget / 1e9:g} GB that "
                f"{BUDGET_VARIABLE} allows {used / 1e9:.1f} are being read"
            )
        if self._free() < wanted + KEPT_FREE:
            raise NotKeptError(
                f"{wanted / 1e9:.1f} GB are needed, and {self.folder} has "
                f"{self._free() / 1e9:.1f} GB free"
            )

    def _free(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.folder).free

    def writer(self, key: str, what: str, shape: Shape) -> EntryWriter:
        """Begin an entry; it exists only after the writer's `finish`."""
        return EntryWriter(self.folder / key, what, shape)

    def entries(self) -> list[EntrySummary]:
        """Every entry, damaged ones included."""
        found = []
        for lock in self.folder.glob(f"*/{_LOCK}"):
            entry = lock.parent
            with contextlib.suppress(OSError):
                files = list(entry.iterdir())
                found.append(
                    EntrySummary(
                        key=entry.name,
                        what=_what(entry),
                        bytes=sum(file.stat().st_size for file in files),
                        last_used=lock.stat().st_mtime,
                        in_use=_is_locked(lock),
                    )
                )
        return found

    def evict(self, key: str) -> bool:
        """Remove an entry unless somebody reads it; whether it was removed."""
        entry = self.folder / key
        try:
            with (entry / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._remove(entry)
        except OSError:
            return False
        return True

    def sweep(self, older_than: float = 3600.0) -> None:
        """Remove what killed writers left behind, once it is older than so many seconds."""
        for left in self.folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - left.lstat().st_mtime > older_than:
                    _delete(left)

    @staticmethod
    def _remove(entry: Path) -> None:
        # Renamed first: nobody opens a half-removed entry.
        aside = entry.with_name(f".{entry.name}.{uuid.uuid4().hex[:8]}.part")
        with contextlib.suppress(OSError):
            entry.rename(aside)
            _delete(aside)


class EntryWriter:
    """An entry being written, split by split, block by block."""

    def __init__(self, entry: Path, what: str, shape: Shape) -> None:
        self._entry, self._what, self._shape = entry, what, shape
        self._aside = entry.with_name(f".{entry.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.part")
        self._aside.mkdir(parents=True)
        self._files: dict[str, BinaryIO] = {}
        self._crcs: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def append(self, split: str, hidden: Tensor) -> None:
        """Write the next rows [tokens, H] of a split. Raises OSError on a full disk."""
        block = hidden.to("cpu", self._shape.kept_as).contiguous()
        data = block.view(torch.uint8).numpy().data
        if split not in self._files:
            self._files[split] = (self._aside / split).open("wb")
        self._files[split].write(data)
        self._crcs[split] = zlib.crc32(data, self._crcs.get(split, 0))
        self._bytes[split] = self._bytes.get(split, 0) + data.nbytes

    def finish(self) -> None:
        """Give the entry its name. Raises OSError; an entry of that name is replaced."""
        # Not forced to disk: what a power cut leaves of it, its checksum finds.
        for file in self._files.values():
            file.close()
        facts = {
            "what": self._what,
            "hidden_size": self._shape.hidden_size,
            "dtype": self._shape.dtype,
            "files": {
                name: {"bytes": self._bytes[name], "crc32": self._crcs[name]}
                for name in self._files
            },
        }
        (self._aside / _LOCK).touch()
        (self._aside / _FACTS).write_text(json.dumps(facts, indent=1))
        PrefixStore._remove(self._entry)
        self._aside.rename(self._entry)

    def abandon(self) -> None:
        """Leave nothing behind; does nothing after `finish`."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self._aside, ignore_errors=True)


def _delete(entry: Path) -> None:
    if entry.is_symlink():
        entry.unlink()
    else:
        shutil.rmtree(entry)


def _map(entry: Path, name: str, shape: Shape) -> Tensor:
    """The file's rows [tokens, H]; private pages, so nothing that is done to them reaches it."""
    size = shape.tokens[name] * shape.row_bytes
    mapped = np.memmap(entry / name, dtype=np.uint8, mode="c", shape=(size,))
    return torch.from_numpy(mapped).view(shape.kept_as).view(-1, shape.hidden_size)


def _crc(file: Path) -> int:
    value = 0
    with file.open("rb") as data:
        while block := data.read(_BLOCK):
            value = zlib.crc32(block, value)
    return value


def _what(entry: Path) -> str:
    try:
        return str(json.loads((entry / _FACTS).read_text())["what"])
    except (OSError, ValueError, KeyError, TypeError):
        return "damaged"


def _is_locked(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
