"""The joint answer over several tasks in plain English."""

from __future__ import annotations

from collections.abc import Sequence

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.wording.certainty import plausible_text
from elsa_tune.words import layers_text, listed, of_layers, percent, target_text


def refusal_sentence(without: Sequence[Answer]) -> str:
    """Why there is no joint answer. without: the tasks' own refusals; () where all have answers."""
    if without:
        reasons = " ".join(f"{answer.task}: {answer.sentence}" for answer in without)
        return f"No joint answer. {reasons}"
    return "No joint answer: no depth with frozen layers was measured for every task."


def answer_sentence(tasks: Sequence[Answer], joint: Answer) -> str:
    """The joint operating point, and which tasks decide it. tasks: each one's own answer."""
    raw, corrected = joint.operating_point, joint.corrected_operating_point
    assert raw is not None
    names = listed(task.task for task in tasks)
    all_layers = f"all {layers_text(joint.layers)}"
    if raw.depth.is_full_model:
        keep = f"keep {target_text(joint.target)} on each of {names}"
        sentence = f"{all_layers.capitalize()} must be fine-tuned to {keep}."
    else:
        number = of_layers(raw.fine_tuned_layers, joint.layers)
        verb = "keeps" if raw.fine_tuned_layers == 1 else "keep"
        sentence = f"{number} {verb} {percent(raw.retention)} or more on each of {names}."
    if joint.decided_by:
        sentence += f" With fewer layers {listed(joint.decided_by)} would fall below."
    if corrected is None:
        return sentence
    if corrected.depth == raw.depth:
        return f"{sentence} Corrected for chance the answer is the same."
    needed = of_layers(corrected.fine_tuned_layers, joint.layers)
    if corrected.depth.is_full_model:
        needed = all_layers
    return f"{sentence} Corrected for chance {needed} are needed."


def certainty_text(tasks: Sequence[Answer], joint: Answer) -> str:
    """What is certified for all tasks, and what cannot be ruled out. tasks: their own answers."""
    text = _certified_text(tasks, joint)
    if joint.plausible is None:
        return text
    return f"{text} {plausible_text(joint.plausible, measured=len(joint.points))}"


def _certified_text(tasks: Sequence[Answer], joint: Answer) -> str:
    certified, corrected = joint.certified, joint.corrected_certified
    if certified is None:
        why = [task.task for task in tasks if task.certified is None]
        alone = f": {listed(why)} alone have nothing certified" if why else ""
        return f"Nothing is certified for all tasks together{alone}."
    if certified.depth.is_full_model:
        return "No depth with frozen layers is certain for all tasks together."
    number = of_layers(certified.fine_tuned_layers, joint.layers)
    text = f"Certified for all tasks together: {number}"
    if corrected is not None and corrected.depth != certified.depth:
        fewest = "none" if corrected.depth.is_full_model else corrected.fine_tuned_layers
        text = f"{text}; corrected for chance {fewest}"
    return f"{text}. That holds on the conditions named with each task."
