"""What of a search's folder is copied, and under which names.

A journal only grows, which objects of a store cannot. So it is copied in parts, cut at ends of
lines by its content alone: all but the last part are written once, and a copy never writes more
than one part twice.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from elsa_tune.errors import StorageError
from elsa_tune.tracking.artifacts.store import ArtifactStore, read
from elsa_tune.tracking.paths import SearchPaths

# A part ends with the line that fills it.
PART_BYTES = 256 * 1024
SPECIFICATION = "search.json"
JOURNAL = "journal"
LEASE = "lease.json"
_PART = re.compile(r"journal/(\d{12})\.jsonl")
# What else a search's folder takes from a store: nothing of another form is written there.
_PREDICTIONS = re.compile(r"predictions/[^/.][^/]*\.npz")
_CHECKPOINT = re.compile(r"checkpoints/[^/.][^/]*\.safetensors")


def parts(content: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Cut whole lines of a journal into parts; yield where each begins in it, and its bytes.

    start: where in the journal the content begins, at the beginning of a part.
    """
    begin = 0
    while begin < len(content):
        newline = content.find(b"\n", begin + PART_BYTES - 1)
        end = len(content) if newline < 0 else newline + 1
        yield start + begin, content[begin:end]
        begin = end


def part_name(begin: int) -> str:
    """Return the name of the part that begins at this byte of the journal."""
    return f"{JOURNAL}/{begin:012d}.jsonl"


def whole_lines(journal: Path, start: int = 0) -> bytes:
    """Return a journal's bytes from there on, up to the end of its last line; b"" without any."""
    try:
        with journal.open("rb") as file:
            file.seek(start)
            content = file.read()
    except FileNotFoundError:
        return b""
    return content[: content.rfind(b"\n") + 1]


def local_files(paths: SearchPaths) -> dict[str, Path]:
    """Return the files of a search's folder that are copied as they are, by their names there."""
    files: dict[str, Path] = {}
    if paths.specification.exists():
        files[SPECIFICATION] = paths.specification
    for folder, wanted in ((paths.predictions, _PREDICTIONS), (paths.checkpoints, _CHECKPOINT)):
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir()):
            name = f"{folder.name}/{file.name}"
            if wanted.fullmatch(name):
                files[name] = file
    return files


def is_checkpoint(name: str) -> bool:
    """Whether a file is a trial's checkpoint, which goes when the trial has ended."""
    return _CHECKPOINT.fullmatch(name) is not None


def is_file_of_search(name: str) -> bool:
    """Whether a search's folder takes a file of this name as it is."""
    is_data = _PREDICTIONS.fullmatch(name) is not None
    return name == SPECIFICATION or is_data or is_checkpoint(name)


def stored_sizes(store: ArtifactStore, search: str) -> dict[str, int]:
    """Return the bytes of each file that a store has of a search, by their names in its folder.

    Other files that lie there are not the search's: they are neither read nor removed.
    """
    sizes: dict[str, int] = {}
    for stored_name, size in store.sizes(search).items():
        name = stored_name.removeprefix(f"{search}/")
        if name == LEASE or _PART.fullmatch(name) or is_file_of_search(name):
            sizes[name] = size
    return sizes


def check_no_other_files(store: ArtifactStore, search: str) -> None:
    """Raise StorageError where the place of a search's copy has files, and none shows a copy."""
    names = sorted(name.removeprefix(f"{search}/") for name in store.sizes(search))
    is_copy = any(name == SPECIFICATION or _PART.fullmatch(name) for name in names)
    others = [name for name in names if name != LEASE]
    if others and not is_copy:
        raise StorageError(
            f"`artifacts` {store.url} would mix the copy of search '{search}' with files that are "
            f"there already, such as {others[0]}; choose another `name`, or another place there"
        )


def stored_parts(sizes: Mapping[str, int]) -> list[int]:
    """Return where in the journal the parts begin that a store has, sorted.

    sizes: of the search's files there.
    """
    begins = []
    for name in sizes:
        match = _PART.fullmatch(name)
        if match is not None:
            begins.append(int(match[1]))
    return sorted(begins)


def stored_journal(store: ArtifactStore, search: str, sizes: Mapping[str, int]) -> bytes:
    """Return the journal that a store has of a search. Raises StorageError where a part is missing.

    sizes: of the search's files there.
    """
    parts: list[bytes] = []
    length = 0
    for begin in stored_parts(sizes):
        content = read(store, f"{search}/{part_name(begin)}")
        if begin != length or content is None:
            raise StorageError(
                f"`artifacts` {store.url} lacks a part of the journal of search '{search}', which "
                f"should begin at byte {length:,}; the search cannot be taken from there"
            )
        parts.append(content)
        length += len(content)
    return b"".join(parts)
