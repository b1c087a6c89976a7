"""Rows in, the same rows with an exported model's or a bundle's answers out."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from elsa_tune.errors import StorageError, UsageError
from elsa_tune.exporting.predicting import Predictor
from elsa_tune.exporting.progress_line import ProgressLine
from elsa_tune.files import write_aside
from elsa_tune.searching.output import PipeSafe, Say, unfiltered
from elsa_tune.specs.arguments import check_out_is_here
from elsa_tune.tasks.row_files import STDIN, Chunk, RowFile, input_format
from elsa_tune.tasks.table_file import check_readable, format_of
from elsa_tune.tasks.written_rows import Written
from elsa_tune.words import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """A request to predict: the rows, the model, and where the predictions go."""

    model: Path  # a folder of `export` or `bundle`
    rows: str  # a file, or `-` for stdin
    out: Path | None = None  # None for stdout
    format: str | None = None  # of what is written; None takes the file's ending
    input_format: str | None = None  # of the rows, likewise
    text: Sequence[str] | None = None  # the columns with the texts; None takes those of the task
    tasks: Sequence[str] | None = None  # of a bundle; None for all
    probabilities: bool = False  # of each class, too
    overwrite: bool = False  # a file that is there may be replaced


def predict_file(request: PredictRequest, say: Say) -> int:
    """Write the rows with their predictions, in their order; returns how many.

    Raises UsageErrors, those on late rows after earlier ones were written to stdout; a file of
    `out` is written complete or not at all.
    """
    format = _formats(request)
    predictor = Predictor(
        request.model,
        request.tasks,
        request.text,
        probabilities=request.probabilities,
    )
    for line in predictor.unknown_kinds:
        say(line)
    given: Path | BinaryIO = Path(request.rows)
    if request.rows == STDIN:
        given = sys.stdin.buffer
        say("predict: reading rows from stdin")
    source = RowFile(given, input_format(request.rows, request.input_format))
    added = predictor.added(source.names, str(source.where))
    scoring = _Scoring(source, predictor, say)

    def write(target: Any) -> None:
        written = Written(target, format, (*source.names, *added), added, source)
        written.write(scoring.chunks(target))

    try:
        _write_to(request.out, format, write)
    except OSError as error:
        where = request.out or "stdout"
        why = error.strerror or error
        raise StorageError(f"the rows cannot be written to {where}: {why}") from error
    spent = f"{duration(scoring.progress.seconds)} ({scoring.rate:,.0f} rows a second)"
    say(f"predict: {scoring.rows:,} rows in {spent}")
    for remark in predictor.remarks:
        say(f"predict: {remark}")
    return scoring.rows


def _formats(request: PredictRequest) -> str:
    """Return the format to write.

    Raises UsageError for what cannot be written, before anything is.
    """
    if request.rows != STDIN:
        check_readable(Path(request.rows))
    out = request.out
    format = input_format(request.rows, request.input_format)
    if out is not None:
        format = format_of(out) or format
    format = request.format or format
    if out is not None:
        _check_out(out, request)
    elif format == "parquet":
        raise UsageError(
            "Parquet is not written to stdout: name a file with `out`, or choose a `format`"
        )
    return format


def _check_out(out: Path, request: PredictRequest) -> None:
    """Raise UsageError where the file to write cannot be, or must not be, written."""
    check_out_is_here(out)
    if out.exists():
        if not out.is_file():
            raise UsageError(f"`out` {out} is not a file; name one")
        if request.rows != STDIN and out.samefile(request.rows):
            raise UsageError(f"`out` {out} is the file with the rows; name another")
        if not request.overwrite:
            raise UsageError(f"{out} is there already; name another file, or give `overwrite`")
    if not out.parent.is_dir():
        raise UsageError(f"`out` {out}: there is no folder {out.parent}; create it first")


def _write_to(out: Path | None, format: str, write: Callable[[Any], None]) -> None:
    if out is None:
        stdout = unfiltered(sys.stdout)
        # The data cannot command a terminal; a pipe gets them as a file would.
        if stdout.isatty():
            write(sys.stdout)
        else:
            # As in a file, line ends stay as they are written; it is UTF-8 already (`printing`).
            if isinstance(stdout, io.TextIOWrapper):
                stdout.reconfigure(newline="")
            write(PipeSafe(stdout, BrokenPipeError))
        return

    def to_file(file: BinaryIO) -> None:
        if format == "parquet":
            write(file)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        write(text)
        text.flush()
        text.detach()

    # A link stays one: what it leads to is written.
    target = Path(os.path.realpath(out))
    write_aside(target, to_file)


class _Scoring:
    """A file's chunks on their way through a model."""

    def __init__(self, source: RowFile, predictor: Predictor, say: Say) -> None:
        self._source = source
        self._predictor = predictor
        self.progress = ProgressLine(say)
        self.rows = 0  # that are through

    def chunks(self, target: Any) -> Iterator[Chunk]:
        """Yield every chunk with its predictions, until nobody reads the target any more."""
        for chunk in self._source:
            if getattr(target, "is_gone", False):
                return
            predictions = self._predictor.predict(chunk, self._source.where)
            yield chunk.with_columns(predictions)
            self.rows += len(chunk.rows)
            where = f"predict: {self.rows:,} rows, {self.rate:,.0f} a second"
            self.progress.at(where, self._source.share)

    @property
    def rate(self) -> float:
        """The rows that go through in a second."""
        return self.rows / max(self.progress.seconds, 1e-9)
