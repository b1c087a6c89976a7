"""The record of a working directory: its journals and its store, whichever knows more."""

from collections.abc import Callable
from pathlib import Path

from elsa_tune.errors import NoAnswerError, UsageError, first_few
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.source import Question, Say, Searches, Source
from elsa_tune.sources.stored import Stored
from elsa_tune.tracking.paths import search_names
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import SearchState


def recorded(question: Question, places: StorePaths, tracking_uri: str | None, say: Say) -> Source:
    """Return where the record of a working directory answers the question.

    A store that is named, here or in the environment, is asked itself. Else the journals are: they
    are read in a fraction of the time, and ahead of MLflow. So is that of a search of this folder
    which is asked for by its name, unless a store is named here: in the environment's another may
    have the name. MLflow's own is asked where they have not all that the question names, of
    searches that are kept elsewhere.
    """
    names = search_names(places.storage)
    is_of_folder = question.search in names and not tracking_uri
    named = places.named_uri(tracking_uri)
    if named is not None and not is_of_folder:
        return Stored(named, places.storage)
    journals = Journals(places.storage, "the record")
    if _answers(journals, question, say):
        return journals
    stored = Stored(places.tracking_uri(), places.storage)
    if stored.store.is_unmade() and names:
        return journals
    if is_of_folder and not stored.has_that_of_folder(question):
        return journals
    reasons = [str(error) for error in journals.unread]
    for unread in first_few(reasons):
        say(f"left out: {unread}; {stored.store.name}'s record answers in its place")
    return stored


def _answers(journals: Journals, question: Question, say: Say) -> bool:
    """Whether the journals have all that the question names; only then their lines are said."""
    lines: list[str] = []
    try:
        rows = journals.rows(question, lines.append)
    except (NoAnswerError, UsageError):
        # Nothing is there, nothing of this name, or nothing that can be read.
        return False
    if not question.is_met_by(rows):
        return False
    for line in lines:
        say(line)
    return True


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
