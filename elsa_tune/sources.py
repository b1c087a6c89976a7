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
from elsa_tune.tracking.mlflow_reader import (
    is_unmade,
    local_folder,
    read_overview,
    read_searches,
)
from elsa_tune.tracking.paths import SearchPaths, StorePaths, find_search, search_names
from elsa_tune.tracking.rows import KeptPredictions, origin_of, rows_of
from elsa_tune.tracking.state import SearchState, read_state

FULL = "full"  # the whole training set, among training sizes

Say = Callable[[str], None]
Searches = list[tuple[Path | None, SearchState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which results are meant; None stands for all of them.

    train_sizes: () for all, each answered for itself, where None lets a record that has several
    refuse; among them None is the whole training set.
    """

    model: str | None = None
    tasks: tuple[str, ...] | None = None
    search: str | None = None
    train_sizes: tuple[int | None, ...] | None = None

    def is_met_by(self, rows: Iterable[ResultRow]) -> bool:
        """Whether there are rows of everything that it names."""
        tasks = {
            row.task
            for row in rows
            if self.model in (None, row.model) and self.search in (None, row.search)
        }
        return bool(tasks) and tasks >= set(self.tasks or ())


class Source(ABC):
    """Where results are. name: as a sentence calls it.

    is_record: models and tasks may be known and have no results here yet, and one training size
    has to be chosen; a table knows its own names alone, and answers for each size.
    """

    name: str
    is_record = False
    tracking_uri: str | None = None

    @abstractmethod
    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """At least the rows of the question. say: takes what was understood, or passed over."""

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Folders and states of the searches asked for, by their start; [] for no record."""
        return []

    def origins(self, question: Question) -> dict[str, Origin]:
        """By search: when, where and by which command it started, as far as that is kept."""
        states = [state for _, state in self.searches(question)]
        return {state.search.name: origin_of(state) for state in states if state.search.attempt}

    def target(
        self, question: Question, rows: Iterable[ResultRow], given: float | None = None
    ) -> float:
        """The share to keep: the one given, else what the rows' searches were to keep."""
        names = {row.search for row in rows}
        its = [one.search for _, one in self.searches(question) if one.search.name in names]
        try:
            asked = {float(one.params.get("target", DEFAULT_TARGET)) for one in its}
            own = asked.pop() if len(asked) == 1 else DEFAULT_TARGET
        except (TypeError, ValueError) as error:
            raise ResultsError(f"the target of {its[0].name} cannot be read: {error}") from error
        return check_target(own if given is None else given)

    def ask(self, question: Question, say: Say) -> list[ResultRow]:
        """The rows that the question is about, never empty.

        Raises UsageErrors for unknown names and unreadable sources, NoAnswerError without results.
        """
        rows = self.rows(question, say)
        early = [] if rows else [one for one, _ in self.searches(question) if one is not None]
        if early and (early[0] / "search.json").exists():
            paths = SearchPaths(early[0].parent, early[0].name)
            way = f"`{paths.resume}` goes on"
            raise NoAnswerError(f"search '{paths.name}' has begun no trial; {way}")
        for what, name in (("search", question.search), ("model", question.model)):
            if name is not None:
                names = {getattr(row, what) for row in rows} - {None}
                if name not in names:
                    raise _missing(what, name, names, self)
                rows = [row for row in rows if getattr(row, what) == name]
        if not rows:
            raise NoAnswerError(
                f"no trial is recorded in {self.name}; `elsa-tune search` runs them"
            )
        tasks = {row.task for row in rows}
        missing = [name for name in question.tasks or () if name not in tasks]
        of = "" if question.model is None else f" for {question.model}"
        for name in missing:
            error = _missing("task", name, tasks, self, of)
            # A known task without results spoils the question only if no other task has any.
            if isinstance(error, UsageError) or len(missing) == len(question.tasks or ()):
                raise error
            say(f"nothing is recorded on {name}")
        rows = [row for row in rows if row.task in (question.tasks or tasks)]
        sizes = {row.train_size for row in rows}
        for size in question.train_sizes or ():
            if size not in sizes:
                known = sorted(sizes, key=lambda size: size or math.inf)
                there = shortlist(one or FULL for one in known)
                raise NoAnswerError(
                    f"no answer: no result in {self.name} has `train_size` {size or FULL}; there "
                    f"is {there}"
                )
        return [row for row in rows if row.train_size in (question.train_sizes or sizes)]

    def curves(
        self, question: Question, rows: Sequence[ResultRow], target: float = DEFAULT_TARGET
    ) -> list[FreezeCurve]:
        """The freeze curves of rows that were asked for; as `freeze_curves` otherwise."""
        evidence = None
        if any(row.predictions for row in rows):
            evidence = KeptPredictions(self.tracking_uri)
        apart = not self.is_record or question.train_sizes is not None
        curves = freeze_curves(rows, evidence, train_sizes_apart=apart, target=target)
        for place, one in enumerate(curves):
            names = (one.search or "").split(", ")
            its = [there for there in self.searches(question) if there[1].search.name in names]
            is_own = target == self.target(question, [row for row in rows if row.search in names])
            looks = one.looks and replace(one.looks, is_own_target=is_own)
            curves[place] = replace(
                one,
                looks=looks,
                warnings=(*_incomplete(its), *one.warnings),
                search_arguments=_arguments(its),
            )
        return curves


class Table(Source):
    """A CSV of results. columns: what it calls its columns, as `read_mapping` reads them."""

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
        """Those of the search asked for, or of all that can be read, by their start."""
        searches = self.searches(question, say)
        is_search = self.is_record or any(state.search.attempt for _, state in searches)
        if not is_search and not (self._place.parent / "search.json").exists():
            raise ResultsError(f"{self.name} holds no record of a search")
        return [row for folder, state in searches for row in rows_of(state, folder)]

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """Each journal is read once."""
        if question.search in self._read:
            return self._read[question.search]
        found: Searches = []
        errors = []
        for journal in self._journals(question.search):
            try:
                state = read_state(journal)
                if self.is_record and question.search:  # its folder may have been renamed
                    state.search = replace(state.search, name=question.search)
                found.append((journal.absolute().parent, state))
            except StorageError as error:
                errors.append(error)
        self.unread = errors
        if errors and not found:
            raise errors[0]
        for unread in first_few([str(error) for error in errors]):
            say(f"left out: {unread}")
        self._read[question.search] = sorted(found, key=lambda one: one[1].started)
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


class Store(Source):
    """What MLflow has."""

    name = "the record"
    is_record = True

    def __init__(self, tracking_uri: str) -> None:
        self.tracking_uri = tracking_uri
        self._read = functools.cache(functools.partial(read_searches, tracking_uri))
        self._overview = functools.partial(read_overview, tracking_uri)

    def rows(self, question: Question, say: Say) -> list[ResultRow]:
        """Those of the search and tasks that are asked for, in the order of their start."""
        # Only on the way to a complaint is the whole store worth reading.
        for asked in (question, Question()):
            states = [state for _, state in self.searches(asked)]
            rows = [row for one in states for row in rows_of(one, local_folder(one.search.tags))]
            if question.is_met_by(rows):
                break
        return rows

    def searches(self, question: Question, say: Say = lambda line: None) -> Searches:
        """The store is asked once."""
        return [(None, one) for one in self._read(question.tasks, question.search)]

    def overview(self) -> Searches:
        """Every search, its trials only counted: of ten thousand runs MLflow needs minutes."""
        return [(None, one) for one in self._overview()]


def list_searches(storage: Path, tracking_uri: str | None, say: Say) -> Searches:
    """Every search in the folder and the store, latest first; what cannot be read is said.

    tracking_uri: None looks at the folder alone.
    """
    places: list[Callable[[], Searches]] = []
    if search_names(storage):
        places.append(lambda: Journals(storage).searches(Question(), say))
    if tracking_uri is not None:
        places.append(Store(tracking_uri).overview)
    found: dict[str, tuple[Path | None, SearchState]] = {}
    for searches in places:
        try:
            for folder, state in searches():
                # A folder whose driver died before its first record has no id yet.
                key = state.search.search_id or f"folder:{folder}"
                if folder is not None or state.search.attempt:
                    found.setdefault(key, (folder, state))
        except UsageError as error:
            say(str(error))
    # Two may have begun in the same millisecond.
    return sorted(found.values(), key=lambda one: (-one[1].started, one[1].search.name))


def recorded(question: Question, places: StorePaths, tracking_uri: str | None, say: Say) -> Source:
    """Where the record of a working directory answers the question.

    A store that is named, here or in the environment, is asked itself. Else the journals are: they
    are read in a fraction of the time, and ahead of MLflow. MLflow's own is asked where they have
    not all that the question names, of searches that are kept elsewhere.
    """
    if (named := places.named_uri(tracking_uri)) is not None:
        return Store(named)
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
    is_alone = is_unmade(uri) or (question.search in names and not Store(uri).searches(question))
    if names and is_alone:
        return journals
    for unread in first_few([str(error) for error in journals.unread]):
        say(f"left out: {unread}; MLflow's record answers in its place")
    return Store(uri)


def _incomplete(searches: Searches) -> Iterator[AnswerWarning]:
    """A warning for each search that has trials left."""
    for folder, state in searches:
        name = state.search.name
        if state.search.attempt and not state.is_complete:
            text = f"search '{name}' is not complete ({state.status_text})"
            if folder is not None and state.status is not SearchStatus.RUNNING:
                text += f"; `{SearchPaths(folder.parent, name).resume}` goes on"
            yield AnswerWarning(WarningCode.INCOMPLETE, text)


def _arguments(searches: Searches) -> str | None:
    """What names the one search in a command; None where its name alone does."""
    folders = [folder for folder, _ in searches]
    if len(folders) != 1 or folders[0] is None or not (folders[0] / "search.json").exists():
        return None
    return SearchPaths(folders[0].parent, folders[0].name).arguments


def _missing(
    what: str, name: str, there: Iterable[str], source: Source, of: str = ""
) -> NoAnswerError | UsageError:
    """A good name without results has no answer (3); a name that nobody knows is a slip (2)."""
    there = sorted(there)
    names: dict[str, Collection[str]] = {"model": KNOWN_MODELS, "task": KNOWN_TASKS}
    known = names.get(what, ()) if source.is_record else ()
    if name in known:
        others = f"; there is {shortlist(there)}" if there else ""
        return NoAnswerError(
            f"no answer: nothing is recorded on {what} {name}{of} in {source.name}{others}; "
            "`elsa-tune search` runs the trials"
        )
    if not there and not known:
        return ResultsError(f"{what} '{name}' was asked for, but {source.name} names no {what}")
    return UnknownNameError.among(what, name, {*there, *known}, hint=f"Looked in {source.name}.")
