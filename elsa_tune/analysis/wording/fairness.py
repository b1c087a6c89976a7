"""Whether a comparison was fair, in words: effort, seeds, borders, and the factor between rates."""

from collections.abc import Iterator

from elsa_tune.analysis.comparing.ways import RateRatio, WayComparison
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.wording.ways import are_plural, name_of, names_of, range_text
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border
from elsa_tune.words import (
    BORDER_WORDS,
    capitalized,
    listed,
    points,
    rate_text,
    seeds_text,
    trials_text,
)


def fairness_text(comparison: WayComparison) -> str:
    """Say whether all ways explored and ran equally often, and whose best rate is not known."""
    if not comparison.is_answered:
        return ""
    texts = [_effort(comparison)]
    seeds = [way.point.seeds for way in comparison.ways]
    if min(seeds) != max(seeds):
        texts.append(_fewest_seeds(comparison, min(seeds), max(seeds)))
    for border in (Border.HIGH, Border.LOW):
        at_border: list[Candidate] = []
        for way in comparison.ways:
            if way.border is border:
                at_border.append(way.candidate)
        if at_border:
            names = names_of(comparison.curve, at_border)
            texts.append(
                f"The best rate of {names} is the {_end(border)} that was tried: "
                f"{BORDER_WORDS[border]}."
            )
        texts += _alike_to_the_end(comparison, border)
    texts += _learnt_nothing(comparison)
    return " ".join(texts)


def _fewest_seeds(comparison: WayComparison, fewest: int, most: int) -> str:
    """Name the ways that ran with the fewest seeds."""
    few: list[Candidate] = []
    for way in comparison.ways:
        if way.point.seeds == fewest:
            few.append(way.candidate)
    names = capitalized(names_of(comparison.curve, few))
    verb = "have" if are_plural(comparison.curve, few) else "has"
    return f"{names} {verb} {seeds_text(fewest)}, others up to {most}."


def _alike_to_the_end(comparison: WayComparison, border: Border) -> Iterator[str]:
    """Name the ways of which the rate at this end of what was tried is as good as the best."""
    alike: list[Candidate] = []
    for way in comparison.ways:
        if border in way.point.known_rates.alike_ends:
            alike.append(way.candidate)
    if alike:
        noise = points(comparison.curve.policy.noise)
        yield (
            f"Of {names_of(comparison.curve, alike)}, the {_end(border)} rate that was tried is as "
            f"good as the best, within {noise} points: {BORDER_WORDS[border]}."
        )


def _learnt_nothing(comparison: WayComparison) -> Iterator[str]:
    """Name each way that learnt nothing at any rate, with the range of what was tried."""
    for way in comparison.ways:
        if way.point.known_rates.learnt:
            continue
        name = capitalized(name_of(comparison.curve, way.candidate))
        rates = [rate for rate, _ in way.point.known_rates.explored]
        if len(rates) == 1:
            yield f"{name} learnt nothing at the one rate tried, {rate_text(rates[0])}."
        elif rates:
            tried = f"from {rate_text(min(rates))} to {rate_text(max(rates))}"
            yield f"{name} learnt nothing at any of {len(rates)} rates {tried}."


def _effort(comparison: WayComparison) -> str:
    """Say how often the ways explored their learning rates."""
    tries = [way.point.exploring_trials for way in comparison.ways]
    if not any(tries):
        text = "how the learning rates were chosen is not recorded."
        of_one_rate: list[Candidate] = []
        for way in comparison.ways:
            # A table that names no rates may have the best of many.
            if way.point.measured_at_rates == 1 and way.point.learning_rate is not None:
                of_one_rate.append(way.candidate)
        if of_one_rate:
            names = "every way"
            if len(of_one_rate) < len(comparison.ways):
                names = names_of(comparison.curve, of_one_rate)
            text += (
                f" {capitalized(names)} ran at one rate alone: another may be better or worse by "
                "any amount."
            )
        return text
    if min(tries) == max(tries):
        return f"each of the {len(tries)} ways explored its own rate in {trials_text(tries[0])}."
    idle = [way.candidate for way in comparison.ways if way.point.exploring_trials == 0]
    if not idle:
        return f"the ways explored their own rates in {range_text(tries)} trials each."
    names = names_of(comparison.curve, idle)
    return f"{names} explored no learning rate of their own, so that the others have an advantage."


def _end(border: Border) -> str:
    return "highest" if border is Border.HIGH else "lowest"


def rates_text(comparison: WayComparison) -> str:
    """Say how the learning rate of each method's best way compares with the full model's."""
    texts: list[str] = []
    for ratio in comparison.rate_ratios:
        texts.append(_ratio_text(comparison, ratio))
    return " ".join(texts)


def _ratio_text(comparison: WayComparison, ratio: RateRatio) -> str:
    full = comparison.curve.full
    assert full is not None
    name = name_of(comparison.curve, ratio.way.candidate)
    plural = are_plural(comparison.curve, [ratio.way.candidate])
    verb = "run best" if plural else "runs best"
    point = ratio.way.point
    if point.known_rates.did_better_elsewhere(point.learning_rate):  # as just below a collapse
        verb = "are measured" if plural else "is measured"
    rate = rate_text(ratio.way.point.learning_rate)
    full_rate = rate_text(full.learning_rate)
    times = "" if times_text(ratio.factor) == "1" else f"{times_text(ratio.factor)} times "
    text = f"{capitalized(name)} {verb} at {times}the full model's rate ({rate} and {full_rate}"
    if ratio.low is None or ratio.high is None:
        neighbours = _neighbours(ratio.way.point)
        beside = f"; tried beside it: {neighbours}" if neighbours else ""
        return f"{text}{beside})."
    between = f"{times_text(ratio.low)} to {times_text(ratio.high)} times"
    text += f"; of the tried rates, at 95 %, {between}"
    if ratio.is_open:
        text += " and perhaps beyond"
    return f"{text})."


def times_text(factor: float) -> str:
    """Return a factor between two rates with two digits, or in full from 100 on."""
    return f"{factor:.2g}" if factor < 99.5 else f"{factor:.0f}"


def _neighbours(point: CurvePoint) -> str:
    """Return the tried rates next to the one that a way was measured at; "" for none."""
    rate = point.learning_rate or 0.0
    rates = point.known_rates.rates
    lower = [tried for tried in rates if tried < rate]
    higher = [tried for tried in rates if tried > rate]
    return listed(rate_text(tried) for tried in [*lower[-1:], *higher[:1]])
