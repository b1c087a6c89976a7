"""`operating-point` and `curve`: ask what is recorded, or a results table, and print the answer.

It must not compute or lay out anything itself; analysis answers, `answer_tables` prints.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elsa_tune.errors import NoAnswerError, UsageError

if TYPE_CHECKING:
    from elsa_tune.analysis.answer import Answer
    from elsa_tune.cli.answer_rows import Query
    from elsa_tune.specs.result_row import ResultRow


class Format(enum.StrEnum):
    """How results are printed to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Scale(enum.StrEnum):
    """What the qualities of a results table are."""

    FRACTION = "fraction"
    PERCENT = "percent"


ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="Every model of a table if left out.")
]
TaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--task", metavar="TASK", help="Or 'all'; repeatable; every task of a table if left out."
    ),
]
TrainSizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--train-size", metavar="K", help="Examples, 'full' or 'all'; where several are recorded."
    ),
]
SearchOption = Annotated[
    str | None, typer.Option("--search", metavar="NAME", help="The results of this search only.")
]
FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="A results table (CSV) or a search's journal.jsonl."
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OURS=THEIRS",
        help="A column of the results table by its name there, or OURS==VALUE; repeatable.",
    ),
]
PublishedOption = Annotated[
    bool, typer.Option("--published", help="Ask the numbers printed in the two studies instead.")
]
ScaleOption = Annotated[Scale, typer.Option("--scale", help="Of the qualities in a results table.")]
TrackingOption = Annotated[
    str | None, typer.Option("--tracking-uri", metavar="URI", help="The MLflow store to read.")
]
StorageOption = Annotated[
    Path | None,
    typer.Option(
        "--storage-path", metavar="PATH", help="Read the searches' journals here, not MLflow."
    ),
]
TargetOption = Annotated[
    float, typer.Option("--target", help="Share of the full model's quality to keep.")
]
ExcludeTaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-task", metavar="TASK", help="Leave out of the joint answer; repeatable."
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="What to print.")]


def operating_point(
    model: ModelOption = None,
    task: TaskOption = None,
    target: TargetOption = 0.9,
    exclude_task: ExcludeTaskOption = None,
    train_size: TrainSizeOption = None,
    search: SearchOption = None,
    from_: FromOption = None,
    map_: MapOption = None,
    published: PublishedOption = False,
    scale: ScaleOption = Scale.FRACTION,
    tracking_uri: TrackingOption = None,
    storage_path: StorageOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """How many of the last layers need fine-tuning?

    Exit status: 0 at least one answer; 2 bad input; 3 none of what was asked has an answer.
    """
    from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json
    from elsa_tune.analysis.answers import answer_curves, freeze_curves
    from elsa_tune.analysis.target import check_target
    from elsa_tune.cli.answer_rows import evidence_for

    check_target(target)
    source = Source(search, from_, tuple(map_ or ()), published, scale, tracking_uri, storage_path)
    query = read_query(model, task, train_size, source)
    rows = _rows(query, format_)
    curves = freeze_curves(
        rows,
        evidence_for(rows, query),
        train_sizes_apart=query.train_sizes_apart,
        target=target,
    )
    answers = answer_curves(curves, target, exclude_task or ())
    if format_ is Format.JSON:
        typer.echo(as_json([answer_object(answer) for answer in answers]))
    elif format_ is Format.CSV:
        typer.echo(answers_csv(answers), nl=False)
    else:
        from elsa_tune.cli.answer_tables import print_answers

        print_answers(answers)
    require_an_answer(answers, told=format_ is Format.TABLE)


def curve(
    model: ModelOption = None,
    task: TaskOption = None,
    train_size: TrainSizeOption = None,
    search: SearchOption = None,
    from_: FromOption = None,
    map_: MapOption = None,
    published: PublishedOption = False,
    scale: ScaleOption = Scale.FRACTION,
    tracking_uri: TrackingOption = None,
    storage_path: StorageOption = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """The freeze curve: quality against frozen layers.

    Exit status: 0 at least one depth is measured; 2 bad input; 3 nothing is measured.
    """
    from elsa_tune.analysis.answer_json import as_json, curves_csv, freeze_curve_object
    from elsa_tune.analysis.answers import freeze_curves
    from elsa_tune.cli.answer_rows import evidence_for

    source = Source(search, from_, tuple(map_ or ()), published, scale, tracking_uri, storage_path)
    query = read_query(model, task, train_size, source)
    rows = _rows(query, format_)
    curves = freeze_curves(
        rows, evidence_for(rows, query), train_sizes_apart=query.train_sizes_apart
    )
    if format_ is Format.JSON:
        typer.echo(as_json([freeze_curve_object(found) for found in curves]))
    elif format_ is Format.CSV:
        typer.echo(curves_csv(curves), nl=False)
    else:
        from elsa_tune.cli.answer_tables import print_curves

        print_curves(curves)
    if not any(point.quality is not None for found in curves for point in found.points):
        raise NoAnswerError("no measuring trial has completed, so there is no curve yet")


@dataclass(frozen=True, slots=True)
class Source:
    """The options that say where the results are."""

    search: str | None
    table: Path | None
    columns: tuple[str, ...]
    published: bool
    scale: Scale
    tracking_uri: str | None
    storage_path: Path | None

    def check(self) -> None:
        """Raise UsageError where two of them contradict one another."""
        stores = {"--tracking-uri": self.tracking_uri, "--storage-path": self.storage_path}
        if self.published:
            others = {"--from": self.table, "--search": self.search, **stores}
            given = [name for name, value in others.items() if value is not None]
            if given:
                raise UsageError(
                    f"--published asks what two studies printed; leave out {' and '.join(given)}"
                )
        if self.table is not None and any(value is not None for value in stores.values()):
            raise UsageError("--from reads a file; leave out --tracking-uri and --storage-path")
        if self.tracking_uri is not None and self.storage_path is not None:
            raise UsageError(
                "--tracking-uri reads MLflow, --storage-path the journals; give one of them"
            )
        is_csv = self.table is not None and self.table.suffix != ".jsonl"
        if self.columns and not is_csv:
            raise UsageError("--map names columns of a results table given with --from")
        if self.scale is Scale.PERCENT and not is_csv:
            raise UsageError("--scale percent is for a results table given with --from")


def read_query(
    model: str | None,
    tasks: Sequence[str] | None,
    train_sizes: Sequence[str] | None,
    source: Source,
) -> Query:
    """Check the options against one another before anything is read."""
    source.check()
    asks_the_record = source.table is None and source.search is None and not source.published
    if asks_the_record and (model is None or not tasks):
        missing = "--model" if model is None else "--task (or --task all)"
        raise UsageError(
            f"{missing} is needed to ask the record; or name one search with --search NAME, or a "
            "results table with --from FILE"
        )
    from elsa_tune.cli.answer_rows import Query, read_tasks, read_train_sizes

    return Query(
        model=model,
        tasks=read_tasks(tasks or ()),
        train_sizes=read_train_sizes(train_sizes or ()),
        search=source.search,
        table=source.table,
        columns=source.columns,
        published=source.published,
        percent=source.scale is Scale.PERCENT,
        tracking_uri=source.tracking_uri,
        storage_path=source.storage_path,
    )


def _rows(query: Query, format_: Format) -> list[ResultRow]:
    from elsa_tune.cli.answer_rows import find_rows

    try:
        return find_rows(query)
    except NoAnswerError:
        if format_ is Format.JSON:
            # A reader of stdout gets valid JSON here too.
            typer.echo("[]")
        raise


def require_an_answer(answers: Sequence[Answer], *, told: bool) -> None:
    """Raise NoAnswerError, with each reason, where no answer has an operating point.

    told: where there is but one answer the user has read its reason already.
    """
    if any(answer.is_answered for answer in answers):
        return
    if told and len(answers) == 1:
        # The table says why, as its first sentence.
        raise typer.Exit(NoAnswerError.exit_status)
    reasons = "; ".join(
        f"{answer.model} on {answer.task}: {answer.sentence}"
        for answer in answers
        if answer.decided_by is None
    )
    raise NoAnswerError(f"none of what was asked has an answer: {reasons}")
