"""One driver's session with a search: the plan carried out by Ray Tune, and the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.comparing.comparison_json import comparison_object
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.analysis.wording.comparison_tables import comparison_markdown
from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.errors import RunError
from elsa_tune.searching.answering import (
    Finished,
    answers_of,
    comparisons_of,
    has_drawn,
    provisional,
)
from elsa_tune.searching.board import Board
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.process.interruption import Interruption
from elsa_tune.searching.process.supervision import recording
from elsa_tune.searching.record import SearchRecord, started
from elsa_tune.searching.search_run import SearchRun
from elsa_tune.searching.tune.trainable import Train, train_here
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.artifacts.copier import copies_of
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import ANSWER, COMPARISON, DESCRIPTION, REPORT
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.uris import hidden
from elsa_tune.training.checkpoints import FolderCheckpoints
from elsa_tune.training.data.tokens import TaskData

# With more than this left to send, the wait is announced.
_MANY_RECORDS = 100


def run_session(
    spec: SearchSpec,
    journal: Journal,
    data: TaskData,
    store: RecordStore,
    trained: Callable[[], object] = lambda: None,
    train: Train = train_here,
) -> Finished:
    """Run one session, from its first record to its last.

    journal: the search's, which the caller holds. trained: called as soon as Ray is no longer
    needed. Raises RunError where every trial failed, or where another search has the place of this
    one.
    """
    folder = journal.path.parent
    paths = SearchPaths(folder.parent, folder.name)
    recording(paths, store.uri)
    session = _Session(spec, paths, journal, store)
    with session.interruption.caught(session.board.stopping), session.board:
        try:
            session.carry_out(data, train, trained)
        finally:
            closing = session.close()
    if session.record.taken is not None:
        raise RunError(session.record.taken)
    return session.finished(closing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closing:
    """What a session answered at its end, and what its record still lacks."""

    answers: Sequence[Answer]
    comparisons: Sequence[WayComparison]
    unsent: int  # records that the store lacks
    unwritten: str  # what the journal lacks, in a sentence; "" for nothing
    uncopied: str  # what the copy of the record lacks, likewise


class _Session:
    """What records, shows and ends one session of a search, and how that has ended so far."""

    def __init__(
        self, spec: SearchSpec, paths: SearchPaths, journal: Journal, store: RecordStore
    ) -> None:
        self._spec = spec
        self._paths = paths
        self._store = store
        self._sink = store.sink(paths.journal)
        self.board = Board(spec, self._provisional)
        self._forwarder = Forwarder(
            paths, self._sink, journal.earlier, journal.is_taken, self.board.say
        ).start()
        self.record = SearchRecord(spec, paths, journal, self._forwarder, self.board.say)
        self._copies = copies_of(spec.artifacts, paths, self.board.say, journal.is_taken)
        self.record.listeners.append(self._copies.offer)
        self._plan = Plan(spec, self.record.state, paths.folder)
        self.board.follow(
            self._plan,
            self.record.gpu_hours,
            self.record.now,
            FolderCheckpoints(paths.checkpoints).saved,
        )
        self._attempt = self.record.state().search.attempt + 1
        self.interruption = Interruption()
        # How it ends: a failure, until its run or an interruption says otherwise.
        self._status = SearchStatus.FAILED
        self._message = ""
        self._has_raised = False

    def _provisional(self) -> str | None:
        return provisional(self.record.rows, self._spec.target)

    def carry_out(self, data: TaskData, train: Train, trained: Callable[[], object]) -> None:
        """Do what is left of the plan, and note how that ended; Ctrl-C twice raises nothing."""
        try:
            self.record.write(started(self._spec, self._attempt))
            run = SearchRun(data, self.record, self._plan, self.board, self.interruption, train)
            ended = run.run()
            self._status = ended.status
            self._message = ended.message
            trained()
        except KeyboardInterrupt:
            self._status = SearchStatus.INTERRUPTED
        except BaseException as error:
            if self.interruption.requested:
                # Whatever a search meets whose Ray or terminal is gone.
                self._status = SearchStatus.INTERRUPTED
            else:
                kind = type(error).__name__
                self._message = hidden(f"{kind}: {error}", self._store.uri)
            self._has_raised = True
            raise

    def close(self) -> _Closing:
        """Answer, and wait a while until what is left is sent, written and copied."""
        self.interruption.closing = True
        answers, comparisons = _answered(self.record, self.board, self._status, self._message)
        unsent = self._unsent()
        unwritten = self.record.settled(lambda: self.interruption.is_hurried)
        uncopied = self._copies.close(lambda: self.interruption.ends_waits)
        if self._has_raised or self.record.taken is not None:
            # Then no `Finished` is returned, which would tell of it.
            for lack in filter(None, (unwritten, uncopied)):
                self.board.say(lack)
        return _Closing(
            answers=answers,
            comparisons=comparisons,
            unsent=unsent,
            unwritten=unwritten,
            uncopied=uncopied,
        )

    def _unsent(self) -> int:
        """Send the store what it lacks, unless somebody is in a hurry; return how much is left."""
        if self.interruption.requested:
            return self._forwarder.close()
        if self._forwarder.lag > _MANY_RECORDS:
            self.board.say(f"sending {self._forwarder.lag:,} records to {self._sink.name}")
        return self._forwarder.finish(lambda: self.interruption.ends_waits)

    def finished(self, closing: _Closing) -> Finished:
        """Return what whoever began the session is told."""
        why_unsent = self._forwarder.trouble
        return Finished(
            self._spec,
            self._paths,
            self._status,
            self._message,
            answers=tuple(closing.answers),
            comparisons=tuple(closing.comparisons),
            unsent=closing.unsent,
            why_unsent=why_unsent,
            gpu_hours=self.record.gpu_hours(),
            unwritten=closing.unwritten,
            uncopied=closing.uncopied,
        )


def _answered(
    record: SearchRecord, board: Board, status: SearchStatus, message: str
) -> tuple[Sequence[Answer], Sequence[WayComparison]]:
    """Answer a session's search, record that and the session's end, and draw the report."""
    board.phase("answering")
    paths = record.paths
    answers = answers_of(record.spec, record.state(), paths, status, board.say)
    objects = [answer_object(answer) for answer in answers]
    record.write(Decision(what=ANSWER, value=objects))
    comparisons = comparisons_of(record.spec, record.state(), paths, status, board.say)
    if comparisons:
        compared = [comparison_object(comparison) for comparison in comparisons]
        record.write(Decision(what=COMPARISON, value=compared))
    texts = [comparison_markdown(comparison) for comparison in comparisons]
    texts += [answer_markdown(answer) for answer in answers]
    description = "\n\n".join(texts)
    record.write(Decision(what=DESCRIPTION, value=description))
    record.write(SearchEnded(status=status, message=message))
    has_place = record.taken is None
    if has_place and status in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
        board.phase("drawing the report")
        if has_drawn(record.state(), paths, answers, comparisons, board.say):
            report = Decision(what=REPORT, value=paths.report.name)
            record.write(report)
    return answers, comparisons
