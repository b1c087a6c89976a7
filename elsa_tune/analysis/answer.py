"""A freeze curve with what was decided from it, and when a depth is good enough."""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.errors import UsageError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Claim, Policy

ALL_TASKS = "*"

DEFAULT_TARGET = 0.9

Contrasts = Mapping[Candidate, Interval]


class Reason(enum.StrEnum):
    """Why there is no operating point, why it saves nothing, or why nothing is certified."""

    NO_MEASUREMENTS = "no_measurements"  # no measuring trial has completed
    NO_FULL_MODEL = "no_full_model"  # nothing to compare with
    FULL_MODEL_DID_NOT_LEARN = "full_model_did_not_learn"  # not above chance with 95 % confidence
    # Above chance, where that is known and lies below 0: no share of such a score is worth keeping.
    FULL_MODEL_NOT_ABOVE_ZERO = "full_model_not_above_zero"
    NO_FROZEN_DEPTH = "no_frozen_depth"  # only the full model was measured
    NOTHING_REACHES_TARGET = "nothing_reaches_target"  # but the full model: the answer then
    # There is an operating point, but nothing can be certified:
    TOO_FEW_SEEDS = "too_few_seeds"  # of the full model or the first frozen depth; of ways, of any
    CHANCE_UNKNOWN = "chance_unknown"  # so whether the full model learnt cannot be tested
    LOOKS_NOT_PLANNED = "looks_not_planned"  # several searches, each planned by itself
    NOT_PLANNED_TO_CERTIFY = "not_planned_to_certify"  # the search's strategy planned no tests
    TOO_FEW_UNITS = "too_few_units"  # evaluation examples of too few groups, or different texts
    LOOKS_NOT_RECORDED = "looks_not_recorded"  # a table left out when its depths are tested
    EXAMPLES_UNKNOWN = "examples_unknown"  # scores alone do not tell how far examples move them
    TARGET_NOT_PLANNED = "target_not_planned"  # the search was planned for a lower target
    RATES_NOT_FRESH = "rates_not_fresh"  # learning rates were chosen on the same runs
    EPOCHS_NOT_FRESH = "epochs_not_fresh"  # each run's epoch was chosen on the rows that judge it
    NO_COMMON_DEPTH = "no_common_depth"  # joint answer: no frozen depth was measured for every task
    # Of a comparison of ways (`comparison.py`):
    ONE_WAY = "one_way"  # nothing to compare it with
    NO_WAY_LEARNT = "no_way_learnt"  # none is above chance with 95 % confidence
    NO_WAY_ABOVE_ZERO = "no_way_above_zero"  # and chance is not known: of such a score none is kept
    SEEDS_BY_RESULTS = "seeds_by_results"  # a hunt chose how many seeds each way has
    SEEDS_MISSING = "seeds_missing"  # some way lacks seeds that were planned


class QualityClaimed(enum.StrEnum):
    """What an answer claims: which of the two qualities keeps the target."""

    CORRECTED = "corrected"  # of what is gained over chance
    RAW = "raw"  # of the score itself; where chance is 0 both are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The depth with the fewest layers that, like every larger one, surely keeps the target."""

    candidate: Candidate
    fine_tuned_layers: int | None  # None for what has no number of last layers
    confidence: float  # family-wise, e.g. .95
    procedure: str  # how it was decided, in a few words

    @property
    def is_full_model(self) -> bool:
        """Whether it is the full model itself, so that nothing with fewer layers is certain."""
        return self.candidate.is_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsAndRows:
    """Both together, of a new search."""

    seeds: int  # of each depth or way, the full model included
    evaluation_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldCertify:
    """What would probably certify a depth, or a way, in a new search.

    Four times out of five, if they truly score and spread as they were measured. All is None where
    nothing that can be advised would do: the depth, or one before it, or the way lies below the
    target or too near it.
    """

    # Of each depth or way, the full model included, with as many rows as now; None where no number
    # that can be advised would do alone.
    seeds: int | None
    # Likewise, with as many seeds as now; None also where nothing is known of the examples.
    evaluation_rows: int | None
    together: SeedsAndRows | None = None  # where neither would do alone


class Action(enum.StrEnum):
    """What an answer recommends to do."""

    FINE_TUNE = "fine_tune"  # the last layers of the named depth; all of them, or the head alone
    LINEAR_MODEL = "linear_model"  # one on the frozen features reaches the target: train no layer
    WAIT = "wait"  # nothing can be recommended yet; the reason says why


class Basis(enum.StrEnum):
    """What speaks for the recommended depth."""

    CORRECTED_CERTIFIED = "corrected_certified"  # surely keeps the target, corrected for chance
    RAW_CERTIFIED = "raw_certified"  # surely keeps it raw; was measured to keep it corrected
    MEASURED = "measured"  # was measured to keep it; nothing is certain
    FULL_MODEL = "full_model"  # no measured depth with frozen layers keeps it


class Doubt(enum.StrEnum):
    """What is grave enough to stand in the first line."""

    INCOMPLETE = "search_incomplete"  # the search has trials left
    LEAKED_ROWS = "leaked_rows"  # many evaluation rows are also in training
    CONSTANT_REACHES_TARGET = "constant_answer_reaches_target"  # the full model learnt little
    INTERVAL_TOO_WIDE = "interval_too_wide"  # as wide as what the full model learnt
    FULL_MODEL_BELOW_PROBE = "full_model_below_probe"  # it may have trained too little


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What an answer says to do, and what speaks for and against it."""

    action: Action  # what to do
    # The depth to fine-tune, also where a linear model is enough; None with `wait`.
    point: CurvePoint | None = None
    basis: Basis | None = None  # why this depth; None with `wait`
    doubts: tuple[Doubt, ...] = ()  # what is grave enough for the first line


@dataclass(frozen=True, slots=True)
class FirstLines:
    """An answer's first five lines."""

    headline: str  # what to do
    # A label and its text each; what there is nothing to say about is left out.
    lines: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if not self.lines:
            return self.headline
        width = max(len(label) for label, _ in self.lines)
        texts = [self.headline]
        for label, text in self.lines:
            texts.append(f"  {label:<{width}}  {text}")
        return "\n".join(texts)

    @property
    def markdown(self) -> str:
        """The headline in bold, the lines as a list."""
        items = [f"- **{label}** {text}" for label, text in self.lines]
        text = "\n".join([f"**{self.headline}**", "", *items])
        return text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(FreezeCurve):
    """The answer for one model, task and training size, or (task `*`) for several tasks.

    In a joint answer each point has the least that a task keeps at that depth, and no quality or
    learning rate; there is no `full` or `best`.
    """

    target: float  # the share of the full model's quality to keep
    operating_point: CurvePoint | None = None  # raw; None where there is none
    corrected_operating_point: CurvePoint | None = None  # corrected for chance, likewise
    # The points with more fine-tuned layers than the raw operating point that miss the target.
    failing_above: tuple[CurvePoint, ...] = ()
    reason: Reason | None = None
    sentence: str = ""  # the answer, or why there is none, as a person reads it
    # The raw operating point by the given learning rates alone; a depth whose rate lies beyond them
    # is judged by its best exploring run within them, which is no measurement. None where no depth
    # went beyond.
    within_given: CurvePoint | None = None
    # In a joint answer the tasks that forbid a smaller k (or leave it without an answer).
    decided_by: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()  # in a joint answer the tasks that were left out on request
    certified: Certified | None = None  # None where nothing is certain enough
    corrected_certified: Certified | None = None  # likewise, corrected for chance
    # Which of the two was named before the first trial; None where both are claimed, each with an
    # error of its own, or neither can be.
    claim: QualityClaimed | None = None
    # Those that may be the true operating point by what is claimed, at 95 %; None with too few
    # seeds.
    plausible_candidates: tuple[Candidate, ...] | None = None
    contrasts: Contrasts = field(default_factory=dict)  # of each measured depth but the full model
    corrected_contrasts: Contrasts = field(default_factory=dict)
    certainty: str = ""  # all that as a person reads it; "" without an operating point
    next_step: str | None = None  # the command that would settle what is open
    # What would certify a tested depth that is not certified: none of those that are, and none of
    # which too few seeds say nothing.
    would_certify: Mapping[Candidate, WouldCertify] = field(default_factory=dict)
    corrected_would_certify: Mapping[Candidate, WouldCertify] = field(default_factory=dict)
    # Whether the search has a look left, for this target, that might certify the next depth.
    open_look: bool = False
    # In a joint answer the tasks whose full model learnt so little that guessing reaches the
    # target.
    hardly_learnt: tuple[str, ...] = ()
    recommendation: Recommendation = Recommendation(action=Action.WAIT)  # the one thing to do
    # That in words, how sure it is, what fewer layers would cost, what it saves, and what to type
    # next.
    first_lines: FirstLines = FirstLines("")

    def __repr__(self) -> str:
        """Say on one line what, k, and how sure."""
        what = f"{self.model} on {self.task}"
        advice = self.recommendation
        point = advice.point
        if point is None:
            why = advice.action.value if self.reason is None else self.reason.value
            return f"Answer({what}: none, {why.replace('_', ' ')})"
        if advice.action is Action.LINEAR_MODEL:
            tuned = "a linear model on the frozen features"
        elif point.fine_tuned_layers is None:
            tuned = point.candidate.describe(self.layers)
        else:
            tuned = f"last {point.fine_tuned_layers} of {self.layers} layers"
        basis = str(advice.basis).replace("_", " ")
        return f"Answer({what}: {tuned}, {basis})"

    def __str__(self) -> str:
        return str(self.first_lines)

    def _repr_markdown_(self) -> str:
        return self.first_lines.markdown

    @property
    def plausible(self) -> tuple[int, ...] | None:
        """The numbers of fine-tuned layers of `plausible_candidates`, of those that have one."""
        if self.plausible_candidates is None:
            return None
        numbers: list[int] = []
        for candidate in self.plausible_candidates:
            fine_tuned_layers = candidate.fine_tuned_layers(self.layers)
            if fine_tuned_layers is not None:
                numbers.append(fine_tuned_layers)
        return tuple(numbers)

    @property
    def claims_corrected(self) -> bool:
        """Whether the one claim is of what is gained over chance."""
        return self.claim is QualityClaimed.CORRECTED

    @property
    def claimed(self) -> Certified | None:
        """What is certified of the one claim; of the raw one where there are two."""
        return self.corrected_certified if self.claims_corrected else self.certified

    @property
    def certified_depth(self) -> Certified | None:
        """What is certified of the one claim; None where that is the full model itself."""
        claimed = self.claimed
        if claimed is None or claimed.is_full_model:
            return None
        return claimed

    @property
    def claimed_point(self) -> CurvePoint | None:
        """The operating point that the claim is about."""
        return self.corrected_operating_point if self.claims_corrected else self.operating_point

    @property
    def claimed_contrasts(self) -> Contrasts:
        """The contrasts that the claim is about."""
        return self.corrected_contrasts if self.claims_corrected else self.contrasts

    @property
    def claimed_would_certify(self) -> Mapping[Candidate, WouldCertify]:
        """What would certify more of the claim."""
        return self.corrected_would_certify if self.claims_corrected else self.would_certify

    @property
    def is_answered(self) -> bool:
        """Whether there is an operating point (which may be the full model)."""
        return self.operating_point is not None

    @property
    def every_larger_k_passes(self) -> bool | None:
        """Whether every larger measured k passes, too; None without an operating point."""
        if not self.is_answered:
            return None
        return not self.failing_above


def quality_claimed(curve: FreezeCurve) -> QualityClaimed | None:
    """Return of which quality a curve's one claim is, from what was known before its first trial.

    None where its policy claims both, and without chance, where nothing is certified.
    """
    if curve.policy.claim is Claim.BOTH or curve.chance is None:
        return None
    return QualityClaimed.CORRECTED if curve.chance else QualityClaimed.RAW


def check_target(target: float) -> float:
    """Return a target above 0 and up to 1, else raise UsageError."""
    if 0 < target <= 1:
        return target
    hint = ""
    if 2 <= target <= 100:
        hint = f"; for {target:g} % write {target / 100:g}"
    raise UsageError(f"target is {target:g}; it must be above 0 and up to 1{hint}")


def reaches(
    quality: float, full: float, target: float, base: float = 0.0, *, policy: Policy
) -> bool:
    """Whether D = (q_N - b) - target (q_0 - b) is at least 0; b: 0 raw, chance corrected.

    The contrast, not the ratio: it keeps its meaning where q_0 - b is small or negative.
    """
    return (quality - base) - target * (full - base) >= -policy.rounding


def score_at_target(full: float, target: float, base: float = 0.0) -> float:
    """Return the least quality that `reaches` the target: b + target (q_0 - b)."""
    return base + target * (full - base)


def passing(curve: FreezeCurve, target: float, *, corrected: bool = False) -> frozenset[Candidate]:
    """Return the measured depths that reach the target; if corrected, none without chance."""
    full = curve.full
    base = curve.chance if corrected else 0.0
    if full is None or full.quality is None or base is None:
        return frozenset()
    candidates: set[Candidate] = set()
    for point in curve.measured:
        if point.quality is None:
            continue
        if reaches(point.quality, full.quality, target, base, policy=curve.policy):
            candidates.add(point.candidate)
    return frozenset(candidates)


def smallest(points: Sequence[CurvePoint], candidates: Collection[Candidate]) -> CurvePoint | None:
    """Return the last of the points, the full model first, that is at one of these depths."""
    for point in reversed(points):
        if point.candidate in candidates:
            return point
    return None


def failing_above(
    points: Sequence[CurvePoint], candidates: Collection[Candidate], chosen: Candidate
) -> tuple[CurvePoint, ...]:
    """Return the points of a lower rank than the chosen depth's that are not among `candidates`."""
    failing: list[CurvePoint] = []
    for point in points:
        has_more_layers = point.candidate.rank < chosen.rank
        if has_more_layers and point.candidate not in candidates:
            failing.append(point)
    return tuple(failing)
