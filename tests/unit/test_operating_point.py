"""The operating point, its reasons and warnings, the joint answer, and their JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.analysis.answer import Answer, Reason, check_target, reaches
from elsa_tune.analysis.answer_json import (
    ANSWER_COLUMNS,
    CURVE_COLUMNS,
    answer_object,
    answers_csv,
    as_json,
    curve_object,
    curves_csv,
    freeze_curve_object,
)
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.curve import CurvePoint, Saves
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.analysis.wording.answer import saved_shares, saves_sentence
from elsa_tune.errors import UnknownNameError, UsageError
from elsa_tune.results.columns import COLUMNS
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import UNRECORDED, Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.result_rows import EMBEDDINGS_ONLY, codes, falling_curve, row, seeds, warned


def only_answer(rows: list[ResultRow], target: float = 0.9) -> Answer:
    (answer,) = answer_rows(rows, target)
    return answer


def fine_tuned(answer: Answer) -> tuple[int | None, int | None]:
    raw, corrected = answer.operating_point, answer.corrected_operating_point
    return raw and raw.fine_tuned_layers, corrected and corrected.fine_tuned_layers


def test_raw_and_corrected_operating_points_side_by_side() -> None:
    answer = only_answer(falling_curve())
    assert fine_tuned(answer) == (2, 3)
    assert answer.every_larger_k_passes is True and answer.reason is None
    assert answer.operating_point is not None
    assert answer.operating_point.retention == pytest.approx(0.83 / 0.90)
    assert answer.sentence == (
        "2 of 6 layers at 5e-5 keep 92.2 % of the full model's accuracy (83.0 of 90.0). Corrected "
        "for chance (50.0) that is 82.5 %, and 3 of 6 layers are needed (95.0 %)."
    )
    disagree = warned(answer, WarningCode.CORRECTED_DISAGREES)
    assert "92.2 %" in disagree and "82.5 %" in disagree and "55.6 %" in disagree


def test_a_quality_of_exactly_the_target_passes() -> None:
    # In binary .9 * .64 is a little more than .576.
    assert 0.576 < 0.9 * 0.64
    assert reaches(0.576, 0.64, 0.9, policy=Policy())
    assert not reaches(0.576 - 1e-6, 0.64, 0.9, policy=Policy())
    answer = only_answer(seeds(0, [0.64, 0.64]) + seeds(3, [0.576, 0.576]))
    assert answer.operating_point is not None and answer.operating_point.fine_tuned_layers == 3


def test_what_is_missed_by_no_more_than_rounding_is_reached() -> None:
    rounding = Policy().rounding
    assert reaches(-rounding, 0.0, 1.0, policy=Policy())
    assert not reaches(-1.01 * rounding, 0.0, 1.0, policy=Policy())


def test_the_contrast_decides_where_ratios_mislead() -> None:
    # Below chance the corrected ratio of two negative numbers would be 2.
    assert not reaches(0.3, 0.4, 0.9, base=0.5, policy=Policy())
    assert reaches(0.5, 0.4, 0.9, base=0.5, policy=Policy())


@pytest.mark.parametrize("target", [0, -0.1, 1.5, float("nan"), float("inf")])
def test_impossible_targets_are_refused(target: float) -> None:
    with pytest.raises(UsageError, match="above 0 and up to 1"):
        answer_rows(falling_curve(), target)


def test_a_target_in_percent_is_refused_with_the_fraction() -> None:
    for target, hint in ((90, "write 0.9"), (100, "write 1"), (2, "write 0.02")):
        with pytest.raises(UsageError, match=hint):
            check_target(target)
    for target in (101, 1.5):
        with pytest.raises(UsageError, match=r"up to 1$"):
            check_target(target)


def test_a_target_of_one_asks_for_the_whole_quality() -> None:
    better = seeds(0, [0.8, 0.81]) + seeds(3, [0.82, 0.83]) + seeds(6, [0.6, 0.61])
    assert fine_tuned(only_answer(better, 1.0)) == (3, 3)
    answer = only_answer(falling_curve(), 1.0)
    assert fine_tuned(answer) == (6, 6) and answer.reason is Reason.NOTHING_REACHES_TARGET


def test_where_no_frozen_depth_reaches_the_target_the_full_model_is_the_answer() -> None:
    answer = only_answer(seeds(0, [0.9, 0.91]) + seeds(3, [0.7, 0.7]) + seeds(6, [0.6, 0.6]))
    assert fine_tuned(answer) == (6, 6)
    assert answer.reason is Reason.NOTHING_REACHES_TARGET


def test_a_full_model_that_did_not_learn_is_the_answer() -> None:
    answer = only_answer(seeds(0, [0.49, 0.52, 0.51]) + seeds(3, [0.5, 0.51, 0.5]))
    assert answer.reason is Reason.FULL_MODEL_DID_NOT_LEARN
    assert fine_tuned(answer) == (None, None) and answer.every_larger_k_passes is None
    assert answer.full is not None and answer.full.seeds == 3


def test_seeds_that_all_gave_the_constant_answer_did_not_learn() -> None:
    answer = only_answer(seeds(0, [0.5, 0.5]) + seeds(3, [0.5, 0.5]))
    assert answer.reason is Reason.FULL_MODEL_DID_NOT_LEARN
    assert answer.full is not None and answer.full.failed_seeds == 2
    matthews = only_answer(
        [one for n in (0, 3) for one in seeds(n, [0.0, 0.0], metric="matthews", chance=None)]
    )
    assert matthews.reason is Reason.FULL_MODEL_DID_NOT_LEARN


def test_with_one_run_the_test_is_skipped_and_told() -> None:
    answer = only_answer([row(0, 0.9), row(3, 0.87)])
    assert fine_tuned(answer) == (3, 3)
    assert "one run" in warned(answer, WarningCode.LEARNING_UNTESTED)


def test_with_means_alone_the_test_is_skipped_and_told() -> None:
    answer = only_answer([row(0, 0.9, runs=5, seed=None), row(3, 0.85, runs=5, seed=None)])
    assert "spread of its 5 runs" in warned(answer, WarningCode.LEARNING_UNTESTED)
    told = only_answer([row(0, 0.9, runs=5, std=0.01, seed=None), row(3, 0.85, runs=5, seed=None)])
    assert WarningCode.LEARNING_UNTESTED not in codes(told)


def test_without_chance_nothing_is_corrected_and_it_is_told() -> None:
    rows = [one for n, q in ((0, 0.9), (3, 0.85)) for one in seeds(n, [q, q], chance=None)]
    answer = only_answer(rows)
    assert fine_tuned(answer) == (3, None)
    assert warned(answer, WarningCode.CHANCE_UNKNOWN)


def test_no_full_model_and_only_the_full_model_have_no_answer() -> None:
    without = only_answer(seeds(3, [0.8, 0.8]) + seeds(EMBEDDINGS_ONLY, [0.9, 0.9]))
    assert without.reason is Reason.NO_FULL_MODEL and without.operating_point is None
    assert "embeddings-only and the last 3 layers" in without.sentence
    alone = only_answer(seeds(0, [0.8, 0.8]) + seeds(EMBEDDINGS_ONLY, [0.8, 0.8]))
    assert alone.reason is Reason.NO_FROZEN_DEPTH and alone.operating_point is None


def test_exploring_trials_alone_have_no_answer() -> None:
    answer = only_answer([row(n, 0.8, phase=Phase.EXPLORE) for n in (0, 3)])
    assert answer.reason is Reason.NO_MEASUREMENTS and "2 done" in answer.sentence
    assert answer.best is None and answer.full is None


def test_embeddings_only_is_never_the_operating_point() -> None:
    rows = seeds(0, [0.9, 0.91]) + seeds(EMBEDDINGS_ONLY, [0.95, 0.95]) + seeds(6, [0.6, 0.6])
    answer = only_answer(rows)
    assert answer.operating_point is not None and answer.operating_point.candidate.is_reference
    assert warned(answer, WarningCode.EMBEDDINGS_ONLY_IS_BEST)


def test_what_differs_less_than_it_prints_is_not_better() -> None:
    """A difference of 1e-6 is the same quality yet."""
    for off, is_better in ((1e-6, False), (2e-6, True)):
        answer = only_answer([row(0, 0.75), row(EMBEDDINGS_ONLY, 0.75 + off), row(6, 0.6)])
        assert (WarningCode.EMBEDDINGS_ONLY_IS_BEST in codes(answer)) == is_better


def test_a_curve_that_dips_says_which_larger_k_fail() -> None:
    rows = seeds(0, [0.9, 0.91]) + seeds(3, [0.7, 0.7]) + seeds(4, [0.88, 0.88])
    answer = only_answer(rows)
    assert fine_tuned(answer)[0] == 2 and answer.every_larger_k_passes is False
    assert "the last 3 layers (77.3 %)" in warned(answer, WarningCode.LARGER_K_MISSES_TARGET)
    assert "from 70.0 (the last 3 layers) to 88.0 (the last 2 layers)" in warned(
        answer, WarningCode.NOT_MONOTONE
    )


def test_of_equal_rises_the_first_is_named() -> None:
    qualities = {0: 0.875, 2: 0.75, 3: 0.8125, 4: 0.625, 5: 0.6875}
    answer = only_answer([row(frozen, quality) for frozen, quality in qualities.items()])
    assert "from 75.0 (the last 4 layers) to 81.2 (the last 3 layers)" in warned(
        answer, WarningCode.NOT_MONOTONE
    )


def test_a_depth_that_beats_the_full_model_is_named() -> None:
    answer = only_answer(seeds(0, [0.9, 0.91]) + seeds(3, [0.93, 0.93]))
    assert answer.best is not None and answer.best.candidate.frozen_layers == 3
    assert "the last 3 layers gives 93.0, the full model 90.5" in warned(
        answer, WarningCode.BEST_IS_NOT_FULL
    )


def test_a_constant_answer_that_reaches_the_target_is_told() -> None:
    rows = [
        one for n, q in ((0, 0.695), (6, 0.69)) for one in seeds(n, [q, q + 0.001], chance=0.69)
    ]
    warning = warned(only_answer(rows), WarningCode.CONSTANT_REACHES_TARGET)
    assert "90 % of the full model's 69.5 is 62.6" in warning and "69.0" in warning


def test_depths_missing_and_uneven_designs_are_told() -> None:
    rows = seeds(0, [0.9, 0.91, 0.9]) + seeds(3, [0.85, 0.85])
    rows += [row(0, 0.9, phase=Phase.EXPLORE)]
    answer = only_answer(rows)
    assert "the last 2 and 1 layers and the head alone" in warned(
        answer, WarningCode.DEPTHS_NOT_MEASURED
    )
    assert "2 at the last 3 layers; 3 at the full model" in warned(answer, WarningCode.SEEDS_DIFFER)
    assert "0 at the last 3 layers; 1 at the full model" in warned(answer, WarningCode.TRIES_DIFFER)


def test_a_complete_even_curve_has_no_warning_but_what_it_deserves() -> None:
    answer = only_answer(falling_curve())
    assert codes(answer) == [WarningCode.CORRECTED_DISAGREES]


def test_savings_are_shares_of_the_full_model() -> None:
    costs = {"train_seconds": 100.0, "peak_memory_mb": 1000.0, "trainable_parameters": 200}
    less = {"train_seconds": 38.0, "peak_memory_mb": 1100.0}
    answer = only_answer(seeds(0, [0.9, 0.91], **costs) + seeds(3, [0.9, 0.9], **less))
    assert answer.operating_point is not None
    saves = answer.operating_point.saves
    assert saves.train_seconds == pytest.approx(0.62)
    assert saves.peak_memory_mb == pytest.approx(-0.1)
    assert saves.trainable_parameters is None
    nothing = {"train_seconds": 0.0}
    answer = only_answer(seeds(0, [0.9, 0.91], **nothing) + seeds(3, [0.9, 0.9], **nothing))
    assert answer.operating_point is not None
    assert answer.operating_point.saves.train_seconds is None


@pytest.mark.parametrize(
    ("share", "said"), [(5e-4, "0.1 %"), (4.9e-4, None), (0.0, None), (-0.1, None)]
)
def test_a_saving_that_would_print_as_nothing_is_none(share: float, said: str | None) -> None:
    saves = Saves(trainable_parameters=share, train_seconds=share, peak_memory_mb=share)
    point = CurvePoint(candidate=FULL_MODEL, fine_tuned_layers=6, saves=saves)
    nothing = ["no parameters", "no time", "no memory"]
    whole = ["of the trained parameters", "of the training time", "of the peak memory"]
    expected = nothing if said is None else [f"{said} {of_what}" for of_what in whole]
    assert saved_shares(point) == expected


def test_a_saving_that_is_not_known_is_left_out() -> None:
    point = CurvePoint(candidate=FULL_MODEL, fine_tuned_layers=6, saves=Saves(train_seconds=0.62))
    assert saved_shares(point) == ["62.0 % of the training time"]


def test_what_a_depth_saves_is_a_sentence_or_nothing() -> None:
    saves = Saves(train_seconds=0.62)
    deep = CurvePoint(candidate=FreezeDepth.of(3), fine_tuned_layers=3, saves=saves)
    assert saves_sentence(deep) == "Saves 62.0 % of the training time."
    assert saves_sentence(dataclasses.replace(deep, saves=Saves())) == ""
    assert saves_sentence(dataclasses.replace(deep, candidate=FULL_MODEL)) == ""
    assert saves_sentence(None) == ""


def test_costs_of_several_tasks_add_up_and_memory_is_that_of_the_hungriest() -> None:
    def costs(
        task: str, frozen: int, seconds: float, memory: float, **more: int
    ) -> list[ResultRow]:
        both = {"train_seconds": seconds, "peak_memory_mb": memory}
        return seeds(frozen, [0.9, 0.9], task=task, **both, **more)

    rows = [
        *costs("rte", 0, 100, 1000, trainable_parameters=200),
        *costs("rte", 3, 40, 900, trainable_parameters=150),
        *costs("cola", 0, 300, 2000, trainable_parameters=200),
        *costs("cola", 3, 120, 1500),
    ]
    *_, joint = answer_rows(rows)
    assert joint.operating_point is not None
    saves = joint.operating_point.saves
    assert saves.train_seconds == pytest.approx(1 - 160 / 400)
    assert saves.peak_memory_mb == pytest.approx(1 - 1500 / 2000)
    assert saves.trainable_parameters is None  # not known of all


def test_a_joint_point_counts_what_every_task_has() -> None:
    explored = {"phase": Phase.EXPLORE}
    ended = [status for status in TrialStatus if status.is_final]
    rows = [
        *seeds(0, [0.9, 0.91, 0.92]),
        *seeds(3, [0.88, 0.5]),
        row(3, 0.8, **explored),
        *seeds(0, [0.8, 0.81], task="cola", metric="f1"),
        *seeds(3, [0.79, 0.5, 0.5, 0.5], task="cola", metric="f1"),
        *(row(3, 0.7, status=s, task="cola", metric="f1", **explored) for s in ended),
    ]
    *_, joint = answer_rows(rows)
    point = joint.points[1]
    assert (point.seeds, point.failed_seeds) == (2, 1 + 3)
    assert (point.exploring_trials, point.stopped_early) == (1 + 3, 1)
    assert (joint.metric, joint.chance, joint.full, joint.best) == (None,) * 4


def test_the_joint_answer_certifies_nothing_where_a_task_does_not() -> None:
    rows = two_tasks({0: 0.9, 3: 0.89}, {0: 0.8, 3: 0.79})
    third = [row(n, q, seed=3, task=t) for t, n, q in (("rte", 0, 0.9), ("rte", 3, 0.89))]
    early = [dataclasses.replace(one, policy=UNRECORDED) for one in [*rows, *third]]
    *_, joint = answer_rows(early)
    assert joint.certified is None and joint.reason is Reason.TOO_FEW_SEEDS
    *_, joint = answer_rows([*rows, *seeds(3, [0.7, 0.7], learning_rate=1e-5)])
    assert joint.certified is None and joint.reason is Reason.RATES_NOT_FRESH
    assert joint.plausible is None


def test_the_joint_answer_certifies_nothing_where_epochs_were_chosen_on_the_judging_rows() -> None:
    curves = {0: 0.9, 3: 0.89}, {0: 0.8, 3: 0.79}
    *_, joint = answer_rows(two_tasks(*curves))
    assert joint.certified is not None
    *_, joint = answer_rows(two_tasks(*curves, selection="best_epoch"))
    assert joint.certified is None and joint.reason is Reason.EPOCHS_NOT_FRESH
    assert joint.plausible is None


def test_the_joint_answer_certifies_nothing_where_a_tasks_runs_have_no_score() -> None:
    rows = two_tasks({0: 0.9, 3: 0.89}, {0: 0.8, 3: 0.79})
    *_, joint = answer_rows(rows)
    assert joint.certified is not None
    lacking = dataclasses.replace(rows[-1], seed=9, quality=None, status=TrialStatus.FAILED)
    *_, joint = answer_rows([*rows, lacking])
    assert joint.certified is None and joint.reason is Reason.SEEDS_MISSING
    assert joint.plausible is None


def test_one_layer_of_several_tasks_is_one() -> None:
    *_, joint = answer_rows(two_tasks({0: 0.9, 5: 0.89}, {0: 0.8, 5: 0.79}))
    assert joint.sentence.startswith("1 of 6 layers keeps ")
    *_, joint = answer_rows(two_tasks({0: 0.9, 4: 0.89}, {0: 0.8, 4: 0.79}))
    assert joint.sentence.startswith("2 of 6 layers keep ")


def test_a_target_in_per_cent_is_shown_as_a_share() -> None:
    with pytest.raises(UsageError, match=r"above 0 and up to 1; for 90 % write 0\.9$"):
        answer_rows(falling_curve(), target=90)


@pytest.mark.parametrize(("seeds_of_it", "said"), [(1, "in one run"), (2, "over 2 seeds")])
def test_a_full_model_that_learnt_nothing_names_its_runs(seeds_of_it: int, said: str) -> None:
    rows = [*seeds(0, [0.5] * seeds_of_it), *seeds(3, [0.5] * seeds_of_it)]
    [answer] = answer_rows(rows)
    assert f" {said} is not above " in answer.sentence


def test_a_full_model_above_chance_is_said_to_be_so_without_confidence() -> None:
    above = only_answer([*seeds(0, [0.49, 0.53, 0.54]), *seeds(3, [0.5] * 3)])
    assert above.reason is Reason.FULL_MODEL_DID_NOT_LEARN
    assert above.sentence.endswith("the 50.0 of a constant answer with 95 % confidence.")
    below = only_answer([*seeds(0, [0.49, 0.5, 0.48]), *seeds(3, [0.5] * 3)])
    assert below.sentence.endswith("is not above the 50.0 of a constant answer.")


def two_tasks(rte: dict[int, float], cola: dict[int, float], **changes: Any) -> list[ResultRow]:
    return [
        one
        for task, curve in (("rte", rte), ("cola", cola))
        for n, q in curve.items()
        for one in seeds(n, [q, q + 0.001], task=task, **changes)
    ]


def test_the_joint_answer_is_pointwise() -> None:
    # Each task's own answer is k = 0, but at N = 3 and N = 6 one of them fails.
    rows = two_tasks({0: 0.9, 3: 0.6, 4: 0.85, 6: 0.9}, {0: 0.8, 3: 0.8, 4: 0.79, 6: 0.5})
    rte, cola, joint = answer_rows(rows)
    assert fine_tuned(rte)[0] == 0 and fine_tuned(cola)[0] == 2
    assert joint.task == "*" and fine_tuned(joint)[0] == 2
    assert joint.decided_by == ("cola",)
    assert joint.every_larger_k_passes is False
    assert joint.operating_point is not None
    assert joint.operating_point.quality is None
    assert joint.operating_point.retention == pytest.approx(0.8505 / 0.9005)


def test_the_joint_answer_uses_only_depths_measured_for_every_task() -> None:
    rte, cola, joint = answer_rows(two_tasks({0: 0.9, 4: 0.89, 5: 0.88}, {0: 0.8, 3: 0.8, 4: 0.79}))
    assert (fine_tuned(rte)[0], fine_tuned(cola)[0], fine_tuned(joint)[0]) == (1, 2, 2)
    assert joint.decided_by == ()
    assert "the last 3 and 1 layers" in warned(joint, WarningCode.NOT_MEASURED_EVERYWHERE)
    *_, nothing = answer_rows(two_tasks({0: 0.9, 4: 0.89}, {0: 0.8, 3: 0.8}))
    assert nothing.reason is Reason.NO_COMMON_DEPTH and nothing.operating_point is None


def test_a_task_without_an_answer_leaves_none_unless_excluded() -> None:
    rows = two_tasks({0: 0.9, 3: 0.89}, {0: 0.5, 3: 0.5})
    *_, joint = answer_rows(rows)
    assert joint.operating_point is None and joint.reason is Reason.FULL_MODEL_DID_NOT_LEARN
    assert joint.decided_by == ("cola",) and "cola: " in joint.sentence
    *_, joint = answer_rows([*rows, row(3, 0.8, task="sst2")])
    assert joint.reason is Reason.FULL_MODEL_DID_NOT_LEARN  # the first of two reasons
    assert joint.decided_by == ("cola", "sst2")
    _, cola, joint = answer_curves(freeze_curves(rows), exclude_tasks=["cola"])
    assert cola.task == "cola" and cola.operating_point is None
    assert fine_tuned(joint) == (3, 3)
    assert warned(joint, WarningCode.TASKS_EXCLUDED).endswith(": cola")


def test_what_cannot_be_excluded() -> None:
    rows = two_tasks({0: 0.9, 3: 0.89}, {0: 0.5, 3: 0.5})
    with pytest.raises(UnknownNameError, match="did you mean 'cola'"):
        answer_curves(freeze_curves(rows), exclude_tasks=["colla"])
    with pytest.raises(UsageError, match="every task is excluded"):
        answer_curves(freeze_curves(rows), exclude_tasks=["cola", "rte"])


def test_training_sizes_are_joined_size_by_size() -> None:
    small = two_tasks({0: 0.9, 3: 0.7}, {0: 0.9, 3: 0.89}, train_size=50)
    large = two_tasks({0: 0.9, 3: 0.89}, {0: 0.9, 3: 0.89}, train_size=500)
    joints = [answer for answer in answer_rows(small + large) if answer.task == "*"]
    assert [(joint.train_size, fine_tuned(joint)[0]) for joint in joints] == [(50, 6), (500, 3)]


def test_what_a_joint_answer_warns_of() -> None:
    even = two_tasks({0: 0.9, 3: 0.88, 6: 0.83}, {0: 0.9, 3: 0.88, 6: 0.83})
    of_rte, of_cola = even[:6], even[6:]
    *_, joint = answer_rows(even)
    # k = 0 keeps 92 % raw, and of what is gained over chance 83 %.
    assert fine_tuned(joint) == (0, 3) and codes(joint) == [WarningCode.CORRECTED_DISAGREES]
    unknown = [dataclasses.replace(one, chance=None) for one in of_cola]
    *_, joint = answer_rows([*of_rte, *unknown])
    assert fine_tuned(joint) == (0, None) and codes(joint) == [WarningCode.NO_CORRECTED_JOINT]
    fewer = [dataclasses.replace(one, train_size=100) for one in of_cola if one.quality != 0.88]
    *_, joint = answer_rows([*of_rte, *fewer, *seeds(4, [0.5, 0.5], task="cola", train_size=100)])
    assert joint.train_size is None
    assert set(codes(joint)) == {
        WarningCode.TRAIN_SIZES_DIFFER,
        WarningCode.NOT_MEASURED_EVERYWHERE,
        WarningCode.CORRECTED_DISAGREES,
    }
    dips = [*even, *seeds(2, [0.7, 0.7]), *seeds(2, [0.9, 0.9], task="cola")]
    *_, joint = answer_rows(dips)
    assert WarningCode.LARGER_K_MISSES_TARGET in codes(joint)
    assert joint.every_larger_k_passes is False


ANSWER_KEYS = {
    *("schema_version", "model", "task", "train_size", "search", "metric", "selection", "target"),
    *("layers", "chance", "full", "best", "operating_point", "corrected_operating_point"),
    *("certified", "corrected_certified", "plausible_fine_tuned_layers", "every_larger_k_passes"),
    *("reason", "curve", "warnings", "next_step", "operating_point_within_given_rates"),
    *("linear_probe", "recommendation"),
}
POINT_KEYS = {
    *("frozen_layers", "fine_tuned_layers", "quality", "retention", "corrected_retention"),
    *("learning_rate", "saves"),
}
CURVE_KEYS = {
    *("frozen_layers", "embeddings_frozen", "fine_tuned_layers", "quality", "std", "ci_low"),
    *("ci_high", "seeds", "failed_seeds", "learning_rate", "retention", "corrected_retention"),
    *("explored", "stopped_early", "rate_at_border"),
}


def test_the_json_has_exactly_the_documented_fields() -> None:
    rte, _, joint = (
        json.loads(as_json([answer_object(answer)]))[0]
        for answer in answer_rows(two_tasks({0: 0.9, 3: 0.89}, {0: 0.8, 3: 0.8}))
    )
    assert set(rte) == ANSWER_KEYS | {"claim"}
    assert set(joint) == ANSWER_KEYS | {"claim", "decided_by"}
    assert rte["claim"] == joint["claim"] == "corrected"
    assert set(rte["operating_point"]) == POINT_KEYS == set(joint["operating_point"])
    assert set(rte["operating_point"]["saves"]) == {
        "trainable_parameters",
        "train_seconds",
        "peak_memory_mb",
    }
    assert set(rte["full"]) == {"quality", "std", "seeds", "failed_seeds", "learning_rate"}
    assert set(rte["best"]) == {"frozen_layers", "quality"}
    contrasts = {"contrast", "corrected_contrast", "would_certify", "corrected_would_certify"}
    assert all(set(point) == CURVE_KEYS | contrasts for point in rte["curve"] + joint["curve"])
    assert rte["linear_probe"] is joint["linear_probe"] is None
    assert rte["schema_version"] == 2 and rte["full"]["learning_rate"] == 3e-5


def test_the_json_of_an_unanswerable_question_is_valid_too() -> None:
    rows = [row(0, 0.8, phase=Phase.EXPLORE), row(3, float("nan"))]
    (found,) = json.loads(as_json([answer_object(only_answer(rows))]))
    assert found["reason"] == "no_measurements"
    assert found["full"] is found["best"] is found["operating_point"] is None
    assert [point["quality"] for point in found["curve"]] == [None, None]
    with pytest.raises(ValueError):
        as_json([{"quality": float("nan")}])
    assert as_json([{"layers": 6}]) == '[\n  {\n    "layers": 6\n  }\n]'
    (point,) = freeze_curves([row(0, -1e-9, metric="matthews", chance=0.0)])[0].points
    assert str(curve_object(point)["quality"]) == "0.0"


def test_a_warning_is_a_code_and_a_text() -> None:
    found = only_answer(falling_curve())
    (warning,) = answer_object(found)["warnings"]
    assert warning["code"] == "corrected_answer_disagrees"
    (cells,) = csv.DictReader(io.StringIO(answers_csv([found])))
    assert cells["warnings"] == warning["text"]
    (curve,) = freeze_curves([*falling_curve(), falling_curve()[0]])
    (warning,) = freeze_curve_object(curve)["warnings"]
    assert warning["code"] == "repeated_rows"


def test_csv_has_one_line_an_answer_and_one_a_depth() -> None:
    answers = list(csv.DictReader(io.StringIO(answers_csv(answer_rows(falling_curve())))))
    assert tuple(answers[0]) == (*ANSWER_COLUMNS, "claim") and len(answers) == 1
    assert answers[0]["claim"] == "corrected"
    heading = ("model", "task", "train_size", "search", "metric", "selection", "target", "layers")
    assert ANSWER_COLUMNS[: len(heading)] == heading
    assert answers[0]["operating_point_fine_tuned_layers"] == "2"
    assert answers[0]["corrected_operating_point_retention"] == "0.977778"
    assert answers[0]["every_larger_k_passes"] == "true" and answers[0]["reason"] == ""
    depths = list(csv.DictReader(io.StringIO(curves_csv(freeze_curves(falling_curve())))))
    assert tuple(depths[0]) == CURVE_COLUMNS
    assert [depth["frozen_layers"] for depth in depths] == ["0", "3", "4", "5", "6"]
    assert depths[0]["quality"] == "0.9" and depths[0]["learning_rate"] == "3e-05"


def test_every_code_and_field_is_documented(root: Path) -> None:
    page = (root / "docs" / "reference" / "answer.md").read_text(encoding="utf-8")
    names = {*Reason, *WarningCode, *ANSWER_KEYS, *POINT_KEYS, *CURVE_KEYS, *COLUMNS}
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_embeddings_only_is_best_where_it_beats_every_other_depth() -> None:
    curve = [*seeds(0, [0.9, 0.9]), *seeds(6, [0.85, 0.85])]
    for quality, is_said in ((0.95, True), (0.88, False)):
        found = only_answer([*curve, *seeds(EMBEDDINGS_ONLY, [quality, quality])])
        assert (WarningCode.EMBEDDINGS_ONLY_IS_BEST in codes(found)) is is_said


def test_a_joint_answer_says_what_is_certain_of_the_scores_alone() -> None:
    rows: list[ResultRow] = []
    for task in ("rte", "cola"):
        rows += seeds(0, [0.9, 0.905, 0.903], task=task, examples=1000)
        rows += seeds(5, [0.87, 0.875, 0.88], task=task, examples=1000)
        rows += seeds(6, [0.83, 0.831, 0.832], task=task, examples=1000)
    *_, joint = answer_rows(rows)
    assert joint.corrected_certified is not None
    assert joint.corrected_certified.candidate.is_reference
    assert "Corrected for chance 1 of 6 layers is needed." in joint.sentence
    assert joint.certainty.startswith(
        "Corrected for chance no depth with frozen layers is certain for all tasks together. "
        "Certified of the scores alone: 1 of 6 layers."
    )
