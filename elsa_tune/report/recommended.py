"""Which of an answer's depths a report shows as the answer."""

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint


def recommended(answer: Answer) -> CurvePoint | None:
    """The depth to fine-tune: the surest that there is, None where there is no answer.

    What is certified comes before what only reaches the target, and what is corrected for chance
    before what is not.
    """
    if answer.operating_point is None:
        return None
    depths = [
        one.depth
        for one in (answer.corrected_certified, answer.certified)
        # That the full model keeps its own quality is certain, and tells nothing.
        if one is not None and not one.depth.is_full_model
    ]
    found = [point for depth in depths for point in answer.points if point.depth == depth]
    return next(iter(found), answer.corrected_operating_point or answer.operating_point)
