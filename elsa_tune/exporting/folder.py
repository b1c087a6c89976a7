"""A folder that is written complete or not at all."""

import contextlib
import itertools
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from elsa_tune.errors import StorageError, UsageError
from elsa_tune.locks import alone_at
from elsa_tune.specs.arguments import check_out_is_here


def check_out(out: Path, kind: str, marker: str, *, overwrite: bool) -> None:
    """Raise UsageError unless the folder is new or empty, or an earlier one that may go.

    kind: `export` or `bundle`, for messages. marker: a file that each of that kind has.
    overwrite: whether an earlier one of that kind may go.
    """
    check_out_is_here(out)
    try:
        is_new = not out.exists() or (out.is_dir() and not any(out.iterdir()))
        is_earlier = (out / marker).is_file()
        # The complete folder takes the place of the one that is there, under anybody inside.
        is_inside = Path.cwd().is_relative_to(out.resolve())
        is_mounted = out.is_mount()
    # A folder that nobody may enter, a name that is too long; ValueError for one with a NUL.
    except (OSError, ValueError) as error:
        raise _unwritten(f"the {kind}", out, error) from error
    if is_inside:
        raise UsageError(
            f"{out} is the folder you are in, or around it; name a new one inside, or call this "
            "from outside"
        )
    if is_mounted:
        raise UsageError(
            f"{out} is a mounted volume, which nothing can take the place of; name a new folder "
            f"inside, such as {out / kind}"
        )
    if is_new:
        return
    if not overwrite:
        raise UsageError(
            f"{out} is there already; name a folder that is not, or an empty one, or give "
            f"`overwrite` for that of an earlier {kind}"
        )
    if not is_earlier:
        raise UsageError(
            f"{out} has no {marker}, by which the folder of an earlier {kind} is known, so it is "
            "not replaced; delete it, or name another"
        )


@contextlib.contextmanager
def writing_alone(out: Path, what: str) -> Iterator[None]:
    """Let no other process write `out` while inside: what is read there again is what was written.

    what: for messages. Raises StorageError where another one writes it.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(alone_at(out))
        except TimeoutError as error:
            raise StorageError(
                f"another process writes {what} to {out}: wait for it, or name another folder with "
                "`out`"
            ) from error
        yield


def free_name(out: Path) -> Path:
    """Return this path, or where something is there the first of OUT-2, OUT-3, ... that is free."""
    if not os.path.lexists(out):
        return out
    numbered = (out.with_name(f"{out.name}-{number}") for number in itertools.count(2))
    return next(place for place in numbered if not os.path.lexists(place))


@contextlib.contextmanager
def aside(out: Path, what: str, replaced: str | None = None) -> Iterator[Path]:
    """Return a folder beside `out` that gets its name once it is complete, and goes if it never is.

    what: for messages. replaced: a file by which an earlier folder is known that this one takes the
    place of; no other that is there by then is touched, unless it is empty. Raises StorageError for
    a place that cannot be written.
    """
    target = out.resolve()
    with scratch(out, what) as folder:
        yield folder
        for file in filter(Path.is_file, folder.rglob("*")):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        before = folder.with_suffix(".before")
        try:
            if replaced is not None and (target / replaced).is_file():
                target.rename(before)
            folder.rename(target)  # in the place of an empty one too, which POSIX allows
        finally:
            # Ctrl-C between the two leaves the earlier folder where it was.
            if before.is_dir() and not target.exists():
                before.rename(target)
            shutil.rmtree(before, ignore_errors=True)


@contextlib.contextmanager
def scratch(out: Path, what: str) -> Iterator[Path]:
    """Return a folder beside `out` that is there while inside.

    what: would be written to `out`, for messages. Raises StorageError where it cannot be.
    """
    target = out.resolve()
    # In containers every process has the same id, and a killed one leaves its folder behind.
    unique = f"{os.getpid()}.{uuid.uuid4().hex[:8]}"
    folder = target.with_name(f".{target.name}.{unique}.part")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise _unwritten(what, out, error) from error
    try:
        yield folder
    except (OSError, SafetensorError) as error:
        raise _unwritten(what, out, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unwritten(what: str, out: Path, error: Exception) -> StorageError:
    """Return the error for what cannot be written to `out`."""
    why: object = error
    if isinstance(error, OSError):
        why = error.strerror or error
    elif isinstance(error, SafetensorError):
        why = f"the weights could not be written: {error}"
    return StorageError(f"{what} cannot be written to {out}: {why}; name another folder with `out`")
