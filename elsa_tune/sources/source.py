"""A place that has results, and what can be asked of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from elsa_tune.analysis.answer import DEFAULT_TARGET, check_target
from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import (
    NoAnswerError,
    ResultsError,
    UnknownMethodError,
    UnknownNameError,
    UsageError,
    first_few,
    shortlist,
)
from elsa_tune.sources.meant import is_called
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.specs.result_row import Origin, ResultRow, SearchKey
from elsa_tune.specs.trial import Phase
from elsa_tune.tasks.known import KNOWN_TASKS
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths, default_storage, search_names
from elsa_tune.tracking.record_names import HOST_TAG
from elsa_tune.tracking.rows import KeptPredictions, origin_of, rows_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore, arguments_elsewhere

FULL: Final = "full"  # the whole training set, among training sizes
# A number of labelled examples, or the whole training set.
TrainSize = int | Literal["full"]

Say = Callable[[str], None]
Searches = list[tuple[Path | None, SearchState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The results that are asked about."""

    model: str | None = None  # by its name; None for every model
    tasks: tuple[str, ...] | None = None  # by their names; None for every task
    search: str | None = None  # by its name or its id; None for every search
    train_sizes: tuple[TrainSize, ...] = ()  # those asked for; () for every size
    each_size: bool = False  # each size is answered for itself; else a record of several refuses

    def is_met_by(self, rows: Iterable[ResultRow]) -> bool:
        """Whether there are rows of everything that it names."""
        tasks = set()
        for row in rows:
            is_of_model = self.model in (None, row.model)
            is_of_search = self.search is None or is_called(row.search_key, self.search)
            if is_of_model and is_of_search:
                tasks.add(row.task)
        if not tasks:
            return False
        return tasks.issuperset(self.tasks or ())


class Source(ABC):
    """A place that has results."""

    name: str  # as a sentence calls it
    # Whether models and tasks may be known and have no results here yet, and one training size has
    # to be chosen; a table knows its own names alone, and answers for each size.
    is_record = False
    store: RecordStore | None = None  # what keeps predictions that no folder has

    @abstractmethod
    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Return at least the rows of the question. say: takes what was understood or left out."""

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches asked for, each with its folder, by their start; [] for no record."""
        return []

    def origins(self, question: Question) -> dict[SearchKey, Origin]:
        """Return when, where and by which command each search started, as far as that is kept."""
        by_search: dict[SearchKey, Origin] = {}
        for _, state in self.searches(question):
            search = state.search
            if search.attempt:
                by_search[search.name, search.search_id] = origin_of(state)
        return by_search

    def ask(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows that the question is about, never empty.

        Raises UsageErrors for unknown names and unreadable sources, NoAnswerError without results.
        """
        rows = self.rows(question, say)
        if not rows:
            self._check_begun(question)
        rows = self._of_search(question.search, rows)
        rows = self._of_model(question.model, rows)
        if not rows:
            raise NoAnswerError(
                f"no trial is recorded in {self.name}; `elsa-tune search` runs them"
            )
        rows = self._of_tasks(question, rows, say)
        return self._of_sizes(question, rows)

    def _check_begun(self, question: Question) -> None:
        """Raise NoAnswerError where the search asked for has begun no trial yet."""
        for folder, _ in self.searches(question):
            if folder is None:
                continue
            if has_specification(folder):
                paths = SearchPaths(folder.parent, folder.name)
                raise NoAnswerError(
                    f"search '{paths.name}' has begun no trial; `{paths.resume}` goes on"
                )
            return

    def _of_search(self, search: str | None, rows: list[ResultRow]) -> list[ResultRow]:
        """Return the rows of this search; all of them where none is asked for."""
        if search is None:
            return rows
        of_search = [row for row in rows if is_called(row.search_key, search)]
        if not of_search:
            names = {row.search for row in rows if row.search is not None}
            raise _missing("search", search, names, self)
        return of_search

    def _of_model(self, model: str | None, rows: list[ResultRow]) -> list[ResultRow]:
        """Return the rows of this model; all of them where none is asked for."""
        if model is None:
            return rows
        of_model = [row for row in rows if row.model == model]
        if not of_model:
            raise _missing("model", model, {row.model for row in rows}, self)
        return of_model

    def _of_tasks(self, question: Question, rows: list[ResultRow], say: Say) -> list[ResultRow]:
        """Return the rows of the tasks asked for; says which of them have none."""
        if not question.tasks:
            return rows
        tasks = {row.task for row in rows}
        missing = [name for name in question.tasks if name not in tasks]
        has_none = len(missing) == len(question.tasks)
        of = ""
        if question.model is not None:
            of = f" for {question.model}"
        for name in missing:
            error = _missing("task", name, tasks, self, of)
            # A known task without results spoils the question only if no other task has any.
            if has_none or isinstance(error, UsageError):
                raise error
            say(f"nothing is recorded on {name}")
        return [row for row in rows if row.task in question.tasks]

    def _of_sizes(self, question: Question, rows: list[ResultRow]) -> list[ResultRow]:
        """Return the rows of the training sizes asked for."""
        if not question.train_sizes:
            return rows
        sizes = {_train_size(row) for row in rows}
        for size in question.train_sizes:
            if size not in sizes:
                in_order = sorted(sizes, key=_examples_of)
                raise NoAnswerError(
                    f"no answer: no result in {self.name} has `train_size` {size}; there is "
                    f"{shortlist(in_order)}"
                )
        return [row for row in rows if _train_size(row) in question.train_sizes]

    def curves(
        self, question: Question, rows: Sequence[ResultRow], target: float = DEFAULT_TARGET
    ) -> list[FreezeCurve]:
        """Return the freeze curves of rows that were asked for; as `freeze_curves` otherwise.

        Tasks of a table that names methods alone have none. Raises NoAnswerError where all rows are
        of other methods, and none of a frozen depth.
        """
        self._check_depths(rows)
        of_depths = _without_tables_of_methods(rows)
        curves = freeze_curves(
            of_depths,
            self._evidence(of_depths),
            train_sizes_apart=self._answers_sizes_apart(question),
            target=target,
        )
        return [self._with_searches(curve, question) for curve in curves]

    def ways(self, question: Question, rows: Sequence[ResultRow]) -> list[FreezeCurve]:
        """Return all ways of rows that were asked for, as `way_curves` does."""
        curves = way_curves(
            rows,
            self._evidence(rows),
            train_sizes_apart=self._answers_sizes_apart(question),
        )
        return [self._with_searches(curve, question) for curve in curves]

    def folder_of(self, question: Question, curve: FreezeCurve) -> Path | None:
        """Return the folder of the one search that a curve is of; None where none is known."""
        for folder, state in self.searches(question):
            search = state.search
            # A copied folder has the same id, and another's search may have the name.
            if curve.search == search.name and curve.search_ids == (search.search_id,):
                return folder
        return None

    def _evidence(self, rows: Iterable[ResultRow]) -> KeptPredictions | None:
        """Return where the rows' predictions are found; None where none were kept."""
        if any(row.predictions for row in rows):
            return KeptPredictions(self.store)
        return None

    def _answers_sizes_apart(self, question: Question) -> bool:
        """Whether several training sizes are answered each for itself."""
        return not self.is_record or question.each_size

    def _check_depths(self, rows: Sequence[ResultRow]) -> None:
        """Raise NoAnswerError where other methods were tried, and no depth was frozen."""
        others: dict[str, None] = {}  # each once, in the rows' order
        for row in rows:
            candidate = row.candidate
            if candidate.is_reference or row.phase is Phase.PROBE:
                continue
            if candidate.is_ranked:
                return
            others[candidate.label] = None
        what = shortlist(others) or "the full model alone"
        knows_layers = any(row.layers is not None for row in rows)
        if others or not knows_layers:
            raise NoAnswerError(
                f"{self.name} has results of {what}, and of no frozen layers, so that there is no "
                "freeze curve; `elsa-tune compare` compares such ways"
            )

    def _with_searches(self, curve: FreezeCurve, question: Question) -> FreezeCurve:
        """Return a curve with what is known of the searches it comes from."""
        names = (curve.search or "").split(", ")
        searches: Searches = []
        for folder, state in self.searches(question):
            if state.search.name in names and state.search.search_id in curve.search_ids:
                searches.append((folder, state))
        curve = replace(curve, warnings=(*_incomplete(searches), *curve.warnings))
        if len(searches) != 1:
            return curve
        [(folder, state)] = searches
        if folder is None:
            return _kept_elsewhere(curve, state.search.tags)
        if has_specification(folder):
            paths = SearchPaths(folder.parent, folder.name)
            return replace(curve, search_arguments=paths.arguments)
        return _of_a_lone_journal(curve)


def rows_of_searches(searches: Searches, question: Question, say: Say) -> list[ResultRow]:
    """Return the rows of these searches, and say which are by a method that is not known here.

    Raises UnknownMethodError where the question names such a search, or there are no others.
    """
    rows: list[ResultRow] = []
    errors: list[UnknownMethodError] = []
    for folder, state in searches:
        try:
            rows += rows_of(state, folder)
        except UnknownMethodError as error:
            errors.append(error)
    if errors and (question.search is not None or not rows):
        raise errors[0]
    reasons = [str(error) for error in errors]
    for unread in first_few(reasons):
        say(f"left out: {unread}")
    return rows


def _train_size(row: ResultRow) -> TrainSize:
    """Return a row's training size; a row that names none had all examples."""
    return row.train_size or FULL


def _examples_of(size: TrainSize) -> float:
    """Return by what training sizes are sorted: the whole training set is the last."""
    return math.inf if isinstance(size, str) else size


def target_of(rows: Iterable[ResultRow], given: float | None = None) -> float:
    """Return the share to keep: the one given, else what the rows' searches were to keep."""
    if given is not None:
        return check_target(given)
    planned: set[float] = set()
    for row in rows:
        if row.planned_target is not None:
            planned.add(row.planned_target)
    if len(planned) == 1:
        return check_target(planned.pop())
    return DEFAULT_TARGET


def _without_tables_of_methods(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of models and tasks whose number of layers some row knows."""
    known: set[tuple[str, str]] = set()
    for row in rows:
        if row.layers is not None:
            known.add((row.model, row.task))
    return [row for row in rows if (row.model, row.task) in known]


def _incomplete(searches: Searches) -> Iterator[AnswerWarning]:
    """Return a warning for each search that has trials left."""
    for folder, state in searches:
        if not state.search.attempt or state.is_complete:
            continue
        name = state.search.name
        text = f"search '{name}' is not complete ({state.status_text})"
        if folder is not None and state.status is not SearchStatus.RUNNING:
            paths = SearchPaths(folder.parent, name)
            text += f"; `{paths.resume}` goes on"
        yield AnswerWarning(WarningCode.INCOMPLETE, text)


def _kept_elsewhere(curve: FreezeCurve, tags: Mapping[str, str]) -> FreezeCurve:
    """Return the curve of a search that a store has, and no folder of this machine."""
    arguments = arguments_elsewhere(tags)
    if arguments is None:
        return replace(curve, is_search_gone=True)
    return replace(curve, search_arguments=arguments, search_host=tags.get(HOST_TAG))


def _of_a_lone_journal(curve: FreezeCurve) -> FreezeCurve:
    """Return the curve of a journal without a specification: its search may lie here or nowhere."""
    storage = default_storage(Path.cwd())
    is_here = curve.search in search_names(storage)
    return replace(curve, is_search_gone=not is_here)


def has_specification(folder: Path) -> bool:
    """Whether a search was set up in this folder, however far it came."""
    return (folder / "search.json").exists()


def _missing(
    what: str, name: str, names_here: Iterable[str], source: Source, of: str = ""
) -> NoAnswerError | UsageError:
    """Return the error for a name: one that is known has no results (3), another is a slip (2)."""
    names_here = sorted(names_here)
    shipped_names: Collection[str] = ()
    if source.is_record and what == "model":
        shipped_names = KNOWN_MODELS
    elif source.is_record and what == "task":
        shipped_names = KNOWN_TASKS
    if name in shipped_names:
        others = ""
        if names_here:
            others = f"; there is {shortlist(names_here)}"
        return NoAnswerError(
            f"no answer: nothing is recorded on {what} {name}{of} in {source.name}{others}; "
            "`elsa-tune search` runs the trials"
        )
    if not names_here and not shipped_names:
        return ResultsError(f"{what} '{name}' was asked for, but {source.name} names no {what}")
    names = {*names_here, *shipped_names}
    hint = f"Looked in {source.name}."
    return UnknownNameError.among(what, name, names, hint=hint)
