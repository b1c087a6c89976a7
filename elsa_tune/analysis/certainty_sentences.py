"""How sure an answer is, in words; and the command that would settle it.

It must not decide anything: the certainty comes in, sentences go out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from elsa_tune.analysis.answer import Reason
from elsa_tune.analysis.certainty import Certainty
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.uncertainty import FEWEST_SEEDS, excluded_failure_rate
from elsa_tune.analysis.words import layers_text, listed, percent, target_text

# What is suggested where too few seeds leave nothing to forecast from.
USUAL_SEEDS = 5


def certainty_sentence(
    curve: FreezeCurve, target: float, operating_point: CurvePoint, certainty: Certainty
) -> str:
    """What is certified, what cannot be ruled out, and what so many seeds leave open."""
    return " ".join(_sentences(curve, target, operating_point, certainty))


def _sentences(
    curve: FreezeCurve, target: float, operating_point: CurvePoint, certainty: Certainty
) -> Iterator[str]:
    full = curve.full
    assert full is not None
    if certainty.reason is Reason.RATES_NOT_FRESH:
        yield (
            "Nothing is certified: depths were measured at several learning rates and the best was "
            "taken on the same runs."
        )
        return
    if certainty.certified is None:
        if certainty.reason is Reason.TOO_FEW_SEEDS:
            least = min(point.seeds for point in curve.measured)
            if any(point.rates and not point.qualities for point in curve.measured):
                yield "Nothing is certified: the rows are means, and single runs are needed."
            else:
                yield (
                    f"Nothing is certified: that takes {FEWEST_SEEDS} seeds or more at each depth, "
                    f"and there {'is' if least == 1 else 'are'} {least}."
                )
        else:
            yield "Nothing is certified: that the full model learnt is not sure itself."
    else:
        yield _certified_text(curve, target, certainty)
        if curve.uncertainty is not None and curve.uncertainty.examples is None:
            yield "No predictions are known: this rests on the spread between seeds alone."
    if certainty.plausible is not None:
        yield _plausible_text(curve, certainty.plausible)
    if certainty.seeds_to_settle is not None:
        yield (
            f"{certainty.seeds_to_settle} seeds at each depth would settle it, if they spread like "
            "these."
        )
    if certainty.examples_forbid:
        yield "With so few evaluation examples no number of seeds would settle it."
    if certainty.certified is not None and not operating_point.failed_seeds:
        share = excluded_failure_rate(operating_point.seeds)
        yield (
            f"{operating_point.seeds} seeds without a failure cannot exclude that up to "
            f"{100 * share:.0f} % of fresh seeds fail at this depth."
        )


def _certified_text(curve: FreezeCurve, target: float, certainty: Certainty) -> str:
    certified, corrected = certainty.certified, certainty.corrected_certified
    assert certified is not None
    at = percent(certified.confidence).replace(".0 %", " %")
    if certified.depth.is_full_model:
        text = f"No depth with frozen layers surely keeps {target_text(target)} (at {at})."
        return text
    number = f"{certified.fine_tuned_layers} of {layers_text(curve.layers)}"
    text = f"Certified at {at}: {number}, and every larger measured number"
    if corrected is None:
        return f"{text}."
    if corrected.depth == certified.depth:
        return f"{text}, also corrected for chance."
    if corrected.depth.is_full_model:
        return f"{text}; corrected for chance none."
    return (
        f"{text}; corrected for chance {corrected.fine_tuned_layers} of "
        f"{layers_text(curve.layers)}."
    )


def _plausible_text(curve: FreezeCurve, numbers: tuple[int, ...]) -> str:
    if len(numbers) == 1:
        return f"Among the measured depths only k = {numbers[0]} can be the true answer."
    if len(numbers) == len(curve.measured):
        return "No measured depth can be ruled out as the true answer."
    if not numbers:
        return "No measured depth fits all tests: the curve contradicts itself; measure more seeds."
    return f"The true answer may be k = {listed(str(number) for number in numbers)}."


def next_step(curve: FreezeCurve, operating_point: CurvePoint, certainty: Certainty) -> str | None:
    """The command that would settle an open answer, or None."""
    if operating_point.depth.is_full_model:
        return None
    if certainty.seeds_to_settle is not None:
        return _command(curve, certainty.seeds_to_settle)
    if certainty.reason is Reason.TOO_FEW_SEEDS and curve.search is not None:
        return _command(curve, USUAL_SEEDS)
    return None


def _command(curve: FreezeCurve, seeds: int) -> str:
    """Go on with the search that the results are from, or begin one."""
    if curve.search is not None and ", " not in curve.search:
        return f"elsa-tune resume {curve.search} --seeds {seeds}"
    model, task = shlex.quote(curve.model), shlex.quote(curve.task)
    return f"elsa-tune search --model {model} --task {task} --seeds {seeds}"
