"""One search, as it was decided: everything `resume` needs to go on with the same plan."""

import enum
import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import RecordedCandidate, read_candidate
from elsa_tune.specs.bounds import Bounds
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.policy import UNRECORDED, Extension, Policy, SeedCounts
from elsa_tune.specs.rate_space import RateRange, RateSpace
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.task import TaskKind, TaskSpec
from elsa_tune.specs.trial import Phase, Recipe, Selection, TrialSpec

# How often a running trial's state is saved: in seconds, or as each trial can afford it.
CheckpointEvery = Literal["auto", "never"] | Annotated[float, Bounds(gt=0)]

# When a trial without news counts as hung: after so many seconds, or by the pace of its like.
HungAfter = Literal["auto", "never"] | Annotated[float, Bounds(gt=0)]


class SamplerName(enum.StrEnum):
    """Who proposes learning rates."""

    GP = "gp"  # one study of all depths, whose neighbours inform each other
    # A study per depth:
    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asha:
    """Asynchronous successive halving, with rungs kept per depth."""

    # Evaluations that every trial is given, or their share if below 1; None: the policy's share.
    grace: Annotated[float, Bounds(gt=0, le=1e6)] | None = None
    # At each rung, the best of a depth's trials go on: one of this number.
    reduction_factor: Annotated[float, Bounds(gt=1)] = 2.0
    # And those that score at most this much less than the best there.
    margin: Annotated[float, Bounds(ge=0)] = 0.0

    def grace_of(self, evaluations: int) -> int:
        """Return how many of these evaluations every trial is given."""
        grace = self.grace or Policy().grace
        return math.ceil(grace if grace >= 1 else evaluations * grace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The looks that are planned at one candidate: when it is tested, and with how many seeds."""

    # The key of the candidate that is tested before it; early versions recorded frozen layers.
    after: int | str
    first_seed: int  # of the measuring seeds, which count upwards
    counts: tuple[SeedCounts, ...]  # of each look, both growing; none where none are planned
    # With which any look may reject falsely: family-wise, of a search that tests in its order.
    error: float = 0.05

    def __post_init__(self) -> None:
        if isinstance(self.after, int):
            object.__setattr__(self, "after", read_candidate(self.after).key)

    @property
    def are_planned(self) -> bool:
        """Whether there is any look, and it is known."""
        return bool(self.counts)

    @property
    def are_lost(self) -> bool:
        """Whether there were looks, and a table left them out."""
        return self == LOST_LOOKS


# Kinds of task that share no metric, so that a comparison, also a recorded one, does without them.
_TOLD_BY_METRIC: Final = (TaskKind.CLASSIFICATION, TaskKind.REGRESSION)

# A candidate is tested once, or a second time with more seeds.
MOST_LOOKS: Final = 2

# Of a candidate whose search tests none: it was planned without a certificate.
NO_LOOKS: Final = Looks(after="", first_seed=0, counts=())

# Of a candidate whose search planned its tests, in a table that left them out.
LOST_LOOKS: Final = Looks(after="lost", first_seed=0, counts=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The searches that asked the same before: on equal weights and data, by an equal recipe."""

    # Their names, in the order of their start: those that were found, and those that these found.
    names: tuple[str, ...] = ()
    # Whether none of them trained with this search's measuring seeds, as far as that is known.
    seeds_are_fresh: bool = True


# Of a search that found none, or was recorded before searches looked for each other.
NONE_EARLIER: Final = Earlier()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one trial takes: CPUs (its threads, 1 or more) and a share of a GPU (0: none)."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """A search as it was decided: what it trains, in two phases, and how."""

    __pydantic_config__: ClassVar = ConfigDict(serialize_by_alias=True)

    name: str  # of its folder, and in every record
    search_id: str  # unique over all machines and for ever
    model: ModelSpec  # which one, and where it comes from
    layers: int  # L of the model
    task: TaskSpec  # what is learnt, from which rows
    recipe: Recipe  # how every trial trains
    space: str  # the search space, as it was named
    # All of them, in the order of their tests; `search.json` has them as `depths`.
    candidates: Annotated[tuple[RecordedCandidate, ...], Field(alias="depths")]
    explored: tuple[RecordedCandidate, ...]  # those of them that try learning rates of their own
    rates: RateSpace  # the given ones, for every candidate that has none of its own
    tries: int  # exploring trials of the given rates, of each explored candidate
    sampler: SamplerName  # who proposes the rates that are explored
    asha: Asha | None  # what stops exploring trials early; None: nothing does
    seeds: int  # measuring trials of a candidate, at most
    seed: int  # of exploring trials; measuring trials have seed+1 .. seed+seeds
    resources: Resources  # what a trial takes
    tracking_uri: str  # of the store, as it may be shown: without its password
    address: str | None = None  # of a running Ray cluster; None for this machine
    # The seeds that the certificate is judged by, whatever is measured later; None for searches
    # recorded before looks were planned, or with one seed, which certifies nothing.
    planned_seeds: int | None = None
    strategy: str = "even"  # by its name, which `strategy_of` knows
    strategy_settings: dict[str, Any] = field(default_factory=dict)  # all that it has, by name
    target: float = 0.9  # the share of the full model's quality to keep
    # A hunt takes second looks that promise little.
    until_certified: bool = False
    # Its second looks have more seeds of the full model.
    thorough: bool = False
    # The part of the error that is spent on leaving out depths of its ladder; 0: none may be.
    ladder_error: float = 0.0
    # How far a candidate goes on beyond the given rates; None where it does not.
    extend: Extension | None = None
    # Exploring trials in all, at most; None leaves it to `tries` and `extend`.
    exploring_limit: int | None = None
    max_time: float | None = None  # seconds of a session
    # Hours for which all trials together may hold GPUs, over all sessions.
    gpu_hours: float | None = None
    max_workers: int | None = None  # trials at once, at most; None: as many as find room
    # What a trial is to take, as it was asked for last; of what is None, `resources` has what was
    # decided by the machine that the search began on.
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None
    checkpoint: CheckpointEvery = "auto"  # no result depends on it
    # The folder or URL where a copy of the record is kept; None keeps none. It has no secret in it.
    artifacts: str | None = None
    hung_after: HungAfter = "auto"  # no result depends on it
    # How many trials may fail in a session; None as `Repeats` has it.
    max_failures: int | None = None
    chance: float = 0.0  # the quality of the best constant answer
    train_examples: int = 0  # those that are trained on
    holdout_examples: int = 0  # those held out beside them
    evaluation_examples: int = 0  # rows of the evaluation split
    # How many units these are, which are what is independent; 0 in searches that were recorded
    # before there were any: there each row is taken for its own.
    evaluation_units: int = 0
    fingerprints: dict[str, str] = field(default_factory=dict)  # compared before results are pooled
    # Of Python, the packages that decide results, and the repository, by `version.` and a name.
    versions: dict[str, str] = field(default_factory=dict)
    linear_probe: bool = False  # whether the frozen model is probed, too
    findings: tuple[RowFinding, ...] = ()  # what is odd about the rows in use
    command: str = ""  # what is typed to start such a search, "" where that is not known
    earlier: Earlier = NONE_EARLIER  # the searches that asked the same before this one began
    # Searches that were recorded without one have the constants of their version.
    policy: Policy = UNRECORDED

    def trial(
        self, phase: Phase, candidate: Candidate, learning_rate: float, seed: int
    ) -> TrialSpec:
        """Return the trial of this search with these coordinates."""
        return TrialSpec(
            model=self.model,
            task=self.task,
            recipe=self.recipe,
            candidate=candidate,
            learning_rate=learning_rate,
            seed=seed,
            phase=phase,
        )

    @property
    def gpu_share(self) -> float:
        """The part of a GPU that a recorded search's trials take; 0 where they train on CPUs."""
        if self.gpus_per_trial is None:
            return self.resources.gpus
        return self.gpus_per_trial

    @property
    def early_stopping(self) -> Asha | None:
        """What stops exploring trials, with the policy's grace where none was asked for."""
        if self.asha is None:
            return None
        return replace(self.asha, grace=self.asha.grace or self.policy.grace)

    def rates_for(self, candidate: Candidate) -> RateSpace:
        """Return the learning rates that a candidate is given."""
        return candidate.rates or self.rates

    def given_rates(self, candidate: Candidate) -> tuple[float, float]:
        """Return the lowest and the highest learning rate that a candidate is given."""
        rates = self.rates_for(candidate)
        values = rates.values
        if values is None:
            assert isinstance(rates, RateRange)
            return rates.low, rates.high
        return values[0], values[-1]

    @property
    def measuring_seeds(self) -> tuple[int, ...]:
        """Fresh seeds: none of them was used to choose a learning rate."""
        return tuple(range(self.seed + 1, self.seed + 1 + self.seeds))

    @property
    def independent_rows(self) -> int:
        """How many evaluation rows are independent: as many as units, where rows share some."""
        return self.evaluation_units or self.evaluation_examples

    @property
    def has_too_few_units(self) -> bool:
        """Whether the evaluation rows share so few units that nothing can be certified."""
        fewest = min(self.evaluation_examples, self.policy.fewest_units)
        return self.independent_rows < fewest

    @property
    def judges_best_epochs(self) -> bool:
        """Whether each run's epoch is chosen on the rows that judge it: nothing is certified."""
        return self.recipe.selection is Selection.BEST_EPOCH

    @property
    def comparison(self) -> Comparison:
        """Everything that must agree before results are pooled."""
        recipe = self.recipe.comparable()
        if self.task.classes:
            recipe.pop("standardize_targets", None)  # class labels have no unit
        kind = None
        if self.task.kind not in _TOLD_BY_METRIC:
            kind = self.task.kind.value
        return Comparison.of(
            {
                "weights": _short(self.fingerprints.get("weights", "?")),
                "data": _short(self.fingerprints.get("data", "?")),
                "kind": kind,
                "metric": self.task.metric.value,
                **recipe,
            }
        )


def _short(fingerprint: str) -> str:
    """Twelve digits that stand for a whole fingerprint, whatever its parts."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:12]
