"""The answer as a value: what `operating_point` and `joint` decide and every printer shows.

It must hold no logic; docs/reference/answer.md documents each field as JSON.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from elsa_tune.analysis.curve import CurvePoint, LinearProbe
from elsa_tune.analysis.planned import Look
from elsa_tune.analysis.warning import AnswerWarning
from elsa_tune.specs.freeze import FreezeDepth

ALL_TASKS = "*"


class Reason(enum.StrEnum):
    """Why there is no operating point, why it saves nothing, or why nothing is certified."""

    NO_MEASUREMENTS = "no_measurements"  # no measuring trial has completed
    NO_FULL_MODEL = "no_full_model"  # nothing to compare with
    FULL_MODEL_DID_NOT_LEARN = "full_model_did_not_learn"  # not above chance with 95 % confidence
    NO_FROZEN_DEPTH = "no_frozen_depth"  # only the full model was measured
    NOTHING_REACHES_TARGET = (
        "nothing_reaches_target"  # but the full model, which is then the answer
    )
    # There is an operating point, but nothing can be certified:
    TOO_FEW_SEEDS = "too_few_seeds"  # fewer than three at the full model or the first frozen depth
    CHANCE_UNKNOWN = "chance_unknown"  # so whether the full model learnt cannot be tested
    LOOKS_NOT_PLANNED = "looks_not_planned"  # several searches, each planned by itself
    RATES_NOT_FRESH = "rates_not_fresh"  # learning rates were chosen on the same runs
    NO_COMMON_DEPTH = "no_common_depth"  # joint answer: no frozen depth was measured for every task


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """Shares of the full model's that an operating point saves, e.g. .62; None where not known."""

    trainable_parameters: float | None = None
    train_seconds: float | None = None
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """One depth as an answer; qualities and retentions as in CurvePoint.

    In a joint answer over tasks quality and learning_rate are None, and the retentions are those
    of the task that keeps least.
    """

    depth: FreezeDepth
    fine_tuned_layers: int
    quality: float | None
    retention: float | None
    corrected_retention: float | None
    learning_rate: float | None
    saves: Saves


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinGiven:
    """What the operating point would be if no depth had gone beyond the given learning rates.

    Depths whose rate lies beyond them are judged by the best exploring run within them, so that
    this is no measurement. given_rates: lowest and highest. quality: at this depth.
    """

    depth: FreezeDepth
    fine_tuned_layers: int
    quality: float
    given_rates: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The fewest fine-tuned layers that, with every larger measured number, surely keep the target.

    confidence: family-wise, e.g. .95. procedure: how it was decided, in a few words.
    """

    depth: FreezeDepth
    fine_tuned_layers: int
    confidence: float
    procedure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """D = (q_N - b) - target (q_0 - b) of one depth: above 0 it reaches the target.

    b: 0, or chance where corrected. low, high: 95 % interval. lower: one-sided 95 % bound. look:
    which planned one they rest on, and are widened for; None where none was planned.
    """

    depth: FreezeDepth
    value: float
    low: float
    high: float
    lower: float
    look: Look | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer for one model, task and training size, or (task `*`) for several tasks.

    within_given: the raw operating point by the given learning rates alone; None where no depth
    went beyond them. every_larger_k_passes: of the raw operating point, None without one.
    sentence: the answer, or why there is none, as a person reads it.
    warnings: what the reader must see beside the number.
    decided_by: in a joint answer the tasks that forbid a smaller k (or leave it without an answer),
    None otherwise.
    certified, corrected_certified: None where nothing is certain enough. plausible: the numbers of
    fine-tuned layers that may be the true operating point, at 95 %; None where seeds are too few to
    tell. contrasts, corrected_contrasts: of each measured depth but the full model. certainty: all
    that as a person reads it, "" without an operating point. next_step: the command that would
    settle what is open, None where nothing is or no command would. probe: of the frozen model, None
    where there was none and in a joint answer.
    """

    model: str
    task: str
    train_size: int | None
    search: str | None
    metric: str | None
    selection: str | None
    target: float
    layers: int
    chance: float | None
    full: CurvePoint | None
    best: CurvePoint | None
    operating_point: OperatingPoint | None
    corrected_operating_point: OperatingPoint | None
    every_larger_k_passes: bool | None
    reason: Reason | None
    sentence: str
    points: tuple[CurvePoint, ...]
    warnings: tuple[AnswerWarning, ...]
    within_given: WithinGiven | None = None
    decided_by: tuple[str, ...] | None = None
    certified: Certified | None = None
    corrected_certified: Certified | None = None
    plausible: tuple[int, ...] | None = None
    contrasts: tuple[Contrast, ...] = ()
    corrected_contrasts: tuple[Contrast, ...] = ()
    certainty: str = ""
    next_step: str | None = None
    probe: LinearProbe | None = None

    @property
    def is_answered(self) -> bool:
        """There is an operating point (which may be the full model)."""
        return self.operating_point is not None
