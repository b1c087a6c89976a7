"""Comparisons of ways: what is certified, by arithmetic of its own, and every way to have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from elsa_tune.analysis.answer import Answer, QualityClaimed, Reason
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.comparing.comparison import below, compare_ways, holm
from elsa_tune.analysis.comparing.rate_ratio import ratios_of_ways
from elsa_tune.analysis.comparing.ways import Way, WayBasis, WayComparison, way_curves
from elsa_tune.analysis.statistics.resampling import ExampleDraws
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.errors import ResultsError, UsageError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.policy import UNRECORDED, Policy, SeedCounts
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import FindingCode, RowFinding
from elsa_tune.specs.search import LOST_LOOKS, NO_LOOKS, Looks
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.result_rows import EMBEDDINGS_ONLY, falling_curve, row, seeds
from tests.unit.ways import (
    ADAPTER,
    FULL,
    HEAD,
    LAST_TWO,
    SECONDS,
    Adapter,
    compared,
    explored,
    four_ways,
    way_rows,
)

# With more decimals than a rounded table has.
TUNED = (0.89912345, 0.90012345, 0.89962345)
OTHER = (0.90123457, 0.90173457, 0.90093457)


def way_of(comparison: WayComparison, candidate: Candidate) -> Way:
    [way] = [way for way in comparison.ways if way.candidate == candidate]
    return way


def labels(comparison: WayComparison) -> list[str]:
    return [way.candidate.label for way in comparison.certified]


def line(comparison: WayComparison, label: str) -> str:
    return dict(comparison.first_lines.lines).get(label, "")


def by_hand(tuned: Sequence[float], other: Sequence[float], target: float, chance: float) -> float:
    """Return Welch's one-sided p of the weighted difference, with what its approximation pays."""
    variances = (np.var(tuned, ddof=1) / len(tuned), target**2 * np.var(other, ddof=1) / len(other))
    value = (np.mean(tuned) - chance) - target * (np.mean(other) - chance)
    parts = [variance**2 / (len(tuned) - 1) for variance in variances]
    freedom = sum(variances) ** 2 / sum(parts)
    p = stats.t.sf(value / math.sqrt(sum(variances)), freedom)
    return float(p) * 0.05 / 0.045


# ---- the p value ----


@pytest.mark.parametrize(("corrected", "chance"), [(True, 0.5), (False, 0.0)])
def test_the_p_value_against_any_other_way_is_welch_s(corrected: bool, chance: float) -> None:
    [curve] = way_curves([*seeds(LAST_TWO, TUNED), *seeds(ADAPTER, OTHER)])
    p = curve.uncertainty.p_value(LAST_TWO, 0.95, against=ADAPTER, corrected=corrected)
    assert p == pytest.approx(by_hand(TUNED, OTHER, 0.95, chance), rel=1e-5)
    reverse = curve.uncertainty.p_value(ADAPTER, 0.95, against=LAST_TWO, corrected=corrected)
    assert reverse == pytest.approx(by_hand(OTHER, TUNED, 0.95, chance), rel=1e-5)


@pytest.mark.parametrize("mean", [0.868, 0.874, 0.88, 0.886, 0.892])
@pytest.mark.parametrize("level", [0.045, 0.0075])
def test_p_is_below_a_level_where_the_bound_at_that_level_is_above_0(
    mean: float, level: float
) -> None:
    # By draws: examples count.
    rows = [
        *seeds(LAST_TWO, [mean - 0.002, mean, mean + 0.002], examples=20_000),
        *seeds(ADAPTER, OTHER, examples=20_000),
    ]
    [curve] = way_curves(rows)
    assert curve.uncertainty.examples is not None
    ends = (level / 2, 1 - level / 2, level)
    contrast = curve.uncertainty.contrast(
        LAST_TWO, 0.95, against=ADAPTER, corrected=True, ends=ends
    )
    p = curve.uncertainty.p_value(LAST_TWO, 0.95, against=ADAPTER, corrected=True)
    assert contrast is not None and p is not None
    assert (p * 0.045 / 0.05 < level) == (contrast.lower > 0)


def test_ways_that_are_right_on_the_same_examples_are_compared_on_these() -> None:
    rng = np.random.default_rng(1)
    moves = rng.normal(0, 0.2, 10_000)
    runs = {
        candidate: CandidateRuns(candidate=candidate, qualities=qualities, failed=(False,) * 3)
        for candidate, qualities in ((LAST_TWO, TUNED), (ADAPTER, OTHER))
    }
    same = ExampleDraws(candidates={LAST_TWO: moves, ADAPTER: moves}, chance=0 * moves)
    apart = replace(same, candidates={LAST_TWO: moves, ADAPTER: moves[::-1]})
    p_values = []
    for examples in (same, apart):
        uncertainty = Uncertainty(runs=runs, chance=0.5, examples=examples)
        p_values.append(uncertainty.p_value(LAST_TWO, 0.95, against=ADAPTER, corrected=True))
    paired, unpaired = p_values
    assert paired is not None and unpaired is not None
    # D = .018; its standard error by examples is .05 x .2 = .01, or hypot(.2, .19) = .28.
    assert paired < 0.15 and unpaired > 0.4


def test_a_failure_elsewhere_counts_as_if_it_could_happen_here() -> None:
    calm = [*seeds(LAST_TWO, TUNED), *seeds(ADAPTER, OTHER), *seeds(FULL, OTHER)]
    # One of the full model's seeds ends at guessing.
    failing = [*calm[:-1], row(FULL, 0.5, seed=3)]
    p_values = []
    for rows in (calm, failing):
        [curve] = way_curves(rows)
        p_values.append(curve.uncertainty.p_value(LAST_TWO, 0.95, against=ADAPTER, corrected=True))
    before, after = p_values
    assert before is not None and after is not None and after > 10 * before


# ---- Holm ----


def test_holm_rejects_the_smallest_first_each_by_what_is_left() -> None:
    p_values = {FULL: 0.001, ADAPTER: 0.0166, LAST_TWO: 0.02, HEAD: 0.9}
    # .05 / 4, / 3, / 2: .0125, .01667, .025.
    assert holm(p_values, 0.05) == {FULL, ADAPTER, LAST_TWO}
    assert holm({**p_values, ADAPTER: 0.0168}, 0.05) == {FULL}
    assert holm({**p_values, FULL: 0.0126}, 0.05) == frozenset()
    assert holm({}, 0.05) == frozenset()


def test_what_is_weaker_is_tested_at_one_level() -> None:
    p_values = {FULL: 0.001, ADAPTER: 0.0124, LAST_TWO: 0.0125, HEAD: 0.9}
    assert below(p_values, 0.05 / 4) == {FULL, ADAPTER}


# ---- the claim ----


def test_the_cheapest_way_that_is_certified_is_recommended() -> None:
    comparison = compared(four_ways())
    assert labels(comparison) == ["4", "adapter-8", "0"]
    assert (
        comparison.recommended == way_of(comparison, LAST_TWO)
        and comparison.basis is WayBasis.CERTIFIED
    )
    assert comparison.reason is None and comparison.claim is QualityClaimed.CORRECTED
    # .398 of .4.
    assert way_of(comparison, LAST_TWO).gain_kept == pytest.approx(0.995)
    assert way_of(comparison, LAST_TWO).kept == pytest.approx(0.898 / 0.9)
    assert line(comparison, "How sure").startswith(
        "certified with 95 % confidence to keep 95 % of what the best of these 4 ways gains over "
        "guessing (about 88.0), whichever is the best."
    )
    assert line(comparison, "Costs") == (
        "20 s of training a run (adapters of size 8: 1 min 00 s; the full model: 1 min 40 s)."
    )
    assert line(comparison, "Cheaper?") == (
        "the head alone costs 1 s and scores 60.0: 25.0 % of the best gain over guessing; the "
        "target is 95 %."
    )


def test_its_p_value_is_the_largest_against_any_other() -> None:
    rows = [*seeds(LAST_TWO, TUNED), *seeds(ADAPTER, OTHER), *way_rows(HEAD, 0.61234567)]
    comparison = compared(rows)
    against_best = by_hand(TUNED, OTHER, 0.95, 0.5)
    assert way_of(comparison, LAST_TWO).p_value == pytest.approx(against_best, rel=1e-5)
    assert against_best < 0.05 / 3
    # The best itself is tested as every other way is.
    against_second = by_hand(OTHER, TUNED, 0.95, 0.5)
    assert way_of(comparison, ADAPTER).p_value == pytest.approx(against_second, rel=1e-5)


def test_the_best_may_be_the_one_that_is_claimed() -> None:
    comparison = compared([*way_rows(FULL, 0.8), *way_rows(ADAPTER, 0.9), *way_rows(HEAD, 0.6)])
    assert labels(comparison) == ["adapter-8"]
    assert comparison.recommended == comparison.best
    assert "(the best of those compared; guessing 50.0)" in comparison.first_lines.headline


def test_no_way_is_certified_by_what_only_looks_good() -> None:
    # .8805 - .5 is above .95 x .4, by half a point less than the seeds can tell.
    comparison = compared(four_ways(adapter=0.881, last_two=0.8805))
    assert labels(comparison) == ["0"]
    assert comparison.recommended == way_of(comparison, FULL)
    assert "only 95 % of the score itself is certified" in line(comparison, "Cheaper?")


def test_without_chance_to_correct_for_score_and_gain_are_one_claim() -> None:
    comparison = compared(four_ways_of(metric="matthews", chance=0.0))
    assert comparison.claim is QualityClaimed.RAW
    assert comparison.certified == comparison.score_certified
    assert "Matthews correlation of the best of these 4 ways" in line(comparison, "How sure")


def four_ways_of(**changes: Any) -> list[ResultRow]:
    return [replace(one, **changes) for one in four_ways()]


def test_the_score_alone_may_be_certain() -> None:
    # .865 is 96 % of .9, but 91 % of what .9 gains.
    comparison = compared(four_ways(last_two=0.865))
    way = way_of(comparison, LAST_TWO)
    assert way.score_certified and not way.certified and not way.reaches_target


def test_a_lower_target_is_tested_beside_the_planned_one() -> None:
    rows = four_ways(last_two=0.865)
    lower = compared(rows, 0.9)
    # 91 % of the gain, and 96 % of the score.
    assert labels(lower) == ["4", "adapter-8", "0"]
    # The score at the planned target comes first: .84 is 93 % of .9, but 85 % of its gain.
    gated = compared(four_ways(last_two=0.84), 0.8)
    way = way_of(gated, LAST_TWO)
    assert way.p_value is not None and way.p_value * 4 < 0.05
    assert way.score_certified and not way.certified


def test_a_higher_target_than_planned_is_exploratory() -> None:
    comparison = compared(four_ways(), 0.96)
    assert comparison.reason is Reason.TARGET_NOT_PLANNED and not comparison.certified
    assert comparison.recommended == way_of(comparison, LAST_TWO)
    assert "a higher target is exploratory" in line(comparison, "How sure")


@pytest.mark.parametrize("target", [0.0, -1.0, 1.01, 95.0])
def test_a_target_that_is_no_share_is_refused(target: float) -> None:
    with pytest.raises(UsageError, match="target is"):
        compared(four_ways(), target)


# ---- costs ----


def test_ways_that_cost_and_score_alike_are_told_by_their_labels() -> None:
    twin = Adapter(4)
    rows = [
        *way_rows(FULL, 0.9),
        *way_rows(ADAPTER, 0.9, train_seconds=5.0),
        *way_rows(twin, 0.9, train_seconds=5.0),
    ]
    comparison = compared(rows)
    assert [way.candidate.label for way in comparison.ways] == ["adapter-4", "adapter-8", "0"]
    assert comparison.recommended == way_of(comparison, twin)
    assert comparison.best == way_of(comparison, twin)


def test_of_ways_that_cost_alike_the_better_one_comes_first() -> None:
    twin = Adapter(4)
    rows = [
        *way_rows(FULL, 0.9),
        *way_rows(ADAPTER, 0.9, train_seconds=5.0),
        *way_rows(twin, 0.897, train_seconds=5.0),
        *way_rows(LAST_TWO, 0.899, train_seconds=5.0),
    ]
    comparison = compared(rows)
    order = [way.candidate.label for way in comparison.ways]
    assert order == ["adapter-8", "4", "adapter-4", "0"]
    assert comparison.recommended == way_of(comparison, ADAPTER)


def test_where_no_cost_is_known_methods_without_a_depth_go_by_their_scores() -> None:
    rows = [*four_ways(), *way_rows(Adapter(4), 0.89)]
    rows = [replace(one, train_seconds=None) for one in rows]
    order = [way.candidate.label for way in compared(rows).ways]
    assert order == ["6", "4", "adapter-8", "adapter-4", "0"]


def test_the_cheapest_of_the_ways_measured_to_keep_the_target_is_named() -> None:
    # Both keep it, by less than can be certified; the dearer one scores higher.
    rows = [
        *way_rows(FULL, 0.9),
        *way_rows(ADAPTER, 0.8815),
        *way_rows(LAST_TWO, 0.8805),
        *way_rows(HEAD, 0.6),
    ]
    comparison = compared(rows)
    assert comparison.recommended == way_of(comparison, FULL)
    assert line(comparison, "Cheaper?").startswith("the last 2 layers cost 20 s and score 88.0")


def test_where_no_cheaper_way_keeps_the_target_the_best_of_them_is_named() -> None:
    comparison = compared(four_ways(adapter=0.8, last_two=0.85))
    assert comparison.recommended == way_of(comparison, FULL)
    assert line(comparison, "Cheaper?").startswith("the last 2 layers cost 20 s and score 85.0")


def test_the_cost_of_a_way_that_diverged_is_not_missed() -> None:
    rows = [
        replace(one, status=TrialStatus.DIVERGED, quality=None, train_seconds=None)
        if one.candidate == HEAD
        else one
        for one in four_ways()
    ]
    comparison = compared(rows)
    assert way_of(comparison, HEAD).cost is None
    assert line(comparison, "Costs") == (
        "20 s of training a run (adapters of size 8: 1 min 00 s; the full model: 1 min 40 s)."
    )


def test_a_full_model_of_unknown_cost_is_not_named_beside_the_others() -> None:
    rows = [
        replace(one, train_seconds=None) if one.candidate == FULL else one
        for one in four_ways(full=0.7)
    ]
    assert line(compared(rows), "Costs") == (
        "20 s of training a run (adapters of size 8: 1 min 00 s)."
    )


@pytest.mark.parametrize(
    ("unit", "field", "text"),
    [
        (Cost.PARAMETERS, "trainable_parameters", "300 trained parameters"),
        (Cost.MEMORY, "peak_memory_mb", "300 MiB of peak memory"),
        (Cost.TIME, "train_seconds", "5 min 00 s of training a run"),
    ],
)
def test_the_unit_decides_what_is_cheap(unit: Cost, field: str, text: str) -> None:
    rows = [
        *way_rows(FULL, 0.9, **{field: 5000}),
        *way_rows(ADAPTER, 0.9, **{field: 300}),
        *way_rows(LAST_TWO, 0.9, **{field: 4000}),
    ]
    comparison = compared(rows, unit=unit)
    assert comparison.recommended == way_of(comparison, ADAPTER)
    assert line(comparison, "Costs").startswith(text)


def test_latencies_are_given_by_who_measures_them() -> None:
    latencies = {FULL: 0.012, ADAPTER: 0.002, LAST_TWO: 0.012, HEAD: 0.012}
    comparison = compared(four_ways(), unit=Cost.LATENCY, latencies={Cost.LATENCY: latencies})
    assert comparison.recommended == way_of(comparison, ADAPTER)
    assert line(comparison, "Costs").startswith("2 ms for one input, alone (the full model: 12 ms)")


def test_where_no_cost_is_known_that_is_said() -> None:
    rows = [replace(one, train_seconds=None, trainable_parameters=10) for one in four_ways()]
    comparison = compared(rows)
    assert comparison.recommended is None and comparison.is_answered
    assert comparison.first_lines.headline == (
        "The last 2 layers, adapters of size 8 and the full model are certified to keep 95 % of "
        "what the best of these 4 ways gains over guessing. Which is the cheapest is not known: "
        "these results have no training times (but `--cost parameters` is known)."
    )


def test_where_no_cost_is_known_ways_are_listed_by_how_little_they_train() -> None:
    rows = [replace(one, train_seconds=None) for one in four_ways()]
    assert [way.candidate.label for way in compared(rows).ways] == ["6", "4", "adapter-8", "0"]


def test_a_way_whose_cost_is_not_known_is_not_the_cheapest() -> None:
    rows = [
        replace(one, train_seconds=None) if one.candidate == LAST_TWO else one
        for one in four_ways()
    ]
    comparison = compared(rows)
    assert comparison.recommended == way_of(comparison, ADAPTER)
    assert "not known of the last 2 layers, which may be cheaper" in line(comparison, "Costs")


def test_the_recommended_way_may_have_no_known_cost() -> None:
    rows = [*way_rows(FULL, 0.9), *way_rows(LAST_TWO, 0.6), *way_rows(HEAD, 0.55)]
    comparison = compared(
        [replace(one, train_seconds=None) if one.candidate == FULL else one for one in rows]
    )
    assert comparison.recommended == way_of(comparison, FULL)
    assert line(comparison, "Costs") == "not known of the full model."


def test_the_only_good_way_needs_no_cost() -> None:
    rows = [
        replace(one, train_seconds=None) for one in [*way_rows(FULL, 0.9), *way_rows(HEAD, 0.6)]
    ]
    comparison = compared(rows)
    assert (
        comparison.recommended == way_of(comparison, FULL)
        and comparison.basis is WayBasis.CERTIFIED
    )
    assert line(comparison, "Costs") == "not known: these results have no training times."


# ---- no claim, and no answer ----


def no_claim(rows: Sequence[ResultRow], reason: Reason, words: str) -> WayComparison:
    """Compare rows that have an answer, but nothing that can be certified."""
    comparison = compared(rows)
    assert comparison.reason is reason
    assert not comparison.certified and comparison.equivalence is None
    assert all(way.p_value is None for way in comparison.ways)
    assert comparison.recommended is not None and comparison.basis is WayBasis.MEASURED
    assert words in line(comparison, "How sure")
    return comparison


def test_single_runs_decide_nothing_also_where_no_cost_is_known() -> None:
    rows = [replace(one, train_seconds=None) for one in four_ways() if one.seed == 1]
    headline = compared(rows).first_lines.headline
    assert headline.startswith(
        "By one run a way, which decides nothing: the last 2 layers, adapters of size 8 and the "
        "full model are measured to keep 95 %"
    )


def test_names_keep_their_capitals_behind_other_words() -> None:
    rows = [
        row(FULL, 0.8, seed=1),
        row(Lora.read("lora") or FULL, 0.9, seed=1),
        row(Lora.read("lora-last2") or FULL, 0.9, seed=1),
    ]
    headline = compared(rows).first_lines.headline
    assert headline.startswith("By one run a way, which decides nothing: LoRA of rank 8 on")


@pytest.mark.parametrize(
    ("single", "words"),
    [
        (LAST_TWO, "By one run of the last 2 layers, which decides nothing: fine-tune the last 2"),
        (HEAD, "Fine-tune the last 2 of 6 layers"),
        (FULL, "By one run of the full model, which decides nothing: fine-tune the last 2"),
    ],
)
def test_a_single_run_of_what_is_named_decides_nothing(single: Candidate, words: str) -> None:
    rows = [one for one in four_ways(full=0.91) if one.candidate != single or one.seed == 1]
    assert compared(rows).first_lines.headline.startswith(words)


def test_single_runs_decide_nothing_also_of_data_that_leak() -> None:
    finding = RowFinding(code=FindingCode.LEAKED_ROWS, count=300, of=1000)
    rows = [replace(one, findings=(finding,)) for one in four_ways() if one.seed == 1]
    headline = compared(rows).first_lines.headline
    assert headline.startswith("Clean the data first")
    assert "Until then, by one run a way, which decides nothing: fine-tune" in headline


def test_where_there_is_no_answer_a_single_run_is_not_mentioned() -> None:
    headline = compared([row(FULL, 0.5, seed=1), row(HEAD, 0.5, seed=1)]).first_lines.headline
    assert headline.startswith("No answer:")


def test_two_seeds_of_one_way_certify_nothing() -> None:
    rows = [*four_ways()[:-3], *way_rows(HEAD, 0.6)[:2]]
    no_claim(rows, Reason.TOO_FEW_SEEDS, "planned from the start; the head alone has fewer")


def test_single_seeds_certify_nothing() -> None:
    rows = [one for one in four_ways() if one.seed == 1]
    no_claim(rows, Reason.TOO_FEW_SEEDS, "planned from the start; there is 1")


def test_rows_that_are_means_certify_nothing() -> None:
    rows = [
        row(candidate, 0.9, runs=5, std=0.01, seed=None, train_seconds=1.0)
        for candidate in (FULL, ADAPTER)
    ]
    no_claim(rows, Reason.TOO_FEW_SEEDS, "the rows are means, and single runs are needed")


def test_a_rate_that_was_chosen_on_the_same_runs_certifies_nothing() -> None:
    rows = [*four_ways(), *way_rows(ADAPTER, 0.89, learning_rate=1e-3)]
    no_claim(rows, Reason.RATES_NOT_FRESH, "adapters of size 8 were measured at several")


def test_epochs_chosen_on_the_rows_that_judge_certify_nothing() -> None:
    no_claim(four_ways_of(selection="best_epoch"), Reason.EPOCHS_NOT_FRESH, "selection=last or")
    assert labels(compared(four_ways_of(selection="holdout"))) != []


def test_scores_of_unknown_examples_certify_nothing() -> None:
    rows = four_ways_of(policy=Policy())
    no_claim(rows, Reason.EXAMPLES_UNKNOWN, "column `examples`")
    assert labels(compared(four_ways_of(policy=Policy(), examples=100_000))) != []


def test_unknown_chance_certifies_nothing() -> None:
    rows = four_ways_of(chance=None)
    comparison = no_claim(rows, Reason.CHANCE_UNKNOWN, "chance is not known")
    assert comparison.claim is None
    assert all(way.gain_kept is None for way in comparison.ways)


def test_a_full_model_that_did_not_learn_makes_every_claim_easy() -> None:
    rows = four_ways(full=0.5)
    comparison = no_claim(rows, Reason.FULL_MODEL_DID_NOT_LEARN, "every way looks good")
    assert comparison.best == way_of(comparison, ADAPTER)


def test_too_few_units_certify_nothing() -> None:
    rows = four_ways_of(examples=5000, evaluation_units=20)
    no_claim(rows, Reason.TOO_FEW_UNITS, "there are 20")
    assert compared(four_ways_of(examples=100, evaluation_units=99)).reason is not None
    assert compared(four_ways_of(examples=200, evaluation_units=196)).reason is None


@pytest.mark.parametrize("units", [None, 60])
def test_few_rows_that_share_no_unit_certify_what_they_can(units: int | None) -> None:
    comparison = compared(four_ways_of(examples=60, evaluation_units=units))
    assert comparison.reason is None
    assert all(way.p_value is not None for way in comparison.ways)
    assert comparison.basis is WayBasis.MEASURED


@pytest.mark.parametrize(
    ("looks", "reason"),
    [
        (LOST_LOOKS, Reason.LOOKS_NOT_RECORDED),
        (NO_LOOKS, Reason.NOT_PLANNED_TO_CERTIFY),
        (
            Looks(after="N0", first_seed=1, counts=(SeedCounts(3, 3), SeedCounts(8, 4))),
            Reason.SEEDS_BY_RESULTS,
        ),
    ],
)
def test_seeds_that_were_not_planned_certify_nothing(looks: Looks, reason: Reason) -> None:
    rows = [replace(one, looks=looks, search="s") for one in four_ways()]
    no_claim(rows, reason, "")


def test_searches_that_planned_each_for_itself_certify_nothing_together() -> None:
    looks = Looks(after="N0", first_seed=1, counts=(SeedCounts(3, 3),))
    first, second = four_ways()[:6], four_ways()[6:]
    rows = [
        *(replace(one, looks=looks, search="a") for one in first),
        *(replace(one, looks=looks, search="b", seed=(one.seed or 0) + 10) for one in second),
    ]
    why = "seeds of several searches, planned separately, were pooled"
    comparison = no_claim(rows, Reason.LOOKS_NOT_PLANNED, why)
    assert comparison.differences is None
    assert line(comparison, "Differ?") == f"not told: {why}."
    # Tables whose rows tell of no plan stay as they are.
    unplanned = compared([replace(one, looks=None) for one in rows])
    assert unplanned.differences is not None and unplanned.certified


def differing(comparison: WayComparison) -> tuple[set[Candidate], ...]:
    """Return which ways may be the best, and which lie above and below the full model."""
    found = comparison.differences
    assert found is not None
    parts = (found.possible, found.above_full, found.below_full)
    return tuple({way.candidate for way in part} for part in parts)


@pytest.mark.parametrize("quality", [0.7, 0.99])
def test_seeds_that_were_added_later_decide_nothing(quality: float) -> None:
    looks = Looks(after="N0", first_seed=1, counts=(SeedCounts(3, 3),))
    # Ways without a place in the order of tests have no looks of their own.
    planned = [
        replace(one, looks=looks if one.candidate.is_ranked else None, search="s")
        for one in four_ways()
    ]
    later = [
        replace(one, seed=seed, quality=quality, search="s")
        for one in four_ways()
        if one.seed == 1 and one.candidate == ADAPTER
        for seed in (4, 5)
    ]
    alone, beside = compared(planned), compared([*planned, *later])
    assert [way.p_value for way in alone.ways] == [way.p_value for way in beside.ways]
    assert differing(alone) == differing(beside)
    assert way_of(beside, ADAPTER).point.seeds == 5
    assert way_of(beside, ADAPTER).point.quality == pytest.approx((3 * 0.9 + 2 * quality) / 5)


@pytest.mark.parametrize("lacking", [HEAD, ADAPTER])
def test_nothing_is_certified_before_all_planned_seeds_are_there(lacking: Candidate) -> None:
    looks = Looks(after="N0", first_seed=1, counts=(SeedCounts(4, 4),))
    fourth = [replace(one, seed=4) for one in four_ways() if one.seed == 1]
    rows = [replace(one, looks=looks, search="s") for one in [*four_ways(), *fourth]]
    assert compared(rows).certified
    last = next(one for one in rows if one.candidate == lacking and one.seed == 4)
    rows.remove(last)
    comparison = no_claim(rows, Reason.SEEDS_MISSING, "seeds that were planned")
    assert [point.candidate for point in comparison.unfinished] == [lacking]
    assert comparison.differences is None
    assert "the scores of all its runs" in line(comparison, "Differ?")
    # A seed that diverged is there, and counts as guessing.
    rows.append(replace(last, quality=None, status=TrialStatus.DIVERGED))
    assert compared(rows).unfinished == ()


def test_nothing_is_certified_where_a_tables_run_has_no_score() -> None:
    rows = four_ways()
    assert compared(rows).certified
    lacking = next(one for one in rows if one.candidate == ADAPTER)
    rows.append(replace(lacking, seed=9, quality=None, status=TrialStatus.FAILED))
    comparison = no_claim(rows, Reason.SEEDS_MISSING, "has no score, and what ended it may be")
    assert [point.candidate for point in comparison.unfinished] == [ADAPTER]
    assert comparison.differences is None
    assert "the scores of all its runs" in line(comparison, "Differ?")


def test_nothing_is_certified_beside_a_way_all_of_whose_runs_were_stopped() -> None:
    rows: list[ResultRow] = []
    for one in four_ways():
        if one.candidate == HEAD:
            one = replace(one, quality=None, status=TrialStatus.STOPPED_EARLY)
        rows.append(one)
    comparison = no_claim(rows, Reason.SEEDS_MISSING, "have no score, and what ended them may be")
    assert [point.candidate for point in comparison.unfinished] == [HEAD]


def test_where_guessing_scores_below_0_nothing_is_certified_of_the_score() -> None:
    def ways(target: float) -> WayComparison:
        rows = [*seeds(FULL, [0.60, 0.601, 0.599]), *seeds(ADAPTER, [0.53, 0.531, 0.529])]
        lowered = [replace(one, chance=-0.8, examples=40_000) for one in rows]
        return compared(lowered, target=target)

    at_plan = ways(0.95)
    assert [way.candidate for way in at_plan.certified] == [FULL]
    assert at_plan.score_certified == ()
    lower = ways(0.9)  # the adapters keep 95.0 % of the gain and 88 % of the score
    assert {way.candidate for way in lower.certified} == {FULL, ADAPTER}
    assert lower.score_certified == () and lower.score_would_certify is None


def test_of_scores_below_0_without_chance_no_share_is_kept() -> None:
    how = {"metric": "neg_rmse", "chance": None}
    rows = [*seeds(FULL, [-0.30, -0.31, -0.305]), *seeds(ADAPTER, [-0.32, -0.315, -0.325])]
    comparison = compared([replace(one, **how) for one in rows])
    assert comparison.reason is Reason.NO_WAY_ABOVE_ZERO and not comparison.is_answered
    assert comparison.first_lines.headline == (
        "No answer: the best, the full model, has neg rmse -30.5, which is not above 0, and chance "
        "is not known, so that no share of it can be kept; add a column `chance`, or take a metric "
        "whose scores are above 0, such as 1 minus the error."
    )


def test_one_way_is_no_comparison() -> None:
    comparison = compared(way_rows(ADAPTER, 0.9))
    assert comparison.reason is Reason.ONE_WAY and not comparison.is_answered
    assert comparison.recommended is None
    assert comparison.first_lines.headline == (
        "No answer: only adapters of size 8 was measured, and there is nothing to compare it with."
    )


def test_a_failed_seed_of_the_best_withholds_nothing_where_others_learnt() -> None:
    """Its mean is the highest, and with a run at guessing it is not certain to have learnt."""
    rows = [*seeds(FULL, [0.770, 0.771, 0.772]), *seeds(HEAD, [0.765, 0.766, 0.764])]
    rows += seeds(ADAPTER, [0.99, 0.99, 0.36])
    comparison = compared(rows)
    assert comparison.best is not None and comparison.best.candidate == ADAPTER
    assert comparison.is_answered and comparison.reason is not Reason.NO_WAY_LEARNT


def test_exploring_alone_measures_nothing() -> None:
    comparison = compared([*explored(FULL, {1e-5: 0.9}), *explored(ADAPTER, {1e-4: 0.9})])
    assert comparison.reason is Reason.NO_MEASUREMENTS and not comparison.is_answered
    assert "exploring trials (2 done) do not count" in comparison.first_lines.headline


def test_where_no_way_learnt_none_is_recommended() -> None:
    comparison = compared([*way_rows(FULL, 0.5), *way_rows(ADAPTER, 0.5005)])
    assert comparison.reason is Reason.NO_WAY_LEARNT and not comparison.is_answered
    assert comparison.recommended is None and not comparison.first_lines.lines
    assert "no way is certain to have learnt anything" in comparison.first_lines.headline


def test_a_way_that_diverged_counts_as_chance_and_is_not_certified() -> None:
    diverged = [
        replace(one, status=TrialStatus.DIVERGED, quality=None) if one.seed == 2 else one
        for one in way_rows(ADAPTER, 0.9)
    ]
    comparison = compared([*way_rows(FULL, 0.9), *diverged, *way_rows(LAST_TWO, 0.899)])
    way = way_of(comparison, ADAPTER)
    assert way.point.failed_seeds == 1
    assert way.point.quality == pytest.approx((0.899 + 0.901 + 0.5) / 3)
    assert not way.certified
    # What failed there may fail anywhere: these seeds can no longer be sure of the others.
    assert comparison.certified == () and comparison.reason is None


def test_a_way_of_which_every_seed_diverged_keeps_nothing() -> None:
    diverged = [
        replace(one, status=TrialStatus.DIVERGED, quality=None) for one in way_rows(ADAPTER, 0.9)
    ]
    comparison = compared([*way_rows(FULL, 0.9), *diverged, *way_rows(LAST_TWO, 0.899)])
    assert way_of(comparison, ADAPTER).p_value == 1.0
    assert labels(comparison) == ["4", "0"]


def test_embeddings_only_is_no_way() -> None:
    rows = [*four_ways(), *way_rows(EMBEDDINGS_ONLY, 0.95)]
    assert compared(rows).ways == compared(four_ways()).ways


def test_rows_that_must_not_be_pooled_are_listed_with_what_they_say() -> None:
    rows = [*four_ways(), *(replace(one, metric="f1") for one in four_ways())]
    with pytest.raises(ResultsError) as raised:
        way_curves(rows)
    assert "4 ways, the best scores 90.0" in "\n".join(map(str, raised.value.args))


def test_searches_of_versions_that_compared_nothing_are_judged_by_this_one() -> None:
    old = compared(four_ways_of(policy=UNRECORDED, examples=100_000))
    new = compared(four_ways_of(policy=Policy(), examples=100_000))
    assert old.ways == new.ways and old.claim is QualityClaimed.CORRECTED


# ---- what stands beside it ----


def test_no_way_is_better_by_more_than_the_largest_of_the_bounds() -> None:
    rows = [*seeds(LAST_TWO, TUNED), *seeds(ADAPTER, OTHER), *seeds(FULL, OTHER[::-1])]
    rows = [replace(one, train_seconds=SECONDS[one.candidate]) for one in rows]
    comparison = compared(rows)
    assert comparison.recommended == way_of(comparison, LAST_TWO)
    difference = np.mean(OTHER) - np.mean(TUNED)
    variances = [np.var(values, ddof=1) / 3 for values in (TUNED, OTHER)]
    freedom = sum(variances) ** 2 / sum(variance**2 / 2 for variance in variances)
    # 4.5 % over three ways, one of which is asked about because of these results.
    bound = difference + stats.t.isf(0.015, freedom) * math.sqrt(sum(variances))
    assert comparison.equivalence is not None
    assert comparison.equivalence.most == pytest.approx(bound, rel=1e-9)
    assert line(comparison, "Better?") == (
        f"no way is better than the last 2 layers by more than {100 * bound:.1f} points, at 95 %."
    )


def test_where_one_way_is_far_ahead_the_others_may_gain_nothing() -> None:
    comparison = compared([*way_rows(FULL, 0.95), *way_rows(HEAD, 0.6)])
    assert comparison.equivalence is not None and comparison.equivalence.most == 0.0


def priced(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows with what a run of each way takes."""
    return [replace(one, train_seconds=SECONDS[one.candidate]) for one in rows]


def test_the_bound_names_the_way_of_which_it_may_be_true() -> None:
    rows = priced(
        [*seeds(LAST_TWO, TUNED), *seeds(ADAPTER, OTHER), *seeds(HEAD, [0.6, 0.61, 0.62])]
    )
    equivalence = compared(rows).equivalence
    assert equivalence is not None and equivalence.other.candidate == ADAPTER
    assert equivalence.way.candidate == LAST_TWO and not equivalence.tells_nothing
    assert equivalence.nothing_from == pytest.approx(min(1 - np.mean(TUNED), np.mean(TUNED) - 0.5))


def test_a_bound_that_a_failed_seed_leaves_open_says_so() -> None:
    comparison = compared(with_adapters(0.88, 0.88, 0.5))
    assert comparison.equivalence is not None and comparison.equivalence.tells_nothing
    assert line(comparison, "Better?") == (
        "nothing can be told: 1 of 3 seeds of adapters of size 8 failed, so that another run may "
        "score anything."
    )


def test_a_bound_that_few_seeds_leave_open_says_so() -> None:
    rows = priced([*seeds(FULL, (0.7, 0.8, 0.9)), *seeds(ADAPTER, (0.72, 0.81, 0.91))])
    comparison = compared(rows)
    assert comparison.equivalence is not None
    assert comparison.equivalence.tells_nothing
    assert line(comparison, "Better?") == "nothing can be told: 3 seeds a way are too few."
    counted = compared([replace(one, examples=150) for one in rows])
    assert line(counted, "Better?") == (
        "nothing can be told: 3 seeds a way and 150 evaluation rows are too few."
    )


def test_a_bound_beyond_twice_the_gain_tells_nothing() -> None:
    # The scores gain 5 points, and may gain 40 more.
    rows = priced([*seeds(FULL, (0.54, 0.55, 0.56)), *seeds(ADAPTER, (0.52, 0.55, 0.58))])
    comparison = compared(rows)
    equivalence = comparison.equivalence
    assert equivalence is not None and equivalence.nothing_from < equivalence.most < 1 - 0.55
    assert line(comparison, "Better?").startswith("nothing can be told")


def test_the_bound_next_to_100_is_what_the_rows_and_seeds_allow() -> None:
    """A measured 99.5 leaves half a point of room, but the true score may be lower."""
    rows = priced([*seeds(FULL, (0.99, 0.995, 1.0)), *seeds(ADAPTER, (0.985, 0.995, 1.0))])
    comparison = compared(rows)
    equivalence = comparison.equivalence
    assert equivalence is not None and equivalence.most > 1 - 0.995
    assert line(comparison, "Better?") == (
        f"no way is better than adapters of size 8 by more than {100 * equivalence.most:.1f} "
        "points, at 95 %."
    )


RATES = {1e-5: 0.80, 2e-5: 0.90, 4e-5: 0.89, 8e-5: 0.7}
ADAPTER_RATES = {1e-4: 0.80, 3e-4: 0.90, 1e-3: 0.9005, 3e-3: 0.6}


def tuned_ways() -> list[ResultRow]:
    return [
        *explored(FULL, RATES),
        *explored(ADAPTER, ADAPTER_RATES),
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=3e-4),
    ]


def test_the_ratio_of_best_rates_covers_what_one_run_cannot_tell_apart() -> None:
    comparison = compared(tuned_ways())
    [ratio] = comparison.rate_ratios
    assert ratio.way == way_of(comparison, ADAPTER) and not ratio.is_open
    assert ratio.factor == pytest.approx(15)
    # s = .001 (and its rounding), two degrees of freedom, .025 over three others: 10.9 x 1.44e-3.
    assert stats.t.isf(0.025 / 3, 2) * math.sqrt(2 * (1e-6 + 1e-6 / 12)) == pytest.approx(
        0.0113, abs=1e-3
    )
    # So that 2e-5 and 4e-5 may be the best, or 3e-4 and 1e-3.
    assert (ratio.low, ratio.high) == (pytest.approx(3e-4 / 4e-5), pytest.approx(1e-3 / 2e-5))
    assert line(comparison, "Rates") == (
        "Adapters of size 8 are measured at 15 times the full model's rate (3e-4 and 2e-5; of the "
        "tried rates, at 95 %, 7.5 to 50 times)."
    )


@pytest.mark.parametrize(
    ("above", "verb"), [(0.92, "are measured at"), (0.9, "run best at"), (0.6, "run best at")]
)
def test_a_way_runs_best_only_at_the_rate_that_did_best(above: float, verb: str) -> None:
    rows = [
        *explored(FULL, RATES),
        *explored(ADAPTER, {1e-4: 0.80, 3e-4: 0.90, 1e-3: above, 3e-3: 0.6}),
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=3e-4),
    ]
    said = line(compared(rows), "Rates")
    assert said.startswith(f"Adapters of size 8 {verb} 15 times the full model's rate")


def stopped(rows: Sequence[ResultRow], candidate: Candidate, rate: float) -> list[ResultRow]:
    """Return the rows, with a way's exploring run at a rate ended by early stopping."""
    changed: list[ResultRow] = []
    for one in rows:
        explores = one.phase is Phase.EXPLORE and one.candidate == candidate
        if explores and one.learning_rate == rate:
            one = replace(one, status=TrialStatus.STOPPED_EARLY)
        changed.append(one)
    return changed


@pytest.mark.parametrize(
    ("candidate", "rate", "low", "high"),
    [
        (ADAPTER, 3e-3, 3e-4 / 4e-5, 3e-3 / 2e-5),
        (ADAPTER, 1e-4, 1e-4 / 4e-5, 1e-3 / 2e-5),
        (FULL, 1e-5, 3e-4 / 4e-5, 1e-3 / 1e-5),
    ],
)
def test_a_rate_that_early_stopping_ended_is_not_excluded(
    candidate: Candidate, rate: float, low: float, high: float
) -> None:
    [ratio] = compared(stopped(tuned_ways(), candidate, rate)).rate_ratios
    assert ratio.factor == pytest.approx(15)
    assert (ratio.low, ratio.high) == (pytest.approx(low), pytest.approx(high))


def test_a_rate_that_early_stopping_ended_counts_among_the_comparisons() -> None:
    # Over three others the margin is .0113, and over two .0091.
    scores = {1e-4: 0.80, 3e-4: 0.8905, 1e-3: 0.9005, 3e-3: 0.6}
    rows = [
        *explored(FULL, RATES),
        *explored(ADAPTER, scores),
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=1e-3),
    ]
    [ratio] = compared(stopped(rows, ADAPTER, 3e-3)).rate_ratios
    assert ratio.low == pytest.approx(3e-4 / 4e-5)


def test_where_early_stopping_ended_every_run_nothing_is_known_of_the_best_rate() -> None:
    rows = tuned_ways()
    for rate in ADAPTER_RATES:
        rows = stopped(rows, ADAPTER, rate)
    comparison = compared(rows)
    [ratio] = comparison.rate_ratios
    assert ratio.low is None and ratio.high is None and ratio.factor == pytest.approx(15)
    assert "tried beside it: 1e-4 and 1e-3" in line(comparison, "Rates")


@pytest.mark.parametrize("score", [0.9, 0.9123, 0.9 + 1 / 3e5])
def test_seeds_that_all_score_the_same_tell_nothing_of_the_best_rate(score: float) -> None:
    """They would make an interval of little or no width of one exploring run a rate."""
    same = [score] * 3
    rows = [
        *explored(FULL, RATES),
        *explored(ADAPTER, ADAPTER_RATES),
        *seeds(FULL, same, learning_rate=2e-5),
        *seeds(ADAPTER, same, learning_rate=3e-4),
    ]
    [ratio] = compared(rows).rate_ratios
    assert ratio.low is None and ratio.high is None


def test_one_seed_tells_of_no_way_that_it_learnt_nor_of_its_best_rate() -> None:
    rows = [one for one in tuned_ways() if one.seed in (0, 1)]
    comparison = compared(rows)
    assert comparison.rate_ratios == () and line(comparison, "Rates") == ""


@pytest.mark.parametrize("single", [FULL, ADAPTER])
def test_a_way_of_one_rate_has_no_best_rate(single: Candidate) -> None:
    rows = [
        one for one in tuned_ways() if one.candidate != single or one.phase is not Phase.EXPLORE
    ]
    comparison = compared(rows)
    assert comparison.rate_ratios == () and line(comparison, "Rates") == ""


def test_a_table_of_two_rates_has_a_factor_without_an_interval() -> None:
    rows = [
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(FULL, 0.85, learning_rate=4e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=3e-4),
        *way_rows(ADAPTER, 0.85, learning_rate=1e-4),
    ]
    comparison = compared(rows)
    [ratio] = comparison.rate_ratios
    assert ratio.low is None and ratio.high is None
    assert line(comparison, "Rates") == (
        "Adapters of size 8 run best at 15 times the full model's rate (3e-4 and 2e-5; tried "
        "beside it: 1e-4)."
    )


def test_one_exploring_run_gives_no_range() -> None:
    rows = [
        one
        for one in tuned_ways()
        if one.candidate != ADAPTER or one.phase is not Phase.EXPLORE or one.learning_rate == 1e-3
    ]
    [ratio] = compared(rows).rate_ratios
    assert ratio.factor == pytest.approx(15) and ratio.low is None and ratio.high is None


@pytest.mark.parametrize("lost", [FULL, ADAPTER])
def test_what_did_not_learn_when_it_was_measured_has_no_best_rate(lost: Candidate) -> None:
    # One exploring run looked good, and no fresh seed was.
    rows = [
        replace(one, quality=0.5) if one.candidate == lost and one.phase is Phase.MEASURE else one
        for one in [*tuned_ways(), *way_rows(LAST_TWO, 0.9)]
    ]
    assert compared(rows).rate_ratios == ()


def test_each_method_has_the_ratio_of_its_best_way_and_every_way_one_of_its_own() -> None:
    small = Adapter(4)
    rows = [
        *tuned_ways(),
        *explored(small, ADAPTER_RATES),
        *way_rows(small, 0.89, learning_rate=1e-3),
        *explored(LAST_TWO, RATES),
        *way_rows(LAST_TWO, 0.88, learning_rate=4e-5),
    ]
    comparison = compared(rows)
    assert [ratio.way.candidate for ratio in comparison.rate_ratios] == [ADAPTER]
    factors = {ratio.way.candidate: ratio.factor for ratio in ratios_of_ways(comparison)}
    assert factors == pytest.approx({ADAPTER: 15, small: 50, LAST_TWO: 2})


def test_a_best_rate_at_the_border_is_marked() -> None:
    rows = [
        *explored(FULL, RATES),
        *explored(ADAPTER, {1e-4: 0.7, 3e-4: 0.8, 1e-3: 0.9}),
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=1e-3),
    ]
    comparison = compared(rows)
    assert line(comparison, "Fair?") == (
        "the ways explored their own rates in 3 to 4 trials each. The best rate of adapters of "
        "size 8 is the highest that was tried: higher rates may be better."
    )
    [ratio] = comparison.rate_ratios
    assert ratio.is_open and "and perhaps beyond" in line(comparison, "Rates")


@pytest.mark.parametrize(
    ("scores", "end"),
    [
        (
            {1e-4: 0.7, 3e-4: 0.9, 1e-3: 0.897},
            "highest rate that was tried is as good as the best, ",
        ),
        (
            {3e-4: 0.897, 1e-3: 0.9, 3e-3: 0.7},
            "lowest rate that was tried is as good as the best, ",
        ),
    ],
)
def test_rates_as_good_up_to_an_end_of_those_tried_are_named(
    scores: dict[float, float], end: str
) -> None:
    rows = [
        *explored(FULL, {1e-5: 0.7, 2e-5: 0.9, 4e-5: 0.7}),
        *explored(ADAPTER, scores),
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=3e-4),
    ]
    text = line(compared(rows), "Fair?")
    direction = "higher" if "highest" in end else "lower"
    assert text == (
        "each of the 2 ways explored its own rate in 3 trials. Of adapters of size 8, the "
        f"{end}within 0.5 points: {direction} rates may be better."
    )


def test_a_way_that_learnt_nothing_has_no_best_rate() -> None:
    rows = [
        *explored(FULL, RATES),
        *explored(ADAPTER, dict.fromkeys(ADAPTER_RATES, 0.5)),
        *way_rows(FULL, 0.9, learning_rate=2e-5),
        *way_rows(ADAPTER, 0.5, learning_rate=1e-4),
    ]
    comparison = compared(rows)
    assert line(comparison, "Fair?") == (
        "each of the 2 ways explored its own rate in 4 trials. Adapters of size 8 learnt nothing "
        "at any of 4 rates from 1e-4 to 3e-3."
    )
    assert comparison.rate_ratios == ()


def test_beside_a_full_model_that_learnt_nothing_no_rate_is_a_multiple_of_its() -> None:
    rows = [
        *explored(FULL, dict.fromkeys(RATES, 0.5)),
        *explored(ADAPTER, ADAPTER_RATES),
        *way_rows(FULL, 0.5, learning_rate=1e-5),
        *way_rows(ADAPTER, 0.9, learning_rate=3e-4),
    ]
    assert compared(rows).rate_ratios == ()


def test_equal_effort_is_said() -> None:
    assert line(compared(tuned_ways()), "Fair?") == (
        "each of the 2 ways explored its own rate in 4 trials."
    )


def test_who_has_the_fewest_seeds_is_named() -> None:
    *rows, _one_of_adapters = tuned_ways()
    text = line(compared(rows), "Fair?")
    assert text.endswith(" Adapters of size 8 have 2 seeds, others up to 3.")


def test_who_explored_nothing_is_named() -> None:
    rows = [*tuned_ways(), *way_rows(LAST_TWO, 0.89)]
    assert line(compared(rows), "Fair?") == (
        "the last 2 layers explored no learning rate of their own, so that the others have an "
        "advantage."
    )


def test_ways_of_one_rate_are_named_where_no_exploring_is_recorded() -> None:
    beginning = "how the learning rates were chosen is not recorded."
    end = "ran at one rate alone: another may be better or worse by any amount."
    assert line(compared(four_ways()), "Fair?") == f"{beginning} Every way {end}"
    rows = [*four_ways(), *way_rows(LAST_TWO, 0.5, learning_rate=1e-3)]
    assert line(compared(rows), "Fair?").startswith(
        f"{beginning} The head alone, adapters of size 8 and the full model {end}"
    )


def test_no_way_is_said_to_have_run_at_one_rate_where_no_rate_is_known() -> None:
    unknown = [replace(one, learning_rate=None) for one in four_ways()]
    not_recorded = "how the learning rates were chosen is not recorded."
    assert line(compared(unknown), "Fair?") == not_recorded
    of_full = [one for one in four_ways() if one.candidate == FULL]
    others = [one for one in unknown if one.candidate != FULL]
    assert line(compared([*of_full, *others]), "Fair?") == (
        f"{not_recorded} The full model ran at one rate alone: another may be better or worse by "
        "any amount."
    )


def with_adapters(*qualities: float) -> list[ResultRow]:
    return [
        *way_rows(FULL, 0.9, examples=10_000),
        *way_rows(LAST_TWO, 0.9, examples=10_000),
        *seeds(ADAPTER, qualities, train_seconds=60.0, examples=10_000),
    ]


def test_a_way_with_failed_seeds_that_may_be_the_best_is_named() -> None:
    comparison = compared(with_adapters(0.88, 0.88, 0.5))
    assert comparison.certified == () and comparison.unsettled == (way_of(comparison, ADAPTER),)
    sentence = (
        "Adapters of size 8 (75.3 ± 21.9) may be the best after all: 1 of 3 seeds failed, far from "
        "the others. A search with more seeds, or without this way, may be sure."
    )
    assert line(comparison, "How sure").endswith(sentence)


def test_a_way_with_failed_seeds_that_is_surely_not_the_best_holds_nobody_up() -> None:
    comparison = compared(with_adapters(0.501, 0.5, 0.499))
    assert comparison.unsettled == () and comparison.certified


# ---- freezing's own answer ----


def test_freezing_is_answered_the_same_with_and_without_other_ways() -> None:
    def told(answer: Answer) -> dict[str, Any]:
        return {**answer_object(answer), "in_full": (answer.sentence, answer.certainty)}

    alone = falling_curve(examples=10_000)
    others = [*way_rows(ADAPTER, 0.95, examples=10_000), *explored(ADAPTER, {1e-4: 0.95})]
    [without] = answer_rows(alone)
    [beside] = answer_rows([*others, *alone])
    assert told(without) == told(beside)
    for candidate, contrast in without.corrected_contrasts.items():
        assert beside.corrected_contrasts[candidate] == contrast
    # The comparison does see them.
    comparison = compared([*others, *alone])
    assert comparison.best is not None and comparison.best.candidate == ADAPTER


def test_a_comparison_needs_no_full_model() -> None:
    [curve] = way_curves([*way_rows(ADAPTER, 0.9), *way_rows(LAST_TWO, 0.9)])
    comparison = compare_ways(curve)
    assert labels(comparison) == ["4", "adapter-8"] and comparison.rate_ratios == ()


def test_what_is_assumed_is_said_of_ways_and_of_depths_by_their_own_word() -> None:
    rows = four_ways()
    said = line(compared(rows), "How sure")
    assert "fall far below others of their way)" in said and "depth" not in said
    depths = [one for one in rows if one.candidate.is_ranked]
    assert "fall far below others of their depth)" in line(compared(depths), "How sure")
