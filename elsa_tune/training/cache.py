"""Where what was computed once is kept, and how a file gets there whole.

It must not know what the files hold.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

VARIABLE = "ELSA_TUNE_CACHE"


def cache_dir() -> Path:
    """$ELSA_TUNE_CACHE, or ~/.cache/elsa-tune; may not exist yet. Deleting it is always safe."""
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "elsa-tune"


def write_aside(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside `path`, then rename it there: readers see the old file, the new one, or
    none.

    Several processes may do so at once; the last one wins. Raises OSError, and leaves no partial
    file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.part")
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
