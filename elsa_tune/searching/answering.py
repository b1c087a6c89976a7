"""The answer of a search, computed and drawn from its record; nothing here needs Ray."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import WayComparison, way_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ElsaTuneError, TrackingError
from elsa_tune.searching.output import Say
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Decision, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import REPORT
from elsa_tune.tracking.rows import KeptPredictions, origin_of, rows_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.stores import store_at


@dataclass(frozen=True, slots=True)
class Finished:
    """How a session of a search ended, and with which answers."""

    spec: SearchSpec
    paths: SearchPaths  # where its record lies
    status: SearchStatus
    message: str  # why it ended so
    answers: tuple[Answer, ...]
    comparisons: tuple[WayComparison, ...] = ()  # of the ways beside freezing, where there are any
    unsent: int = 0  # records that the store lacks
    why_unsent: str = ""  # what the store said last, and what to do; "" for nothing
    gpu_hours: float = 0.0  # that the search has used, in all its sessions
    # What the journal lacks for want of room, and where it is, in a sentence; mostly "".
    unwritten: str = ""
    uncopied: str = ""  # what the copy of the record lacks and why, in a sentence; mostly ""

    @property
    def compares_depths(self) -> bool:
        """Whether the search has an answer to give of freeze depths."""
        for candidate in self.spec.candidates:
            if candidate.is_ranked and not candidate.is_reference:
                return True
        return not self.comparisons

    @property
    def is_answered(self) -> bool:
        """Whether anything that the search was asked has an answer."""
        has_operating_point = any(answer.operating_point for answer in self.answers)
        return has_operating_point or any(found.is_answered for found in self.comparisons)

    @property
    def unsent_words(self) -> str:
        """Write how much the store lacks, and why; "" for nothing."""
        if not self.unsent:
            return ""
        why = f", which {self.why_unsent}" if self.why_unsent else ""
        records = "1 record" if self.unsent == 1 else f"{self.unsent} records"
        uri = self.spec.tracking_uri
        return f"{records} did not reach {store_at(uri).name} at {uri}{why}"


def answer_again(
    spec: SearchSpec, paths: SearchPaths, journal: Journal, store: RecordStore, say: Say
) -> Finished:
    """Answer a complete search again, and add what is missing: report and records in the store.

    journal: the search's, which the caller holds.
    """
    state = SearchState.replay(journal.earlier)
    answers = answers_of(spec, state, paths, SearchStatus.COMPLETED, say)
    comparisons = comparisons_of(spec, state, paths, SearchStatus.COMPLETED, say)
    forwarder = Forwarder(paths, store.sink(paths.journal), journal.earlier)
    is_store_up = True
    try:
        if store.lacks(forwarder.sent):
            forwarder.refill()
    except TrackingError as error:
        is_store_up = False
        say(f"{error}; this answer is the journal's")
    has_report = REPORT in state.decisions and paths.report.is_dir()
    if not has_report and has_drawn(state, paths, answers, comparisons, say):
        record = journal.stamp(Decision(what=REPORT, value=paths.report.name))
        try:
            forwarder.offer(journal.append(record))
        except ElsaTuneError as error:  # a full disk must not cost the answer
            say(str(error))
    unsent = forwarder.lag
    if unsent and is_store_up:
        say(f"sending {unsent} records to {store.name}")
        unsent = forwarder.start().finish()
    return Finished(
        spec,
        paths,
        status=SearchStatus.COMPLETED,
        message="it is complete: nothing is left to do",
        answers=tuple(answers),
        comparisons=tuple(comparisons),
        unsent=unsent,
        why_unsent=forwarder.trouble,
    )


def answers_of(
    spec: SearchSpec, state: SearchState, paths: SearchPaths, status: SearchStatus, say: Say
) -> list[Answer]:
    """Return the answer so far; where there can be none, say why, and lose no record.

    status: how the session ends.
    """
    try:
        rows = rows_of(state, paths.folder)
        curves = freeze_curves(rows, KeptPredictions(), target=spec.target)
        of_search = [_of_search(curve, paths, status) for curve in curves]
        return answer_curves(of_search, spec.target)
    except ElsaTuneError as error:
        say(str(error))
    except Exception as error:  # whatever an answer meets must not cost the search its end
        say(f"no answer could be computed: {type(error).__name__}: {error}")
    return []


def provisional(rows: Callable[[], list[ResultRow]], target: float) -> str | None:
    """Return the answer so far; None while there is none."""
    try:
        answers = answer_rows(rows(), target)
    except Exception:  # as in answers_of
        return None
    # What the plan has yet to measure is no reason against an answer.
    for answer in answers:
        return answer.first_lines.headline if answer.is_answered else "not yet"
    return None


def comparisons_of(
    spec: SearchSpec, state: SearchState, paths: SearchPaths, status: SearchStatus, say: Say
) -> list[WayComparison]:
    """Return the comparison of a search's ways so far; none where it has freeze depths alone.

    status: how the session ends. Whatever goes wrong is said, as in `answers_of`.
    """
    if all(candidate.is_ranked for candidate in spec.candidates):
        return []
    try:
        rows = rows_of(state, paths.folder)
        curves = way_curves(rows, KeptPredictions())
        return [compare_ways(_of_search(curve, paths, status)) for curve in curves]
    except ElsaTuneError as error:
        say(str(error))
    except Exception as error:  # whatever a comparison meets must not cost the search its end
        say(f"the ways could not be compared: {type(error).__name__}: {error}")
    return []


def _of_search(curve: FreezeCurve, paths: SearchPaths, status: SearchStatus) -> FreezeCurve:
    """Return a curve that knows which search it is of, and whether that is complete."""
    warnings = curve.warnings
    if status is not SearchStatus.COMPLETED:
        text = f"search '{paths.name}' is not complete; `{paths.resume}` goes on"
        warnings = (AnswerWarning(WarningCode.INCOMPLETE, text), *warnings)
    return replace(curve, search_arguments=paths.arguments, warnings=warnings)


def has_drawn(
    state: SearchState,
    paths: SearchPaths,
    answers: Sequence[Answer],
    comparisons: Sequence[WayComparison],
    say: Say,
) -> bool:
    """Write the report's page and figures, and return whether that went well."""
    from elsa_tune.report.folder import write_report

    command = f"elsa-tune report {paths.arguments} --out DIR"
    try:
        rows = rows_of(state, paths.folder)
        origins = dict.fromkeys([row.search_key for row in rows], origin_of(state))
        write_report(answers, rows, paths.report, command, origins, comparisons)
    except Exception as error:  # a drawing must never cost a search its end
        say(f"no report was drawn: {type(error).__name__}: {error}")
        return False
    return True
