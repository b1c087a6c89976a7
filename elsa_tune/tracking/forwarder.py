"""Passes a journal on to a store in the background; never raises into its caller or blocks it."""

import itertools
import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from elsa_tune.files import write_aside
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchStarted,
    encode,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import (
    AccessRefusedError,
    FileUnsentError,
    RecordSink,
    RefusedError,
    StoreGoneError,
)
from elsa_tune.tracking.uris import hidden, reason, shown_uri, without_credentials
from elsa_tune.tracking.waiting import Waited

log = logging.getLogger(__name__)

# Reports of one trial that travel together, at most.
_LARGEST_BATCH = 200
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 15.0
_BETWEEN_MARKS_S = 1.0
# How often a store that lost runs of ours is filled again from the journal's beginning.
_REFILLS = 3


class Forwarder:
    """Sends a search's records to its store; make one per driver, after taking the journal's lock.

    sink: of that journal. records: the journal's so far, where they were read already; later ones
    come by `offer`. is_taken: whether another search has the folder by now, from which nothing is
    read then, and where nothing is written; what was offered is sent all the same. say: is told
    the first time that the store refuses access, which the end may be hours too late for.
    """

    def __init__(
        self,
        paths: SearchPaths,
        sink: RecordSink,
        records: Sequence[Record] | None = None,
        is_taken: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._journal = paths.journal
        self._watermark = paths.forwarded  # how far this journal has reached this store
        self._sink = sink
        self._is_taken = is_taken
        self._say = say
        self._has_said_refusal = False
        self._uri = sink.uri
        self._place = without_credentials(sink.uri)
        self._pending: deque[Record] = deque()
        self.sent = SearchState()  # what the store is said to have had when it was begun with
        self._wake = threading.Condition()
        self._closing_time: float | None = None
        self._refills = 0
        self._marked = 0.0  # when the watermark was written, by the monotonic clock
        self._error: Exception | None = None
        # Of records that were sent without their file: how many, since when, and why the last one.
        self._without_file = 0
        self._without_file_since = math.inf
        self._file_error: Exception | None = None
        everything = read_journal(self._journal) if records is None else records
        self._take_backlog(everything, self._read_watermark())
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)

    def start(self) -> Self:
        """Begin to send; returns itself."""
        self._thread.start()
        return self

    def offer(self, record: Record) -> None:
        """Take one record that the journal has stamped since; returns at once and never raises."""
        with self._wake:
            self._pending.append(record)
            self._wake.notify()

    @property
    def lag(self) -> int:
        """Records that the store does not have yet, or without the file that they name."""
        return len(self._pending) + self._without_file

    @property
    def trouble(self) -> str:
        """Why the store lacks what was offered, and what to do; "" if it took it."""
        error = self._error or self._file_error
        if error is None:
            return ""
        try:
            return hidden(self._sink.trouble(error), self._uri)
        except Exception:  # a sink is anybody's, and this never raises
            return f"did not take them ({reason(error, self._uri)})"

    def finish(
        self, is_hurried: Callable[[], bool] = lambda: False, patience_s: float = 30.0
    ) -> int:
        """Send everything, unless nothing arrives for that long; returns what `close` does.

        is_hurried: whether to wait no longer.
        """
        self._end_by(math.inf)
        lag = self.lag
        silence = Waited()
        while self.lag and self._thread.is_alive() and silence.look() < patience_s:
            if is_hurried():
                break
            time.sleep(0.05)
            # Fewer of them; or more, where the store was emptied and gets everything again.
            if self.lag != lag:
                lag = self.lag
                silence.begin_again()
        return self.close(0.0 if self.lag else patience_s)

    def close(self, timeout_s: float = 30.0) -> int:
        """Send what is left for at most that long; returns how many records the next one sends."""
        self._end_by(time.monotonic() + timeout_s)
        if self._thread.is_alive():
            # A request that hangs is left behind with its thread: the watermark does not count it.
            self._thread.join(timeout_s)
        return self.lag

    def _end_by(self, closing_time: float) -> None:
        """Let the thread end once everything is sent, or at this time of the monotonic clock."""
        with self._wake:
            self._closing_time = closing_time
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._send_until_closed()
        except Exception as error:
            # Not even a fault of this thread may reach the search; the next driver sends the rest.
            why = reason(error, self._uri)
            log.error("%s gets no more records from this driver: %s", self._sink.name, why)

    def _send_until_closed(self) -> None:
        pause = _FIRST_PAUSE_S
        size = _LARGEST_BATCH
        while self._wait_for_records():
            batch = self._next_batch(size)
            try:
                self._send(batch)
                self._error = None
                pause = _FIRST_PAUSE_S
                size = _LARGEST_BATCH
            except RefusedError as error:
                if len(batch) > 1:
                    size = 1  # one by one, until the report that is refused stands alone
                else:
                    pause = self._give_up(batch, error, pause)
            except StoreGoneError as error:
                if self._refills < _REFILLS:
                    self._note(error)
                    self.refill()
                else:
                    pause = self._give_up(batch[:1], error, pause)
            except Exception as error:  # whatever fails is tried again, for as long as it takes
                pause = self._wait_to_try_again(error, pause)

    def _send(self, batch: Sequence[Record]) -> None:
        """Send records, and drop them. Where only a file lacks, the next driver sends them, too."""
        try:
            self._sink.send(batch)
        except FileUnsentError as error:
            self._without_file += 1
            self._without_file_since = min(self._without_file_since, batch[0].time)
            self._file_error = error
        self._drop(batch)

    def _wait_for_records(self) -> bool:
        """Return True when there is something to send, False when the work is over."""
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._closing_time is not None)
            if self._closing_time is not None and time.monotonic() >= self._closing_time:
                return False
            return bool(self._pending)

    def _next_batch(self, size: int) -> list[Record]:
        """Return the next record.

        With a report those that its trial made before anything else of it.
        """
        with self._wake:
            first = self._pending[0]
            if not isinstance(first, Report):
                return [first]
            batch: list[Record] = []
            for record in itertools.islice(self._pending, size):
                if getattr(record, "trial", None) != first.trial:
                    continue
                if not isinstance(record, Report):
                    break
                batch.append(record)
            return batch

    def _drop(self, batch: Sequence[Record]) -> None:
        with self._wake:
            for record in batch:
                self._pending.remove(record)
            # What was sent ahead of other records may come once more, which changes nothing.
            until = batch[0].time if self._pending else batch[-1].time
            if self._pending and time.monotonic() < self._marked + _BETWEEN_MARKS_S:
                return  # each mark waits for the disk; an older one makes a later driver send more
        self._marked = time.monotonic()
        if until >= self._without_file_since:
            until = math.nextafter(self._without_file_since, 0.0)
        if self._is_taken():
            return
        text = json.dumps({"tracking_uri": self._place, "until": until})
        try:
            write_aside(self._watermark, text.encode(), is_private=True)
        except OSError as error:
            # An older watermark makes a later driver send more, not less.
            name = self._sink.name
            log.info("how far %s has the journal is not noted (%s)", name, reason(error))

    def _give_up(self, batch: Sequence[Record], error: Exception, pause: float) -> float:
        """Skip a record that the store does not take; returns the pause before the next try.

        A session's start is tried on: without it the store takes no record of that session.
        """
        if isinstance(batch[0], SearchStarted):
            return self._wait_to_try_again(error, pause)
        self._skip(batch, error)
        return pause

    def _wait_to_try_again(self, error: Exception, pause: float) -> float:
        """Wait before the same records are sent again; returns the pause after that, a longer."""
        self._note(error)
        with self._wake:  # whatever is offered meanwhile; a closing cuts it short
            self._wake.wait_for(lambda: self._closing_time is not None, pause)
        if self._closing_time is not None:
            time.sleep(min(pause, _FIRST_PAUSE_S))
        return min(pause * 2, _LONGEST_PAUSE_S)

    def _skip(self, batch: Sequence[Record], error: BaseException) -> None:
        why = reason(error, self._uri)
        text = encode(batch[0])
        log.warning("%s refuses a record (%s): %s", self._sink.name, why, text)
        self._drop(batch)

    def _note(self, error: Exception) -> None:
        self._error = error
        why = reason(error, self._uri)
        name = self._sink.name
        log.info("%s did not take the record (%s); it will be sent again", name, why)
        if isinstance(error, AccessRefusedError):
            self._say_refusal()

    def _say_refusal(self) -> None:
        """Say once that the store refuses access, unless the search ends, which says it, too."""
        if self._has_said_refusal or self._closing_time is not None:
            return
        self._has_said_refusal = True
        line = (
            f"{self._sink.name} at {shown_uri(self._uri)} {self.trouble}; the search goes on, its "
            "journal has all, and what is missing is sent as soon as that is mended"
        )
        try:
            self._say(line)
        except Exception as error:  # a terminal that is gone
            log.info("%s (%s)", line, reason(error))

    def _take_backlog(self, records: Sequence[Record], until: float) -> None:
        """Put every record after that time in the queue; learn from those before it."""
        self._sink.begin_again()
        self.sent = SearchState()
        self._pending.clear()
        self._without_file = 0
        self._without_file_since = math.inf
        self._file_error = None
        for record in records:
            if record.time > until:
                self._pending.append(record)
            else:
                self._sink.learn(record)
                self.sent.add(record)

    def refill(self) -> None:
        """Begin again with the first record: the store lacks some of what it was sent."""
        self._refills += 1
        if self._is_taken():
            return
        with self._wake:
            waiting = list(self._pending)
            self._take_backlog(read_journal(self._journal), 0.0)
            journalled = {record.time for record in self._pending}
            self._pending.extend(record for record in waiting if record.time not in journalled)

    def _read_watermark(self) -> float:
        """Return the time up to which this store has everything; 0 for a store never met before."""
        try:
            text = self._watermark.read_text(encoding="utf-8")
            values = json.loads(text)
            if values["tracking_uri"] != self._place:
                return 0.0
            return float(values["until"])
        except (OSError, ValueError, KeyError, TypeError):
            # Without it everything is sent again, which changes nothing that is there.
            return 0.0
