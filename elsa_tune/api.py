"""The command line's verbs as functions, and their results as values that a notebook shows.

Words go to stderr, as there; errors are those of `elsa_tune.errors`.
"""

import html
import io
import json
import math
import numbers
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Unpack

import pandas as pd

from elsa_tune.analysis.answer import Answer, FirstLines, check_target
from elsa_tune.analysis.answer_json import answers_csv, curves_csv
from elsa_tune.analysis.answers import answer_curves
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.comparison_json import comparisons_csv
from elsa_tune.analysis.comparing.ways import COMPARED_TARGET, WayComparison
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import (
    DataError,
    ElsaTuneError,
    RunError,
    UnknownNameError,
    UsageError,
    quoted,
)
from elsa_tune.exporting.latencies import latencies_of
from elsa_tune.results.results_csv import csv_text, write_results
from elsa_tune.searching.answering import Finished
from elsa_tune.searching.inputs import (
    SearchOptions,
    SessionOptions,
    read_duration,
    read_until,
    session_settings,
)
from elsa_tune.searching.output import Say, say
from elsa_tune.searching.request import read_request
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.source import Question, Source, target_of
from elsa_tune.sources.stored import Stored
from elsa_tune.sources.tables import Published, Table
from elsa_tune.specs.arguments import checked
from elsa_tune.specs.cost import Cost, Latencies
from elsa_tune.specs.space_fields import SpaceFields
from elsa_tune.specs.trial import Phase
from elsa_tune.tasks.frames import write_task
from elsa_tune.tracking.artifacts.places import artifacts_url
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths, find_search, search_names
from elsa_tune.tracking.places import StorePaths

# Columns with names, also behind a prefix: a search may be called `001`, and a task `NA`.
_NAMES = (
    *("model", "task", "search", "metric", "comparison", "candidate", "label", "method"),
    *("decided_by", "earlier_searches"),
)


def _frame(table: str) -> pd.DataFrame:
    """Return a table of CSV as a DataFrame, in which names stay the texts that they are."""
    header = pd.read_csv(io.StringIO(table), nrows=0).columns
    texts = {column: str for column in header if column.endswith(_NAMES)}
    return pd.read_csv(io.StringIO(table), dtype=texts, keep_default_na=False, na_values=[""])


class Curves(tuple[FreezeCurve, ...]):
    """Freeze curves: quality by frozen layers, one for each model, task and training size."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each depth; the columns are those of `elsa-tune curve --format csv`."""
        return _frame(curves_csv(self))

    def _repr_html_(self) -> str:
        return str(self.to_dataframe().to_html(index=False))


class Answers(tuple[Answer, ...]):
    """Answers, one for each model, task and training size; of several tasks the joint one, too."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each, with the columns of `elsa-tune operating-point --format csv`."""
        return _frame(answers_csv(self))

    def _repr_html_(self) -> str:
        """Return the first lines, the table and the freeze curve of each."""
        from elsa_tune.report.charts import freeze_curve
        from elsa_tune.report.figures import draw
        from elsa_tune.report.page import by_name
        from elsa_tune.report.tables import curve_table

        parts = []
        answers = by_name(self)
        for name, answer in answers.items():
            table = curve_table(name, answer)
            rows = pd.DataFrame(list(table.rows), columns=list(table.names))
            parts.append(f"<p>{html.escape(name)}</p>")
            parts.append(_first_lines_html(answer.first_lines))
            parts.append(rows.to_html(index=False))
        chart = freeze_curve(answers)
        if chart.panels:  # none where nothing has been measured yet
            svg = draw(chart)["svg"]
            parts.append(svg.decode())
        return "\n".join(parts)


class Comparisons(tuple[WayComparison, ...]):
    """Comparisons of ways, one for each model, task and training size."""

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each way; the columns are those of `elsa-tune compare --format csv`."""
        return _frame(comparisons_csv(self))

    def _repr_html_(self) -> str:
        """Return the first lines and the table of each."""
        from elsa_tune.analysis.wording.comparison_tables import way_cells

        parts = []
        for comparison in self:
            cells = [way_cells(comparison, way) for way in comparison.ways]
            name = f"{comparison.curve.model} on {comparison.curve.task}"
            parts.append(f"<p>{html.escape(name)}</p>")
            parts.append(_first_lines_html(comparison.first_lines))
            parts.append(pd.DataFrame(cells).to_html(index=False))
        return "\n".join(parts)


def _first_lines_html(first: FirstLines) -> str:
    items = []
    for label, text in first.lines:
        item = f"<li><b>{html.escape(label)}</b> {html.escape(text)}</li>"
        items.append(item)
    headline = html.escape(first.headline)
    return f"<p><b>{headline}</b></p><ul>{''.join(items)}</ul>"


@dataclass(frozen=True, slots=True)
class Search:
    """A recorded search, in whatever state it is."""

    name: str
    storage: Path  # the folder that its own is in

    @property
    def paths(self) -> SearchPaths:
        return SearchPaths(self.storage, self.name)

    def answer(self, target: float | None = None) -> Answer:
        """Raise NoAnswerError where no trial has a result yet."""
        answers = answer(self, target)
        return answers[0]

    def to_dataframe(self) -> pd.DataFrame:
        """Return the freeze curve, a row for each depth."""
        return curve(self).to_dataframe()

    def trials(self) -> pd.DataFrame:
        """Return a row for each trial, as a results table that `answer` takes again."""
        journal = Journals(self.paths.journal)
        rows = journal.ask(Question(), say)
        trials = [row for row in rows if row.phase is not Phase.PROBE]
        return _frame(write_results(trials))

    def _repr_html_(self) -> str:
        try:
            answers = answer(self)
            return answers._repr_html_()
        except ElsaTuneError as error:  # no trial has a result yet
            text = html.escape(f"search {self.name}: {error}")
            return f"<p>{text}</p>"


# A task's name or file, or its rows: a DataFrame, two of them, or a mapping of splits.
Task: TypeAlias = str | Path | pd.DataFrame | Sequence[Any] | Mapping[str, Any]
# `90s`, `30m`, `2h`; a number is seconds.
Time: TypeAlias = str | float | timedelta
# Where results are: a search, its name, a table, a journal, an MLflow store.
Found = TypeVar("Found")
Results: TypeAlias = Search | str | Path | pd.DataFrame
# A table's names for our columns, or their values in all rows.
Columns: TypeAlias = Mapping[str, str | float]
Scale: TypeAlias = Literal["fraction", "percent"]
# How the name of a table ends, beside any path that is there.
_TABLES = (".csv", ".tsv", ".json")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were given; None stands for one that was not."""
    return {name: value for name, value in values.items() if value is not None}


def _text(path: str | Path | None) -> str | None:
    """Return a path as the command line has it; None stays None."""
    if path is None:
        return None
    return str(path)


@checked("task")
def search(
    model: str | Path,
    task: Task,
    *,
    name: str | None = None,
    space: str | Path | None = None,
    methods: str | Sequence[str] | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    group: str | None = None,
    regression: bool | None = None,
    task_name: str | None = None,
    drop_leaked: bool | None = None,
    drop_duplicates: bool | None = None,
    drop_contradictions: bool | None = None,
    merge_labels: bool | None = None,
    missing_labels: Sequence[str] | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    train_size: int | None = None,
    metric: str | None = None,
    max_time: Time | None = None,
    gpu_hours: float | None = None,
    max_workers: int | None = None,
    until: Literal["certified"] | None = None,
    checkpoint: Time | None = None,
    artifacts: str | Path | None = None,
    hung_after: Time | None = None,
    max_failures: int | None = None,
    data_dir: str | Path | None = None,
    tracking_uri: str | None = None,
    storage_path: str | Path | None = None,
    address: str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | Literal["auto"] | None = None,
    **fields: Unpack[SpaceFields],
) -> Search:
    """`elsa-tune search`: run a search to its end, or go on with the one of this name.

    model: a known name, a local folder or a hub id. task: a known name, `hub:owner/name`, a folder
    that `save_to_disk` wrote, a task file, or rows: a DataFrame (a fifth is held out), a pair
    (training, evaluation), or a Dataset or DatasetDict. Rows are kept beside the searches, under
    `task_name` ("own"); `text` names one or two of their columns ("text"), `label` one ("label"),
    as they do for a task that is a table or a data set, which may tell them itself; rows without a
    label are skipped, and counted. group: a column whose equal cells (one document, one user) make
    rows one unit, which counts once in every certificate. regression: whether the labels of given
    rows are numbers to predict; by default their values tell. drop_leaked, drop_duplicates,
    drop_contradictions, merge_labels, missing_labels: of given rows, as in a task file.

    name: by default model, task and time. space: a shipped one or a file, by default `joint`.
    methods: what is compared, of `freeze` (the space's depths), `head`, `lora`, `lora_last` and
    `bitfit`. trials: exploring trials in all. seeds: measuring trials per depth. train_size: a
    subset of the training rows. max_time: `90s`, `30m` or `2h`, a number of seconds, or a
    timedelta; then the search ends with what is done, as at so many `gpu_hours`, counted
    while trials hold GPUs, in every session. max_workers: trials at once. until: `certified`, in a
    hunt.
    checkpoint: how often a running trial's state is saved: `never`, a time, or `auto`. artifacts:
    a folder or URL that keeps a copy of the record, from where the search is fetched where this
    machine has none of its name. hung_after: when a trial without news is begun again: likewise.
    max_failures: how many trials may fail. The others are the command's. fields: of the space, as
    `epochs=6` or `depths=[0, 3]`.

    A Ray that runs in this process already is used and left running. Raises UsageErrors before any
    work starts, RunError where the plan was not completed.
    """
    given: dict[str, Any] = {
        "space": _text(space),
        "name": name,
        "trials": trials,
        "seeds": seeds,
        "train_size": train_size,
        "metric": metric,
        "max_time": None if max_time is None else _time(max_time),
        "gpu_hours": gpu_hours,
        "max_workers": max_workers,
        "until": until,
        "checkpoint": None if checkpoint is None else _time(checkpoint),
        "artifacts": _text(artifacts),
        "hung_after": None if hung_after is None else _time(hung_after),
        "max_failures": max_failures,
        "data_dir": _text(data_dir),
        "tracking_uri": tracking_uri,
        "storage_path": _text(storage_path),
        "address": address,
        "cpus_per_trial": cpus_per_trial,
        "gpus_per_trial": None if gpus_per_trial == "auto" else gpus_per_trial,
    }
    options = _given(given)
    if methods is not None:
        options["methods"] = methods if isinstance(methods, str) else ",".join(methods)
    of_rows: dict[str, Any] = {
        "regression": regression,
        "drop_leaked": drop_leaked,
        "drop_duplicates": drop_duplicates,
        "drop_contradictions": drop_contradictions,
        "merge_labels": merge_labels,
        "missing_labels": None if missing_labels is None else list(missing_labels),
    }
    described = _given(of_rows)
    kept: Path | None = None  # the task file of rows that are given here
    if not isinstance(task, str | Path):
        paths = StorePaths(Path.cwd())
        storage = paths.storage_at(_text(storage_path))
        place = paths.rows_of(storage)
        further = _given({"group": group, **described})
        kept = write_task(task, place, task_name or "own", text, label, further)
        task = kept
    elif described or task_name is not None:
        first = next(iter(described), "task_name")
        raise UsageError(f"`{first}` is for rows that are given here; task '{task}' has its own")
    else:
        options["label"] = label
        options["group"] = group
        options["text"] = [text] if isinstance(text, str) else text
    settings = []
    for field, value in fields.items():
        settings.append(f"{field}={_json(field, value)}")
    wanted = SearchOptions(model=str(model), task=[str(task)], settings=settings, **options)
    from elsa_tune.searching.fetched import fetch_lacking
    from elsa_tune.searching.launch import start

    try:
        request = read_request(wanted, str(task))
    except DataError as error:
        if kept is not None:
            error.args = (_of_given_rows(str(error), kept),)
        raise
    if fetch_lacking([request], say):
        request = read_request(wanted, str(task))
    say(f"search: {request.columns}")
    finished = start(request, say)
    return _ended(finished)


def _of_given_rows(text: str, task_file: Path) -> str:
    """Return an error with the rows and an argument in place of their task file and a field."""
    about_rows = text.replace(f"task file {task_file}:", "the given rows:")
    return about_rows.replace("regression: true", "regression=True")


def _storage_at(place: str | Path | None) -> Path:
    """Return the folder that holds the searches: this one, or the working directory's own."""
    paths = StorePaths(Path.cwd())
    return paths.storage_at(_text(place))


def _json(field: str, value: Any) -> str:
    """Return a field of the space as it is written.

    Numpy's numbers and lists are what they look like.
    """
    try:
        return json.dumps(value, default=lambda array: array.tolist())
    except (AttributeError, TypeError, ValueError, RecursionError):
        kind = type(value).__name__
        raise UsageError(f"field '{field}' is a {kind}; give a number, a text or a list") from None


def _time(time: Time) -> str:
    if isinstance(time, str):
        return time
    if isinstance(time, timedelta):
        time = time.total_seconds()
    return f"{time:.3f}s"


@checked()
def resume(
    name: str | Search,
    *,
    seeds: int | None = None,
    until: Literal["certified"] | None = None,
    max_time: Time | None = None,
    gpu_hours: float | None = None,
    max_workers: int | None = None,
    checkpoint: Time | None = None,
    artifacts: str | Path | None = None,
    hung_after: Time | None = None,
    max_failures: int | None = None,
    storage_path: str | Path | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
) -> Search:
    """`elsa-tune resume`: go on with a search, or give it more seeds.

    name: a search's, or itself. Arguments and errors are those of `search`; by default the search's
    own. storage_path: where a search of this name is; a `Search` knows its own. artifacts: the
    store of its copy, from where it is fetched where it is not there; `none` copies it no more.
    """
    from elsa_tune.searching.fetched import found_or_fetched
    from elsa_tune.searching.launch import resume as go_on
    from elsa_tune.searching.specification import more_of

    uri = None
    if tracking_uri is not None:
        uri = StorePaths(Path.cwd()).tracking_uri(tracking_uri)
    url = None if artifacts is None else artifacts_url(str(artifacts), Path.cwd())
    options = SessionOptions(
        checkpoint=None if checkpoint is None else _time(checkpoint),
        hung_after=None if hung_after is None else _time(hung_after),
        gpu_hours=gpu_hours,
        max_workers=max_workers,
        max_failures=max_failures,
        artifacts=url,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
    )
    settings = session_settings(options)
    more = more_of(seeds, read_until(until), settings)
    storage = _storage_at(storage_path)
    if not isinstance(name, Search):
        paths = found_or_fetched(storage, name, url, say)
    else:
        paths = name.paths
        if storage_path is not None and storage.resolve() != paths.storage.resolve():
            raise UsageError(
                f"`storage_path` is {storage_path}, but search '{name.name}' is in "
                f"{paths.storage}; leave it out, or give the search's name"
            )
    seconds = None
    if max_time is not None:
        text = _time(max_time)
        seconds = read_duration(text)
    finished = go_on(
        paths,
        say,
        more=more,
        max_time=seconds,
        tracking_uri=uri,
        address=address,
    )
    return _ended(finished)


@checked()
def load_search(name: str, *, storage_path: str | Path | None = None) -> Search:
    """Return a search that is recorded under the working directory. Raises UnknownNameError."""
    storage = _storage_at(storage_path)
    paths = find_search(storage, name)
    return Search(paths.name, storage)


@checked()
def answer(
    source: Results,
    target: float | None = None,
    *,
    map: Columns | None = None,
    scale: Scale = "fraction",
) -> Answers:
    """Return what `elsa-tune operating-point` answers, for all models, tasks and sizes of a source.

    source: a `Search`, a search's name, a results table or journal (path), a DataFrame with a
    table's columns, `published`, or an MLflow store (`sqlite:///...`, `http://...`). target: the
    share of the full model's quality to keep, in (0, 1]; by default the search's own, else 0.9.
    map: of a table, the names that our columns have there, as `{"seed": "run"}`, or one value for
    all rows: a number, or a text after `=`, as `{"runs": 1, "model": "=bert_base"}`. scale: of a
    table's qualities, `fraction` or `percent`.

    Raises NoAnswerError where nothing is measured, ResultsError for what cannot be read.
    """
    curves, share = _curves(source, target, map, scale)
    answers = answer_curves(curves, share)
    return Answers(answers)


@checked()
def curve(
    source: Results,
    *,
    map: Columns | None = None,
    scale: Scale = "fraction",
) -> Curves:
    """Return the freeze curves of a source; arguments and errors are those of `answer`."""
    curves, _ = _curves(source, None, map, scale)
    return Curves(curves)


@checked()
def compare(
    source: Results,
    target: float = COMPARED_TARGET,
    cost: Literal["time", "memory", "parameters", "latency", "bundle"] = "time",
    *,
    latencies: Mapping[str, float] | None = None,
    map: Columns | None = None,
    scale: Scale = "fraction",
) -> Comparisons:
    """Return what `elsa-tune compare` says: the cheapest way that keeps the target of the best.

    source, map, scale: as of `answer`. target: the share of the best way's quality to keep, in
    (0, 1]. cost: what is cheap: `time` of a training run, peak `memory`, trained `parameters`, or
    the `latency` of the exported model for one text, alone or per task of a `bundle` of eight;
    these two are measured now, on this machine. latencies: such seconds of each way by its label,
    where they were measured elsewhere, for all tasks; only with a cost that counts them.

    Errors as of `answer`; UsageError for a target outside (0, 1], and for latencies that are no
    seconds above 0.
    """
    unit = Cost(cost)
    check_target(target)
    counts_latencies = unit in (Cost.LATENCY, Cost.BUNDLE)
    if latencies is not None and not counts_latencies:
        raise UsageError(
            f"`latencies` is given, but `cost` is {unit}, which counts none; give cost='latency' "
            "or cost='bundle', or leave `latencies` out"
        )

    def ask(results: Source, question: Question, say: Say) -> Comparisons:
        rows = results.ask(question, say)
        curves = results.ways(question, rows)
        given = None if latencies is None else _by_label(curves, latencies)
        comparisons = []
        for curve in curves:
            seconds: Latencies
            if given is None:
                folder = results.folder_of(question, curve)
                seconds = latencies_of(curve, unit, folder, say)
            else:
                ways = [point.candidate for point in curve.points]
                seconds = {unit: {way: given[way.label] for way in ways if way.label in given}}
            comparisons.append(compare_ways(curve, target, unit, latencies=seconds))
        return Comparisons(comparisons)

    return _asked(source, ask, map, scale)


@checked()
def export(
    source: Search | str,
    out: str | Path,
    *,
    layers: int | None = None,
    way: str | None = None,
    check: str | Path | None = None,
    full: bool = False,
    onnx: bool = False,
    adapter: bool = False,
    push: str | None = None,
    overwrite: bool = False,
) -> Path:
    """`elsa-tune export`: train a search's answer once more and save it.

    Returns the folder, which `AutoModelForSequenceClassification.from_pretrained` loads.

    layers: fine-tuned ones, by default the answer's. way: in their place what to export, as the
    search calls it, such as `lora-last3` or `head`; a number counts frozen layers. check: a file of
    labelled rows to score the model on. full: train on all rows where the search used a subset.
    adapter: of LoRA also write the folder `adapter`, which peft loads. push: a name on the hub.
    Errors as the command's.
    """
    from elsa_tune.exporting.model import ExportRequest
    from elsa_tune.exporting.model import export as write

    if not isinstance(source, Search):
        source = load_search(source)
    rows_to_check = None
    if check is not None:
        rows_to_check = Path(check)
    request = ExportRequest(
        paths=source.paths,
        out=Path(out),
        layers=layers,
        way=way,
        check=rows_to_check,
        full=full,
        onnx=onnx,
        adapter=adapter,
        push=push,
        overwrite=overwrite,
    )
    write(request, say)
    return request.out


@checked("rows")
def predict(
    model: str | Path,
    rows: pd.DataFrame | Sequence[str] | Sequence[tuple[str, str]] | str | Path,
    *,
    text: str | Sequence[str] | None = None,
    task: str | Sequence[str] | None = None,
    probabilities: bool = False,
    input_format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None,
) -> pd.DataFrame:
    """`elsa-tune predict`: rows with what an exported model or a bundle says of each, in order.

    model: a folder of `export` or of `bundle`. rows: a DataFrame, a list of texts or of pairs of
    texts, or a file (CSV, TSV, JSONL or Parquet). text: the columns with the texts, by default
    those that the model was trained on. task: of a bundle, by default all. The columns that are
    added are `prediction` and `confidence`, its probability; of a regression the first alone; of a
    bundle both for each task, as `TASK_prediction`. probabilities: adds those of each class.
    input_format: what a file holds, by default by its ending. A missing text is an empty one.
    Raises UsageErrors.
    """
    from elsa_tune.exporting.predicted_frame import predict_frame
    from elsa_tune.exporting.predicting import Predictor
    from elsa_tune.training.bundle.texts import split_texts

    given: Any = rows
    if not isinstance(rows, pd.DataFrame | str | Path):
        given = split_texts(rows, missing="")
    texts = [text] if isinstance(text, str) else text
    tasks = [task] if isinstance(task, str) else task
    predictor = Predictor(Path(model), tasks, texts, probabilities=probabilities)
    return predict_frame(predictor, given, say, input_format)


def _curves(
    source: Any,
    target: float | None,
    columns: Columns | None,
    scale: Scale,
) -> tuple[list[FreezeCurve], float]:
    def ask(results: Source, question: Question, say: Say) -> tuple[list[FreezeCurve], float]:
        rows = results.ask(question, say)
        share = target_of(rows, target)
        curves = results.curves(question, rows, share)
        return curves, share

    return _asked(source, ask, columns, scale)


def _by_label(curves: Sequence[FreezeCurve], seconds: Mapping[Any, Any]) -> dict[str, float]:
    """Return what is given by the ways' labels; each curve may lack some of them.

    Raises UnknownNameError for a label of no way, UsageError for what is no time above 0.
    """
    known = {point.candidate.label for curve in curves for point in curve.points}
    given: dict[str, float] = {}
    for key, value in seconds.items():
        label = str(key)  # a depth may be given as a number
        if label not in known:
            raise UnknownNameError.among("way", label, known)
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_real or not 0 < value < math.inf:
            raise UsageError(
                f"`latencies` has {quoted(value)} for '{label}'; give the seconds, above 0, that "
                "the exported model takes for one input"
            )
        given[label] = float(value)
    return given


def _asked(
    source: Any,
    ask: Callable[[Source, Question, Say], Found],
    columns: Columns | None,
    scale: Scale,
) -> Found:
    """Return what is asked of a source; a DataFrame is a table in a file for so long."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.csv"

        def named(text: str) -> str:
            return text.replace(str(file), "the DataFrame")

        if isinstance(source, pd.DataFrame):
            filled = source.astype(object).where(source.notna(), "")
            cells = filled.to_numpy().tolist()
            file.write_text(csv_text(list(source.columns), cells))
            source = file
        results = _source(source, _mapped(columns), scale)
        try:
            return ask(results, Question(train_sizes=()), lambda line: say(named(line)))
        except ElsaTuneError as error:
            error.args = (named(str(error)),)
            raise


def _mapped(columns: Mapping[str, Any] | None) -> list[str]:
    """Return what is said of a table's columns, each as the command line has it."""
    texts = []
    for ours, theirs in (columns or {}).items():
        if isinstance(theirs, str):
            texts.append(f"{ours}={theirs}")
        elif isinstance(theirs, numbers.Real):
            texts.append(f"{ours}=={theirs}")
        else:
            raise UsageError(
                f"`map` has {quoted(theirs)} for '{ours}'; give a column of the table, a number, "
                "or `=` and a text"
            )
    return texts


def _source(source: Any, columns: Sequence[str], scale: Scale) -> Source:
    """Return the results that are meant. columns, scale: of a table alone. Raises UsageErrors."""
    if _is_table(source):
        return Table(Path(source), columns, percent=scale == "percent")
    if columns or scale == "percent":
        raise UsageError(
            "`map` and `scale` percent are for a results table or a DataFrame; leave them out, or "
            "give one as `source`"
        )
    if isinstance(source, Search):
        return Journals(source.paths.journal)
    text = str(source)
    if text == "published":
        return Published()
    if "://" in text:
        uri = StorePaths(Path.cwd()).tracking_uri(text)
        return Stored(uri)
    if text.endswith(".jsonl"):
        return Journals(Path(text))
    recorded = load_search(text)
    return Journals(recorded.paths.journal)


def _is_table(source: Any) -> bool:
    """Whether a source is a table's path, and not a search's name, which has no `/`."""
    if isinstance(source, Search):
        return False
    text = str(source)
    if text == "published" or "://" in text or text.endswith(".jsonl"):
        return False
    if isinstance(source, Path):
        return True
    if "/" in text or text.lower().endswith(_TABLES):
        return True
    is_search = text in search_names(_storage_at(None))
    return not is_search and Path(text).exists()


def _ended(finished: Finished) -> Search:
    """Say what is missing; raise where the plan was not carried out."""
    if finished.status is SearchStatus.TIME_UP:
        say(f"search '{finished.spec.name}': {finished.message}; `resume` continues it")
    if finished.unsent:
        say(f"{finished.unsent_words}; `resume` sends the rest")
    if finished.uncopied:
        say(finished.uncopied)
    if finished.unwritten:
        raise RunError(finished.unwritten)
    if finished.status is SearchStatus.INTERRUPTED:
        raise KeyboardInterrupt
    if finished.status is SearchStatus.FAILED:
        raise RunError(f"search '{finished.spec.name}' is not complete: {finished.message}")
    return Search(finished.paths.name, finished.paths.storage)
