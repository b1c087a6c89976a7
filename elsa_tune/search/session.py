"""One driver's time with a search: its lock and journal, MLflow's thread, the answer at the end."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from elsa_tune.analysis.answer import DEFAULT_TARGET, Answer
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.errors import ElsaTuneError
from elsa_tune.search.board import Board
from elsa_tune.search.record import SearchRecord
from elsa_tune.search.run import SearchRun
from elsa_tune.search.supervision import recording
from elsa_tune.search.tune.stopping import Interruption
from elsa_tune.search.tune.trainable import Train
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.journal_records import (
    Decision,
    SearchEnded,
    SearchStarted,
    SearchStatus,
)
from elsa_tune.tracking.mlflow_reader import is_lost
from elsa_tune.tracking.mlflow_writer import MlflowStore
from elsa_tune.tracking.names import ANSWER, DESCRIPTION, MACHINE_TAG, REPORT
from elsa_tune.tracking.paths import SearchPaths, shown_uri
from elsa_tune.tracking.rows import KeptPredictions, origin_of, rows_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train as train_trial

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
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


def run_session(
    spec: SearchSpec,
    paths: SearchPaths,
    data: TaskData,
    store: MlflowStore,
    train: Train = train_trial,
) -> Finished:
    """One driver's time with a search, from taking its lock to the last record."""
    with Journal(paths.journal) as journal:
        recording(paths, store.uri)
        earlier = read_journal(paths.journal)
        forwarder = Forwarder(paths.journal, store, paths.forwarded).start()
        board = Board(spec, lambda: record.known, lambda: _provisional(record.rows))
        record = SearchRecord(spec, paths, journal, forwarder, earlier, board.say)
        attempt = record.state().search.attempt + 1
        interruption = Interruption()
        status, message = SearchStatus.FAILED, ""
        with interruption.caught(board.stopping), board:
            try:
                record.write(_started(spec, attempt))
                outcome = SearchRun(data, record, board, interruption, train).run()
                status, message = outcome.status, outcome.message
            except KeyboardInterrupt:
                status = SearchStatus.INTERRUPTED
            except BaseException as error:
                if interruption.requested:
                    # Whatever a search meets whose Ray or terminal is gone.
                    status = SearchStatus.INTERRUPTED
                else:
                    message = shown_uri(f"{type(error).__name__}: {error}")
                raise
            finally:
                interruption.closing = True
                board.phase("answering")
                answers = answers_of(record.state(), paths, board.say)
                found = [answer_object(answer) for answer in answers]
                record.write(Decision(what=ANSWER, value=found))
                told = "\n\n".join(answer_markdown(answer) for answer in answers)
                record.write(Decision(what=DESCRIPTION, value=told))
                record.write(SearchEnded(status=status, message=message))
                if status in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
                    board.phase("drawing the report")
                    folder = _report(record.state(), paths, answers, board.say)
                    if folder is not None:
                        record.write(Decision(what=REPORT, value=folder))
                unsent = forwarder.close()
    return Finished(spec, paths, status, message, tuple(answers), unsent)


def answer_again(
    spec: SearchSpec,
    paths: SearchPaths,
    store: MlflowStore,
    say: Say,
) -> Finished:
    """A search that is whole: answered again, and given what its end did not come to, the report
    and records in MLflow.
    """
    with Journal(paths.journal) as journal:
        state = SearchState.replay(read_journal(paths.journal))
        answers = answers_of(state, paths, say)
        if REPORT not in state.decisions or not paths.report.is_dir():
            folder = _report(state, paths, answers, say)
            if folder is not None:
                journal.append(Decision(what=REPORT, value=folder))
        if is_lost(store.uri, spec.search_id):
            paths.forwarded.unlink(missing_ok=True)
        forwarder = Forwarder(paths.journal, store, paths.forwarded)
        unsent = forwarder.start().close() if forwarder.lag else 0
    message = "it is complete: nothing is left to do"
    return Finished(spec, paths, SearchStatus.COMPLETED, message, tuple(answers), unsent)


def _started(spec: SearchSpec, attempt: int) -> SearchStarted:
    asha = "off"
    if spec.asha is not None:
        grace = spec.asha.grace_of(spec.recipe.evaluations)
        asha = f"grace {grace}, factor {spec.asha.reduction_factor:g}"
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
            "target": f"{DEFAULT_TARGET:g}",
        },
        tags={
            **spec.versions,
            **{f"fingerprint.{name}": value for name, value in spec.fingerprints.items()},
            MACHINE_TAG: _machine(spec),
            "cpus_per_trial": f"{spec.resources.cpus:g}",
            "gpus_per_trial": f"{spec.resources.gpus:g}",
        },
    )


def _machine(spec: SearchSpec) -> str:
    """The driver's machine, e.g. `lab3, 16 cores, NVIDIA H200`."""
    parts = [platform.node(), f"{os.cpu_count()} cores"]
    if spec.resources.gpus and torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def answers_of(state: SearchState, paths: SearchPaths, say: Say) -> list[Answer]:
    """The answer so far; results that cannot be answered are said, never a reason to lose the
    record.
    """
    try:
        rows = rows_of(state, paths.folder)
        return answer_rows(rows, evidence=KeptPredictions())
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
    from elsa_tune.report.page import Context

    try:
        write_report(
            answers,
            rows_of(state, paths.folder),
            paths.report,
            Context(
                command=f"elsa-tune report --search {paths.name} --out DIR",
                origins={paths.name: origin_of(state)},
            ),
        )
    except Exception as error:  # a drawing must never cost a search its end
        say(f"no report was drawn: {type(error).__name__}: {error}")
        return None
    return paths.report.name


def _provisional(rows: Callable[[], list[ResultRow]]) -> str | None:
    """The answer so far; None while there is none."""
    try:
        answers = answer_rows(rows())
    except Exception:  # as in answers_of
        return None
    if not answers:
        return None
    # What the plan has yet to measure is no reason against an answer.
    return answers[0].sentence if answers[0].is_answered else "not yet"
