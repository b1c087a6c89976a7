"""What an answer recommends: one depth, or the reason not to choose one yet.

Everybody who acts on an answer asks here: its first line, and what `export` trains.
"""

from collections.abc import Iterator

from elsa_tune.analysis.answer import Action, Answer, Basis, Doubt, Recommendation, reaches
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.row_findings import FindingCode, RowFinding

# Of the evaluation rows: so many that are known by heart move a quality by up to two points.
MANY_LEAKED = 0.02


def recommend(answer: Answer) -> Recommendation:
    """Recommend for one answer, of one task or joint, from what it decided."""
    chosen = _chosen(answer)
    if chosen is None:
        return Recommendation(action=Action.WAIT)
    point, basis = chosen
    action = Action.LINEAR_MODEL if _linear_model_is_enough(answer) else Action.FINE_TUNE
    doubts = tuple(_doubts(answer, point, action))
    return Recommendation(action=action, point=point, basis=basis, doubts=doubts)


def _chosen(answer: Answer) -> tuple[CurvePoint, Basis] | None:
    """Return the depth to fine-tune and what speaks for it; None without an operating point.

    Corrected for chance goes before raw: near chance, a model that guesses keeps most of the raw
    quality. Certified goes before measured. Where only the raw answer is certified, the larger of
    that number of layers and of the corrected operating point is both certified (raw: every larger
    measured number is) and measured to keep the target (corrected).
    """
    raw = answer.operating_point
    if raw is None:
        return None
    sure = answer.corrected_certified
    if sure is not None and not sure.candidate.is_reference:
        return _measured(answer, sure.candidate), Basis.CORRECTED_CERTIFIED
    measured = answer.corrected_operating_point or raw
    if measured.candidate.is_reference:
        return measured, Basis.FULL_MODEL
    sure = answer.certified
    # Where guessing reaches the target, that a depth does so says nothing.
    if sure is None or sure.candidate.is_reference or _constant_reaches_target(answer):
        return measured, Basis.MEASURED
    larger = min(measured.candidate, sure.candidate)
    return _measured(answer, larger), Basis.RAW_CERTIFIED


def _measured(answer: Answer, candidate: Candidate) -> CurvePoint:
    """Return the point of that depth; in a joint answer none has a quality."""
    return next(point for point in answer.points if point.candidate == candidate)


def _linear_model_is_enough(answer: Answer) -> bool:
    """Whether one on the frozen features reaches the target, corrected where chance is known."""
    full = answer.full
    probe = answer.probe
    if probe is None or full is None or full.quality is None:
        return False
    base = answer.chance or 0.0
    return reaches(probe.quality, full.quality, answer.target, base, policy=answer.policy)


def leaked_rows(answer: Answer) -> RowFinding | None:
    """Return evaluation rows that are also in training with their label, where they are many."""
    for finding in answer.findings:
        if finding.code is FindingCode.LEAKED_ROWS:
            easy = finding.count if finding.same_label is None else finding.same_label
            return finding if easy >= MANY_LEAKED * finding.of else None
    return None


def _constant_reaches_target(answer: Answer) -> bool:
    """Whether guessing reaches the target; of a joint answer, on some task."""
    return any(warning.code is WarningCode.CONSTANT_REACHES_TARGET for warning in answer.warnings)


def _doubts(answer: Answer, point: CurvePoint, action: Action) -> Iterator[Doubt]:
    full = answer.full
    probe = answer.probe
    if any(warning.code is WarningCode.INCOMPLETE for warning in answer.warnings):
        yield Doubt.INCOMPLETE
    if leaked_rows(answer) is not None:
        yield Doubt.LEAKED_ROWS
    if _constant_reaches_target(answer):
        yield Doubt.CONSTANT_REACHES_TARGET
    if full is None or full.quality is None:
        return
    learnt = full.quality - (answer.chance or 0.0)
    if action is Action.FINE_TUNE and max(_width(full), _width(point)) >= learnt:
        yield Doubt.INTERVAL_TOO_WIDE
    if action is Action.LINEAR_MODEL and probe is not None and probe.quality > full.quality:
        yield Doubt.FULL_MODEL_BELOW_PROBE


def _width(point: CurvePoint) -> float:
    """Return how wide a point's interval is; 0 where none is known."""
    if point.ci_low is None or point.ci_high is None:
        return 0.0
    return point.ci_high - point.ci_low
