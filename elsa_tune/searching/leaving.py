"""A search that moves to another store of records leaves nothing running in the one it had."""

from elsa_tune.errors import TrackingError
from elsa_tune.searching.output import Say
from elsa_tune.searching.startup.stores import store_of
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState


def leave_store(
    spec: SearchSpec, paths: SearchPaths, journal: Journal, say: Say, *, patience_s: float
) -> None:
    """Give the store that a search has what it lacks, and an end where its driver was killed.

    Where it does not take that within so many seconds, it is said. journal: the search's, which the
    caller holds.
    """
    try:
        has_all = _is_told(spec, paths, journal, patience_s)
    except TrackingError:
        has_all = False
    if not has_all:
        say(
            f"{spec.tracking_uri} does not take the rest of search '{paths.name}', which leaves "
            "it, and goes on showing as running what ran there"
        )


def _is_told(spec: SearchSpec, paths: SearchPaths, journal: Journal, patience_s: float) -> bool:
    """Return whether the store has everything, and an end. Raises TrackingError."""
    store = store_of(spec)
    if store.is_unmade():
        return True
    state = SearchState.replay(journal.earlier)
    forwarder = Forwarder(paths, store.sink(paths.journal), journal.earlier)
    was_killed = state.search.attempt > 0 and state.end is None
    if was_killed:
        # For that store alone: in the journal, and in the next store, the search goes on.
        end = SearchEnded(status=SearchStatus.KILLED)
        forwarder.offer(journal.stamp(end))
    if forwarder.lag == 0:
        return True
    store.check()
    return forwarder.start().close(patience_s) == 0
