"""A folder that is written complete or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from elsa_tune.errors import StorageError, UsageError


def check_out(out: Path, kind: str, marker: str, *, overwrite: bool) -> None:
    """Raise UsageError unless the folder is new or empty, or an earlier one that may go.

    kind: `export` or `bundle`, for messages. marker: a file that each of that kind has.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise UsageError(
            f"{out} is there already; name a folder that is not, or an empty one, or give "
            f"`overwrite` for that of an earlier {kind}"
        )
    if not (out / marker).is_file():
        raise UsageError(f"{out} was not written by an earlier {kind}, so it is not replaced")


@contextlib.contextmanager
def aside(out: Path, what: str) -> Iterator[Path]:
    """Make a folder beside `out` that gets its name once it is complete, and goes if it never is.

    what: for messages. Raises StorageError for a place that cannot be written.
    """
    target = out.resolve()
    with scratch(out, what) as folder:
        yield folder
        for file in filter(Path.is_file, folder.rglob("*")):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        before = folder.with_suffix(".before")
        if target.is_dir():  # empty, or an earlier one that may go
            target.rename(before)
        try:
            folder.rename(target)
        except OSError:
            if before.is_dir():
                before.rename(target)
            raise
        shutil.rmtree(before, ignore_errors=True)


@contextlib.contextmanager
def scratch(out: Path, what: str) -> Iterator[Path]:
    """Make a folder beside `out` that is there while inside.

    what: would be written to `out`, for messages. Raises StorageError where it cannot be.
    """
    target = out.resolve()
    folder = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        folder.mkdir(parents=True)
        yield folder
    except (OSError, SafetensorError) as error:
        why: object = f"the weights could not be written: {error}"
        if isinstance(error, OSError):
            why = error.strerror or error
        raise StorageError(
            f"{what} cannot be written to {out}: {why}; name another folder with `out`"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
