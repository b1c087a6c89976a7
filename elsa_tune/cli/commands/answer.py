"""`answer`, `curve` and `report`: ask a record or a results table for the answer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from elsa_tune.cli.options import (
    ANSWER,
    TABLE,
    WHICH,
    AskedUri,
    CostName,
    SearchName,
    SearchOption,
    StoragePath,
    grouped,
    latest_search,
    named_search,
    out_folder,
    refuse_several_places,
    results_path,
)
from elsa_tune.errors import NoAnswerError, UsageError, first_few
from elsa_tune.searching.output import say
from elsa_tune.tracking.paths import journal_at
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import shown_uri

if TYPE_CHECKING:
    from elsa_tune.analysis.answer import Answer
    from elsa_tune.analysis.comparing.ways import WayComparison
    from elsa_tune.analysis.curve import FreezeCurve
    from elsa_tune.sources.source import Question, Source, TrainSize
    from elsa_tune.specs.result_row import ResultRow

ALL = "all"
Curve = TypeVar("Curve", bound="FreezeCurve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of all three: which results are meant, and where they are."""

    name: SearchName = None  # None: as the others say, else the latest in this folder
    search: SearchOption = None  # the same, as an option; one at most
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            rich_help_panel=WHICH,
            help="All searches of this model. Default, with a results table: every model in it.",
        ),
    ] = None
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task",
            metavar="TASK",
            rich_help_panel=WHICH,
            help="With --model: on this task, or 'all'; repeatable. Default, with a table: every "
            "task.",
        ),
    ] = None
    train_size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K",
            rich_help_panel=WHICH,
            help="Training examples, 'full' or 'all', to choose among sizes.",
        ),
    ] = None
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            rich_help_panel=TABLE,
            parser=results_path,
            help="A results table (CSV), a search's folder or journal.jsonl, or results of peft's "
            "benchmark (a JSON file, or a folder of them).",
        ),
    ] = None
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OURS=THEIRS",
            rich_help_panel=TABLE,
            help="Our column's name in the results table, or OURS==VALUE; repeatable.",
        ),
    ] = None
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            rich_help_panel=TABLE,
            help="Ask about the two studies' printed numbers instead.",
        ),
    ] = False
    scale: Annotated[
        Literal["fraction", "percent"],
        typer.Option(rich_help_panel=TABLE, help="Scale of the qualities in a results table."),
    ] = "fraction"
    tracking_uri: AskedUri = None  # a store to ask instead of the journals
    storage_path: StoragePath = None  # the folder of the journals; None: the default one


Target = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=ANSWER, help="Share of quality to keep. Default: the search's own, or 0.9."
    ),
]
ExcludeTask = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TASK",
        rich_help_panel=ANSWER,
        help="Leave this out of the joint answer; repeatable.",
    ),
]
Format = Annotated[
    Literal["table", "json", "csv"],
    typer.Option("--format", rich_help_panel=ANSWER, help="Output format."),
]
Details = Annotated[
    bool,
    typer.Option(
        "--details",
        rich_help_panel=ANSWER,
        help="Also the complete statement, every mark and every note.",
    ),
]


@grouped
def answer(
    options: Options,
    target: Target = None,
    exclude_task: ExcludeTask = None,
    details: Details = False,
    format: Format = "table",
) -> None:
    """How many of the last layers need fine-tuning?

    Exit status: 0 at least one answer; 2 bad input; 3 nothing that was asked has an answer.
    """
    from elsa_tune.analysis.answer_json import answer_object, answers_csv
    from elsa_tune.analysis.answers import answer_curves

    curves, share = _curves(options, format, target)
    answers = answer_curves(curves, share, exclude_task or ())
    _print(answers, format, answer_object, answers_csv, details=details)
    _require_an_answer(answers, is_table=format == "table")


@grouped
def curve(options: Options, format: Format = "table") -> None:
    """Show the freeze curve: quality against frozen layers.

    Exit status: 0 at least one depth is measured; 2 bad input; 3 nothing is measured.
    """
    from elsa_tune.analysis.answer_json import curves_csv, freeze_curve_object

    curves, _ = _curves(options, format, None)
    _print(curves, format, freeze_curve_object, curves_csv)
    if not any(curve.with_quality for curve in curves):
        raise NoAnswerError("no measuring trial has completed, so there is no curve yet")


@grouped
def report(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            parser=out_folder,
            help="The folder to write: a new or empty one, or an older report's.",
        ),
    ],
    options: Options,
    target: Target = None,
    exclude_task: ExcludeTask = None,
    cost: Annotated[
        CostName | None,
        typer.Option(
            rich_help_panel=ANSWER,
            help="Compare ways by this cost, as `compare` does, also where there are freeze depths "
            "alone. Default: time, where there are other ways.",
        ),
    ] = None,
) -> None:
    """Write the answer as a folder: page, figures, tables.

    Prints the page's path. Exit status: 0 at least one answer; 2 bad input; 3 nothing that was
    asked has an answer (the report is still written, if there is any result).
    """
    from elsa_tune.analysis.answers import answer_curves
    from elsa_tune.analysis.comparing.ways import COMPARED_TARGET
    from elsa_tune.report.folder import check_folder, write_report
    from elsa_tune.sources.source import target_of

    check_folder(out)
    source, question = read_question(options)
    rows = source.ask(question, note)
    share = target_of(rows, target)
    has_other_ways = not all(row.candidate.is_ranked for row in rows)
    is_compared = has_other_ways or cost is not None
    try:
        curves = source.curves(question, rows, share)
    except NoAnswerError:
        if not is_compared:
            raise
        _refuse_options_of_depths(target, exclude_task)
        curves = []
    answers = answer_curves(curves, share, exclude_task or ())
    comparisons = []
    if is_compared:  # last: latencies take minutes to measure
        comparisons = compared(source, question, rows, cost or "time", COMPARED_TARGET)
    origins = source.origins(question)
    command = shlex.join(["elsa-tune", *map(shown_uri, sys.argv[1:])])
    page, *others = write_report(answers, rows, out, command, origins, comparisons)
    say(f"elsa-tune: {len(others)} more files in {out}")
    typer.echo(page)
    if not curves:
        require_a_comparison(comparisons, is_table=False)
    elif not any(comparison.is_answered for comparison in comparisons):
        _require_an_answer(answers, is_table=False)


def _refuse_options_of_depths(target: float | None, exclude_task: Sequence[str] | None) -> None:
    """Raise UsageError for what is only asked of freeze depths, where there are none."""
    if target is not None:
        raise UsageError(
            "--target is of freeze depths in a report, and these results have none; "
            f"`elsa-tune compare --target {target:g}` asks it of other ways"
        )
    if exclude_task:
        raise UsageError(
            "--exclude-task is of the joint answer on freeze depths, and these results have none; "
            "--task names the tasks to report on"
        )


def compared(
    source: Source, question: Question, rows: Sequence[ResultRow], cost: str, target: float
) -> list[WayComparison]:
    """Return the comparisons of all ways of rows that were asked for, by a cost's name.

    What cannot be measured is refused before the first measurement.
    """
    from elsa_tune.analysis.comparing.comparison import compare_ways
    from elsa_tune.exporting.latencies import latencies_of
    from elsa_tune.specs.cost import Cost

    unit = Cost(cost)
    curves = source.ways(question, rows)
    in_folders = [(curve, source.folder_of(question, curve)) for curve in curves]
    comparisons = []
    for curve, latencies in zip(curves, latencies_of(in_folders, unit, note), strict=True):
        comparisons.append(compare_ways(curve, target, unit, latencies=latencies))
    return comparisons


def read_question(options: Options) -> tuple[Source, Question]:
    """Return what is asked and where.

    The options are checked against one another before anything is read.
    """
    from elsa_tune.sources.journals import Journals
    from elsa_tune.sources.record import recorded
    from elsa_tune.sources.source import Question
    from elsa_tune.sources.tables import Published, Table

    _check_places(options)
    question = Question(
        model=options.model,
        tasks=_tasks(options.task or ()),
        search=_asked_search(options),
        train_sizes=_train_sizes(options.train_size or ()),
        each_size=bool(options.train_size),
    )
    if options.published:
        return Published(), question
    places = StorePaths(Path.cwd())
    if options.from_ is not None:
        journal = journal_at(options.from_)
        if journal is not None:
            return Journals(journal), question
        percent = options.scale == "percent"
        return Table(options.from_, options.map_ or (), percent=percent), question
    if options.storage_path:
        return Journals(places.storage_at(options.storage_path)), question
    return recorded(question, places, options.tracking_uri, note), question


def _check_places(options: Options) -> None:
    """Raise UsageError where several places are named, or a table's options without one."""
    places = {
        "--published": options.published or None,
        "--from": options.from_,
        "--tracking-uri": options.tracking_uri,
        "--storage-path": options.storage_path,
    }
    refuse_several_places(places)
    has_table = options.from_ is not None and journal_at(options.from_) is None
    if (options.map_ or options.scale == "percent") and not has_table:
        raise UsageError("--map and --scale percent are for a results table given with --from")


def _asked_search(options: Options) -> str | None:
    """Return the search that is named, or the latest where nothing at all is; else None.

    Raises UsageError where a record is asked about and too little is said.
    """
    search = named_search(options.name, options.search)
    if search is not None or options.from_ is not None or options.published:
        return search
    if not (options.model or options.task or options.tracking_uri):
        storage = StorePaths(Path.cwd()).storage_at(options.storage_path)
        latest = latest_search(storage)
        if latest is None:
            raise UsageError(
                f"no search is recorded in {storage}; `elsa-tune search` starts one, --model with "
                "--task asks an MLflow store, and --from FILE a results table"
            )
        return latest
    if options.model is None or not options.task:
        missing = "--model" if options.model is None else "--task (or --task all)"
        raise UsageError(
            f"{missing} is needed to ask about recorded searches; or name one search, as "
            "`elsa-tune searches` lists them, or a results table with --from FILE"
        )
    return None


def _tasks(texts: Sequence[str]) -> tuple[str, ...] | None:
    """Return the tasks that are named, None for every task.

    A YAML file stands for the task it describes.
    """
    from elsa_tune.tasks.task_file import YAML_SUFFIXES, resolve_task

    if not texts or ALL in texts:
        return None
    names = []
    for text in texts:
        is_file = text.lower().endswith(YAML_SUFFIXES)
        names.append(resolve_task(text).name if is_file else text)
    return tuple(dict.fromkeys(names))


def _train_sizes(texts: Sequence[str]) -> tuple[TrainSize, ...]:
    """Return the training sizes that are named; () for every size."""
    from elsa_tune.sources.source import FULL

    if ALL in texts:
        return ()
    sizes: list[TrainSize] = []
    for text in texts:
        if text != FULL and not (text.isascii() and text.isdigit() and int(text) > 0):
            raise UsageError(
                f"--train-size is '{text}'; it must be a number of examples, '{FULL}' for the "
                f"whole training set, or '{ALL}'"
            )
        sizes.append(FULL if text == FULL else int(text))
    return tuple(dict.fromkeys(sizes))


def note(line: str) -> None:
    """Print what a source says beside its results."""
    say(f"elsa-tune: {line}")


def _curves(options: Options, format: str, target: float | None) -> tuple[list[FreezeCurve], float]:
    """Return the curves, and the share to keep."""
    from elsa_tune.sources.source import target_of

    source, question = read_question(options)
    try:
        rows = source.ask(question, note)
        share = target_of(rows, target)
        return source.curves(question, rows, share), share
    except NoAnswerError:
        if format == "json":
            # A reader of stdout gets valid JSON here too.
            typer.echo("[]")
        raise


def _print(
    curves: Sequence[Curve],
    format: str,
    as_object: Callable[[Curve], dict[str, Any]],
    as_csv: Callable[[Sequence[Curve]], str],
    *,
    details: bool = False,
) -> None:
    from elsa_tune.analysis.answer_json import as_json

    if format == "json":
        typer.echo(as_json([as_object(curve) for curve in curves]))
    elif format == "csv":
        typer.echo(as_csv(curves), nl=False)
    else:
        from elsa_tune.cli.answer_tables import print_curves

        print_curves(curves, details=details)


def _require_an_answer(answers: Sequence[Answer], *, is_table: bool) -> None:
    """Raise NoAnswerError, with each reason, unless there is an answer.

    is_table: a table was printed, which gives the reason where it is about one answer alone.
    """
    if any(answer.is_answered for answer in answers):
        return
    if is_table and len(answers) == 1:
        # The table says why, as its first sentence.
        raise typer.Exit(NoAnswerError.exit_status)
    reasons = [
        f"{answer.model} on {answer.task}: {answer.sentence}"
        for answer in answers
        if answer.decided_by is None
    ]
    raise NoAnswerError(f"nothing that was asked has an answer: {'; '.join(first_few(reasons))}")


def require_a_comparison(comparisons: Sequence[WayComparison], *, is_table: bool) -> None:
    """Raise NoAnswerError, with each reason, unless something could be compared."""
    if any(comparison.is_answered for comparison in comparisons):
        return
    if is_table and len(comparisons) == 1:
        # The table says why, as its first sentence.
        raise typer.Exit(NoAnswerError.exit_status)
    reasons = []
    for comparison in comparisons:
        what = f"{comparison.curve.model} on {comparison.curve.task}"
        reasons.append(f"{what}: {comparison.first_lines.headline}")
    raise NoAnswerError(f"nothing that was asked can be compared: {'; '.join(first_few(reasons))}")
