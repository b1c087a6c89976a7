"""An answer in words, and the warnings beside it."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from elsa_tune.analysis.answer import Answer, Reason, reaches
from elsa_tune.analysis.curve import CurvePoint, LinearProbe
from elsa_tune.analysis.statistics.intervals import SAME_QUALITY
from elsa_tune.analysis.statistics.learning import Learnt
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import default_candidates
from elsa_tune.specs.border import Border
from elsa_tune.specs.task import guess_words
from elsa_tune.words import (
    VISIBLE,
    candidates_text,
    capitalized,
    is_part_plural,
    layers_text,
    listed,
    metric_text,
    number_or_name,
    part_text,
    percent,
    points,
    rate_text,
    spread,
    target_text,
)

# Lee, Tang, Lin 2019: the learning rates that they tried, on the full model.
PAPER_RATES = (1e-5, 5e-5)


def answer_sentence(answer: Answer) -> str:
    """Say the operating point, raw, corrected and by the given rates, or why there is none."""
    raw = answer.operating_point
    full = answer.full
    if raw is None or full is None:
        return _refusal_sentence(answer)
    sentences = [_raw_sentence(answer, raw, full), _corrected_sentence(answer)]
    within = answer.within_given
    rates = answer.given_rates
    if within is not None and rates is not None and within.candidate != raw.candidate:
        lowest, highest = rates
        paper = " (the paper's range)" if rates == PAPER_RATES else ""
        sentences.append(
            f"Within {rate_text(lowest)}..{rate_text(highest)}{paper} it would be "
            f"{part_text(within.candidate, answer.layers)}, by single exploring runs."
        )
    return " ".join(sentences)


def _raw_sentence(answer: Answer, raw: CurvePoint, full: CurvePoint) -> str:
    """Say what the raw operating point keeps, and at which rate."""
    metric = metric_text(answer.metric)
    part = part_text(raw.candidate, answer.layers)
    kept = f"{percent(raw.retention)} of the full model's {metric}"
    numbers = f"{points(raw.quality)} of {points(full.quality)}"
    at = "" if raw.learning_rate is None else f" at {rate_text(raw.learning_rate)}"
    if raw.candidate.is_reference:
        return (
            f"All {layers_text(answer.layers)} must be fine-tuned: no measured "
            f"{cheaper_text(answer)} keeps {target_text(answer.target)} of the full model's "
            f"{metric} ({points(full.quality)}{at})."
        )
    if raw.fine_tuned_layers == 0:
        return f"{part} need fine-tuning: the head alone{at} keeps {kept} ({numbers})."
    verb = "keep" if is_part_plural(raw.candidate, answer.layers) else "keeps"
    return f"{capitalized(part)}{at} {verb} {kept} ({numbers})."


def cheaper_text(answer: Answer) -> str:
    """Return what was measured beside the full model: `depth with frozen layers`."""
    others = [point for point in answer.measured if not point.candidate.is_depth]
    return "candidate that costs less" if others else "depth with frozen layers"


def answer_warnings(answer: Answer, verdict: Learnt | None) -> tuple[AnswerWarning, ...]:
    """Warn of what decision and curve show, the gravest first. verdict: on the full model."""
    return (
        *_warnings_on_chance(answer),
        *_warnings_on_learning(answer, verdict),
        *_warnings_on_probe(answer),
        *_warnings_on_shape(answer),
        *_warnings_on_rates(answer),
        *_warnings_on_design(answer),
    )


def in_short(answer: Answer) -> str:
    """Return `2 of 6 layers for 90 % (83.0 of 90.0); rates 3e-5 at the full model, 5e-5 at ...`."""
    point = answer.operating_point
    full = answer.full
    text = "no answer"
    if point is not None and full is not None:
        numbers = f"{points(point.quality)} of {points(full.quality)}"
        part = part_text(point.candidate, answer.layers)
        text = f"{part} for {target_text(answer.target)} ({numbers})"
    elif answer.reason is not None:
        text = f"no answer ({answer.reason.value.replace('_', ' ')})"
    candidates_by_rate: dict[float | None, list[Candidate]] = {}
    for measured in answer.with_quality:
        candidates_by_rate.setdefault(measured.learning_rate, []).append(measured.candidate)
    if not candidates_by_rate:
        return text
    rates: list[str] = []
    for rate, candidates in candidates_by_rate.items():
        rates.append(f"{rate_text(rate)} at {candidates_text(candidates, answer.layers)}")
    return f"{text}; rates {', '.join(rates)}"


def saves_sentence(point: CurvePoint | None) -> str:
    """Write `Saves 64.0 % of the trained parameters and no memory.`, or "" for nothing."""
    if point is None or point.candidate.is_reference:
        return ""
    shares = saved_shares(point)
    return f"Saves {listed(shares)}." if shares else ""


def saved_shares(point: CurvePoint) -> list[str]:
    """Write what is known of a depth's savings: `64.0 % of the trained parameters`."""
    shares = [
        (point.saves.trainable_parameters, "of the trained parameters", "no parameters"),
        (point.saves.train_seconds, "of the training time", "no time"),
        (point.saves.peak_memory_mb, "of the peak memory", "no memory"),
    ]
    texts: list[str] = []
    for share, of_what, nothing in shares:
        if share is None:
            continue
        # A share that would print as 0.0 %, or as less, is none.
        texts.append(f"{percent(share)} {of_what}" if share >= 5e-4 else nothing)
    return texts


def probe_sentence(probe: LinearProbe | None) -> str:
    """Return what a linear probe on the frozen model has, and keeps of the full model's quality."""
    if probe is None:
        return ""
    shares = []
    if probe.retention is not None:
        shares.append(f"{percent(probe.retention)} kept")
    if probe.corrected_retention is not None:
        shares.append(f"{percent(probe.corrected_retention)} corrected")
    score = points(probe.quality)
    if shares:
        score += f" ({', '.join(shares)})"
    return f"Linear probe on the frozen model: {score}, no fine-tuning."


def _refusal_sentence(answer: Answer) -> str:
    match answer.reason:
        case Reason.NO_MEASUREMENTS:
            explored = sum(point.exploring_trials for point in answer.points)
            return (
                "No answer: no measuring trial has completed, and exploring trials "
                f"({explored} done) do not count."
            )
        case Reason.NO_FULL_MODEL:
            measured = _names(answer, answer.with_quality)
            return (
                "No answer: the full model (0 frozen layers) was not measured, so there is "
                f"nothing to compare with; measured: {measured}."
            )
        case Reason.NO_FROZEN_DEPTH:
            return "No answer: only the full model was measured, no depth with frozen layers."
    full = answer.full
    assert full is not None
    assert full.quality is not None
    of_score = f"{metric_text(answer.metric)} of {spread(full.quality, full.std)}"
    if answer.reason is Reason.FULL_MODEL_NOT_ABOVE_ZERO:
        return (
            f"No answer: the full model's {of_score} is not above 0, so that no share of it can be "
            "kept; give a metric whose scores are above 0, such as 1 minus the error."
        )
    score = f"its {of_score}"
    runs = f"over {full.seeds} seeds" if full.seeds > 1 else "in one run"
    base = "0"
    if answer.chance is not None:
        base = f"the {points(answer.chance)} of a {guess_words(answer.metric)}"
        if full.quality > answer.chance + answer.policy.at_chance:
            base += " with 95 % confidence"
    return f"The full model did not learn: {score} {runs} is not above {base}."


def _corrected_sentence(answer: Answer) -> str:
    raw = answer.operating_point
    corrected = answer.corrected_operating_point
    if answer.chance is None:
        return "Chance is not known, so there is no corrected answer."
    assert raw is not None
    assert corrected is not None
    for_chance = f"Corrected for chance ({points(answer.chance)})"
    share = percent(raw.corrected_retention)
    if corrected.candidate == raw.candidate:
        if raw.candidate.is_reference:
            return f"{for_chance} the answer is the same."
        return f"{for_chance} that is {share}: the same answer."
    if corrected.candidate.is_reference:
        needed = f"all {layers_text(answer.layers)} must be fine-tuned"
        return f"{for_chance} that is only {share}, and {needed}."
    needed = part_text(corrected.candidate, answer.layers)
    are = "are" if is_part_plural(corrected.candidate, answer.layers) else "is"
    kept = percent(corrected.corrected_retention)
    return f"{for_chance} that is {share}, and {needed} {are} needed ({kept})."


def _warnings_on_chance(answer: Answer) -> Iterator[AnswerWarning]:
    raw = answer.operating_point
    corrected = answer.corrected_operating_point
    full = answer.full
    if answer.chance is None:
        yield AnswerWarning(
            WarningCode.CHANCE_UNKNOWN,
            "chance is not known for this task: what a constant answer keeps is unknown, and "
            "nothing is corrected for it",
        )
        return
    if raw is None or corrected is None or full is None or full.quality is None:
        return
    goal = answer.target * full.quality
    if goal <= answer.chance:
        yield AnswerWarning(
            WarningCode.CONSTANT_REACHES_TARGET,
            f"the target is reached by guessing: {target_text(answer.target)} of the full model's "
            f"{points(full.quality)} is {points(goal)}, and a {guess_words(answer.metric)} has "
            f"{points(answer.chance)}",
        )
    if raw.candidate != corrected.candidate:
        share_of_constant = answer.chance / full.quality
        yield AnswerWarning(
            WarningCode.CORRECTED_DISAGREES,
            f"raw and corrected answers disagree: fine-tuning {_names(answer, [raw])} keeps "
            f"{percent(raw.retention)} of the raw quality but {percent(raw.corrected_retention)} "
            f"of what the full model gains over a {guess_words(answer.metric)}, which alone keeps "
            f"{percent(share_of_constant)}; corrected, "
            f"{part_text(corrected.candidate, answer.layers)}, not "
            f"{number_or_name(raw.candidate, answer.layers)}",
        )


def _warnings_on_learning(answer: Answer, verdict: Learnt | None) -> Iterator[AnswerWarning]:
    full = answer.full
    if full is None or verdict is not Learnt.UNTESTED:
        return
    if answer.chance is None:
        why = "chance is not known"
    elif full.seeds == 1:
        why = "it has one run, and nothing is known of the spread between seeds"
    else:
        why = f"nothing is known of the spread of its {full.seeds} runs"
    yield AnswerWarning(
        WarningCode.LEARNING_UNTESTED, f"whether the full model learnt was not tested: {why}"
    )


def _warnings_on_probe(answer: Answer) -> Iterator[AnswerWarning]:
    probe = answer.probe
    full = answer.full
    if probe is None:
        return
    # Of every depth: whatever trains can answer at least as well as what needs no training.
    below = [point for point in answer.measured if _is_surely_below(point, probe)]
    if below:
        scores = ", ".join(points(point.quality) for point in below)
        were = "was" if len(below) == 1 else "were"
        yield AnswerWarning(
            WarningCode.DEPTHS_BELOW_PROBE,
            f"the linear probe on the frozen model has {points(probe.quality)}, clearly more than "
            f"{_names(answer, below)} ({scores}), which {were} trained too little: higher learning "
            "rates or more epochs may help there",
        )
    if answer.operating_point is None or full is None or full.quality is None:
        return
    if not reaches(probe.quality, full.quality, answer.target, policy=answer.policy):
        return
    base = answer.chance
    corrected = ""
    if base is not None:
        corrected = f"; corrected for chance {percent(probe.corrected_retention)}"
        if not reaches(probe.quality, full.quality, answer.target, base, policy=answer.policy):
            corrected += ", which does not"
    yield AnswerWarning(
        WarningCode.PROBE_REACHES_TARGET,
        "the linear probe alone reaches the target: without any training of the encoder it keeps "
        f"{percent(probe.retention)} of the full model's {metric_text(answer.metric)}{corrected}",
    )


def _is_surely_below(point: CurvePoint, probe: LinearProbe) -> bool:
    """Whether a depth is below the probe by more than seeds and examples explain.

    Its 95 % interval has both; probe and depth are judged by the same examples and mostly move
    together. Without an interval (one run) it takes two standard errors of a share of that many
    examples.
    """
    if point.quality is None:
        return False
    if point.ci_high is not None:
        return point.ci_high < probe.quality
    if not probe.evaluation_examples:
        return False
    share = min(max(probe.quality, 0.0), 1.0)
    error = math.sqrt(share * (1 - share) / probe.evaluation_examples)
    return point.quality + 2 * error < probe.quality


def _warnings_on_shape(answer: Answer) -> Iterator[AnswerWarning]:
    """Warn of a curve that does not fall as layers are frozen."""
    raw = answer.operating_point
    failing = answer.failing_above
    if raw is not None and failing:
        shares = ", ".join(percent(point.retention) for point in failing)
        yield AnswerWarning(
            WarningCode.LARGER_K_MISSES_TARGET,
            f"more layers are not always better: fine-tuning {_names(answer, failing)} "
            f"({shares}) misses the target, though fine-tuning {_names(answer, [raw])} "
            f"({percent(raw.retention)}) reaches it",
        )
    full = answer.full
    best = answer.best
    if full is None or full.quality is None or best is None or best.quality is None:
        return
    if best.quality > full.quality + SAME_QUALITY:
        yield AnswerWarning(
            WarningCode.BEST_IS_NOT_FULL,
            f"the best model is not the full one: fine-tuning {_names(answer, [best])} gives "
            f"{points(best.quality)}, the full model {points(full.quality)}",
        )
    yield from _warning_of_a_rise(answer)
    for point in answer.with_quality:
        is_better = (point.quality or 0.0) > best.quality + SAME_QUALITY
        if point.candidate.is_tested or not is_better:
            continue
        yield AnswerWarning(
            WarningCode.EMBEDDINGS_ONLY_IS_BEST,
            f"{point.candidate.doing(answer.layers)} gives {points(point.quality)}, more than any "
            "other depth; it is never the reference",
        )


def _warning_of_a_rise(answer: Answer) -> Iterator[AnswerWarning]:
    """Warn of the highest step up between two neighbouring depths, where it can be seen."""
    highest = VISIBLE
    step: tuple[CurvePoint, CurvePoint] | None = None
    for before, after in itertools.pairwise(answer.measured):
        if before.quality is None or after.quality is None:
            continue
        rise = after.quality - before.quality
        if rise > highest:
            highest = rise
            step = (before, after)
    if step is not None:
        before, after = step
        yield AnswerWarning(
            WarningCode.NOT_MONOTONE,
            f"the curve is not monotone: quality rises from {points(before.quality)} "
            f"({_names(answer, [before])}) to {points(after.quality)} "
            f"({_names(answer, [after])})",
        )


def _warnings_on_rates(answer: Answer) -> Iterator[AnswerWarning]:
    """Warn of rates: a curve is only as fair as they are."""
    for where, others in ((Border.HIGH, "higher"), (Border.LOW, "lower")):
        at_border = [point for point in answer.points if point.known_rates.at_border is where]
        if at_border:
            yield AnswerWarning(
                WarningCode.RATE_AT_BORDER,
                f"{others} learning rates than those tried may be better at "
                f"{_names(answer, at_border)}; a new search with {others} rates in "
                "`learning_rate` tries them",
            )
    rates = set()
    frozen = []
    for point in answer.measured:
        if point.learning_rate is None:
            continue
        rates.add(point.learning_rate)
        if not point.candidate.is_reference:
            frozen.append(point)
    none_explored = not any(point.exploring_trials for point in frozen)
    if len(rates) == 1 and frozen and none_explored:
        yield AnswerWarning(
            WarningCode.ONE_RATE,
            f"all depths were trained at one learning rate ({rate_text(rates.pop())}): few layers "
            "often want a higher one, so that fewer layers may be better than they look here",
        )


def _warnings_on_design(answer: Answer) -> Iterator[AnswerWarning]:
    measured = {point.candidate for point in answer.measured}
    missing = [other for other in default_candidates(answer.layers) if other not in measured]
    if measured and missing:
        names = candidates_text(missing, answer.layers)
        yield AnswerWarning(
            WarningCode.DEPTHS_NOT_MEASURED,
            f"not measured: {names}; only measured depths can be the answer",
        )
    if answer.looks is not None and answer.looks.is_walk:
        return  # its depths differ by plan
    seeds = {point.candidate: point.seeds for point in answer.with_quality}
    if len(set(seeds.values())) > 1:
        yield AnswerWarning(
            WarningCode.SEEDS_DIFFER,
            f"depths differ in measuring seeds: {_tally(seeds, answer.layers)}",
        )
    tries = {point.candidate: point.known_rates.tries_within_given for point in answer.points}
    if len(set(tries.values())) > 1:
        yield AnswerWarning(
            WarningCode.TRIES_DIFFER,
            f"depths differ in exploring tries: {_tally(tries, answer.layers)}",
        )


def _names(answer: Answer, named: Iterable[CurvePoint]) -> str:
    return candidates_text((point.candidate for point in named), answer.layers)


def _tally(counts: Mapping[Candidate, int], layers: int) -> str:
    """Write `3 at the full model; 5 at the last 4 and 2 layers`, the fewest first."""
    by_count: dict[int, list[Candidate]] = {}
    for candidate, count in counts.items():
        by_count.setdefault(count, []).append(candidate)
    texts: list[str] = []
    for count in sorted(by_count):
        texts.append(f"{count} at {candidates_text(by_count[count], layers)}")
    return "; ".join(texts)
