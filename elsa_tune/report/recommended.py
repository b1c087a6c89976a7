"""Which of an answer's depths a report shows as the answer, and its first lines."""

from dataclasses import dataclass

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.wording.answer import saves_sentence


@dataclass(frozen=True, slots=True)
class FirstLines:
    """headline: what to do. lines: a label and its text each."""

    headline: str
    lines: tuple[tuple[str, str], ...] = ()


def first_lines(answer: Answer) -> FirstLines:
    """The answer, how sure it is, what it saves, and what to type next."""
    lines = {
        "How sure": answer.certainty,
        "Saves": saves_sentence(answer.operating_point).removeprefix("Saves "),
        "Next": answer.next_step or "",
    }
    return FirstLines(answer.sentence, tuple((name, text) for name, text in lines.items() if text))


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
