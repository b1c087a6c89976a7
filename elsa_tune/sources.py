"""What can be asked for an answer: the record, a journal, a results table, printed numbers."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elsa_tune.analysis.answer import DEFAULT_TARGET, check_target
from elsa_tune.analysis.answers import freeze_curves
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
from elsa_tune.results.published import published_rows
from elsa_tune.results.results_csv import import_results
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.specs.result_row import Origin, ResultRow
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
    """Which results are meant; None stands for all of them."""

    model: str | None = None
    tasks: tuple[str, ...] | None = None
    search: str | None = None
    # () for all, each answered for itself, where None lets a record that has several refuse; among
    # them None is the whole training set.
    train_sizes: tuple[int | None, ...] | None = None

    def is_met_by(self, rows: Iterable[ResultRow]) -> bool:
        """Whether there are rows of everything that it names."""
        tasks = set()
        for row in rows:
            if self.model in (None, row.model) and self.search in (None, row.search):
                tasks.add(row.task)
        return bool(tasks) and tasks >= set(self.tasks or ())


class Source(ABC):
    """Where results are."""

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
        states = [state for _, state in self.searches(question)]
        return {state.search.name: origin_of(state) for state in states if state.search.attempt}

    def target(
        self, question: Question, rows: Iterable[ResultRow], given: float | None = None
    ) -> float:
        """Return the share to keep: the one given, else what the rows' searches were to keep."""
        names = {row.search for row in rows}
        searches = []
        for _, state in self.searches(question):
            if state.search.name in names:
                searches.append(state.search)
        try:
            asked = {float(search.params.get("target", DEFAULT_TARGET)) for search in searches}
            own = asked.pop() if len(asked) == 1 else DEFAULT_TARGET
        except (TypeError, ValueError) as error:
            name = searches[0].name
            raise ResultsError(f"the target of {name} cannot be read: {error}") from error
        return check_target(own if given is None else given)

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
        return self._of_sizes(question, self._of_tasks(question, rows, say))

    def _check_begun(self, question: Question) -> None:
        """Raise NoAnswerError where the search asked for has begun no trial yet."""
        for folder, _ in self.searches(question):
            if folder is None:
                continue
            if (folder / "search.json").exists():
                paths = SearchPaths(folder.parent, folder.name)
                raise NoAnswerError(
                    f"search '{paths.name}' has begun no trial; `{paths.resume}` goes on"
                )
            return

    def _of_name(self, what: str, name: str | None, rows: list[ResultRow]) -> list[ResultRow]:
        """Return the rows of this search or model; all of them where none is asked for."""
        if name is None:
            return rows
        names = {getattr(row, what) for row in rows} - {None}
        if name not in names:
            raise _missing(what, name, names, self)
        return [row for row in rows if getattr(row, what) == name]

    def _of_tasks(self, question: Question, rows: list[ResultRow], say: Say) -> list[ResultRow]:
        """Return the rows of the tasks asked for; says which of them have none."""
        if not question.tasks:
            return rows
        tasks = {row.task for row in rows}
        missing = [name for name in question.tasks if name not in tasks]
        of = "" if question.model is None else f" for {question.model}"
        for name in missing:
            error = _missing("task", name, tasks, self, of)
            # A known task without results spoils the question only if no other task has any.
            if isinstance(error, UsageError) or len(missing) == len(question.tasks):
                raise error
            say(f"nothing is recorded on {name}")
        return [row for row in rows if row.task in question.tasks]

    def _of_sizes(self, question: Question, rows: list[ResultRow]) -> list[ResultRow]:
        """Return the rows of the training sizes asked for."""
        if not question.train_sizes:
            return rows
        sizes = {row.train_size for row in rows}
        for size in question.train_sizes:
            if size not in sizes:
                known = sorted(sizes, key=lambda size: size or math.inf)
                others = shortlist(other or FULL for other in known)
                raise NoAnswerError(
                    f"no answer: no result in {self.name} has `train_size` {size or FULL}; there "
                    f"is {others}"
                )
        return [row for row in rows if row.train_size in question.train_sizes]

    def curves(
        self, question: Question, rows: Sequence[ResultRow], target: float = DEFAULT_TARGET
    ) -> list[FreezeCurve]:
        """Return the freeze curves of rows that were asked for; as `freeze_curves` otherwise."""
        evidence = None
        if any(row.predictions for row in rows):
            evidence = KeptPredictions(self.store)
        apart = not self.is_record or question.train_sizes is not None
        curves = freeze_curves(rows, evidence, train_sizes_apart=apart, target=target)
        return [self._with_searches(curve, question, rows) for curve in curves]

    def _with_searches(
        self, curve: FreezeCurve, question: Question, rows: Sequence[ResultRow]
    ) -> FreezeCurve:
        """Return a curve with what is known of the searches it comes from."""
        names = (curve.search or "").split(", ")
        searches: Searches = []
        for folder, state in self.searches(question):
            if state.search.name in names:
                searches.append((folder, state))
        own_target = self.target(question, [row for row in rows if row.search in names])
        return replace(
            curve,
            looks=curve.looks and replace(curve.looks, own_target=own_target),
            warnings=(*_incomplete(searches), *curve.warnings),
            search_arguments=_arguments(searches),
        )


class Table(Source):
    """A CSV of results."""

    def __init__(self, path: Path, columns: Sequence[str] = (), *, percent: bool = False) -> None:
        self.name = str(path)
        self._path = path
        self._columns = columns
        self._percent = percent

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        imported = import_results(self._path, percent=self._percent, mapping=self._columns)
        if imported.told:
            say("\n  ".join(imported.told))
        return imported.rows


class Published(Source):
    """What the two studies printed."""

    name = "the published tables"

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        return published_rows()

    def ask(self, question: Question, say: Say) -> list[ResultRow]:
        rows = super().ask(question, say)
        printed = " and ".join(dict.fromkeys(str(row.comparison) for row in rows))
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
        self.name = name or (f"the journals under {place}" if self.is_record else str(place))
        self._read: dict[str | None, Searches] = {}
        self.unread: list[StorageError] = []  # why the journals that were read last could not be

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Return the rows of the search asked for, or of all that can be read, by their start."""
        searches = self.searches(question, say)
        is_search = self.is_record or any(state.search.attempt for _, state in searches)
        if not is_search and not (self._place.parent / "search.json").exists():
            raise ResultsError(f"{self.name} holds no record of a search")
        return [row for folder, state in searches for row in rows_of(state, folder)]

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches; each journal is read once."""
        if question.search in self._read:
            return self._read[question.search]
        searches: Searches = []
        errors = []
        for journal in self._journals(question.search):
            try:
                state = read_state(journal)
                if self.is_record and question.search:  # its folder may have been renamed
                    state.search = replace(state.search, name=question.search)
                searches.append((journal.absolute().parent, state))
            except StorageError as error:
                errors.append(error)
        self.unread = errors
        if errors and not searches:
            raise errors[0]
        for unread in first_few([str(error) for error in errors]):
            say(f"left out: {unread}")
        self._read[question.search] = sorted(searches, key=lambda search: search[1].started)
        return self._read[question.search]

    def _journals(self, search: str | None) -> list[Path]:
        if not self.is_record:
            if not self._place.is_file():
                raise ResultsError(f"journal {self._place} does not exist")
            return [self._place]
        if search is not None:
            return [find_search(self._place, search).journal]
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
        # Only on the way to a complaint is the whole store worth reading.
        for asked in (question, Question()):
            states = [state for _, state in self.searches(asked)]
            rows = [row for one in states for row in rows_of(one, local_folder(one.search.tags))]
            if question.is_met_by(rows):
                break
        return rows

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Return the searches; the store is asked once."""
        return [(None, one) for one in self._read(question.tasks, question.search)]

    def overview(self) -> Searches:
        """Return every search, its trials only counted: reading ten thousand runs takes minutes."""
        return [(None, one) for one in self.store.overview()]


def list_searches(storage: Path, tracking_uri: str | None, say: Say) -> Searches:
    """Return every search in the folder and the store, latest first; says what cannot be read.

    tracking_uri: None looks at the folder alone.
    """
    places: list[Callable[[], Searches]] = []
    if search_names(storage):
        places.append(lambda: Journals(storage).searches(Question(), say))
    if tracking_uri is not None:
        places.append(Stored(tracking_uri).overview)
    by_id: dict[str, tuple[Path | None, SearchState]] = {}
    for searches in places:
        try:
            for folder, state in searches():
                # A folder whose driver died before its first record has no id yet.
                key = state.search.search_id or f"folder:{folder}"
                if folder is not None or state.search.attempt:
                    by_id.setdefault(key, (folder, state))
        except UsageError as error:
            say(str(error))
    # Two may have begun in the same millisecond.
    return sorted(by_id.values(), key=lambda search: (-search[1].started, search[1].search.name))


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
    said: list[str] = []
    try:
        if question.is_met_by(journals.rows(question, said.append)):
            for line in said:
                say(line)
            return journals
    except (NoAnswerError, UsageError):
        pass  # nothing is there, nothing of this name, or nothing that can be read
    uri = places.tracking_uri()
    names = search_names(places.storage)
    stored = Stored(uri)
    is_unmade = stored.store.is_unmade()
    is_alone = is_unmade or (question.search in names and not stored.searches(question))
    if names and is_alone:
        return journals
    for unread in first_few([str(error) for error in journals.unread]):
        say(f"left out: {unread}; {stored.store.name}'s record answers in its place")
    return stored


def _incomplete(searches: Searches) -> Iterator[AnswerWarning]:
    """Return a warning for each search that has trials left."""
    for folder, state in searches:
        name = state.search.name
        if state.search.attempt and not state.is_complete:
            text = f"search '{name}' is not complete ({state.status_text})"
            if folder is not None and state.status is not SearchStatus.RUNNING:
                text += f"; `{SearchPaths(folder.parent, name).resume}` goes on"
            yield AnswerWarning(WarningCode.INCOMPLETE, text)


def _arguments(searches: Searches) -> str | None:
    """Return what names the one search in a command; None where its name alone does."""
    folders = [folder for folder, _ in searches]
    if len(folders) != 1 or folders[0] is None or not (folders[0] / "search.json").exists():
        return None
    return SearchPaths(folders[0].parent, folders[0].name).arguments


def _missing(
    what: str, name: str, names_here: Iterable[str], source: Source, of: str = ""
) -> NoAnswerError | UsageError:
    """Return the error for a name: one that is known has no results (3), another is a slip (2)."""
    names_here = sorted(names_here)
    names: dict[str, Collection[str]] = {"model": KNOWN_MODELS, "task": KNOWN_TASKS}
    known = names.get(what, ()) if source.is_record else ()
    if name in known:
        others = f"; there is {shortlist(names_here)}" if names_here else ""
        return NoAnswerError(
            f"no answer: nothing is recorded on {what} {name}{of} in {source.name}{others}; "
            "`elsa-tune search` runs the trials"
        )
    if not names_here and not known:
        return ResultsError(f"{what} '{name}' was asked for, but {source.name} names no {what}")
    hint = f"Looked in {source.name}."
    return UnknownNameError.among(what, name, {*names_here, *known}, hint=hint)
