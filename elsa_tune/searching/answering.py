"""What a search has found, computed and drawn from its record; nothing here needs Ray."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ElsaTuneError, TrackingError
from elsa_tune.searching.output import Say
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, SearchStatus
from elsa_tune.tracking.mlflow_reader import is_lost
from elsa_tune.tracking.mlflow_writer import MlflowStore
from elsa_tune.tracking.names import REPORT
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, origin_of, rows_of
from elsa_tune.tracking.state import SearchState


@dataclass(frozen=True, slots=True)
class Finished:
    """How a session ended, with which answers, and where they lie. unsent: records MLflow lacks.
    why_unsent: what it said last, and what to do; "" for nothing.
    unwritten: what the journal lacks for want of room, and where it is, in a sentence; mostly "".
    """

    spec: SearchSpec
    paths: SearchPaths
    status: SearchStatus
    message: str
    answers: tuple[Answer, ...]
    unsent: int = 0
    why_unsent: str = ""
    unwritten: str = ""

    @property
    def unsent_words(self) -> str:
        """How much MLflow lacks, and why; "" for nothing."""
        if not self.unsent:
            return ""
        why = f", which {self.why_unsent}" if self.why_unsent else ""
        records = "1 record" if self.unsent == 1 else f"{self.unsent} records"
        return f"{records} did not reach MLflow at {self.spec.tracking_uri}{why}"


def answer_again(spec: SearchSpec, paths: SearchPaths, store: MlflowStore, say: Say) -> Finished:
    """Answer a complete search again, and add what is missing: report and records in MLflow."""
    with Journal(paths.journal) as journal:
        state = SearchState.replay(journal.earlier)
        answers = answers_of(spec, state, paths, SearchStatus.COMPLETED, say)
        answers_us = True
        try:
            if is_lost(store.uri, spec.search_id):
                paths.forwarded.unlink(missing_ok=True)
        except TrackingError as error:
            answers_us = False
            say(f"{error}; this answer is the journal's")
        forwarder = Forwarder(paths, store, journal.earlier)
        is_there = REPORT in state.decisions and paths.report.is_dir()
        if not is_there and has_drawn(state, paths, answers, say):
            record = journal.stamp(Decision(what=REPORT, value=paths.report.name))
            try:
                forwarder.offer(journal.append(record))
            except ElsaTuneError as error:  # a full disk must not cost the answer
                say(str(error))
        unsent = forwarder.lag
        if unsent and answers_us:
            say(f"sending {unsent} records to MLflow")
            unsent = forwarder.start().finish()
    message = "it is complete: nothing is left to do"
    status, why = SearchStatus.COMPLETED, forwarder.trouble
    return Finished(spec, paths, status, message, tuple(answers), unsent, why)


def answers_of(
    spec: SearchSpec, state: SearchState, paths: SearchPaths, status: SearchStatus, say: Say
) -> list[Answer]:
    """The answer so far; that results cannot be answered is said, and costs no record.

    status: how the session ends.
    """
    try:
        curves = freeze_curves(rows_of(state, paths.folder), KeptPredictions(), target=spec.target)
        known = [replace(one, search_arguments=paths.arguments) for one in curves]
        if status is not SearchStatus.COMPLETED:
            text = f"search '{spec.name}' is not complete; `{paths.resume}` goes on"
            warning = AnswerWarning(WarningCode.INCOMPLETE, text)
            known = [replace(one, warnings=(warning, *one.warnings)) for one in known]
        return answer_curves(known, spec.target)
    except ElsaTuneError as error:
        say(str(error))
    except Exception as error:  # whatever an answer meets must not cost the search its end
        say(f"no answer could be computed: {type(error).__name__}: {error}")
    return []


def has_drawn(state: SearchState, paths: SearchPaths, answers: Sequence[Answer], say: Say) -> bool:
    """Write the page and figures; whether that went well."""
    from elsa_tune.report.page import write_report

    command = f"elsa-tune report {paths.arguments} --out DIR"
    origins = {paths.name: origin_of(state)}
    try:
        write_report(answers, rows_of(state, paths.folder), paths.report, command, origins)
    except Exception as error:  # a drawing must never cost a search its end
        say(f"no report was drawn: {type(error).__name__}: {error}")
        return False
    return True
