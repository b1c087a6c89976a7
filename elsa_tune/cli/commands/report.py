"""`report`: ask as `operating-point` does, and write the answer as a folder: figures and a page."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elsa_tune.cli.commands.answer import (
    ExcludeTaskOption,
    FromOption,
    MapOption,
    ModelOption,
    PublishedOption,
    Scale,
    ScaleOption,
    SearchOption,
    TargetOption,
    TaskOption,
    TrainSizeOption,
    note,
    read_question,
    require_an_answer,
)
from elsa_tune.cli.options import AskedUri, StoragePath, out_folder
from elsa_tune.errors import UsageError
from elsa_tune.search.saying import say

if TYPE_CHECKING:
    from elsa_tune.analysis.answer import Answer


class Against(enum.StrEnum):
    """What the figures are drawn against."""

    PUBLISHED = "published"


def report(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=out_folder,
            help="The folder; an older report is replaced.",
        ),
    ],
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
    tracking_uri: AskedUri = None,
    storage_path: StoragePath = None,
    against: Annotated[
        Against | None,
        typer.Option("--against", help="Draw the two studies' printed numbers beside ours."),
    ] = None,
) -> None:
    """Write the answer as a folder: page, figures, tables.

    Prints the page's path. Exit status: 0 at least one answer; 2 bad input; 3 none of what was
    asked has an answer (the report is written all the same).
    """
    from elsa_tune.analysis.answers import answer_curves
    from elsa_tune.analysis.target import check_target
    from elsa_tune.cli.printing import given_command
    from elsa_tune.report.folder import check_folder, write_report
    from elsa_tune.report.page import Context

    if published and against is not None:
        raise UsageError(
            "--published asks the printed numbers, and --against published would draw them beside "
            "themselves; leave out one of them"
        )
    check_target(target)
    source, question = read_question(
        model, task, train_size, search, from_, map_, published, scale, tracking_uri, storage_path
    )
    check_folder(out)
    rows = source.ask(question, note)
    answers = answer_curves(source.curves(question, rows, target), target, exclude_task or ())
    page, *others = write_report(
        answers,
        rows,
        source.histories(question),
        out,
        Context(
            published=() if against is None else printed_answers(answers),
            command=given_command(),
            origins=source.origins(question),
        ),
    )
    say(f"elsa-tune: {len(others)} more files in {out}")
    typer.echo(page)
    require_an_answer(answers, told=False)


def printed_answers(answers: Sequence[Answer]) -> list[Answer]:
    """What the printed tables answer on the models and tasks of these answers."""
    from elsa_tune.analysis.answers import answer_rows
    from elsa_tune.tables.published import published_rows

    wanted = {(answer.model, answer.task) for answer in answers}
    rows = [row for row in published_rows() if (row.model, row.task) in wanted]
    if not rows:
        say("elsa-tune: nothing is published on these models and tasks")
    return [answer for answer in answer_rows(rows) if answer.decided_by is None]
