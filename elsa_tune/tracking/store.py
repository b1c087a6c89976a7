"""What a store of records is: the seam between the journal and whatever else keeps the record.

A store is what a URI names and the Forwarder fills. Everything outside of tracking sees a
`RecordStore`, which `tracking/stores.py` finds by the URI's scheme; the Forwarder sees the
`RecordSink` that a store makes of a journal.
"""

import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from elsa_tune.tracking.journal import is_held
from elsa_tune.tracking.journal_records import Record, SearchStarted
from elsa_tune.tracking.paths import lock_of
from elsa_tune.tracking.record_names import HOST_TAG, JOURNAL_TAG
from elsa_tune.tracking.state import SearchState


class RefusedError(Exception):
    """The store will never take what was sent: trying again cannot help."""


class StoreGoneError(Exception):
    """What the store had is not there: somebody removed it, or the store was replaced."""


class AccessRefusedError(Exception):
    """The store takes nothing of ours until somebody gives us the right to write there."""


class FileUnsentError(Exception):
    """The store has a record, but not the file that it names: the next session sends both."""


class RecordSink(Protocol):
    """Takes the records of one journal into a store; used by one thread at a time.

    Records come in the journal's order, but for a trial's reports: several of them may come
    together, ahead of other trials' records. Whatever was sent may be sent again, by this driver or
    a later one, and leaves the store as sending it once would.
    """

    name: str  # of the store, as sentences call it
    uri: str  # of the store, absolute, with its credentials

    def begin_again(self) -> None:
        """Forget what was learnt and sent: the journal comes from its beginning."""

    def learn(self, record: Record) -> None:
        """Take note of a record that the store is said to have; nothing is sent."""

    def send(self, batch: Sequence[Record]) -> None:
        """Bring one record into the store, or several reports of one trial.

        Raises RefusedError where the store will never take them, StoreGoneError where everything
        must be sent again, as where the store `lacks` what was learnt, and any other error where
        trying again may help: AccessRefusedError where somebody must act first, which is told while
        the search runs. What is refused is skipped, except for a session's start: without it
        nothing of the session has a place. FileUnsentError is raised behind everything else, where
        only a record's file was not taken.
        """

    def trouble(self, error: Exception) -> str:
        """Return why the store did not take records, and what to do, to follow "which"."""
        ...


class RecordStore(Protocol):
    """A store by its URI; nothing is opened before something is asked."""

    name: str  # as sentences call it
    uri: str  # absolute, with its credentials
    has_pages: bool  # whether `elsa-tune ui` shows it, by `show`
    credentials_hint: str  # how to give its password again, to follow "give it again,"

    def packages(self) -> set[str]:
        """Return what it takes beside elsa-tune, as pip calls it, on a cluster's nodes too.

        Raises TrackingError where its URI does not tell.
        """
        ...

    def check(self) -> None:
        """Raise TrackingError unless it answers in time; a file always does."""

    def initialise(self, say: Callable[[str], None]) -> None:
        """Make the store ready to be written, however many do so at once. Raises TrackingError."""

    def look(self) -> str:
        """Say what a search would find here, in a few words, and change nothing.

        Raises TrackingError where it could not record here.
        """
        ...

    def is_unmade(self) -> bool:
        """Whether it is a file that is not there yet: a question must not make it."""
        ...

    def lacks(self, sent: SearchState) -> bool:
        """Whether it has less of a search than it was sent, by the rule of `is_behind`.

        So it is where it was emptied, replaced, or restored from a backup. Raises TrackingError
        without an answer.
        """
        ...

    def sink(self, journal: Path) -> RecordSink:
        """Return what takes this journal's records into the store."""
        ...

    def searches(
        self, tasks: Sequence[str] | None = None, search: str | None = None
    ) -> list[SearchState]:
        """Return the searches on these tasks and of this name or id, in the order of their start.

        None asks for every one. A search's tags tell where its journal is, as `journal_tags` gives
        them. Raises TrackingError where the store is missing, damaged or does not answer.
        """
        ...

    def overview(self) -> list[SearchState]:
        """Return every search, whose trials may be counted instead of read; else as `searches`."""
        ...

    def show(self, host: str, port: int, say: Callable[[str], None]) -> None:
        """Say where its pages are; if nothing serves them yet, do so until the user ends that.

        Called where it `has_pages`. host, port: where to listen. Raises UsageError where nothing
        can listen there, RunError where what serves them ends by itself.
        """
        ...

    def fetch(self, run_id: str, artifact: str, folder: Path) -> Path | None:
        """Return a file that is kept with a trial, copied into this folder.

        run_id: the `RecordedTrial`'s, which a store without files leaves None; it returns None
        here, too, and for a file that it does not have. Raises TrackingError, which says why and
        what to do, where the file cannot be had now: an answer must not call it lost.
        """
        ...

    def delete(self, search_id: str) -> int:
        """Delete all that it has of a search; returns how many runs: the trials', and its own.

        A deletion that was cut short can be repeated. Raises whatever kept it from that.
        """
        ...

    def keep_model(
        self,
        search: SearchStarted,
        classifier: Any,
        row: Mapping[str, str],
        options: Mapping[str, Any],
        versions: Mapping[str, str],
    ) -> str | None:
        """Keep a model that was made of a search, and return where; None in a store without models.

        classifier: transformers' pipeline. row: an example, by input column. options: what the
        pipeline is to be called with. versions: of packages, for whoever loads the model. Raises
        whatever kept it from that.
        """
        ...


def journal_tags(journal: Path) -> dict[str, str]:
    """Return the tags by which a reader of a store finds the journal that filled it."""
    return {JOURNAL_TAG: str(journal.absolute()), HOST_TAG: socket.gethostname()}


def local_folder(tags: Mapping[str, str]) -> Path | None:
    """Return the folder of the search that has these tags, if it may be on this machine."""
    journal = tags.get(JOURNAL_TAG)
    if journal is None or tags.get(HOST_TAG) != socket.gethostname():
        return None
    return Path(journal).parent


def arguments_elsewhere(tags: Mapping[str, str]) -> str | None:
    """Return what names the search that has these tags in a command on the other machine.

    None where its folder may be on this machine, or where none is named.
    """
    if JOURNAL_TAG not in tags or local_folder(tags) is not None:
        return None
    folder = Path(tags[JOURNAL_TAG]).parent
    return f"{shlex.quote(folder.name)} --storage-path {shlex.quote(str(folder.parent))}"


def may_run(tags: Mapping[str, str]) -> bool:
    """Whether the driver of the search that has these tags may live.

    Of another machine's nobody here can tell.
    """
    if local_folder(tags) is None:
        return True
    lock = lock_of(Path(tags[JOURNAL_TAG]))
    return is_held(lock)
