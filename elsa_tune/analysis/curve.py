"""The freeze curve: quality against frozen layers, as everything else reads it."""

from dataclasses import dataclass, field

from elsa_tune.analysis.evidence import PlannedLooks
from elsa_tune.analysis.measured import CandidateRates, MeasuredRun
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.warning import AnswerWarning
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import NONE_EARLIER, Earlier
from elsa_tune.specs.trial import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """What a depth saves, as shares of what the full model takes; below 0 where it takes more."""

    trainable_parameters: float | None = None  # None where one of the two is not known,
    train_seconds: float | None = None  # as here
    peak_memory_mb: float | None = None  # and here


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One depth of the curve; what is not known is None."""

    candidate: Candidate
    fine_tuned_layers: int | None  # k; None where it is not told by that number
    quality: float | None = None  # mean of its measuring runs, in [-1, 1]
    std: float | None = None  # over those runs (ddof 1)
    # The variance that rounding hides of the quality, where that was printed as a mean.
    rounding: float = 0.0
    seeds: int = 0  # how many those runs are
    # Of them, how many failed (`failures.py`); those inside a row that is a mean
    # cannot be seen.
    failed_seeds: int = 0
    learning_rate: float | None = None  # at which they ran
    retention: float | None = None  # of the full model's quality
    corrected_retention: float | None = None  # the same of what both gain over chance
    exploring_trials: int = 0  # how many are done
    stopped_early: int = 0  # of these, how many early stopping ended
    trainable_parameters: float | None = None  # the median of completed runs, as the next two
    train_seconds: float | None = None
    peak_memory_mb: float | None = None  # MiB
    ci_low: float | None = None  # 95 % interval of the quality that a fresh seed can expect
    ci_high: float | None = None
    saves: Saves = Saves()  # against the full model
    runs: tuple[MeasuredRun, ...] = field(default=(), repr=False)  # the measuring runs that count
    # At how many learning rates measuring runs ended or were stopped early: several are a choice.
    measured_at_rates: int = 0
    # Measuring runs at its rate, or at any where none has a score, that have none: they failed, or
    # something stopped them.
    runs_without_score: int = 0
    # What is known of the learning rates that it was tried at; the default is frozen.
    known_rates: CandidateRates = field(default=CandidateRates(), repr=False)

    @property
    def qualities(self) -> tuple[float, ...]:
        """The quality of each measuring run; () where a row is a mean of several."""
        if any(run.row.runs > 1 for run in self.runs):
            return ()
        return tuple(run.quality for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearProbe:
    """A linear model on what the frozen encoder gives: a floor, never a point of the curve."""

    quality: float
    retention: float | None  # as in CurvePoint
    corrected_retention: float | None
    train_examples: int | None  # the rows it learnt from; None where not known
    evaluation_examples: int | None  # those it was judged by


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeCurve:
    """All depths of one group, the full model first, with what the reader must know of them."""

    model: str
    task: str
    train_size: int | None  # None for the complete training set
    search: str | None  # the names of the searches, with commas; None where rows name none
    metric: str | None  # by which quality is measured
    selection: str | None  # how each trial's epoch was chosen
    layers: int  # of the model
    chance: float | None  # the quality of the best constant answer
    examples: int | None  # evaluation examples E; None where not known
    points: tuple[CurvePoint, ...]
    warnings: tuple[AnswerWarning, ...]
    # Of the depths whose runs are known one by one.
    uncertainty: Uncertainty = field(default=Uncertainty(runs={}), repr=False, compare=False)
    # None where no plan says when depths are tested.
    looks: PlannedLooks | None = field(default=None, repr=False, compare=False)
    # The lowest and highest rate that the searches were given; None where these are not the same.
    given_rates: tuple[float, float] | None = None
    probe: LinearProbe | None = None
    # What names its one recorded search in a command, as `demo --storage-path runs`; None where its
    # name alone does.
    search_arguments: str | None = None
    # The machine on which such a command is typed; None for this one.
    search_host: str | None = None
    # Whether no command can name it: a store or a lone journal has its results, and its folder is
    # not to be read.
    is_search_gone: bool = False
    search_ids: tuple[str, ...] = ()  # of these searches, where they are known
    # How many independent units the evaluation examples are; None where that was not found out,
    # and each counts as its own.
    units: int | None = None
    # What is odd about the rows that were trained on and evaluated, the gravest first.
    findings: tuple[RowFinding, ...] = ()
    # The searches that asked the same before its one search; none of several searches together.
    earlier: Earlier = NONE_EARLIER

    def __repr__(self) -> str:
        measured = f"{len(self.with_quality)} of {len(self.points)} depths measured"
        return f"FreezeCurve({self.model} on {self.task}: {measured})"

    @property
    def policy(self) -> Policy:
        """What its search was planned by, or this version's."""
        return self.uncertainty.policy

    @property
    def has_too_few_units(self) -> bool:
        """Whether the evaluation examples share so few units that nothing can be certified."""
        if self.units is None or self.examples is None:
            return False
        return self.units < min(self.examples, self.policy.fewest_units)

    @property
    def judges_best_epochs(self) -> bool:
        """Whether each run's epoch was chosen on the rows that judge it, which looks too good."""
        return self.selection == Selection.BEST_EPOCH

    @property
    def full(self) -> CurvePoint | None:
        """The full-model reference, None where it was not measured."""
        return next((point for point in self.measured if point.candidate.is_reference), None)

    @property
    def measured(self) -> tuple[CurvePoint, ...]:
        """The depths with a quality, embeddings-only left out, by frozen layers."""
        return tuple(point for point in self.with_quality if point.candidate.is_tested)

    @property
    def with_quality(self) -> tuple[CurvePoint, ...]:
        """The measured depths, embeddings-only among them."""
        return tuple(point for point in self.points if point.quality is not None)

    @property
    def score_is_stronger(self) -> bool:
        """Whether keeping a share of the score takes more than keeping it of the gain.

        So it is where guessing scores below 0. Elsewhere the gain takes more, or as much.
        """
        return self.chance is not None and self.chance < 0

    @property
    def lacking_scores(self) -> tuple[CurvePoint, ...]:
        """The depths with runs that have no score, also those without any that has one."""
        return tuple(
            point for point in self.points if point.candidate.is_tested and point.runs_without_score
        )

    @property
    def best(self) -> CurvePoint | None:
        """The depth with the highest quality, of equal ones the deepest; None without any."""
        deepest_first = reversed(self.measured)
        return max(deepest_first, key=lambda point: point.quality or 0.0, default=None)
