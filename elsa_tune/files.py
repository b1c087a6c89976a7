"""Files that are written as a whole, the place of caches, and names that are safe in a path."""

import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# A search's or a task's name: it cannot lead out of the folder that a file of this name belongs in.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST_NAME = 100
_POINTER = b"version https://git-lfs"
# Of two slashes a Path that was made of a URL has kept one.
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def write_aside(
    path: Path, content: bytes | Callable[[BinaryIO], object], *, is_private: bool = False
) -> None:
    """Write a file beside `path`, then rename it there.

    Readers never see a part of it, and of several processes the last one wins. content: the bytes,
    or what writes them. is_private: nobody else may read it. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.part")
    try:
        with aside.open("wb") as file:
            if is_private:
                os.fchmod(file.fileno(), 0o600)
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def why_no_folder(path: Path) -> str | None:
    """Say why a path leads to no folder, None where it leads to one."""
    try:
        is_there = path.is_dir()
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
        why = getattr(error, "strerror", None) or error
        return f"the folder {path} cannot be read: {why}"
    return None if is_there else f"there is no folder {path}"


def is_pointer(path: Path) -> bool:
    """Return whether a file is one of git-lfs, which stands for the real one. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def pointer_text(name: str) -> str:
    """Say what to do where a file is git-lfs's pointer."""
    return f"{name} is a pointer of git-lfs; `git lfs pull` fetches the file itself"


def cache_dir() -> Path:
    """Return $ELSA_TUNE_CACHE, or ~/.cache/elsa-tune.

    It may not exist yet, and deleting it is always safe: all of it can be made or fetched again.
    """
    given = os.environ.get("ELSA_TUNE_CACHE")
    if given:
        return expanded(given)
    return Path.home() / ".cache" / "elsa-tune"


def expanded(path: str | Path) -> Path:
    """Return a path with a user's home in place of its ~name.

    Where there is no such user, ~name is a file's own name, as it is to a shell.
    """
    return Path(os.path.expanduser(path))


def is_url(path: str | Path) -> bool:
    """Return whether this is a URL, such as s3://BUCKET/NAME, or what a Path has kept of one."""
    return _URL.match(str(path)) is not None


def slug(name: str) -> str:
    """Write a model's, a task's or several tasks' name so that it may be a part of a file's."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    return plain.strip("-._")
