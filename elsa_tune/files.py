"""How a file gets to its place complete, where a cache is, and how a name becomes a file's."""

import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# Of searches and tasks: it cannot lead out of the folder that a file of this name belongs in.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def write_aside(
    path: Path, content: bytes | Callable[[BinaryIO], object], *, is_private: bool = False
) -> None:
    """Write a file beside `path`, then rename it there: readers never see a part, and of several
    processes the last one wins. content: the bytes, or what writes them. is_private: nobody else
    may read it. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.part")
    try:
        with aside.open("wb") as file:
            if is_private:
                os.fchmod(file.fileno(), 0o600)
            file.write(content) if isinstance(content, bytes) else content(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def cache_dir() -> Path:
    """$ELSA_TUNE_CACHE, or ~/.cache/elsa-tune; may not exist yet. Deleting it is always safe."""
    given = os.environ.get("ELSA_TUNE_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "elsa-tune"


def slug(name: str) -> str:
    """A model, a task or several of them as a part of a file's or a search's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")
