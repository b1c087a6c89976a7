"""A warning as a value: a code (docs/reference/answer.md lists them) and a sentence."""

import enum
from dataclasses import dataclass


class WarningCode(enum.StrEnum):
    """What the reader of an answer or a curve is warned of."""

    # Of the answer.
    CONSTANT_REACHES_TARGET = "constant_answer_reaches_target"
    CORRECTED_DISAGREES = "corrected_answer_disagrees"
    CHANCE_UNKNOWN = "chance_unknown"
    LEARNING_UNTESTED = "learning_untested"
    DEPTHS_BELOW_PROBE = "depths_below_probe"
    PROBE_REACHES_TARGET = "probe_reaches_target"
    LARGER_K_MISSES_TARGET = "larger_k_misses_target"
    BEST_IS_NOT_FULL = "best_is_not_full_model"
    NOT_MONOTONE = "not_monotone"
    EMBEDDINGS_ONLY_IS_BEST = "embeddings_only_is_best"
    DEPTHS_NOT_MEASURED = "depths_not_measured"
    RATE_AT_BORDER = "rate_at_border"
    ONE_RATE = "one_rate_for_all_depths"
    SEEDS_DIFFER = "depths_differ_in_seeds"
    TRIES_DIFFER = "depths_differ_in_tries"
    # Of the rows, by the codes of their findings (`specs/row_findings.py`).
    LEAKED_ROWS = "leaked_rows"
    LEAKED_GROUPS = "leaked_groups"
    FEW_UNITS = "few_units"
    CUT_TEXTS = "cut_texts"
    CONTRADICTING_LABELS = "contradicting_labels"
    CLASSES_NOT_EVALUATED = "classes_not_evaluated"
    CLASSES_NOT_TRAINED = "classes_not_trained"
    LABELS_ALIKE = "labels_alike"
    LABEL_LOOKS_MISSING = "label_looks_missing"
    ROWS_LOST = "rows_lost"
    DUPLICATE_ROWS = "duplicate_rows"
    # Of the curve's runs.
    INCOMPLETE = "search_incomplete"
    SEVERAL_RATES = "several_rates_measured"
    SEEDS_FAILED = "seeds_failed"
    NOT_COUNTED = "trials_not_counted"
    REPEATED_ROWS = "repeated_rows"
    ROWS_DOUBLED = "rows_doubled"
    EXAMPLES_LEFT_OUT = "examples_left_out"
    PREDICTIONS_UNUSED = "predictions_not_used"
    POOLED = "searches_pooled"
    # Of a joint answer.
    NO_CORRECTED_JOINT = "no_corrected_joint_answer"
    TASKS_EXCLUDED = "tasks_excluded"
    NOT_MEASURED_EVERYWHERE = "depths_not_measured_for_every_task"
    TRAIN_SIZES_DIFFER = "tasks_differ_in_train_size"


# What the first lines say already, or what changes no decision: for those who want all of it.
DETAILS = frozenset(
    {
        WarningCode.CORRECTED_DISAGREES,
        WarningCode.BEST_IS_NOT_FULL,
        WarningCode.NOT_MONOTONE,
        WarningCode.EMBEDDINGS_ONLY_IS_BEST,
        WarningCode.DEPTHS_NOT_MEASURED,
        WarningCode.SEEDS_DIFFER,
        WarningCode.TRIES_DIFFER,
        WarningCode.EXAMPLES_LEFT_OUT,
    }
)


@dataclass(frozen=True, slots=True)
class AnswerWarning:
    """What a reader must see beside the number."""

    code: WarningCode
    text: str  # a clause without a full stop
