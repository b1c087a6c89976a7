"""Fixed-sequence testing, the plausible set, and the whole judgement of an answer."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis.answer import Answer, QualityClaimed, Reason
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json
from elsa_tune.analysis.answers import answer_rows, freeze_curves
from elsa_tune.analysis.certainty import certify, plausible, with_certainty
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.analysis.wording.certainty import export_command, seeds_for_another_search
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import UNRECORDED, Claim, Policy
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.result_rows import (
    BY_SEEDS_ALONE,
    codes,
    falling_curve,
    row,
    seeds,
    seeds_advised,
    takes_more_rows,
    warned,
)

Step = tuple[CurvePoint, Interval | None]


def step(frozen: int, low: float, high: float, lower: float | None = None) -> Step:
    lower = (low * 0.9 + high * 0.1) if lower is None else lower
    return unknown(frozen)[0], Interval(value=(low + high) / 2, low=low, high=high, lower=lower)


def unknown(frozen: int) -> Step:
    return CurvePoint(candidate=FreezeDepth.of(frozen), fine_tuned_layers=6 - frozen), None


FULL = step(0, 0.04, 0.06)


def known(steps: list[Step]) -> tuple[list[CurvePoint], dict[FreezeDepth, Interval]]:
    """Return the full model and the steps, as they are tested."""
    every = [FULL, *steps]
    return [point for point, _ in every], {
        point.candidate: contrast for point, contrast in every if contrast is not None
    }


def certified_layers(steps: list[Step], *, learnt: bool = True) -> tuple[int | None, bool]:
    """Return what is certified, and whether nothing is for want of seeds."""
    points, contrasts = known(steps)
    certain = [depth for depth, contrast in contrasts.items() if contrast.lower > Policy().rounding]
    found, reason = certify(
        points, contrasts, certain, full_model_learnt=learnt, basis="seeds", policy=Policy()
    )
    assert reason in (None, Reason.TOO_FEW_SEEDS)
    return None if found is None else found.fine_tuned_layers, reason is not None


def plausible_layers(steps: list[Step]) -> tuple[int | None, ...] | None:
    """How many fine-tuned layers of six may be the true answer."""
    depths = plausible(*known(steps), Policy())
    return None if depths is None else tuple(depth.fine_tuned_layers(6) for depth in depths)


def test_testing_steps_down_until_the_first_doubt() -> None:
    steps = [step(2, 0.01, 0.05), step(3, 0.01, 0.04), step(4, -0.02, 0.03), step(5, 0.01, 0.03)]
    # 1 layer passes its own test, but behind a doubt it is not tested.
    assert certified_layers(steps) == (3, False)


def test_the_full_model_is_certified_where_nothing_else_is() -> None:
    assert certified_layers([step(3, -0.02, 0.03)]) == (6, False)


def test_nothing_is_certified_of_a_model_that_may_not_have_learnt() -> None:
    assert certified_layers([step(3, 0.01, 0.03)], learnt=False) == (None, False)


def test_too_few_seeds_end_the_sequence() -> None:
    assert certified_layers([unknown(3), step(4, 0.01, 0.03)]) == (None, True)
    assert certified_layers([step(3, 0.01, 0.03), unknown(4)]) == (3, False)


@pytest.mark.parametrize(("off", "reaches"), [(0.9e-9, False), (1e-9, False), (1.1e-9, True)])
def test_what_is_within_rounding_of_the_target_reaches_it_and_surely_reaches_it_not(
    off: float, reaches: bool
) -> None:
    assert certified_layers([step(3, 0, 1, lower=off)]) == (3 if reaches else 6, False)
    assert plausible_layers([step(3, off, 1)]) == ((3,) if reaches else (3, 6))
    assert plausible_layers([step(3, -1, -off)]) == ((6,) if reaches else (3, 6))


def test_the_plausible_numbers() -> None:
    steps = [step(2, 0.01, 0.05), step(3, -0.01, 0.04), step(4, -0.03, 0.01), step(5, -0.09, -0.01)]
    # 4 is surely enough, so that 6 is not the least; 1 is surely too few.
    assert plausible_layers(steps) == (2, 3, 4)
    assert plausible_layers([*steps, unknown(6)]) is None
    # Behind a doubt nothing is certified at 97.5 %, however good: the full model may be needed.
    assert plausible_layers([step(2, -0.01, 0.05), step(4, 0.01, 0.05)]) == (2, 4, 6)


# ---- from rows ----


def study(full: list[float], deep: list[float], **how: Any) -> list[ResultRow]:
    return [*seeds(0, full, **how), *seeds(3, deep, **how)]


def answered(rows: list[ResultRow], evidence: Any = None, target: float = 0.9) -> Answer:
    (answer,) = answer_rows(rows, target, evidence=evidence)
    return answer


def test_a_clear_case_is_certified_and_says_what_it_rests_on() -> None:
    answer = answered(study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88]))
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 3
    assert answer.corrected_certified is not None
    assert answer.certified.confidence == 0.95
    assert "seeds alone" in answer.certified.procedure
    assert answer.plausible == (3,)
    assert answer.certainty.startswith(
        "Certified at 95 %, at the rates found: 3 of 6 layers, and every larger"
    )
    assert answer.certified.procedure.endswith("if seeds fail no more often than here")
    assert "3 seeds without a failure cannot exclude that up to 63 %" in answer.certainty
    assert "of fresh seeds fail at the last 3 layers. Among the measured depths" in answer.certainty
    assert answer.next_step is None


def test_two_seeds_certified_nothing_in_early_searches() -> None:
    rows = study([0.90, 0.91], [0.88, 0.89], search="my search", trial="t", policy=UNRECORDED)
    answer = answered(rows)
    assert answer.operating_point is not None
    assert answer.certified is None and answer.plausible is None
    assert answer.reason is Reason.TOO_FEW_SEEDS
    assert "takes at least 3 runs more than there are depths that learn" in answer.certainty
    # Two seeds say nothing of how seeds spread: no forecast, the usual number. More seeds of this
    # search would count for nothing.
    assert answer.next_step is None
    assert dict(answer.first_lines.lines)["Next"].startswith(
        "the same search once more with --seeds 5 (fresh ones, which may settle it), or elsa-tune "
        "export 'my search'"
    )


def test_two_seeds_certify_what_lies_far_above_the_target() -> None:
    far = answered(study([0.90, 0.901], [0.89, 0.891]))
    assert far.certified is not None and far.certified.fine_tuned_layers == 3
    near = answered(study([0.90, 0.91], [0.83, 0.82]))
    assert near.certified is not None and near.certified.fine_tuned_layers == 6


@pytest.mark.parametrize(("count", "percent"), [(2, 78), (5, 45)])
def test_how_many_seeds_may_fail_though_none_did(count: int, percent: int) -> None:
    """All of n seeds work in (1 - p)^n of cases, which is 5 % where p is 1 - .05^(1/n)."""
    answer = answered(study([0.90, 0.901] * count, [0.89, 0.891, 0.89, 0.891, 0.89][:count]))
    assert (
        f"{count} seeds without a failure cannot exclude that up to {percent} % of fresh seeds "
        "fail at the last 3 layers"
    ) in answer.certainty


def test_the_depth_that_raw_scores_certify_beyond_the_claim_names_its_seeds() -> None:
    answer = answered(study([0.90, 0.91, 0.90], [0.83, 0.84, 0.83]))
    assert answer.claimed is not None and answer.claimed.candidate.is_reference
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 3
    assert "3 seeds without a failure cannot exclude" in answer.certainty
    assert "fail at the last 3 layers." in answer.certainty


@pytest.mark.parametrize(("units", "said"), [(100, "100 units"), (1, "1 unit")])
def test_rows_that_are_not_independent_count_as_few_where_scores_are_all(
    units: int, said: str
) -> None:
    common = {"examples": 500, "evaluation_units": units}
    answer = answered(study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88], **common))
    sentence = f"The 500 evaluation rows of {said} count as 1, the fewest that scores alone leave"
    assert sentence in answer.certainty


def test_no_other_search_is_advised_where_nothing_can_be_frozen_or_answered() -> None:
    early = {"search": "mine", "trial": "t", "policy": UNRECORDED}
    full = answered(study([0.90, 0.91], [0.60, 0.61], **early))
    assert full.operating_point is not None and full.operating_point.candidate.is_reference
    assert seeds_for_another_search(full) is None
    unanswered = answered(seeds(0, [0.90, 0.91], **early))
    assert unanswered.operating_point is None and seeds_for_another_search(unanswered) is None


def test_rates_chosen_on_the_same_runs_certify_nothing() -> None:
    rows = study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88])
    rows += seeds(3, [0.87, 0.87, 0.87], learning_rate=1e-5)
    answer = answered(rows)
    assert answer.certified is None and answer.reason is Reason.RATES_NOT_FRESH


@pytest.mark.parametrize("status", ["failed", "interrupted", "stopped_early", "running"])
def test_a_tables_runs_without_a_score_certify_nothing(status: str) -> None:
    """What ended them may be how they scored: the others are then the better ones."""
    rows = study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88])
    assert answered(rows).certified is not None
    lacking = dataclasses.replace(rows[-1], seed=9, quality=None, status=TrialStatus(status))
    answer = answered([*rows, lacking])
    assert answer.certified is None and answer.corrected_certified is None
    assert answer.reason is Reason.SEEDS_MISSING and answer.plausible_candidates is None
    assert "1 run of the last 3 layers has no score" in answer.certainty
    two = answered([*rows, lacking, dataclasses.replace(lacking, seed=10)])
    assert "2 runs of the last 3 layers have no score" in two.certainty


def test_a_tables_depth_without_any_score_certifies_nothing() -> None:
    """Worse data must not give a surer answer."""
    rows = [*study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88]), *seeds(5, [0.87, 0.87, 0.87])]
    assert answered(rows).certified is not None
    stopped: list[ResultRow] = []
    for one in rows[3:6]:
        stopped.append(dataclasses.replace(one, quality=None, status=TrialStatus.STOPPED_EARLY))
    answer = answered([*rows[:3], *stopped, *rows[6:]])
    assert answer.certified is None and answer.reason is Reason.SEEDS_MISSING
    assert "3 runs of the last 3 layers have no score" in answer.certainty
    # Nothing was explored, so that no depth has more tries than others.
    assert WarningCode.TRIES_DIFFER not in [warning.code for warning in answer.warnings]


def test_where_guessing_scores_below_0_the_gain_alone_is_certified() -> None:
    """Then the score is the stronger claim: 94 % of the gain is kept here, and 87 % of it."""
    how = {"chance": -0.8, "examples": 40_000}
    answer = answered(study([0.60, 0.601, 0.599], [0.52, 0.521, 0.519], **how))
    gain = answer.corrected_certified
    assert gain is not None and not gain.candidate.is_reference
    assert answer.contrasts[gain.candidate].high < 0
    assert answer.certified is not None and answer.certified.candidate.is_reference
    assert answer.would_certify == {}
    assert "corrected for chance" in answer.certainty and "the score itself" not in answer.certainty
    rows = study([0.60, 0.601, 0.599], [0.52, 0.521, 0.519], **how)
    *_, joint = answer_rows([*rows, *(dataclasses.replace(row, task="sst2") for row in rows)])
    assert joint.corrected_certified is not None
    assert not joint.corrected_certified.candidate.is_reference
    assert "corrected for chance" in joint.certainty and "themselves" not in joint.certainty


def test_rates_that_early_stopping_left_out_were_chosen_on_the_same_runs() -> None:
    rows = study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88])
    stopped = dataclasses.replace(rows[-1], learning_rate=1e-5, status=TrialStatus.STOPPED_EARLY)
    answer = answered([*rows, stopped])
    assert answer.certified is None and answer.reason is Reason.RATES_NOT_FRESH
    explored = dataclasses.replace(stopped, phase=Phase.EXPLORE, seed=0)
    assert answered([*rows, explored]).certified is not None


def test_epochs_chosen_on_the_rows_that_judge_certify_nothing() -> None:
    scores = [0.90, 0.91, 0.90], [0.88, 0.89, 0.88]
    answer = answered(study(*scores, selection="best_epoch"))
    assert answer.operating_point is not None and answer.operating_point.fine_tuned_layers == 3
    assert answer.certified is None and answer.corrected_certified is None
    assert answer.reason is Reason.EPOCHS_NOT_FRESH and not answer.open_look
    assert answer.plausible_candidates is None and answer.next_step is None
    assert "best epoch was taken on the rows that judge it" in answer.certainty
    assert "selection=last or selection=holdout" in answer.certainty
    for selection in (None, "last", "holdout"):
        assert answered(study(*scores, selection=selection)).certified is not None


def test_where_nothing_can_be_certified_no_look_is_open() -> None:
    recorded = {"search": "mine", "trial": "t"}
    rows = study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88], **recorded)
    rows += seeds(3, [0.87, 0.87, 0.87], learning_rate=1e-5, **recorded)
    answer = answered(rows)
    assert answer.reason is Reason.RATES_NOT_FRESH and not answer.open_look
    assert answer.next_step is None


OPEN = study([0.90, 0.91, 0.92], [0.82, 0.84, 0.83], search="mine", trial="t", chance=0.0)


def judged(rows: list[ResultRow], point: int = 1) -> Answer:
    """Return what is sure, the depth with that place in the curve being the operating point."""
    (curve,) = freeze_curves(rows)
    known = {field.name: getattr(curve, field.name) for field in dataclasses.fields(curve)}
    answer = Answer(**known, target=0.9, operating_point=curve.points[point])
    return with_certainty(answer, full_model_learnt=True)


def upper_quantile(count: int) -> float:
    """Return what the sum of two means must exceed, in spreads of one run's mean.

    Both have `count` seeds and spread alike, and one is multiplied by .9: Welch's test at 4.5 %.
    """
    variance = 1 + 0.9**2
    freedom = variance**2 / ((1 + 0.9**4) / (count - 1))
    return float(stats.t.ppf(1 - 0.045, freedom) * math.sqrt(variance))


@pytest.mark.parametrize(("count", "more"), [(6, 7), (12, 13), (30, None)])
def test_an_open_answer_says_with_how_many_seeds_another_search_would_probably_settle_it(
    count: int, more: int | None
) -> None:
    """Four times out of five is .84 standard errors more than on the average.

    D must be 1 + .84 / 1.64 of what the test needs. Both depths spread by .01.
    """
    needed = upper_quantile(count) * 0.01 / math.sqrt(count)
    for factor, advised in ((1.01, count), (0.99, more)):
        mean = 0.9 * 0.9 + factor * (1 + 0.84 / 1.64) * needed
        full, deep = ([x - 0.01, x + 1e-6, x + 0.01 - 1e-6] for x in (0.9, mean))
        rows = study(full, deep, search="mine", trial="t", chance=0.0)
        sure = judged(rows)
        assert (seeds_advised(sure), takes_more_rows(sure)) == (advised, False)
        assert sure.certified is not None and sure.certified.fine_tuned_layers == 6
        answer = answered(rows)
        assert answer.next_step is None and seeds_for_another_search(answer) == advised


def test_examples_can_be_too_few_for_any_number_of_seeds() -> None:
    """.9 and .85: D is .04, and 100 examples move it by sqrt(.85 x .15 + .81 x .9 x .1) / 10."""
    full, deep = [0.9001, 0.8999, 0.9], [0.8501, 0.8499, 0.85]
    few, many = (judged(study(full, deep, examples=count, chance=0.0)) for count in (100, 10_000))
    assert (seeds_advised(few), takes_more_rows(few)) == (None, True)
    assert many.certified is not None and many.certified.fine_tuned_layers == 3
    assert (seeds_advised(many), takes_more_rows(many)) == (None, False)
    # Seeds that differ so much that 30 are too few: with more of them it would be sure.
    unsteady = judged(study([0.7, 0.9, 0.8], [0.8, 0.75, 0.65], examples=10**8, chance=0.0))
    assert (seeds_advised(unsteady), takes_more_rows(unsteady)) == (None, False)
    # The full model as the answer, means: nothing to forecast. After two seeds neither more seeds
    # nor a hundred times the rows would do alone.
    two = study([0.9, 0.91], [0.84, 0.83], examples=100)
    means = [row(n, q, seed=None, runs=5, std=0.01, examples=100) for n, q in ((0, 0.9), (3, 0.84))]
    nothing = judged(two, point=0), judged(two), judged(means)
    forecasts = [(seeds_advised(one), takes_more_rows(one)) for one in nothing]
    assert forecasts == [(None, False), (None, False), (None, False)]


def test_only_a_single_recorded_search_can_be_gone_on_with() -> None:
    imported = [dataclasses.replace(one, trial=None) for one in OPEN]
    assert answered(imported).next_step is None
    more = [
        dataclasses.replace(one, search="other", seed=(one.seed or 0) + 3, quality=one.quality)
        for one in OPEN
    ]
    assert answered([*OPEN, *more]).next_step is None


def test_a_model_is_exported_of_an_answer_of_one_recorded_search_alone() -> None:
    recorded = answered(OPEN)
    assert export_command(recorded) == "elsa-tune export mine --out mine-model"
    imported = answered([dataclasses.replace(one, trial=None) for one in OPEN])
    assert imported.is_answered and export_command(imported) == ""
    unanswered = answered(seeds(0, [0.90, 0.91], search="mine", trial="t"))
    assert not unanswered.is_answered and export_command(unanswered) == ""


def test_enough_seeds_follow_from_their_forecast() -> None:
    """With as many seeds as were advised, spread as before, the answer is settled."""
    advised = seeds_for_another_search(answered(OPEN))
    assert advised is not None
    again = (advised + 2) // 3
    full = [0.90, 0.91, 0.92] * again
    deep = [0.82, 0.84, 0.83] * again
    settled = answered(study(full, deep, chance=0.0))
    assert settled.certified is not None and settled.certified.fine_tuned_layers == 3


def test_a_tie_in_the_last_binary_digit_certifies_nothing() -> None:
    answer = answered(study([0.70] * 3, [0.63] * 3))
    assert answer.operating_point is not None and answer.operating_point.fine_tuned_layers == 3
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 6


def test_without_chance_nothing_is_certified_and_the_reason_is_told() -> None:
    answer = answered(study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88], chance=None))
    assert answer.certified is None and answer.reason is Reason.CHANCE_UNKNOWN
    assert WarningCode.CHANCE_UNKNOWN in codes(answer)


def test_intervals_stay_within_the_metrics_range() -> None:
    answer = answered(study([0.95, 0.99], [0.10, 0.80]))
    assert [point.ci_high for point in answer.points] == [1.0, 1.0]
    assert answer.points[1].ci_low == 0.0
    matthews = answered(study([0.9, 0.4], [0.1, 0.8], metric="matthews", chance=0.0))
    assert matthews.points[1].ci_low == -1.0
    # A metric without a name may be a correlation.
    unnamed = answered(study([0.9, 0.4], [0.1, 0.8], metric=None, chance=None))
    assert unnamed.points[1].ci_low == -1.0


def test_a_mean_of_runs_certifies_nothing() -> None:
    rows = [
        row(frozen, quality, seed=None, runs=5, std=0.003)
        for frozen, quality in ((0, 0.9), (3, 0.89))
    ]
    answer = answered(rows)
    assert answer.certified is None and answer.reason is Reason.TOO_FEW_SEEDS
    assert "the rows are means" in answer.certainty
    assert "would probably certify" not in answer.certainty
    assert answer.points[0].ci_low is not None


def test_a_table_that_tells_how_many_examples_is_not_surer_than_they_allow() -> None:
    few = study([0.90, 0.91, 0.90], [0.84, 0.85, 0.85], metric="accuracy", examples=400)
    answer = answered(few)
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 6
    assert answer.plausible == (3, 6)
    assert "number of evaluation examples" in answer.certified.procedure
    many = study([0.90, 0.91, 0.90], [0.84, 0.85, 0.85], metric="accuracy", examples=40_000)
    answer = answered(many)
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 3
    assert "Predictions are not used: this rests on seeds and the number of" in answer.certainty
    # Of another metric the number says nothing.
    f1 = study([0.90, 0.91, 0.90], [0.84, 0.85, 0.85], metric="f1", examples=400)
    answer = answered(f1)
    assert answer.certified is not None and "seeds alone" in answer.certified.procedure


def test_the_joint_answer_is_certified_where_every_task_is() -> None:
    sure = study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88])
    unsure = study([0.90, 0.91, 0.92], [0.82, 0.84, 0.83], task="cola", chance=0.0)
    *_, joint = answer_rows(sure + unsure)
    assert joint.task == "*" and joint.certified is not None
    assert joint.certified.fine_tuned_layers == 6
    assert joint.plausible == (3, 6)
    other = study([0.80, 0.81, 0.80], [0.78, 0.79, 0.78], task="cola", chance=0.0)
    *_, joint = answer_rows(sure + other)
    assert joint.certified is not None and joint.certified.fine_tuned_layers == 3
    assert joint.plausible == (3,)


def test_one_task_rules_a_number_out_for_all_of_them() -> None:
    sure = study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88])
    sure += seeds(5, [0.88, 0.89, 0.88])
    other = study([0.80, 0.81, 0.80], [0.78, 0.79, 0.78], task="cola", chance=0.0)
    other += seeds(5, [0.60, 0.61, 0.60], task="cola", chance=0.0)
    alone, _, joint = answer_rows(sure + other)
    assert alone.plausible == (1,) and joint.plausible == (3,)


def test_no_task_may_be_ruled_out_more_easily_for_being_one_of_many() -> None:
    curve = answered(study([0.90, 0.91, 0.92], [0.78, 0.795, 0.80], chance=0.0))
    assert curve.plausible == (6,)
    both = study([0.90, 0.91, 0.92], [0.78, 0.795, 0.80], chance=0.0)
    both += study([0.90, 0.91, 0.92], [0.88, 0.89, 0.90], task="cola")
    *_, joint = answer_rows(both)
    assert joint.plausible == (3, 6)


# ---- with predictions ----

EXAMPLES = 400


class Kept:
    """Predictions for each row that names a trial."""

    def __init__(self, answers: Mapping[str, Predictions]) -> None:
        self.answers = answers
        self.asked = 0

    def __call__(self, one: ResultRow) -> Predictions | None:
        self.asked += 1
        return self.answers.get(one.trial or "")


def with_predictions(shares: Mapping[int, float], count: int = 3) -> tuple[list[ResultRow], Kept]:
    labels = (np.arange(EXAMPLES) % 2).astype(np.int8)
    rows, answers = [], {}
    for frozen, share in shares.items():
        for seed in range(1, count + 1):
            wrong = round((1 - share) * EXAMPLES) + seed
            predictions = labels.copy()
            predictions[:wrong] = 1 - predictions[:wrong]
            name = f"{frozen}-{seed}"
            answers[name] = Predictions(predictions=predictions, labels=labels, classes=2)
            quality = float((predictions == labels).mean())
            rows.append(row(frozen, quality, seed=seed, trial=name, predictions=name))
    return rows, Kept(answers)


def test_predictions_bring_the_examples_in() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    alone, both = answered(rows), answered(rows, kept)
    assert alone.points[0].ci_high is not None and both.points[0].ci_high is not None
    assert alone.points[0].ci_low is not None and both.points[0].ci_low is not None
    # 400 examples at .9: a standard error of .015, where these seeds differ by .0025.
    assert both.points[0].ci_high - both.points[0].ci_low > 0.05
    assert alone.points[0].ci_high - alone.points[0].ci_low < 0.02
    assert both.certified is not None and "evaluation examples" in both.certified.procedure


def test_what_was_computed_is_not_computed_again() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    rows = [dataclasses.replace(one, seed=(one.seed or 0) - 1) for one in rows]
    first = answered(rows, kept)
    assert kept.asked == 6
    second = answered(rows[::-1], kept)
    assert kept.asked == 6
    assert second.points[0].ci_low == first.points[0].ci_low


def test_what_could_not_be_computed_is_tried_again() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    there, kept.answers = kept.answers, {}
    assert WarningCode.PREDICTIONS_UNUSED in codes(answered(rows, kept))
    kept.answers = there
    assert WarningCode.PREDICTIONS_UNUSED not in codes(answered(rows, kept))


def test_missing_predictions_leave_seeds_alone_and_say_so() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    kept.answers = {name: one for name, one in kept.answers.items() if name != "3-2"}
    answer = answered(rows, kept)
    told = warned(answer, WarningCode.PREDICTIONS_UNUSED)
    assert told.endswith("those of 3-2 are lost or damaged")
    assert answer.certified is not None and "seeds alone" in answer.certified.procedure


def test_predictions_that_contradict_the_record_are_not_used() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    kept.answers = {**kept.answers, "3-2": kept.answers["0-1"]}
    answer = answered(rows, kept)
    assert "1 of 6 give another quality" in warned(answer, WarningCode.PREDICTIONS_UNUSED)


@pytest.mark.parametrize(("off", "used"), [(9e-6, True), (1.1e-5, False)])
def test_a_recorded_quality_may_be_rounded(off: float, used: bool) -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    rows[0] = dataclasses.replace(rows[0], quality=(rows[0].quality or 0) + off)
    (curve,) = freeze_curves(rows, kept)
    assert curve.uncertainty is not None and curve.uncertainty.has_predictions == used


@pytest.mark.parametrize(("off", "used"), [(0.0, True), (1e-12, False)])
def test_a_policy_may_ask_for_the_very_quality_that_predictions_give(
    off: float, used: bool
) -> None:
    exact = dataclasses.replace(BY_SEEDS_ALONE, same_score=0.0)
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    rows = [dataclasses.replace(one, policy=exact) for one in rows]
    rows[0] = dataclasses.replace(rows[0], quality=(rows[0].quality or 0) + off)
    (curve,) = freeze_curves(rows, kept)
    assert curve.uncertainty.has_predictions == used


def test_rows_of_a_table_are_not_looked_up_in_vain() -> None:
    rows, _ = with_predictions({0: 0.90, 3: 0.88})
    imported = [dataclasses.replace(one, trial=None) for one in rows]
    assert answered(imported, Kept({})).warnings == answered(imported).warnings


def test_other_evaluation_examples_cost_the_intervals_and_not_the_answer() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    odd = kept.answers["3-2"]
    kept.answers["3-2"] = dataclasses.replace(
        odd, labels=1 - odd.labels, predictions=1 - odd.predictions
    )
    answer = answered(rows, kept)
    assert answer.is_answered
    assert "different evaluation examples" in warned(answer, WarningCode.PREDICTIONS_UNUSED)


def test_a_diverged_seed_has_no_predictions_and_counts_as_chance() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    rows[-1] = row(3, None, seed=3, status=TrialStatus.DIVERGED, trial="3-3")
    answer = answered(rows, kept)
    assert WarningCode.PREDICTIONS_UNUSED not in codes(answer)
    assert answer.points[1].failed_seeds == 1
    assert answer.points[1].ci_low is not None and answer.points[1].ci_low < 0.5


def test_json_and_csv_carry_it_all() -> None:
    rows, kept = with_predictions({0: 0.90, 3: 0.88})
    answer = answered(rows, kept)
    (found,) = json.loads(as_json([answer_object(answer)]))
    assert found["certified"]["fine_tuned_layers"] == 3
    assert found["plausible_fine_tuned_layers"] == [3]
    assert found["curve"][1]["contrast"]["lower_bound"] > 0
    assert found["curve"][0]["contrast"] is None
    assert found["curve"][0]["ci_low"] < found["curve"][0]["quality"]
    text = answers_csv([answer])
    assert "certified_fine_tuned_layers" in text.splitlines()[0]


EACH = dataclasses.replace(BY_SEEDS_ALONE, claim=Claim.BOTH)


@pytest.mark.parametrize(
    ("deep", "policy", "said"),
    [
        ([0.88, 0.89, 0.88], EACH, "measured number, also corrected for chance."),
        ([0.83, 0.84, 0.83], EACH, "measured number; corrected for chance none."),
        (
            [0.88, 0.89, 0.88],
            BY_SEEDS_ALONE,
            "number, corrected for chance, and so of the score",
        ),
    ],
)
def test_the_sentence_says_what_is_certified_of_the_corrected_answer(
    deep: list[float], policy: Policy | None, said: str
) -> None:
    answer = answered(study([0.90, 0.91, 0.90], deep, policy=policy))
    assert answer.certainty.startswith("Certified at 95 %") and said in answer.certainty


def test_one_of_the_raw_and_the_corrected_answer_is_the_claim() -> None:
    rows = study([0.90, 0.91, 0.90], [0.83, 0.84, 0.83])
    answer = answered(rows)
    assert answer.claim is QualityClaimed.CORRECTED
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 3
    assert answer.claimed is not None and answer.claimed.fine_tuned_layers == 6
    assert answer.certainty.startswith(
        "No depth with frozen layers is certain (at 95 %) to keep 90 % of the full model's gain "
        "over guessing at the rates found. Of the score itself, certified by the same sequence: "
        "3 of 6 layers."
    )
    assert answer.plausible == (6,)
    assert answer_object(answer)["claim"] == "corrected"
    # Where a constant answer has nothing, both are one.
    answer = answered(study([0.90, 0.91, 0.90], [0.83, 0.84, 0.83], chance=0.0))
    assert answer.claim is QualityClaimed.RAW and answer.corrected_contrasts == answer.contrasts
    assert answer.claimed is not None and answer.claimed.fine_tuned_layers == 3
    assert answered(study([0.9, 0.91, 0.9], [0.83, 0.84, 0.83], chance=None)).claim is None


def test_a_search_that_claims_both_answers_as_ever() -> None:
    answer = answered(study([0.90, 0.91, 0.90], [0.83, 0.84, 0.83], policy=EACH))
    assert answer.claim is None and answer.claimed == answer.certified
    assert "claim" not in answer_object(answer)
    assert answer.plausible == (3,)
    assert "exploratory" not in answer.certainty


def test_the_sentence_counts_the_numbers_that_may_be_true() -> None:
    sure = answered(study([0.90, 0.91, 0.90], [0.88, 0.89, 0.88]))
    assert "only 3 layers can be the true answer" in sure.certainty
    open_ = answered(study([0.90, 0.91, 0.92], [0.82, 0.84, 0.83], chance=0.0))
    assert open_.plausible == (3, 6)
    assert "No measured depth can be ruled out as the true answer." in open_.certainty


@pytest.mark.parametrize(
    ("metric", "examples", "missing"),
    [
        ("f1", 400_000, "would move F1 is not known without each run's predictions"),
        ("matthews", 400_000, "accuracy with a column `examples` can be certified, too"),
        ("pearson", None, "each run's predictions"),
        ("accuracy", None, "without their number (column `examples`) or each run's predictions"),
        (None, 400_000, "the columns `metric` and `examples` are enough"),
    ],
)
def test_scores_alone_certify_nothing_but_accuracy_over_known_examples(
    metric: str | None, examples: int | None, missing: str
) -> None:
    common = {"policy": None, "chance": 0.5, "task": "a"}
    rows = falling_curve(metric=metric, examples=examples, **common)
    sure = falling_curve(metric="accuracy", examples=400_000, **{**common, "task": "b"})
    answer, accurate, joint = answer_rows([*rows, *sure])
    assert answer.certified is None and answer.reason is Reason.EXAMPLES_UNKNOWN
    assert missing in answer.certainty and answer.plausible_candidates is None
    assert all(point.ci_low is not None for point in answer.points)
    text = warned(answer, WarningCode.EXAMPLES_LEFT_OUT)
    assert "the test that the full model learnt, leave out the evaluation rows" in text
    assert accurate.certified is not None
    assert WarningCode.EXAMPLES_LEFT_OUT not in codes(accurate)
    assert joint.certified is None and joint.plausible_candidates is None
