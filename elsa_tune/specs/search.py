"""One search, as it was decided: everything `resume` needs to go on with the same plan."""

import enum
import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from elsa_tune.errors import SpaceError
from elsa_tune.specs.bounds import Bounds
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.policy import UNRECORDED, Counts, Extension, Policy
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.task import TaskKind, TaskSpec
from elsa_tune.specs.trial import MOST, Phase, Rate, Recipe, TrialSpec


class Strategy(enum.StrEnum):
    """Which depths are measured, and with how many seeds."""

    EVEN = "even"  # every depth alike
    HUNT = "hunt"  # those that can decide, with as many seeds as that takes


class SamplerName(enum.StrEnum):
    """Who proposes the learning rate within a depth."""

    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"


def check_few(values: Sequence[object], what: str) -> None:
    """Raise SpaceError for more of them than anybody could try. what: a word for them."""
    if len(values) > MOST:
        raise SpaceError(f"must be at most {MOST:,} {what}, not {len(values):,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates low..high (both in reach), in steps, or log-uniform where step is None."""

    low: Rate
    high: Rate
    step: Rate | None = None

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise SpaceError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.step is not None and self.step > self.high - self.low:
            raise SpaceError(f"step ({self.step:g}) must fit between low and high")
        if self.step is not None and self.step * MOST < self.high - self.low:
            raise SpaceError(
                f"step ({self.step:g}) gives more than {MOST:,} rates; take a wider one"
            )

    @property
    def values(self) -> tuple[float, ...] | None:
        """The rates of a stepped range, ascending; None for a continuous one."""
        if self.step is None:
            return None
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        return tuple(float(f"{self.low + i * self.step:.4e}") for i in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateList:
    """Learning rates one by one, ascending, distinct."""

    values: tuple[float, ...]


Rates = RateRange | RateList


@dataclass(frozen=True, slots=True, kw_only=True)
class Asha:
    """Asynchronous successive halving, with rungs kept per depth.

    grace: evaluations every trial is given, or their share if below 1; None: the policy's share.
    reduction_factor: at each rung about one in so many trials
    of a depth goes on. margin: and whatever scores at most so much less than the best there.
    """

    grace: Annotated[float, Bounds(gt=0, le=1e6)] | None = None
    reduction_factor: Annotated[float, Bounds(gt=1)] = 2.0
    margin: Annotated[float, Bounds(ge=0)] = 0.0

    def grace_of(self, evaluations: int) -> int:
        """Return how many of these evaluations every trial is given."""
        grace = self.grace or Policy().grace
        return math.ceil(grace if grace >= 1 else evaluations * grace)


_TEXT = re.compile(r"after N=(\d+), from seed (\d+), at ([\d.]+): ((?:\d+/\d+ ?)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The planned looks of one depth.

    after: frozen layers of the depth that is tested before it, 0 for the full model. first_seed: of
    the measuring seeds, which count upwards. counts: for each look, seeds of this depth and of the
    full model, both growing. error: the probability with which any look may reject falsely.
    """

    after: int
    first_seed: int
    counts: Counts
    error: float = 0.05  # family-wise, of a search that tests every depth in its order

    def __str__(self) -> str:
        counts = " ".join(f"{here}/{full}" for here, full in self.counts)
        return f"after N={self.after}, from seed {self.first_seed}, at {self.error:g}: {counts}"

    @classmethod
    def of(cls, text: str) -> Self:
        """The inverse of `str`. Raises SpaceError."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise SpaceError(f"'{text}' does not say when a depth is tested")
        pairs = (map(int, one.split("/")) for one in found[4].split())
        counts = tuple((here, full) for here, full in pairs)
        after, first_seed, error = int(found[1]), int(found[2]), float(found[3])
        return cls(after=after, first_seed=first_seed, counts=counts, error=error)


def hunted(
    depths: Sequence[FreezeDepth], layers: int, policy: Policy
) -> tuple[Sequence[FreezeDepth], Sequence[FreezeDepth]]:
    """The depths that a hunt tests: a ladder, evenly spaced, and below it the deep ones. These
    fine-tune at most a share of the layers, rounded up: most published answers do.
    """
    frozen = [one for one in depths if one.frozen_layers]
    fewest = layers - math.ceil(layers * policy.deep_share)
    deep = [one for one in frozen if one.frozen_layers >= fewest] or frozen[-1:]
    above = [one for one in frozen if one not in deep]
    return above[:: math.ceil(len(above) / policy.ladder_depths) or 1], deep


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one trial takes: CPUs (its threads, 1 or more) and a share of a GPU (0: none)."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """A search: model, task, recipe, and the two phases' plan.

    layers: L of the model. tries: exploring trials of the given rates per explored depth; depths
    that are not `explored` take the full model's rate. extend: how far a depth goes on beyond the
    given rates, None where it does not. exploring_limit: exploring trials in all, at most; None
    leaves it to `tries` and `extend`. seeds: measuring trials per depth. target: the share of the
    full model's quality that a hunt is after. until_certified: a hunt takes a depth's second look
    even if it promises little. thorough: its second looks have five seeds of the full model.
    speculate: workers that would wait run trials that may turn out unnecessary.
    ladder_error: the part of the error spent on leaving out depths of the ladder; 0: none may be.
    planned_seeds: those that the certificate is judged by, whatever is measured later; None for one
    seed, which certifies nothing, and for searches recorded before looks were planned. seed:
    exploring trials use it; measuring trials use seed+1 .. seed+seeds. max_time: seconds.
    train_examples: those that are trained on; holdout_examples: those held out beside them.
    fingerprints: compared before results are pooled. linear_probe: the frozen model is probed too.
    findings: what is odd about the rows in use.
    command: what is typed to start such a search, "" where that is not known.
    """

    name: str
    search_id: str
    model: ModelSpec
    layers: int
    task: TaskSpec
    recipe: Recipe
    space: str
    depths: tuple[FreezeDepth, ...]
    explored: tuple[FreezeDepth, ...]
    rates: Rates
    tries: int
    sampler: SamplerName
    asha: Asha | None
    seeds: int
    seed: int
    resources: Resources
    tracking_uri: str
    address: str | None = None
    planned_seeds: int | None = None
    strategy: Strategy = Strategy.EVEN
    target: float = 0.9
    until_certified: bool = False
    thorough: bool = False
    speculate: bool = False
    ladder_error: float = 0.0
    extend: Extension | None = None
    exploring_limit: int | None = None
    max_time: float | None = None
    chance: float = 0.0
    train_examples: int = 0
    holdout_examples: int = 0
    evaluation_examples: int = 0
    fingerprints: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    linear_probe: bool = False
    findings: tuple[RowFinding, ...] = ()
    command: str = ""
    policy: Policy = UNRECORDED

    def trial(self, phase: Phase, depth: FreezeDepth, learning_rate: float, seed: int) -> TrialSpec:
        """The trial of this search with these coordinates."""
        return TrialSpec(
            model=self.model,
            task=self.task,
            recipe=self.recipe,
            depth=depth,
            learning_rate=learning_rate,
            seed=seed,
            phase=phase,
        )

    @property
    def early_stopping(self) -> Asha | None:
        """What stops exploring trials, with the policy's grace where none was asked for."""
        if self.asha is None:
            return None
        return replace(self.asha, grace=self.asha.grace or self.policy.grace)

    @property
    def given_rates(self) -> tuple[float, float]:
        """The lowest and the highest learning rate of the range or list that was given."""
        values = self.rates.values
        if values is None:
            assert isinstance(self.rates, RateRange)
            return self.rates.low, self.rates.high
        return values[0], values[-1]

    @property
    def measuring_seeds(self) -> tuple[int, ...]:
        """Fresh seeds: none of them was used to choose a learning rate."""
        return tuple(range(self.seed + 1, self.seed + 1 + self.seeds))

    @property
    def ladder(self) -> tuple[FreezeDepth, ...]:
        """A hunt's depths between the full model and those explored."""
        return tuple(one for one in self.depths if one not in self.explored)

    def looks(self, depth: FreezeDepth, ladder: Collection[int] | None = None) -> Looks | None:
        """When the depth is tested, None where it is not; the full model beside any other.

        ladder: frozen layers of the ladder's depths that are tested, None for all of them.
        """
        order = [one for one in self.depths if not one.is_embeddings_only]
        if ladder is not None:
            order = [one for one in order if one in self.explored or one.frozen_layers in ladder]
        if self.planned_seeds is None or depth not in order or not order[0].is_full_model:
            return None
        counts: Counts = ((self.planned_seeds, self.planned_seeds),)
        if self.strategy is Strategy.HUNT:
            policy = self.policy
            planned = policy.looks if depth in self.explored else policy.ladder_looks
            first, (here, full) = planned
            counts = (first, (here, policy.thorough_seeds if self.thorough else full))
        return Looks(
            after=order[max(0, order.index(depth) - 1)].frozen_layers,
            first_seed=self.seed + 1,
            counts=counts,
            error=round(self.policy.error - self.ladder_error, 3),
        )

    def first_seeds(self, depth: FreezeDepth) -> int:
        """Measuring trials of a depth: in a hunt those of its first look."""
        return self.seeds_at(0, depth)

    def seeds_at(self, look: int, depth: FreezeDepth) -> int:
        """Measuring trials of a depth at its first look (0) or its last (-1)."""
        looks = self.looks(depth)
        if looks is None or self.strategy is Strategy.EVEN:
            return self.seeds
        return looks.counts[look][depth.is_full_model]

    @property
    def exploring_trials(self) -> int:
        """Planned exploring trials of the given rates."""
        return self.tries * len(self.explored)

    @property
    def most_exploring_trials(self) -> int:
        """Those beyond the given rates included, as many as there may be."""
        most = self.exploring_trials
        if self.extend is not None:
            most += self.extend.tries * len(self.explored)
        return most if self.exploring_limit is None else min(most, self.exploring_limit)

    @property
    def measuring_trials(self) -> int:
        """Planned measuring trials in all; of a hunt those of the first looks."""
        return sum(map(self.first_seeds, self.depths))

    @property
    def most_measuring_trials(self) -> int:
        """Those of a hunt's second looks included."""
        return sum(self.seeds_at(-1, depth) for depth in self.depths)

    @property
    def comparison(self) -> str:
        """Everything that must agree before results are pooled, as one short line."""
        recipe = self.recipe.comparable()
        if self.task.kind is not TaskKind.REGRESSION:
            recipe.pop("standardize_targets", None)  # class labels have no unit
        values = {
            "weights": _short(self.fingerprints.get("weights", "?")),
            "data": _short(self.fingerprints.get("data", "?")),
            "metric": self.task.metric.value,
            **recipe,
        }
        return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _short(fingerprint: str) -> str:
    """Twelve digits that stand for a whole fingerprint, whatever its parts."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:12]
