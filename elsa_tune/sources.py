"""What can be asked for an answer: the record, a journal, a results table, printed numbers."""

import contextlib
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elsa_tune.analysis.answer import DEFAULT_TARGET, check_target
from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import (
    NoAnswerError,
    ResultsError,
    StorageError,
    UnknownNameError,
    UsageError,
    first_few,
    shortlist,
)
from elsa_tune.results.peft_benchmark import is_benchmark, read_benchmark
from elsa_tune.results.published import published_rows
from elsa_tune.results.results_csv import import_results
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.specs.result_row import Origin, ResultRow
from elsa_tune.specs.trial import Phase
from elsa_tune.tasks.known import KNOWN_TASKS
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths, find_search, search_names
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import KeptPredictions, origin_of, rows_of
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.tracking.store import RecordStore, local_folder
from elsa_tune.tracking.stores import store_at

FULL = "full"  # the whole training set, among training sizes

Say = Callable[[str], None]
Searches = list[tuple[Path | None, SearchState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The results that are asked about; None stands for all of them."""

    model: str | None = None  # by its name
    tasks: tuple[str, ...] | None = None  # by their names
    search: str | None = None  # by its name
    # () for all, each answered for itself, where None lets a record that has several refuse; among
    # them None is the whole training set.
    train_sizes: tuple[int | None, ...] | None = None

    def is_met_by(self, rows: Iterable[ResultRow]) -> bool:
        """Whether there are rows of everything that it names."""
        tasks = set()
        for row in rows:
            is_of_model = self.model in (None, row.model)
            is_of_search = self.search in (None, row.search)
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

    def origins(self, question: Question) -> dict[str, Origin]:
        """Return when, where and by which command each search started, as far as that is kept."""
        by_search = {}
        for _, state in self.searches(question):
            search = state.search
            if search.attempt:
                by_search[search.name] = origin_of(state)
        return by_search

    def target(
        self, question: Question, rows: Iterable[ResultRow], given: float | None = None
    ) -> float:
        """Return the share to keep: the one given, else what the rows' searches were to keep."""
        names = {row.search for row in rows}
        targets = set()
        for _, state in self.searches(question):
            search = state.search
            if search.name not in names:
                continue
            target = search.params.get("target", DEFAULT_TARGET)
            try:
                targets.add(float(target))
            except (TypeError, ValueError) as error:
                raise ResultsError(
                    f"the target of {search.name} cannot be read: {error}"
                ) from error
        if given is not None:
            return check_target(given)
        if len(targets) == 1:
            return check_target(targets.pop())
        return DEFAULT_TARGET

    def ask(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows that the question is about, never empty.

        Raises UsageErrors for unknown names and unreadable sources, NoAnswerError without results.
        """
        rows = self.rows(question, say)
        if not rows:
            self._check_begun(question)
        rows = self._of_name("search", question.search, rows)
        rows = self._of_name("model", question.model, rows)
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
            if _has_specification(folder):
                paths = SearchPaths(folder.parent, folder.name)
                raise NoAnswerError(
                    f"search '{paths.name}' has begun no trial; `{paths.resume}` goes on"
                )
            return

    def _of_name(self, what: str, name: str | None, rows: list[ResultRow]) -> list[ResultRow]:
        """Return the rows of this search or model; all of them where none is asked for."""
        if name is None:
            return rows
        names = set()
        rows_of_name = []
        for row in rows:
            its_name = getattr(row, what)
            if its_name is not None:
                names.add(its_name)
            if its_name == name:
                rows_of_name.append(row)
        if name not in names:
            raise _missing(what, name, names, self)
        return rows_of_name

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
        sizes = {row.train_size for row in rows}
        for size in question.train_sizes:
            if size in sizes:
                continue
            others = sorted(sizes, key=lambda size: size or math.inf)
            listed = shortlist(other or FULL for other in others)
            raise NoAnswerError(
                f"no answer: no result in {self.name} has `train_size` {size or FULL}; there "
                f"is {listed}"
            )
        return [row for row in rows if row.train_size in question.train_sizes]

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
        return [self._with_searches(curve, question, of_depths) for curve in curves]

    def ways(self, question: Question, rows: Sequence[ResultRow]) -> list[FreezeCurve]:
        """Return all ways of rows that were asked for, as `way_curves` does."""
        curves = way_curves(
            rows,
            self._evidence(rows),
            train_sizes_apart=self._answers_sizes_apart(question),
        )
        return [self._with_searches(curve, question, rows) for curve in curves]

    def folder_of(self, question: Question, curve: FreezeCurve) -> Path | None:
        """Return the folder of the one search that a curve is of; None where none is known."""
        for folder, state in self.searches(question):
            if state.search.name == curve.search:
                return folder
        return None

    def _evidence(self, rows: Iterable[ResultRow]) -> KeptPredictions | None:
        """Return where the rows' predictions are found; None where none were kept."""
        if any(row.predictions for row in rows):
            return KeptPredictions(self.store)
        return None

    def _answers_sizes_apart(self, question: Question) -> bool:
        """Whether several training sizes are answered each for itself."""
        return not self.is_record or question.train_sizes is not None

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

    def _with_searches(
        self, curve: FreezeCurve, question: Question, rows: Sequence[ResultRow]
    ) -> FreezeCurve:
        """Return a curve with what is known of the searches it comes from."""
        names = (curve.search or "").split(", ")
        searches: Searches = []
        for folder, state in self.searches(question):
            if state.search.name in names:
                searches.append((folder, state))
        own_rows = [row for row in rows if row.search in names]
        own_target = self.target(question, own_rows)
        looks = curve.looks
        if looks is not None:
            looks = replace(looks, own_target=own_target)
        return replace(
            curve,
            looks=looks,
            warnings=(*_incomplete(searches), *curve.warnings),
            search_arguments=_arguments(searches),
        )


def _without_tables_of_methods(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of models and tasks whose number of layers some row knows."""
    known: set[tuple[str, str]] = set()
    for row in rows:
        if row.layers is not None:
            known.add((row.model, row.task))
    return [row for row in rows if (row.model, row.task) in known]


class Table(Source):
    """A CSV of results, or the JSON files of peft's method_comparison."""

    def __init__(self, path: Path, columns: Sequence[str] = (), *, percent: bool = False) -> None:
        self.name = str(path)
        self._path = path
        self._columns = columns
        self._percent = percent

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        if is_benchmark(self._path):
            if self._columns or self._percent:
                raise UsageError(
                    f"{self._path} holds JSON results, whose fields are known and are fractions; "
                    "leave out `map` and `scale`, which are for a CSV"
                )
            imported = read_benchmark(self._path)
        else:
            imported = import_results(self._path, percent=self._percent, mapping=self._columns)
        if imported.notes:
            say("\n  ".join(imported.notes))
        return imported.rows


class Published(Source):
    """What the two studies printed."""

    name = "the published tables"

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        return published_rows()

    def ask(self, question: Question, say: Say) -> list[ResultRow]:
        rows = super().ask(question, say)
        studies: dict[str, None] = {}  # each once, in the rows' order
        for row in rows:
            studies[str(row.comparison)] = None
        printed = " and ".join(studies)
        say(
            f"as printed by {printed}; both used one learning rate for all depths, so that few "
            "fine-tuned layers may look worse than they are"
        )
        return rows


class Journals(Source):
    """The journals of all searches in a folder, or one journal (.jsonl)."""

    def __init__(self, place: Path, name: str = "") -> None:
        self._place = place
        self.is_record = place.suffix != ".jsonl"
        if name:
            self.name = name
        elif self.is_record:
            self.name = f"the journals under {place}"
        else:
            self.name = str(place)
        self._read: dict[str | None, Searches] = {}
        self.unread: list[StorageError] = []  # why the journals that were read last could not be

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows of the search asked for, or of all that can be read, by their start."""
        searches = self.searches(question, say)
        if not self.is_record:
            has_begun = any(state.search.attempt for _, state in searches)
            if not has_begun and not _has_specification(self._place.parent):
                raise ResultsError(
                    f"{self.name} holds no record of a search; name the journal.jsonl of one that "
                    "has begun"
                )
        rows = []
        for folder, state in searches:
            rows += rows_of(state, folder)
        return rows

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches; each journal is read once."""
        if question.search in self._read:
            return self._read[question.search]
        searches: Searches = []
        errors = []
        for journal in self._journals(question.search):
            try:
                state = read_state(journal)
            except StorageError as error:
                errors.append(error)
                continue
            if self.is_record and question.search:  # its folder may have been renamed
                state.search = replace(state.search, name=question.search)
            folder = journal.absolute().parent
            searches.append((folder, state))
        self.unread = errors
        if errors and not searches:
            raise errors[0]
        reasons = [str(error) for error in errors]
        for unread in first_few(reasons):
            say(f"left out: {unread}")
        searches.sort(key=lambda search: search[1].started)
        self._read[question.search] = searches
        return searches

    def _journals(self, search: str | None) -> list[Path]:
        if not self.is_record:
            if not self._place.is_file():
                raise ResultsError(f"journal {self._place} does not exist")
            return [self._place]
        if search is not None:
            paths = find_search(self._place, search)
            return [paths.journal]
        names = search_names(self._place)
        if not names:
            raise ResultsError(
                f"no search is recorded in {self._place}; `storage_path` names the folder that "
                "holds the searches"
            )
        return [SearchPaths(self._place, name).journal for name in names]


class Stored(Source):
    """What a store has, MLflow's or another."""

    name = "the record"
    is_record = True

    def __init__(self, tracking_uri: str) -> None:
        self.store: RecordStore = store_at(tracking_uri)
        self._read = functools.cache(self.store.searches)

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows of the search and tasks asked for, in the order of their start."""
        rows = self._rows(question)
        if question.is_met_by(rows):
            return rows
        # Only on the way to a complaint is the complete store worth reading.
        return self._rows(Question())

    def _rows(self, question: Question) -> list[ResultRow]:
        rows = []
        for _, state in self.searches(question):
            folder = local_folder(state.search.tags)
            rows += rows_of(state, folder)
        return rows

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches; the store is asked once."""
        states = self._read(question.tasks, question.search)
        return [(None, state) for state in states]

    def overview(self) -> Searches:
        """Return every search, its trials only counted: reading ten thousand runs takes minutes."""
        return [(None, state) for state in self.store.overview()]


def list_searches(storage: Path, tracking_uri: str | None, say: Say) -> Searches:
    """Return every search in the folder and the store, latest first; says what cannot be read.

    tracking_uri: None looks at the folder alone.
    """
    places: list[Callable[[], Searches]] = []
    if search_names(storage):
        journals = Journals(storage)
        places.append(lambda: journals.searches(Question(), say))
    if tracking_uri is not None:
        stored = Stored(tracking_uri)
        places.append(stored.overview)
    by_id: dict[str, tuple[Path | None, SearchState]] = {}
    for searches_of_place in places:
        try:
            searches = searches_of_place()
        except UsageError as error:
            say(str(error))
            continue
        for folder, state in searches:
            search = state.search
            # A folder whose driver died before its first record has no id yet.
            key = search.search_id or f"folder:{folder}"
            if folder is not None or search.attempt:
                by_id.setdefault(key, (folder, state))
    return sorted(by_id.values(), key=_latest_first)


def _latest_first(search: tuple[Path | None, SearchState]) -> tuple[float, str]:
    """Return what searches are sorted by; two may have begun in the same millisecond."""
    _, state = search
    return -state.started, state.search.name


def recorded(question: Question, places: StorePaths, tracking_uri: str | None, say: Say) -> Source:
    """Return where the record of a working directory answers the question.

    A store that is named, here or in the environment, is asked itself. Else the journals are: they
    are read in a fraction of the time, and ahead of MLflow. MLflow's own is asked where they have
    not all that the question names, of searches that are kept elsewhere.
    """
    named = places.named_uri(tracking_uri)
    if named is not None:
        return Stored(named)
    journals = Journals(places.storage, "the record")
    lines: list[str] = []
    rows: list[ResultRow] = []
    # It fails where nothing is there, nothing of this name, or nothing that can be read.
    with contextlib.suppress(NoAnswerError, UsageError):
        rows = journals.rows(question, lines.append)
    if question.is_met_by(rows):
        for line in lines:
            say(line)
        return journals
    uri = places.tracking_uri()
    names = search_names(places.storage)
    stored = Stored(uri)
    has_journals_alone = stored.store.is_unmade()
    if not has_journals_alone and question.search in names:
        has_journals_alone = not stored.searches(question)
    if names and has_journals_alone:
        return journals
    reasons = [str(error) for error in journals.unread]
    for unread in first_few(reasons):
        say(f"left out: {unread}; {stored.store.name}'s record answers in its place")
    return stored


def _has_specification(folder: Path) -> bool:
    """Whether a search was set up in this folder, however far it came."""
    return (folder / "search.json").exists()


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


def _arguments(searches: Searches) -> str | None:
    """Return what names the one search in a command; None where its name alone does."""
    if len(searches) != 1:
        return None
    folder, _ = searches[0]
    if folder is None or not _has_specification(folder):
        return None
    paths = SearchPaths(folder.parent, folder.name)
    return paths.arguments


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
