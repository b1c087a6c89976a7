"""Passes a journal on to MLflow in the background, in order, in batches, whatever MLflow does.

It must not raise into its caller or make it wait. What a server missed comes again from the
journal: a watermark file holds the time of the last record that the store has, and records have
strictly growing times.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from elsa_tune.files import write_aside
from elsa_tune.tracking.connection import reason
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import Record, encode
from elsa_tune.tracking.mlflow_writer import MlflowStore, StoreGoneError
from elsa_tune.tracking.paths import without_credentials
from elsa_tune.tracking.sender import RefusedError, Sender

log = logging.getLogger(__name__)

_LARGEST_BATCH = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 15.0
# How often a store that lost our runs is filled again from the journal's beginning.
_REFILLS = 3


class Forwarder:
    """Sends a search's records to its store; make one per driver, after taking the journal's lock.

    journal: read once, for what the store has missed so far; later records come by `offer`.
    watermark: the file that remembers how far this journal has reached this store.
    """

    def __init__(self, journal: Path, store: MlflowStore, watermark: Path) -> None:
        self._journal, self._watermark = journal, watermark
        self._place = without_credentials(store.uri)
        self._sender = Sender(journal, store)
        self._pending: deque[Record] = deque()
        self._offered_until = 0.0
        self._wake = threading.Condition()
        self._closing_time: float | None = None
        self._refills = 0
        self._is_failing = False
        self._read_backlog(self._read_watermark())
        self._thread = threading.Thread(target=self._run, name="mlflow-forwarder", daemon=True)

    def start(self) -> Forwarder:
        """Begin to send; returns itself."""
        self._thread.start()
        return self

    def offer(self, record: Record) -> None:
        """Take one record that the journal has stamped; returns at once and never raises.

        A record that was in the journal when this forwarder was made is there already, and not
        taken twice.
        """
        with self._wake:
            if record.time > self._offered_until:
                self._offered_until = record.time
                self._pending.append(record)
                self._wake.notify()

    @property
    def lag(self) -> int:
        """Records that the store does not have yet."""
        return len(self._pending)

    def close(self, timeout_s: float = 30.0) -> int:
        """Send what is left, for at most so many seconds; returns how many records stay unsent.

        The next forwarder on this journal sends those.
        """
        with self._wake:
            self._closing_time = time.monotonic() + timeout_s
            self._wake.notify()
        if self._thread.is_alive():
            # A request that hangs is left behind with its thread: the watermark does not count it.
            self._thread.join(timeout_s)
        return self.lag

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._send_until_closed()
        except Exception as error:
            # Not even a fault of this thread may reach the search; the next driver sends the rest.
            log.error("MLflow gets no more records from this driver: %s", reason(error))

    def _send_until_closed(self) -> None:
        pause, size = _FIRST_PAUSE_S, _LARGEST_BATCH
        while self._wait_for_records():
            batch = self._next_batch(size)
            try:
                self._sender.send(batch)
                self._drop(batch)
                self._is_failing = False
                pause, size = _FIRST_PAUSE_S, min(size * 2, _LARGEST_BATCH)
            except RefusedError as error:
                if len(batch) > 1:
                    size = 1  # one by one, until the record that is refused stands alone
                else:
                    self._skip(batch, error)
            except StoreGoneError as error:
                if self._refills < _REFILLS:
                    self._note(error)
                    self._refill()
                else:
                    self._skip(batch[:1], error)
            except Exception as error:  # whatever fails is tried again, for as long as it takes
                self._note(error)
                # Halved, so that a flaky server lets something through.
                size = max(1, size // 2)
                self._pause(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _wait_for_records(self) -> bool:
        """True when there is something to send, False when the work is over."""
        with self._wake:
            while not self._pending and self._closing_time is None:
                self._wake.wait()
            is_late = self._closing_time is not None and time.monotonic() >= self._closing_time
            return bool(self._pending) and not is_late

    def _next_batch(self, size: int) -> list[Record]:
        with self._wake:
            return [self._pending[index] for index in range(min(size, len(self._pending)))]

    def _drop(self, batch: Sequence[Record]) -> None:
        with self._wake:
            for _ in batch:
                self._pending.popleft()
        self._write_watermark(batch[-1].time)

    def _skip(self, batch: Sequence[Record], error: BaseException) -> None:
        log.warning("MLflow refuses a record (%s): %s", reason(error), encode(batch[0]))
        self._drop(batch)

    def _note(self, error: BaseException) -> None:
        if not self._is_failing:
            log.info("MLflow did not take the record (%s); it will be sent again", reason(error))
        self._is_failing = True

    def _pause(self, seconds: float) -> None:
        """Wait, whatever is offered meanwhile; a closing cuts it short."""
        end = time.monotonic() + seconds
        with self._wake:
            while (left := end - time.monotonic()) > 0:
                if self._closing_time is not None:
                    end = min(end, time.monotonic() + _FIRST_PAUSE_S, self._closing_time)
                    left = end - time.monotonic()
                if left > 0:
                    self._wake.wait(left)

    # ---- where it stands -------------------------------------------------------------------------

    def _read_backlog(self, until: float) -> None:
        """Put every record after that time in the queue; learn from those before it."""
        self._sender.begin_again()
        self._pending.clear()
        for record in read_journal(self._journal):
            self._offered_until = max(self._offered_until, record.time)
            if record.time > until:
                self._pending.append(record)
            else:
                self._sender.learn(record)

    def _refill(self) -> None:
        """Begin again with the first record."""
        self._refills += 1
        with self._wake:
            waiting = list(self._pending)
            self._read_backlog(0.0)
            journalled = {record.time for record in self._pending}
            self._pending.extend(record for record in waiting if record.time not in journalled)

    def _read_watermark(self) -> float:
        """The time up to which this store has everything; 0 for a store never met before."""
        try:
            values = json.loads(self._watermark.read_text(encoding="utf-8"))
            return float(values["until"]) if values["tracking_uri"] == self._place else 0.0
        except (OSError, ValueError, KeyError, TypeError):
            # Without it everything is sent again, which changes nothing that is there.
            return 0.0

    def _write_watermark(self, until: float) -> None:
        text = json.dumps({"tracking_uri": self._place, "until": until})
        try:
            write_aside(self._watermark, text.encode())
        except OSError as error:
            # An older watermark makes a later driver send more, not less.
            self._note(error)
