"""One trial: what to train, how, and what comes out of it."""

import dataclasses
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidates import RecordedCandidate
from elsa_tune.specs.bounds import Bounds, Count, FewCount, Seed
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.task import TaskSpec


class Phase(enum.StrEnum):
    """Why a trial runs."""

    EXPLORE = "explore"  # looks for the best learning rate of a depth; ASHA may stop it
    MEASURE = "measure"  # repeats a depth's best rate with a fresh seed; never stopped early
    PROBE = "probe"  # a linear probe on the frozen model: trains nothing, and is no depth's quality
    FINAL = "final"  # trains the model that is exported; counts in no answer


class TrialStatus(enum.StrEnum):
    """How a trial stands; judged from epochs run against epochs planned, never from Ray's word."""

    PLANNED = "planned"  # in the plan, not started yet
    RUNNING = "running"
    COMPLETED = "completed"  # ran every planned epoch
    STOPPED_EARLY = "stopped_early"  # ASHA ended it; its quality is not a measurement
    FAILED = "failed"  # an error of the machine or the code
    DIVERGED = "diverged"  # loss or metric stopped being finite; counts as chance when measuring
    INTERRUPTED = "interrupted"  # Ctrl-C, time up, or the driver died; resume starts it again

    @property
    def is_final(self) -> bool:
        """Whether `resume` does not run it again; a failed trial is given another try."""
        return self in (TrialStatus.COMPLETED, TrialStatus.STOPPED_EARLY, TrialStatus.DIVERGED)


class Selection(enum.StrEnum):
    """The rule that says which epoch's quality is the trial's."""

    LAST = "last"
    BEST_EPOCH = "best_epoch"  # the best of those that it is judged by: optimistic
    HOLDOUT = "holdout"  # that of the best score on a part of the training set held out for it

    @property
    def score(self) -> str:
        """The metric by which evaluations, and trials that look for a rate, are compared."""
        return HOLDOUT_QUALITY if self is Selection.HOLDOUT else QUALITY


# The headline metric on the evaluation split, and on the part of the training set held out.
QUALITY: Final = "quality"
HOLDOUT_QUALITY: Final = "holdout_quality"
DEFAULT_HOLDOUT: Final = 0.1

# What a linear probe reads of the frozen model, and the metric that counts the rows it learnt from.
PROBE_FEATURES: Final = "first token and mean over tokens of the last layer"
PROBE_EXAMPLES: Final = "probe_examples"


def chosen_evaluation(selection: Selection, scores: Sequence[float]) -> int:
    """Return which of a trial's evaluations gives its quality: the last, or the best.

    It counts from 0; of equally good ones it is the first. scores: those of `selection.score`, one
    or more, in order.
    """
    if selection is Selection.LAST:
        return len(scores) - 1
    return max(range(len(scores)), key=scores.__getitem__)


def trial_quality(
    selection: Selection, qualities: Sequence[float], holdout_qualities: Sequence[float] = ()
) -> float:
    """Return a trial's quality from those of its evaluations (one or more, in order).

    holdout_qualities: as many, under `selection: holdout`; ValueError where they are missing.
    """
    scores = holdout_qualities if selection is Selection.HOLDOUT else qualities
    if len(scores) != len(qualities):
        raise ValueError(f"{len(qualities)} evaluations, {len(scores)} scores to choose by")
    return qualities[chosen_evaluation(selection, scores)]


def trial_score(selection: Selection, scores: Sequence[float]) -> float:
    """Return the score by which an exploring trial is compared.

    That is its quality, or the held-out score that chose its evaluation. scores: one or more, those
    of `selection.score`.
    """
    return scores[chosen_evaluation(selection, scores)]


class Precision(enum.StrEnum):
    """Arithmetic of the forward and backward pass; parameters stay fp32."""

    AUTO = "auto"  # bf16 where every GPU has units for it, else fp32
    FP32 = "fp32"
    TF32 = "tf32"  # fp32, but a GPU's matrix products round what goes into them to 10 bits
    BF16 = "bf16"


class PrefixCache(enum.StrEnum):
    """How hidden states behind the frozen layers are kept, to be read instead of computed."""

    FP32 = "fp32"  # exactly: results differ from computing them by rounding only
    BF16 = "bf16"  # half the disk; results differ a little
    NONE = "none"


class Pooling(enum.StrEnum):
    """What the head reads of a row."""

    HEAD = "head"  # what the architecture's own head reads, usually the first token
    MEAN = "mean"  # the mean of the row's tokens in the first one's place


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How every trial of a search trains; results are comparable when their recipes are equal."""

    epochs: FewCount = 3  # full passes over the training set
    batch_size: Count = 16  # examples per optimiser step
    # Tokens per example, truncated above; at most the model's positions.
    max_length: Annotated[int, Bounds(ge=8)] = 128
    # Labelled examples in use, those held out among them: a nested, stratified subset; None for the
    # whole training set.
    train_size: Count | None = None
    subset_seed: Seed = 0  # of that subset and of any held-out split
    # The share of all optimiser steps spent in linear warm-up, before the linear decay to 0; the
    # last step never is.
    warmup_ratio: Annotated[float, Bounds(ge=0, le=1)] = 0.1
    # AdamW's, applied to matrices, not to biases and norms.
    weight_decay: Annotated[float, Bounds(ge=0, lt=1)] = 0.01
    # The global norm to which gradients are clipped.
    max_grad_norm: Annotated[float, Bounds(gt=0)] = 1.0
    evaluations_per_epoch: FewCount = 1
    # Whether dropout stays on inside the frozen prefix, as Transformers' Trainer has it; off,
    # quality is a little better and the prefix's output can be kept (docs/decisions.md).
    frozen_dropout: bool = False
    precision: Precision = Precision.AUTO
    # How hidden states behind the frozen layers are kept on disk, where frozen_dropout is off and
    # reading them is faster than computing them.
    prefix_cache: PrefixCache = PrefixCache.FP32
    selection: Selection = Selection.LAST  # which evaluation's quality is the trial's
    # The share of the training examples that is not trained on but chooses learning rate and
    # evaluation, by `selection: holdout`.
    holdout: Annotated[float, Bounds(gt=0, le=0.5)] | None = None
    pooling: Pooling = Pooling.HEAD  # what the task's head reads of the last layer's output
    # Whether a regression learns its labels in units of their standard deviation, from their mean,
    # both of the rows that are trained on; False in what was recorded before it existed.
    standardize_targets: bool = False
    eval_batch_size: Count = 64  # examples; does not change results beyond rounding

    def __post_init__(self) -> None:
        if self.selection is Selection.HOLDOUT and self.holdout is None:
            object.__setattr__(self, "holdout", DEFAULT_HOLDOUT)
        if self.selection is not Selection.HOLDOUT and self.holdout is not None:
            raise SpaceError(
                f"holdout is {self.holdout:g}, but selection is {self.selection.value}; set "
                "selection=holdout, or leave holdout out"
            )

    @property
    def evaluations(self) -> int:
        return self.epochs * self.evaluations_per_epoch

    def comparable(self) -> dict[str, Any]:
        """Return the fields that must agree before results are pooled, by name, JSON-ready."""
        values = dataclasses.asdict(self)
        values.pop("eval_batch_size")
        if self.prefix_cache is not PrefixCache.BF16:
            # Kept in fp32 or not at all: the same results.
            values.pop("prefix_cache")
        # Younger than the oldest results, which were found without them.
        if self.pooling is Pooling.HEAD:
            values.pop("pooling")
        if not self.standardize_targets:
            values.pop("standardize_targets")
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """A fine-tuning of one model on one task: one candidate, learning rate and seed."""

    model: ModelSpec
    task: TaskSpec
    recipe: Recipe
    candidate: RecordedCandidate  # how the model is adapted
    learning_rate: float  # with five significant digits
    seed: int
    phase: Phase = Phase.EXPLORE

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", canonical_rate(self.learning_rate))

    @property
    def key(self) -> str:
        """Its one name within the search, e.g. `measure-N3-lr3e-05-s2`."""
        mantissa, exponent = f"{self.learning_rate:.4e}".split("e")
        digits = mantissa.rstrip("0").rstrip(".")
        rate = f"{digits}e{exponent}"
        return f"{self.phase.value}-{self.candidate.key}-lr{rate}-s{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """What one evaluation of a running trial gave.

    Losses are means per example, of a regression in the square of the unit it learns in: its
    labels', or their standard deviation under `standardize_targets`.
    """

    evaluation: int  # counted from 1
    evaluations: int  # planned ones
    epoch: float  # passes over the training set done (0.5, 1, ...)
    step: int  # optimiser steps done
    steps: int  # planned ones
    quality: float  # the headline metric in [-1, 1]
    metrics: dict[str, float]  # every metric of the task, by its own name
    train_loss: float  # since the evaluation before
    eval_loss: float
    # In training steps, since the trial began: without evaluation, and without the pass through the
    # frozen layers whose output is kept.
    train_seconds: float
    examples_per_second: float  # trained on, by the same clock
    # In MiB: of this process's tensors on a GPU, else of the process.
    peak_memory_mb: float
    trainable_parameters: int
    micro_batch_size: int  # examples per forward pass; below the batch when memory ran out
    precision: str  # a `Precision`, never `auto`
    chance: float  # the quality of the best constant answer
    batches: str = "padded"  # or `packed`
    # How the frozen layers' output came: `cached` or `recomputed`; `none` where none is frozen.
    prefix: str = "none"
    # The headline metric on what is held out of the training set; None without such.
    holdout_quality: float | None = None
    # What the reader should know, for example that micro-batches were halved.
    notes: tuple[str, ...] = ()
    # Whether an earlier attempt made it, and this one continues from its checkpoint.
    restored: bool = False
    # With the last evaluation alone, those of the `chosen_evaluation`, one for each evaluation
    # example as its type of task has them: class ids (int) or values (float), nested where a row's
    # is a list.
    predictions: tuple[Any, ...] | None = field(default=None, repr=False)
