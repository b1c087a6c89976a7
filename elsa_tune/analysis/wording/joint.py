"""The joint answer over several tasks in plain English."""

from __future__ import annotations

from collections.abc import Sequence

from elsa_tune.analysis.answer import Answer, Certified
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.wording.certainty import plausible_text
from elsa_tune.words import layers_text, listed, percent, target_text


def refusal_sentence(without: Sequence[Answer]) -> str:
    """Why there is no joint answer. without: the tasks' own refusals; () where all have answers."""
    if without:
        reasons = " ".join(f"{answer.task}: {answer.sentence}" for answer in without)
        return f"No joint answer. {reasons}"
    return "No joint answer: no depth with frozen layers was measured for every task."


def answer_sentence(
    answers: Sequence[Answer],
    raw: CurvePoint,
    corrected: CurvePoint | None,
    decided_by: Sequence[str],
) -> str:
    """The joint operating point, and which tasks decide it. answers: each task's own."""
    layers = answers[0].layers
    target = target_text(answers[0].target)
    names = listed(answer.task for answer in answers)
    decided = f" With fewer layers {listed(decided_by)} would fall below." if decided_by else ""
    if raw.depth.is_full_model:
        first = f"All {layers_text(layers)} must be fine-tuned to keep {target} on each of {names}."
    else:
        verb = "keeps" if raw.fine_tuned_layers == 1 else "keep"
        first = (
            f"{raw.fine_tuned_layers} of {layers_text(layers)} {verb} {percent(raw.retention)} or "
            f"more on each of {names}."
        )
    if corrected is None:
        return f"{first}{decided}"
    if corrected.depth == raw.depth:
        return f"{first}{decided} Corrected for chance the answer is the same."
    needed = f"{corrected.fine_tuned_layers} of {layers_text(layers)}"
    if corrected.depth.is_full_model:
        needed = f"all {layers_text(layers)}"
    return f"{first}{decided} Corrected for chance {needed} are needed."


def certainty_text(
    answers: Sequence[Answer],
    *,
    certified: Certified | None,
    corrected: Certified | None,
    plausible: tuple[int, ...] | None,
    measured: int,
) -> str:
    """What is certified for all tasks and what cannot be ruled out. answers: each task's own.
    measured: depths that were measured for all of them.
    """
    text = _certified_text(answers, certified, corrected)
    if plausible is None:
        return text
    return f"{text} {plausible_text(plausible, measured=measured)}"


def _certified_text(
    answers: Sequence[Answer], certified: Certified | None, corrected: Certified | None
) -> str:
    layers = layers_text(answers[0].layers)
    if certified is None:
        why = [answer.task for answer in answers if answer.certified is None]
        alone = f": {listed(why)} alone have nothing certified" if why else ""
        return f"Nothing is certified for all tasks together{alone}."
    if certified.depth.is_full_model:
        return "No depth with frozen layers is certain for all tasks together."
    text = f"Certified for all tasks together: {certified.fine_tuned_layers} of {layers}"
    if corrected is not None and corrected.depth != certified.depth:
        number = "none" if corrected.depth.is_full_model else corrected.fine_tuned_layers
        text = f"{text}; corrected for chance {number}"
    return f"{text}. That holds on the conditions named with each task."
