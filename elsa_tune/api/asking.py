"""Recorded searches, tables and stores, asked from Python."""

import html
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import pandas as pd

from elsa_tune.analysis.answer import Answer, check_target
from elsa_tune.analysis.answers import answer_curves
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import COMPARED_TARGET
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.api.arguments import storage_at
from elsa_tune.api.shown import Answers, Comparisons, Curves, frame_of
from elsa_tune.errors import ElsaTuneError, UnknownNameError, UsageError, quoted
from elsa_tune.exporting.latencies import latencies_of
from elsa_tune.files import expanded
from elsa_tune.results.results_csv import csv_text, write_results
from elsa_tune.searching.output import Say, say
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.source import Question, Source, target_of
from elsa_tune.sources.stored import Stored
from elsa_tune.sources.tables import Published, Table
from elsa_tune.specs.arguments import checked, is_number
from elsa_tune.specs.cost import Cost, Latencies
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.paths import SearchPaths, find_search, journal_at, search_names
from elsa_tune.tracking.places import StorePaths

Found = TypeVar("Found")
# A table's names for our columns, or their values in all rows.
Columns: TypeAlias = Mapping[str, str | float]
Scale: TypeAlias = Literal["fraction", "percent"]
# How the name of a table or a journal ends, beside any path that is there.
_FILES = (".csv", ".tsv", ".json", ".jsonl")


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
        return frame_of(write_results(trials))

    def _repr_html_(self) -> str:
        try:
            answers = answer(self)
            return answers._repr_html_()
        except ElsaTuneError as error:  # no trial has a result yet
            text = html.escape(f"search {self.name}: {error}")
            return f"<p>{text}</p>"


# Where results are: a search, its name, a table, a journal, an MLflow store.
Results: TypeAlias = Search | str | Path | pd.DataFrame


@checked()
def load_search(name: str, *, storage_path: str | Path | None = None) -> Search:
    """Return a search that is recorded under the working directory. Raises UnknownNameError."""
    storage = storage_at(storage_path)
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

    source: a `Search`, a search's name, its folder or journal, a results table (path), a DataFrame
    with a table's columns, `published`, or an MLflow store (`sqlite:///...`, `http://...`). target:
    the share of the full model's quality to keep, in (0, 1]; by default the search's own, else 0.9.
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
        measured: list[Latencies] = []
        if latencies is None:
            in_folders = [(curve, results.folder_of(question, curve)) for curve in curves]
            measured = latencies_of(in_folders, unit, say)
        else:
            given = _by_label(curves, latencies)
            for curve in curves:
                ways = [point.candidate for point in curve.points]
                known = {way: given[way.label] for way in ways if way.label in given}
                measured.append({unit: known})
        comparisons = []
        for curve, seconds in zip(curves, measured, strict=True):
            comparisons.append(compare_ways(curve, target, unit, latencies=seconds))
        return Comparisons(comparisons)

    return _asked(source, ask, map, scale)


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
        if not is_number(value) or not 0 < value < math.inf:
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
            return ask(results, Question(each_size=True), lambda line: say(named(line)))
        except ElsaTuneError as error:
            error.args = (named(str(error)),)
            raise


def _mapped(columns: Mapping[str, Any] | None) -> list[str]:
    """Return what is said of a table's columns, each as the command line has it."""
    texts = []
    for ours, theirs in (columns or {}).items():
        if isinstance(theirs, str):
            texts.append(f"{ours}={theirs}")
        elif isinstance(theirs, bool) or is_number(theirs):
            texts.append(f"{ours}=={theirs}")
        else:
            raise UsageError(
                f"`map` has {quoted(theirs)} for '{ours}'; give a column of the table, a number, "
                "or `=` and a text"
            )
    return texts


def _source(source: Any, columns: Sequence[str], scale: Scale) -> Source:
    """Return the results that are meant. columns, scale: of a table alone. Raises UsageErrors."""
    if isinstance(source, str) and not source.strip():
        raise UsageError("`source` is empty; give a search or its name, a results table or a store")
    path = _path(source)
    journal = None if path is None else journal_at(path)
    if path is not None and journal is None:
        return Table(path, columns, percent=scale == "percent")
    if columns or scale == "percent":
        raise UsageError(
            "`map` and `scale` percent are for a results table or a DataFrame; leave them out, or "
            "give one as `source`"
        )
    if journal is not None:
        return Journals(journal)
    if isinstance(source, Search):
        return Journals(source.paths.journal)
    text = str(source)
    if text == "published":
        return Published()
    if "://" in text:
        uri = StorePaths(Path.cwd()).tracking_uri(text)
        return Stored(uri)
    recorded = load_search(text)
    return Journals(recorded.paths.journal)


def _path(source: Any) -> Path | None:
    """Return the path that a source is; None for a search, its name, a store and `published`."""
    if isinstance(source, Search):
        return None
    text = str(source)
    if text == "published" or "://" in text:
        return None
    is_path = isinstance(source, Path) or "/" in text or text.lower().endswith(_FILES)
    if not is_path and text not in search_names(storage_at(None)):  # a name has no `/`
        is_path = os.path.exists(expanded(text))  # no error either where no file has such a name
    return expanded(source) if is_path else None
