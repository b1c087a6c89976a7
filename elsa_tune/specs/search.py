"""One search, as it was decided: everything `resume` needs to go on with the same plan.

It must not know Ray, Optuna or MLflow, and holds nothing that changes while the search runs.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Phase, Recipe, TrialSpec


class SamplerName(enum.StrEnum):
    """Who proposes the learning rate within a depth."""

    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """Learning rates low..high (both in reach), in steps, or log-uniform where step is None."""

    low: float
    high: float
    step: float | None = None

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

    grace: evaluations every trial is given, >= 1. reduction_factor: at each rung about one in so
    many trials of a depth goes on, > 1.
    """

    grace: int = 1
    reduction_factor: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one trial takes: CPUs (= its threads, at least one) and a share of a GPU (0 trains on
    the CPU).
    """

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """A search: model, task, recipe, and the two phases' plan.

    layers: L of the model. tries: exploring trials per explored depth. explored: the depths that
    are explored; the other depths take the full model's rate. seeds: measuring trials per depth.
    seed: exploring trials use it; measuring trials use seed+1 .. seed+seeds. max_time: seconds, or
    None.
    train_examples: those that are trained on; holdout_examples: those held out beside them.
    fingerprints and versions: recorded, and compared before results are pooled. linear_probe: the
    frozen model is probed beside the plan.
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
    max_time: float | None = None
    chance: float = 0.0
    train_examples: int = 0
    holdout_examples: int = 0
    evaluation_examples: int = 0
    fingerprints: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    linear_probe: bool = False

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
    def measuring_seeds(self) -> tuple[int, ...]:
        """Fresh seeds: none of them was used to choose a learning rate."""
        return tuple(range(self.seed + 1, self.seed + 1 + self.seeds))

    @property
    def exploring_trials(self) -> int:
        """Planned exploring trials in all."""
        return self.tries * len(self.explored)

    @property
    def measuring_trials(self) -> int:
        """Planned measuring trials in all."""
        return self.seeds * len(self.depths)

    @property
    def comparison(self) -> str:
        """Everything that must agree before results are pooled, as one short line.

        Rows are averaged only with rows of the same text (only like is pooled).
        """
        values = {
            "weights": _short(self.fingerprints.get("weights", "?")),
            "data": _short(self.fingerprints.get("data", "?")),
            "metric": self.task.metric.value,
            **self.recipe.comparable(),
        }
        return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def _short(fingerprint: str) -> str:
    """Twelve digits that stand for a whole fingerprint, whatever its parts."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:12]
