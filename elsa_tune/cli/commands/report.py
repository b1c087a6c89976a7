"""`report`: ask as `operating-point` does, and write the answer as a folder of figures and a page.

It must not compute or draw anything itself; analysis answers, `report` draws.
"""

from __future__ import annotations

import enum
import sys
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
    Source,
    StorageOption,
    TargetOption,
    TaskOption,
    TrackingOption,
    TrainSizeOption,
    read_query,
    require_an_answer,
)
from elsa_tune.cli.options import out_folder
from elsa_tune.errors import UsageError

if TYPE_CHECKING:
    from elsa_tune.analysis.answer import Answer
    from elsa_tune.cli.answer_rows import Query
    from elsa_tune.specs.result_row import ResultRow


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
    tracking_uri: TrackingOption = None,
    storage_path: StorageOption = None,
    against: Annotated[
        Against | None,
        typer.Option("--against", help="Draw the two studies' printed numbers beside ours."),
    ] = None,
) -> None:
    """Write the answer as a folder: page, figures, tables.

    Prints the page's path. Exit status: 0 at least one answer; 2 bad input; 3 none of what was
    asked has an answer (the report is written all the same).
    """
    from elsa_tune.analysis.answers import answer_curves, freeze_curves
    from elsa_tune.analysis.target import check_target
    from elsa_tune.cli.answer_rows import evidence_for, find_rows
    from elsa_tune.cli.given_command import given_command
    from elsa_tune.report.folder import check_folder, write_report
    from elsa_tune.report.page import Context

    if published and against is not None:
        raise UsageError(
            "--published asks the printed numbers, and --against published would draw them beside "
            "themselves; leave out one of them"
        )
    check_target(target)
    source = Source(search, from_, tuple(map_ or ()), published, scale, tracking_uri, storage_path)
    query = read_query(model, task, train_size, source)
    check_folder(out)
    rows = find_rows(query)
    curves = freeze_curves(
        rows, evidence_for(rows, query), train_sizes_apart=query.train_sizes_apart
    )
    answers = answer_curves(curves, target, exclude_task or ())
    page, *others = write_report(
        answers,
        rows,
        find_histories(query),
        out,
        Context(
            published=() if against is None else printed_answers(answers),
            command=given_command(),
            origins=find_origins(query, rows),
        ),
    )
    print(f"elsa-tune: {len(others)} more files in {out}", file=sys.stderr)
    typer.echo(page)
    require_an_answer(answers, told=False)


def find_histories(query: Query) -> dict[tuple[str, str], tuple[float, ...]]:
    """By (search, trial) the score at each evaluation; {} for results that do not hold it."""
    if query.published:
        return {}
    from elsa_tune.tracking import rows as results
    from elsa_tune.tracking.paths import SearchPaths, StorePaths, search_names

    if query.table is not None:
        is_journal = query.table.suffix == ".jsonl"
        return results.read_journal_histories(query.table) if is_journal else {}
    if query.storage_path is not None:
        names = search_names(query.storage_path) if query.search is None else [query.search]
        journals = [SearchPaths(query.storage_path, name).journal for name in names]
        found = [results.read_journal_histories(journal) for journal in journals]
        return {key: values for several in found for key, values in several.items()}
    store = StorePaths(Path.cwd()).tracking_uri(query.tracking_uri)
    tasks = None if query.tasks is None else list(query.tasks)
    return results.read_histories(store, tasks, query.search)


def find_origins(query: Query, rows: Sequence[ResultRow]) -> dict[str, str]:
    """When and where each search ran whose journal lies here."""
    from elsa_tune.tracking.paths import SearchPaths, StorePaths
    from elsa_tune.tracking.rows import read_origin

    names = {row.search for row in rows if row.search is not None}
    if query.table is not None:
        journals = dict.fromkeys(names, query.table) if query.table.suffix == ".jsonl" else {}
    else:
        storage = query.storage_path or StorePaths(Path.cwd()).storage
        journals = {name: SearchPaths(storage, name).journal for name in names}
    return {name: read_origin(file) for name, file in journals.items() if file.is_file()}


def printed_answers(answers: Sequence[Answer]) -> list[Answer]:
    """What the printed tables answer on the models and tasks of these answers."""
    from elsa_tune.analysis.answers import answer_rows
    from elsa_tune.tables.published import published_rows

    wanted = {(answer.model, answer.task) for answer in answers}
    rows = [row for row in published_rows() if (row.model, row.task) in wanted]
    if not rows:
        print("elsa-tune: nothing is published on these models and tasks", file=sys.stderr)
    return [answer for answer in answer_rows(rows) if answer.decided_by is None]
