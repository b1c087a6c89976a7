"""The first lines of an answer: what to do, how sure, what fewer layers cost, savings, next."""

import dataclasses
import io
from typing import Any

import pytest
from rich.console import Console

from elsa_tune.analysis.answer import Action, Answer, Basis, Doubt, QualityClaimed
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.cli.answer_tables import print_curves
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.policy import Claim
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import FindingCode, RowFinding
from elsa_tune.specs.search import Earlier
from elsa_tune.specs.trial import Phase
from elsa_tune.words import (
    candidates_text,
    either_text,
    last_of_layers,
    percent_beside,
    rate_text,
)
from tests.unit.result_rows import BY_SEEDS_ALONE, EMBEDDINGS_ONLY, falling_curve, row, seeds

CLOSE = [-0.002, 0.0, 0.002]


def curve(means: dict[int, float], **other: object) -> list[ResultRow]:
    """Three seeds a depth, close to each other."""
    return [
        one for n, mean in means.items() for one in seeds(n, [mean + d for d in CLOSE], **other)
    ]


def only(rows: list[ResultRow]) -> Answer:
    [answer] = answer_rows(rows)
    return answer


def line(answer: Answer, label: str) -> str:
    return dict(answer.first_lines.lines)[label]


def probe(quality: float) -> ResultRow:
    return row(6, quality, phase=Phase.PROBE, learning_rate=None, seed=None, probe_examples=500)


def test_certified_above_chance_comes_first() -> None:
    """Two layers keep 90 % raw, three are certified corrected: near chance that is what counts."""
    answer = only(curve({0: 0.90, 3: 0.89, 4: 0.83, 6: 0.55}))
    advice = answer.recommendation
    assert answer.operating_point is not None and answer.operating_point.fine_tuned_layers == 2
    assert advice.point is not None and advice.point.fine_tuned_layers == 3
    assert (advice.action, advice.basis) == (Action.FINE_TUNE, Basis.CORRECTED_CERTIFIED)
    assert answer.first_lines.headline == (
        "Fine-tune the last 3 of 6 layers at learning rate 3e-5: accuracy 89.0 (full model 90.0, "
        "guessing 50.0)."
    )
    sure = line(answer, "How sure")
    assert sure.startswith(
        "certified with 95 % confidence to keep 90 % of the full model's gain over guessing (about "
        "86.0). "
    )
    assert sure.endswith("no more often than here: 0 of the 9 runs that could learn.")
    assert line(answer, "Fewer?") == (
        "the last 2 layers score 83.0. That is 92.2 % of 90.0, but only 82.5 % of the gain over "
        "guessing; the target is 90 % of it."
    )


def test_a_raw_certificate_says_what_of_it_is_only_measured() -> None:
    both = dataclasses.replace(BY_SEEDS_ALONE, claim=Claim.BOTH)
    rows = [
        *seeds(0, [0.88, 0.9, 0.92], policy=both),
        *seeds(3, [0.86, 0.88, 0.90], policy=both),
    ]
    answer = only(rows)
    assert answer.corrected_certified is not None
    assert answer.corrected_certified.candidate.is_reference
    assert answer.recommendation.basis is Basis.RAW_CERTIFIED
    assert line(answer, "How sure").startswith(
        "certified with 95 % confidence to keep 90 % of the full model's accuracy (about 81.0); "
        "measured, not certified: 95.0 % of its gain over guessing. "
    )


def test_the_raw_score_may_be_certain_of_one_depth_more() -> None:
    answer = only([*seeds(0, [0.88, 0.9, 0.92]), *seeds(3, [0.86, 0.88, 0.90])])
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 3
    assert answer.claim is QualityClaimed.CORRECTED and answer.claimed is not None
    assert answer.claimed.candidate.is_reference
    assert answer.recommendation.basis is Basis.RAW_CERTIFIED
    assert line(answer, "How sure").startswith(
        "certified with 95 % confidence to keep 90 % of the full model's accuracy (about 81.0); "
        "measured, not certified: 95.0 % of its gain over guessing. "
    )


def test_what_was_measured_comes_before_a_raw_certificate_that_ends_early() -> None:
    """Corrected nothing is certain, so that raw only the first frozen depth can be."""
    answer = only(
        [
            *seeds(0, [0.88, 0.9, 0.92]),
            *seeds(2, [0.86, 0.88, 0.90]),
            *seeds(3, [0.86, 0.88, 0.90]),
        ]
    )
    assert answer.certified is not None and answer.certified.fine_tuned_layers == 4
    advice = answer.recommendation
    assert advice.basis is Basis.MEASURED and advice.point is not None
    assert advice.point.fine_tuned_layers == 3
    assert line(answer, "How sure").startswith(
        "measured, not certified: 3 seeds a depth are too few to be sure. Certain is only that the "
        "last 4 of 6 layers keep 90 % of the full model's accuracy."
    )


def test_where_chance_is_zero_nothing_is_said_of_guessing() -> None:
    answer = only(curve({0: 0.6, 3: 0.59, 4: 0.3}, metric="matthews", chance=0.0))
    assert line(answer, "How sure").startswith(
        "certified with 95 % confidence to keep 90 % of the full model's Matthews correlation "
        "(about 54.0). "
    )
    assert line(answer, "Fewer?") == (
        "the last 2 layers score 30.0: 50.0 % of the full model's score; the target is 90 %."
    )
    assert "guessing" not in answer.first_lines.headline


def test_a_share_that_rounds_to_the_target_and_misses_it_has_more_decimals() -> None:
    answer = only(curve({0: 0.9, 3: 0.86, 6: 0.8098}, metric="matthews", chance=0.0))
    assert line(answer, "Fewer?") == (
        "the head alone scores 81.0: 89.98 % of the full model's score; the target is 90 %."
    )
    assert percent_beside(0.9, 0.9) == "90.0 %"
    assert percent_beside(0.8999, 0.9) == "89.99 %"
    assert percent_beside(0.899, 0.9) == "89.9 %"
    assert percent_beside(0.9 - 1e-12, 0.9) == "90.0 %"
    assert percent_beside(0.07, 0.07) == "7.0 %"
    assert percent_beside(None, 0.9) == "-"


def test_without_a_certificate_the_reason_is_said() -> None:
    answer = only([*seeds(0, [0.9]), *seeds(3, [0.89])])
    assert answer.recommendation.basis is Basis.MEASURED
    assert line(answer, "How sure").startswith("measured, not certified: ")
    assert line(answer, "Fewer?") == "not measured."


def test_too_few_seeds_are_the_reason_for_no_certificate() -> None:
    answer = only([*seeds(0, [0.9]), *seeds(3, [0.89])])
    assert line(answer, "How sure").startswith(
        "measured, not certified: that takes 2 seeds or more a depth, and there is 1."
    )


def test_whoever_has_a_table_alone_is_told_what_to_write_in_their_training() -> None:
    assert line(only(falling_curve()), "Next").endswith(" in your own training.")
    full_model = only([*seeds(0, [0.90, 0.91, 0.92]), *seeds(3, [0.60, 0.61, 0.62])])
    assert full_model.recommendation.basis is Basis.FULL_MODEL
    *_, joint = answer_rows([*falling_curve(), *falling_curve(task="cola")])
    for answer in (full_model, joint):
        assert "Next" not in dict(answer.first_lines.lines)


def test_a_search_that_has_only_explored_is_to_be_resumed() -> None:
    [explored] = freeze_curves([row(0, 0.8, phase=Phase.EXPLORE)])
    [answer] = answer_curves([dataclasses.replace(explored, search_arguments="mine")])
    assert line(answer, "Next") == "elsa-tune resume mine"
    [of_table] = answer_curves([explored])
    assert "Next" not in dict(of_table.first_lines.lines)


def test_all_layers_are_recommended_where_fewer_do_little_better_than_guessing() -> None:
    answer = only(curve({0: 0.66, 3: 0.61, 6: 0.52}))
    assert answer.operating_point is not None and not answer.operating_point.candidate.is_reference
    assert answer.recommendation.basis is Basis.FULL_MODEL
    assert answer.first_lines.headline.startswith("Fine-tune all 6 layers at learning rate 3e-5: ")
    assert line(answer, "Saves") == "nothing."
    assert "but only" in line(answer, "Fewer?")


@pytest.mark.parametrize(
    ("deep", "count", "said"),
    [
        (
            [0.80, 0.82, 0.83],
            3,
            "not certain that all are needed: 3 layers cannot be ruled out at 95 %.",
        ),
        (
            [0.60, 0.61, 0.62],
            3,
            "at 95 % every smaller measured number of layers misses the target.",
        ),
        (
            [0.80, 0.82],
            2,
            "measured with 2 seeds a depth, not certified: fewer layers may do.",
        ),
    ],
)
def test_how_sure_it_is_that_all_layers_are_needed(
    deep: list[float], count: int, said: str
) -> None:
    policy = dataclasses.replace(BY_SEEDS_ALONE, fewest_freedom=3)
    how: dict[str, Any] = {"chance": 0.0, "policy": policy}
    answer = only([*seeds(0, [0.90, 0.91, 0.92][:count], **how), *seeds(3, deep, **how)])
    assert answer.recommendation.basis is Basis.FULL_MODEL
    assert line(answer, "How sure") == said


def test_a_certificate_says_how_often_its_question_was_asked() -> None:
    earlier = Earlier(names=("one", "two"))
    answer = only([dataclasses.replace(one, earlier=earlier) for one in falling_curve()])
    assert line(answer, "How sure").endswith(
        " It is the third search of this question here, each with its own 5 %."
    )
    assert "search of this question" not in line(only(falling_curve()), "How sure")


def test_the_head_alone_is_said_in_words() -> None:
    answer = only(curve({0: 0.90, 3: 0.90, 6: 0.895}))
    assert answer.first_lines.headline.startswith(
        "Train the head alone, no layer of the encoder, at"
    )
    assert "Fewer?" not in dict(answer.first_lines.lines)


def test_a_linear_model_that_reaches_the_target_changes_the_first_line() -> None:
    answer = only([*curve({0: 0.89, 3: 0.88, 6: 0.7}), probe(0.95)])
    advice = answer.recommendation
    assert advice.action is Action.LINEAR_MODEL and Doubt.FULL_MODEL_BELOW_PROBE in advice.doubts
    assert repr(answer).startswith("Answer(minilm on rte: a linear model on the frozen features, ")
    assert answer.first_lines.headline == (
        "Fine-tune nothing yet: a linear model on the frozen features scores 95.0 accuracy, the "
        "fine-tuned full model 89.0, which was probably trained too little."
    )
    assert "; to beat it, search again with more epochs, higher" in line(answer, "Next")
    assert line(answer, "Otherwise").startswith("fine-tuned all the same, the last 3 layers score")
    below = only([*curve({0: 0.89, 3: 0.88, 6: 0.7}), probe(0.87)])
    assert below.recommendation.action is Action.LINEAR_MODEL
    assert not below.recommendation.doubts
    assert below.first_lines.headline == (
        "Fine-tune nothing: a linear model on the frozen features scores 87.0 accuracy (full model "
        "89.0), 94.9 % of the full model's gain over guessing."
    )
    # Of the raw quality it keeps 93 %, of what was learnt 85 %: that is not enough.
    raw_only = only([*curve({0: 0.89, 3: 0.88, 6: 0.7}), probe(0.83)])
    assert raw_only.recommendation.action is Action.FINE_TUNE


def test_leaked_rows_come_before_a_linear_model() -> None:
    leaked = RowFinding(
        code=FindingCode.LEAKED_ROWS, count=41, of=484, where="evaluation", same_label=41
    )
    rows = [*curve({0: 0.89, 3: 0.88, 6: 0.7}), probe(0.87)]
    answer = only([dataclasses.replace(one, findings=(leaked,)) for one in rows])
    assert answer.recommendation.action is Action.LINEAR_MODEL
    assert answer.first_lines.headline.startswith(
        "Clean the data first: 41 of 484 evaluation rows are also in training, so that all is "
        "provisional. Until then fine-tune nothing: a linear model on the frozen features scores "
    )
    assert line(answer, "Next").startswith("set `drop_leaked: true` in the task file")


def test_a_full_model_that_learnt_next_to_nothing_comes_before_a_linear_model() -> None:
    answer = only([*curve({0: 0.53, 3: 0.52}), probe(0.529)])
    assert answer.recommendation.action is Action.LINEAR_MODEL
    assert answer.recommendation.doubts == (Doubt.CONSTANT_REACHES_TARGET,)
    assert answer.first_lines.headline.startswith(
        "Train better before you choose: the full model's accuracy is 53.0, guessing scores 50.0. "
        "Until then fine-tune nothing: "
    )
    assert line(answer, "Next").startswith("search again with more epochs")


def test_an_unfinished_search_is_resumed_before_a_linear_model_is_fitted() -> None:
    rows = [*curve({0: 0.89, 3: 0.88, 6: 0.7}, search="mine", trial="key"), probe(0.87)]
    [found] = freeze_curves([dataclasses.replace(one, search="mine") for one in rows])
    warning = AnswerWarning(WarningCode.INCOMPLETE, "search 'mine' is not complete")
    found = dataclasses.replace(found, warnings=(warning,), search_arguments="mine")
    [answer] = answer_curves([found])
    assert answer.first_lines.headline.startswith("So far: fine-tune nothing: a linear model on ")
    assert line(answer, "Next") == "elsa-tune resume mine"


def test_a_full_model_that_equals_the_linear_one_has_not_trained_too_little() -> None:
    rows = [*seeds(0, [0.875] * 3), *seeds(3, [0.87, 0.86, 0.88])]
    equal = only([*rows, probe(0.875)]).recommendation
    assert equal.action is Action.LINEAR_MODEL and equal.doubts == ()
    above = only([*rows, probe(0.876)]).recommendation
    assert above.doubts == (Doubt.FULL_MODEL_BELOW_PROBE,)


def test_what_else_may_be_the_answer_is_said_unless_that_is_everything() -> None:
    open_ = [*seeds(0, [0.90, 0.91, 0.92], chance=0.0), *seeds(3, [0.82, 0.84, 0.83], chance=0.0)]
    answer = only(open_)
    assert answer.recommendation.basis is Basis.MEASURED and answer.plausible == (3, 6)
    assert "ruled out" not in line(answer, "How sure")
    answer = only([*open_, *seeds(6, [0.5, 0.51, 0.52], chance=0.0)])
    assert answer.recommendation.basis is Basis.MEASURED and answer.plausible == (3, 6)
    assert line(answer, "How sure").endswith(" 6 layers cannot be ruled out at 95 %.")


def test_a_full_model_that_did_not_learn_is_what_to_mend_first() -> None:
    answer = only(curve({0: 0.5, 3: 0.5}))
    assert answer.recommendation.action is Action.WAIT and answer.recommendation.point is None
    assert answer.first_lines.headline.startswith("Get the full model to learn first: its accuracy")
    assert "not better than guessing (50.0)" in answer.first_lines.headline
    assert line(answer, "Next").startswith("search again with more epochs")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(0, 0.8, phase=Phase.EXPLORE)], "No answer: no measuring trial has completed"),
        (seeds(3, [0.8, 0.8]), "No answer: the full model (0 frozen layers) was not measured"),
        (seeds(0, [0.8, 0.8]), "No answer: only the full model was measured"),
    ],
)
def test_without_an_answer_the_first_line_says_why(rows: list[ResultRow], said: str) -> None:
    answer = only(rows)
    assert answer.recommendation.action is Action.WAIT
    assert answer.first_lines.headline.startswith(said)


def test_intervals_as_wide_as_what_was_learnt_come_before_the_depth() -> None:
    wide = [0.56, 0.60, 0.72, 0.76]
    answer = only([*seeds(0, wide), *seeds(3, wide)])
    assert answer.recommendation.doubts == (Doubt.INTERVAL_TOO_WIDE,)
    assert answer.first_lines.headline.startswith(
        "Run more seeds before you choose: after 4 the full model's accuracy may be anywhere in "
    )
    assert "Until then fine-tune the last 3 of 6 layers at" in answer.first_lines.headline


def test_the_wider_of_the_two_intervals_is_named() -> None:
    answer = only([*seeds(0, [0.9, 0.901]), *seeds(3, [0.92, 0.86])])
    headline = answer.first_lines.headline
    assert headline.startswith(
        "Run more seeds before you choose: after 2 the accuracy of the last 3 of 6 layers may be "
    )
    point = answer.recommendation.point
    assert point is not None and point.ci_low is not None
    assert f"anywhere in {100 * point.ci_low:.1f}.." in headline
    # One run of the full model has no interval.
    single = only([*seeds(0, [0.9]), *seeds(3, [0.92, 0.86])]).first_lines.headline
    assert "the accuracy of the last 3 of 6 layers" in single


def test_one_of_a_thing_is_singular() -> None:
    one_seed = only([*seeds(0, [0.9]), *seeds(3, [0.7])])
    assert "measured with 1 seed a depth" in line(one_seed, "How sure")
    assert either_text([FreezeDepth(5, True)], 6) == "1 layer"
    assert either_text([FreezeDepth(5, True), FreezeDepth(4, True)], 6) == "1 or 2 layers"


def test_a_target_that_guessing_reaches_certifies_nothing() -> None:
    rows = curve({0: 0.83, 3: 0.828, 6: 0.81}, metric="f1", chance=0.81)
    answer = only(rows)
    assert answer.certified is not None  # raw, which says nothing here
    assert answer.recommendation.doubts == (Doubt.CONSTANT_REACHES_TARGET,)
    assert answer.first_lines.headline.startswith(
        "Train better before you choose: the full model's F1 is 83.0, guessing scores 81.0. "
    )
    assert answer.recommendation.basis is Basis.MEASURED
    assert "guessing alone reaches the target" in line(answer, "How sure")
    assert line(answer, "Next").startswith("search again with more epochs")


def test_guessing_that_scores_high_does_not_make_a_good_model_a_bad_one() -> None:
    """Guessing reaches 90 % of any full model's accuracy where nine rows of ten are one class."""
    rows = curve({0: 0.9948, 3: 0.9935, 5: 0.9922}, chance=0.9)
    answer = only(rows)
    assert WarningCode.CONSTANT_REACHES_TARGET in [warning.code for warning in answer.warnings]
    assert answer.recommendation.doubts == ()
    assert answer.first_lines.headline.startswith("Fine-tune the last layer of 6")
    assert "proves nothing" not in line(answer, "How sure")
    *_, joint = answer_rows([*rows, *curve({0: 0.9, 3: 0.89, 5: 0.88}, task="sst2")])
    assert joint.hardly_learnt == () and joint.recommendation.doubts == ()
    assert WarningCode.CONSTANT_REACHES_TARGET in [warning.code for warning in joint.warnings]


def test_several_tasks_name_those_that_hardly_learnt() -> None:
    rows = curve({0: 0.83, 3: 0.828, 6: 0.81}, metric="f1", chance=0.81)
    *_, joint = answer_rows([*rows, *curve({0: 0.9, 3: 0.89, 6: 0.6}, task="sst2")])
    assert joint.hardly_learnt == ("rte",)
    assert joint.first_lines.headline.startswith(
        "Train better on rte before you choose: guessing reaches the target there. Until then "
        "fine-tune the last 3 of 6 layers"
    )
    assert "on rte" in line(joint, "How sure")


def test_an_unfinished_search_is_a_first_look() -> None:
    [found] = freeze_curves(falling_curve())
    warning = AnswerWarning(WarningCode.INCOMPLETE, "search 'mine' is not complete")
    [answer] = answer_curves([dataclasses.replace(found, warnings=(warning,))])
    assert answer.first_lines.headline.startswith("So far: fine-tune the last 3 of 6 layers")


@pytest.mark.parametrize(("same_label", "is_grave"), [(20, True), (4, False), (None, True)])
def test_leaked_rows_come_before_the_depth(same_label: int | None, is_grave: bool) -> None:
    """Rows that are in training with their label are known by heart; numbers have no labels."""
    leaked = RowFinding(
        code=FindingCode.LEAKED_ROWS, count=41, of=484, where="evaluation", same_label=same_label
    )
    answer = only([dataclasses.replace(one, findings=(leaked,)) for one in falling_curve()])
    assert (Doubt.LEAKED_ROWS in answer.recommendation.doubts) is is_grave
    said = "Clean the data first: 41 of 484 evaluation rows are also in training"
    assert answer.first_lines.headline.startswith(said) is is_grave
    assert "ine-tune the last 3 of 6 layers" in answer.first_lines.headline


@pytest.mark.parametrize(("same_label", "is_grave"), [(10, True), (9, False)])
def test_two_leaked_rows_in_a_hundred_are_grave(same_label: int, is_grave: bool) -> None:
    leaked = RowFinding(
        code=FindingCode.LEAKED_ROWS, count=20, of=500, where="evaluation", same_label=same_label
    )
    answer = only([dataclasses.replace(one, findings=(leaked,)) for one in falling_curve()])
    assert (Doubt.LEAKED_ROWS in answer.recommendation.doubts) is is_grave


def test_several_tasks_have_one_recommendation() -> None:
    rows = curve({0: 0.9, 3: 0.89, 4: 0.8}) + curve({0: 0.8, 3: 0.79, 4: 0.6}, task="cola")
    *_, joint = answer_rows(rows)
    assert joint.task == "*" and joint.recommendation.basis is Basis.CORRECTED_CERTIFIED
    assert joint.first_lines.headline == (
        "Fine-tune the last 3 of 6 layers: each task keeps 98.7 % or more of its full "
        "model's score."
    )
    assert line(joint, "How sure").endswith("The certificate holds on the conditions of each task.")
    assert line(joint, "Fewer?").startswith("the last 2 layers: ")


def test_several_tasks_say_nothing_of_a_gain_that_is_not_known_of_one() -> None:
    rows = [*falling_curve(), *falling_curve(task="cola", chance=None)]
    *_, joint = answer_rows(rows)
    fewer = line(joint, "Fewer?")
    assert "the least that a task keeps is" in fewer
    assert fewer.endswith("% of its full model's score.")


def test_every_way_to_show_an_answer_begins_with_the_same_lines() -> None:
    answer = only(falling_curve())
    first = answer.first_lines
    texts = [first.headline, *(text for _, text in first.lines)]
    assert str(answer) == str(first)
    text = io.StringIO()
    print_curves([answer], Console(file=text, width=400, highlight=False))
    markdown = answer_markdown(answer)
    found = answer_object(answer)["recommendation"]
    for one in texts:
        assert one in text.getvalue() and one in markdown
    assert markdown.startswith(f"**{first.headline}**\n\n- **How sure** ")
    assert [found["headline"], *(text for _, text in found["lines"])] == texts
    assert found["fine_tuned_layers"] == 3 and found["learning_rate"] == 5e-5


def test_markdown_has_a_heading_for_each_column_and_the_recommended_line_in_bold() -> None:
    lines = answer_markdown(only(falling_curve())).splitlines()
    heading, rule, *depths = [text for text in lines if text.startswith("|")]
    assert heading == ("| fine-tuned | frozen | quality | 95 % | kept | gain kept | rate | seeds |")
    assert rule == "|" + " ---: |" * 8
    assert {depth.count("|") for depth in depths} == {9}
    [bold] = [depth for depth in depths if "**" in depth]
    assert bold.startswith("| **3** | **3** | **88.0")


def test_markdown_has_no_line_in_bold_where_nothing_is_to_be_fine_tuned() -> None:
    answer = only([*curve({0: 0.89, 3: 0.88, 6: 0.7}), probe(0.87)])
    assert answer.recommendation.action is Action.LINEAR_MODEL
    depths = [text for text in answer_markdown(answer).splitlines() if text.startswith("| ")]
    assert len(depths) == 5 and not any("**" in depth for depth in depths)


def test_markdown_names_what_is_frozen_in_full() -> None:
    text = answer_markdown(only([*falling_curve(), *seeds(EMBEDDINGS_ONLY, [0.89, 0.9])]))
    assert "\n| 6 -emb. | embeddings | 89.5 " in text
    assert "\n| 6 | 0 | 90.0 " in text  # the full model, of as many layers


def test_a_terminal_wraps_the_lines_below_their_labels() -> None:
    text = io.StringIO()
    console = Console(file=text, width=60, force_terminal=True, no_color=True, highlight=False)
    print_curves([only(falling_curve())], console)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 60 or "\x1b" in text.getvalue()
    begun = [one for one in lines if "How sure" in one]
    assert len(begun) == 1


def test_rates_and_depths_in_words() -> None:
    assert [rate_text(one) for one in (1e-4, 5e-5, 0.001, 3.1623e-05, 2.5e-3, 1.0, None)] == [
        "1e-4",
        "5e-5",
        "1e-3",
        "3.1623e-5",
        "2.5e-3",
        "1e0",
        "not named",
    ]
    assert last_of_layers(2, 6) == "the last 2 of 6 layers"
    assert last_of_layers(6, 6) == "all 6 layers"
    assert last_of_layers(0, 6) == "the head alone"
    depths = [row(n, 0.5).candidate for n in (0, EMBEDDINGS_ONLY, 2, 4, 6)]
    told = "the full model, embeddings-only, the last 4 and 2 layers and the head alone"
    assert candidates_text(depths, 6) == told
    assert candidates_text(depths[3:4], 5) == "the last layer"
