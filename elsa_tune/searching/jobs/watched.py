"""A search watched from outside: its record or its job's log is read again and again.

Nothing is written, and whoever watches may leave: the search goes on.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich.live import Live
from rich.text import Text

from elsa_tune.errors import ElsaTuneError, UnknownNameError
from elsa_tune.searching.answering import provisional
from elsa_tune.searching.board import Board
from elsa_tune.searching.console import SafeConsole
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.specification import load_specification
from elsa_tune.sources.source import Question, has_specification
from elsa_tune.sources.stored import Stored
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.trial import QUALITY, TrialStatus
from elsa_tune.tracking.journal import is_held
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import MAX_TIME_TAG
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.tracking.store import local_folder
from elsa_tune.visible import visible
from elsa_tune.words import aligned, depth_cells, duration, points

# A journal is a file; a store is asked over a network.
JOURNAL_SECONDS = 1.0
STORE_SECONDS = 5.0
# How long something that has answered is asked again when it no longer does.
PATIENCE_SECONDS = 300.0
# With thousands of trials, reading them takes no more than this share of the time.
_READING_SHARE = 0.1

Found = TypeVar("Found")


class JournalReader:
    """Reads the journal of a search that somebody else writes, when it has changed."""

    def __init__(self, paths: SearchPaths) -> None:
        self._paths = paths
        self._seen: tuple[object, ...] = ()
        self._written = time.time()  # when its last record was, by the machine's clock
        self.state: SearchState
        self.took = 0.0  # seconds, the last time that it was read
        self.read()

    def read(self) -> SearchState:
        """Return what the journal says now. Raises StorageError where it cannot be read."""
        seen = self._signature()
        if seen != self._seen:
            began = time.monotonic()
            self.state = read_state(self._paths.journal)
            self.took = time.monotonic() - began
            self._seen = seen
        return self.state

    def now(self) -> float:
        """Return the time by the clock of its records, which may be behind the machine's."""
        since_then = max(0.0, time.time() - self._written)
        return self.state.time + since_then

    def _signature(self) -> tuple[object, ...]:
        """Return what differs once somebody has written, or the driver is gone."""
        is_driven = is_held(self._paths.lock)
        try:
            stat = self._paths.journal.stat()
        except OSError:
            return (is_driven,)
        self._written = stat.st_mtime
        return (is_driven, stat.st_size, stat.st_mtime_ns)


def watch_journal(paths: SearchPaths) -> SearchState:
    """Show a search from its journal until its session ends, and return how it stands then."""
    reader = JournalReader(paths)
    state = reader.state
    if not _runs(state):
        return state
    # A session that resumes may have another time than the search was begun with.
    max_time = state.search.tags.get(MAX_TIME_TAG)
    spec = replace(
        load_specification(paths),
        max_time=None if max_time is None else float(max_time),
    )
    Plan.of(spec, paths, state)  # raises for a record that does not name its trials
    plan = Plan(spec, lambda: reader.state, paths.folder)
    elapsed = max(0.0, reader.now() - state.search.time) if state.search.attempt else 0.0
    board = Board(
        spec,
        lambda: provisional(lambda: rows_of(reader.state, paths.folder), spec.target),
        elapsed=elapsed,
    )
    board.follow(plan, lambda: reader.state.gpu_hours(reader.now()), reader.now)
    ended = {trial.key for trial in plan.known if trial.is_final}
    with board:
        board.phase("watching; Ctrl-C leaves, and the search goes on")
        while _runs(state):
            time.sleep(_pause(JOURNAL_SECONDS, reader.took))
            state = reader.read()
            for trial in plan.known:
                if trial.is_final and trial.key not in ended:
                    ended.add(trial.key)
                    board.ended(trial)
    return state


def watch_store(tracking_uri: str, state: SearchState) -> tuple[SearchState, SearchPaths | None]:
    """Show a search from a store until its session ends, and return how it stands then.

    Where its journal lies on this machine, that is read instead: it is ahead, and knows the plan;
    its places are returned, too. state: what `stored` has found.
    """
    folder = local_folder(state.search.tags)
    if folder is not None and has_specification(folder):
        paths = SearchPaths(folder.parent, folder.name)
        return watch_journal(paths), paths
    search_id = state.search.search_id  # another may begin meanwhile under its name
    with Panel() as panel:
        while _runs(state):
            panel.show(stored_lines(state))
            began = time.monotonic()
            state = patiently(lambda: stored(tracking_uri, search_id), panel.show_line)
            took = time.monotonic() - began
            if _runs(state):
                time.sleep(_pause(STORE_SECONDS, took))
    return state, None


def patiently(
    ask: Callable[[], Found],
    say: Say,
    patience_s: float = PATIENCE_SECONDS,
) -> Found:
    """Return what is asked of something that has answered before, whether or not it does at once.

    say: is told the first time that it does not. Raises what the last try raised, and at once an
    UnknownNameError, which is an answer.
    """
    end = time.monotonic() + patience_s
    has_said = False
    while True:
        try:
            return ask()
        except UnknownNameError:
            raise
        except ElsaTuneError as error:
            if time.monotonic() >= end:
                raise
            if not has_said:
                has_said = True
                say(f"{error}; asking again for up to {duration(patience_s)}")
        time.sleep(min(STORE_SECONDS, patience_s))


def _runs(state: SearchState) -> bool:
    return state.status is SearchStatus.RUNNING


def _pause(seconds: float, took: float) -> float:
    return max(seconds, took / _READING_SHARE)


def stored(tracking_uri: str, name: str, storage: Path | None = None) -> SearchState:
    """Return the search of that name or id in a store.

    storage: the folder whose own search is meant where several have the name. Raises
    UnknownNameError without any, ResultsError where several may be meant.
    """
    store = Stored(tracking_uri, storage)
    searches = store.searches(Question(search=name))
    if not searches:
        names = {state.search.name for _, state in store.overview()}
        raise UnknownNameError.among("search", name, names)
    [*_, (_, latest)] = searches
    return latest


def stored_lines(state: SearchState) -> list[str]:
    """Return what is shown of a search whose plan is not known: a line, and a table by depth."""
    counts: dict[Candidate, Counter[TrialStatus]] = {}
    best: dict[Candidate, float] = {}
    layers: dict[Candidate, int] = {}
    for trial in state.planned_trials:
        facts = trial.facts
        candidate = facts.candidate
        counts.setdefault(candidate, Counter())[trial.status] += 1
        layers[candidate] = facts.layers or 0
        quality = trial.latest.get(QUALITY)
        if quality is not None:
            best[candidate] = max(quality, best.get(candidate, quality))
    search = state.search
    ended = len(state.final_trials)
    others = len(state.planned_trials) - ended
    lines = [
        f"{search.name}: {search.model} on {search.task}, {state.status_text}; trials: {ended} "
        f"ended, {others} begun"
    ]
    if not counts:
        return lines
    rows = [["frozen", "tuned", "ended", "running", "best quality"]]
    for candidate in sorted(counts, key=lambda one: one.rank):
        frozen, tuned = depth_cells(candidate, layers[candidate])
        by_status = counts[candidate]
        running = by_status[TrialStatus.RUNNING]
        final = sum(count for status, count in by_status.items() if status.is_final)
        rows.append([frozen, tuned, str(final), str(running), points(best.get(candidate))])
    return lines + aligned(rows, right=range(5)).splitlines()


class Panel:
    """Lines on stderr that take each other's place on a terminal; elsewhere the first is printed.

    There it is printed where it says something new.
    """

    def __init__(self) -> None:
        self._console = SafeConsole(sys.stderr)
        self._live: Live | None = None
        self._printed = ""

    def __enter__(self) -> "Panel":
        if self._console.is_interactive:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_line(self, line: str) -> None:
        """Show this line in place of all others."""
        self.show([line])

    def show(self, lines: list[str]) -> None:
        """Show these lines."""
        if self._live is not None:
            text = visible("\n".join(lines))
            self._live.update(Text(text, no_wrap=True), refresh=True)
        elif lines[0] != self._printed:
            self._printed = lines[0]
            self._console.print(Text(visible(lines[0])), soft_wrap=True)


def new_lines(read: Callable[[], str], is_over: Callable[[], bool]) -> Iterator[str]:
    """Yield the lines of a log that grows, each once it is complete, until nobody writes it."""
    taken = 0
    while True:
        was_over = is_over()  # asked first: it may say its last words meanwhile
        log = read()
        complete = log if was_over else log[: log.rfind("\n") + 1]
        yield from complete[taken:].splitlines()
        taken = max(taken, len(complete))
        if was_over:
            return
        time.sleep(JOURNAL_SECONDS)


def print_log(lines: Iterator[str], say: Say) -> None:
    """Print what a search says in its job's log, without what Ray says before it begins."""
    has_begun = False
    for line in lines:
        if has_begun:
            say(line)
        elif line.startswith("Running entrypoint for job "):
            has_begun = True
