"""What an answer recommends: one depth, or the reason not to choose one yet.

Everybody who acts on an answer asks here: its first line, and what `export` trains.
"""

from collections.abc import Iterator

from elsa_tune.analysis.answer import (
    Action,
    Answer,
    Basis,
    Doubt,
    Recommendation,
    reaches,
)
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.row_findings import FindingCode, RowFinding

# Of what there is above guessing: a full model that gains less learnt little. Landis and Koch 1977
# (Biometrics 33, 159-174) call agreement beyond chance below this "slight".
SLIGHT_GAIN = 0.2

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
    measured number is) and measured to keep the target (corrected). But where the claim is the
    corrected one, raw certificates end a depth behind it, however good deeper ones are: what was
    measured is recommended then.
    """
    raw = answer.operating_point
    if raw is None:
        return None
    corrected = answer.corrected_certified
    if corrected is not None and not corrected.is_full_model:
        return _measured(answer, corrected.candidate), Basis.CORRECTED_CERTIFIED
    measured = answer.corrected_operating_point or raw
    if measured.candidate.is_reference:
        return measured, Basis.FULL_MODEL
    certified = answer.certified
    if certified is None or certified.is_full_model:
        return measured, Basis.MEASURED
    # Where guessing reaches the target, that a depth does so says nothing.
    if has_warning(answer, WarningCode.CONSTANT_REACHES_TARGET):
        return measured, Basis.MEASURED
    needs_more_layers = certified.candidate < measured.candidate
    if needs_more_layers and answer.claims_corrected:
        return measured, Basis.MEASURED
    with_more_layers = min(measured.candidate, certified.candidate)
    return _measured(answer, with_more_layers), Basis.RAW_CERTIFIED


def _measured(answer: Answer, candidate: Candidate) -> CurvePoint:
    """Return the point of a depth that the answer has; in a joint answer none has a quality."""
    return next(point for point in answer.points if point.candidate == candidate)


def _linear_model_is_enough(answer: Answer) -> bool:
    """Whether one on the frozen features reaches the target, corrected where chance is known."""
    full = answer.full
    probe = answer.probe
    if probe is None or full is None or full.quality is None:
        return False
    base = answer.chance or 0.0
    return reaches(probe.quality, full.quality, answer.target, base, policy=answer.policy)


def has_hardly_learnt(answer: Answer) -> bool:
    """Whether guessing reaches the raw target of a task because its full model learnt little.

    Guessing also reaches it beside the best of models where it scores high itself.
    """
    full = answer.full
    if full is None or full.quality is None or answer.chance is None:
        return False
    if not has_warning(answer, WarningCode.CONSTANT_REACHES_TARGET):
        return False
    return full.quality - answer.chance < SLIGHT_GAIN * (1 - answer.chance)


def leaked_rows(answer: FreezeCurve) -> RowFinding | None:
    """Return evaluation rows that are also in training with their label, where they are many."""
    for finding in answer.findings:
        if finding.code is not FindingCode.LEAKED_ROWS:
            continue
        leaked = finding.same_label
        if leaked is None:
            leaked = finding.count
        return finding if leaked >= MANY_LEAKED * finding.of else None
    return None


def has_warning(answer: Answer, code: WarningCode) -> bool:
    """Whether an answer warns of this; a joint one, of some task."""
    return any(warning.code is code for warning in answer.warnings)


def _doubts(answer: Answer, point: CurvePoint, action: Action) -> Iterator[Doubt]:
    if has_warning(answer, WarningCode.INCOMPLETE):
        yield Doubt.INCOMPLETE
    if leaked_rows(answer) is not None:
        yield Doubt.LEAKED_ROWS
    if answer.hardly_learnt or has_hardly_learnt(answer):
        yield Doubt.CONSTANT_REACHES_TARGET
    full = answer.full
    probe = answer.probe
    if full is None or full.quality is None:
        return
    learnt = full.quality - (answer.chance or 0.0)
    widest = max(interval_width(full), interval_width(point))
    if action is Action.FINE_TUNE and widest >= learnt:
        yield Doubt.INTERVAL_TOO_WIDE
    if action is Action.LINEAR_MODEL and probe is not None and probe.quality > full.quality:
        yield Doubt.FULL_MODEL_BELOW_PROBE


def interval_width(point: CurvePoint) -> float:
    """Return how wide a point's interval is; 0 where none is known."""
    if point.ci_low is None or point.ci_high is None:
        return 0.0
    return point.ci_high - point.ci_low
