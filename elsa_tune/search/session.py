"""One driver's time with a search: its lock and journal, MLflow's thread, the answer at the end.

It must not know how a search came to be: `launch` starts and resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import ElsaTuneError
from elsa_tune.search.board import Board
from elsa_tune.search.record import SearchRecord
from elsa_tune.search.run import SearchRun
from elsa_tune.search.specification import replace_specification
from elsa_tune.search.supervision import recording
from elsa_tune.search.tune.stopping import Interruption
from elsa_tune.search.tune.trainable import Train
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    SearchEnded,
    SearchStarted,
    SearchStatus,
)
from elsa_tune.tracking.mlflow_reader import is_lost
from elsa_tune.tracking.mlflow_writer import MlflowStore
from elsa_tune.tracking.names import REPORT
from elsa_tune.tracking.paths import SearchPaths, shown_uri
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.tracking.rows import histories_of, rows_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train as train_trial

ANSWER = "answer"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A session's end: how, with which answer, and where everything lies. unsent: records MLflow
    lacks.
    """

    spec: SearchSpec
    paths: SearchPaths
    status: SearchStatus
    message: str
    answers: tuple[Answer, ...]
    unsent: int = 0

    @property
    def tracking_uri(self) -> str:
        """The store of this session."""
        return self.spec.tracking_uri


def run_session(
    spec: SearchSpec,
    paths: SearchPaths,
    data: TaskData,
    store: MlflowStore,
    say: Say,
    train: Train = train_trial,
    *,
    changed: SearchSpec | None = None,
) -> Finished:
    """One driver's time with a search, from taking its lock to the last record.

    changed: takes the place of the specification that is saved; without what is this session's.
    """
    with Journal(paths.journal) as journal:
        recording(paths, store.uri)
        if changed is not None:
            replace_specification(changed, paths)
        earlier = read_journal(paths.journal)
        forwarder = Forwarder(paths.journal, store, paths.forwarded).start()
        record = SearchRecord(spec, paths, journal, forwarder, earlier, say)
        attempt = SearchState.replay(earlier).attempt + 1
        interruption = Interruption()
        status, message = SearchStatus.FAILED, ""
        with interruption.caught(say):
            try:
                record.write(_started(spec, attempt))
                board = Board(spec, lambda: record.known, lambda: _provisional(record.rows))
                with board:
                    outcome = SearchRun(spec, data, record, board, interruption, train).run()
                status, message = outcome.status, outcome.message
            except KeyboardInterrupt:
                status = SearchStatus.INTERRUPTED
            except BaseException as error:
                if interruption.requested:
                    # A terminal that is closed takes with it what the board would draw there.
                    status = SearchStatus.INTERRUPTED
                else:
                    message = shown_uri(f"{type(error).__name__}: {error}")
                raise
            finally:
                interruption.closing = True
                answers = answers_of(record.state(), paths, say)
                found = [answer_object(answer) for answer in answers]
                record.write(Decision(what=ANSWER, value=found))
                record.write(SearchEnded(status=status, message=message))
                if status in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
                    folder = _report(record.state(), paths, answers, say)
                    if folder is not None:
                        record.write(Decision(what=REPORT, value=folder))
                unsent = forwarder.close()
    return Finished(
        spec=spec,
        paths=paths,
        status=status,
        message=message,
        answers=tuple(answers),
        unsent=unsent,
    )


def answer_again(
    spec: SearchSpec,
    paths: SearchPaths,
    store: MlflowStore,
    say: Say,
    *,
    changed: SearchSpec | None = None,
) -> Finished:
    """A search that is whole: answered again, and given what its end did not come to, the report
    and records in MLflow. changed: as in `run_session`.
    """
    with Journal(paths.journal) as journal:
        if changed is not None:
            replace_specification(changed, paths)
        records = read_journal(paths.journal)
        state = SearchState.replay(records)
        answers = answers_of(state, paths, say)
        if not _is_drawn(records, paths):
            folder = _report(state, paths, answers, say)
            if folder is not None:
                journal.append(Decision(what=REPORT, value=folder))
        if is_lost(store.uri, spec.name, spec.search_id):
            paths.forwarded.unlink(missing_ok=True)
        forwarder = Forwarder(paths.journal, store, paths.forwarded)
        unsent = forwarder.start().close() if forwarder.lag else 0
    return Finished(
        spec=spec,
        paths=paths,
        status=SearchStatus.COMPLETED,
        message="it is complete: nothing is left to do",
        answers=tuple(answers),
        unsent=unsent,
    )


def _is_drawn(records: Sequence[Record], paths: SearchPaths) -> bool:
    """Whether there is a report of the last session's end; an earlier session's is none."""
    drawn = False
    for record in records:
        if isinstance(record, SearchEnded):
            drawn = False
        elif isinstance(record, Decision) and record.what == REPORT:
            drawn = True
    return drawn and paths.report.is_dir()


def _started(spec: SearchSpec, attempt: int) -> SearchStarted:
    asha = f"grace {spec.asha.grace}, factor {spec.asha.reduction_factor:g}" if spec.asha else "off"
    return SearchStarted(
        name=spec.name,
        search_id=spec.search_id,
        attempt=attempt,
        model=spec.model.name,
        task=spec.task.name,
        params={
            "space": spec.space,
            "layers": str(spec.layers),
            "depths": " ".join(depth.label for depth in spec.depths),
            "exploring_trials": str(spec.exploring_trials),
            "measuring_trials": str(spec.measuring_trials),
            "sampler": spec.sampler.value,
            "asha": asha,
            "seed": str(spec.seed),
            "train_examples": str(spec.train_examples),
            "holdout_examples": str(spec.holdout_examples),
            "evaluation_examples": str(spec.evaluation_examples),
            "chance": f"{spec.chance:.6g}",
            "comparison": spec.comparison,
        },
        tags={
            **spec.versions,
            **{f"fingerprint.{name}": value for name, value in spec.fingerprints.items()},
            "cpus_per_trial": f"{spec.resources.cpus:g}",
            "gpus_per_trial": f"{spec.resources.gpus:g}",
        },
    )


def answers_of(state: SearchState, paths: SearchPaths, say: Say) -> list[Answer]:
    """The answer so far; results that cannot be answered are said, never a reason to lose the
    record.
    """
    try:
        rows = rows_of(state, paths.folder)
        return answer_rows(rows, evidence=KeptPredictions(rows, paths.folder))
    except ElsaTuneError as error:
        say(str(error))
    except Exception as error:  # whatever an answer meets must not cost the search its end
        say(f"no answer could be computed: {type(error).__name__}: {error}")
    return []


def _report(
    state: SearchState, paths: SearchPaths, answers: Sequence[Answer], say: Say
) -> str | None:
    """Write the page and figures; returns their folder, relative to the search's."""
    from elsa_tune.report.folder import write_report

    try:
        write_report(
            answers,
            rows_of(state, paths.folder),
            histories_of(state),
            paths.report,
            command=f"elsa-tune report --search {paths.name} --out DIR",
        )
    except Exception as error:  # a drawing must never cost a search its end
        say(f"no report was drawn: {type(error).__name__}: {error}")
        return None
    return paths.report.name


def _provisional(rows: Callable[[], list[ResultRow]]) -> str | None:
    try:
        answers = answer_rows(rows())
    except Exception:  # as in answers_of
        return None
    return answers[0].sentence if answers else None
