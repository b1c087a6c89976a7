"""The Optuna sampler of a search: the plan fixes each trial's depth, TPE proposes the learning rate
within it.

Left to itself, TPE on quality gives the full model fifteen tries and nine frozen layers two, in
forty. So depths come from the plan, and each depth has a TPE of its own that sees only trials of
that depth. It must not know Ray.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from elsa_tune.search.parameters import FROZEN_LAYERS, LEARNING_RATE
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import RateList, RateRange, Rates, SamplerName
from elsa_tune.specs.trial import Selection, canonical_rate, trial_score

# TPE's own default of ten random starts would be the whole budget of a depth.
STARTUP_TRIALS = 2
# How often TPE is asked again when it proposes a rate that its depth has already tried.
ASK_LIMIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One exploring trial to come; a restarted trial keeps the learning rate it had."""

    depth: FreezeDepth
    learning_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A learning rate that a depth has had: the scores of its evaluations so far, and whether it
    ran to its end.
    """

    depth: FreezeDepth
    learning_rate: float
    scores: tuple[float, ...]
    completed: bool


def distributions(depths: Sequence[FreezeDepth], rates: Rates) -> dict[str, BaseDistribution]:
    """The study's parameters: both stay in it, so that importances and plots show both."""
    return {
        FROZEN_LAYERS: CategoricalDistribution([depth.label for depth in depths]),
        LEARNING_RATE: rate_distribution(rates),
    }


def rate_distribution(rates: Rates) -> BaseDistribution:
    """Stepped or log-uniform for a range, categorical for a list."""
    if isinstance(rates, RateList):
        return CategoricalDistribution(rates.values)
    if rates.step is not None:
        assert rates.values is not None
        return FloatDistribution(rates.low, rates.values[-1], step=rates.step)
    return FloatDistribution(rates.low, rates.high, log=True)


class PlannedDepthSampler(BaseSampler):
    """Proposes the slots' depths in order and, within a depth, a learning rate that it has not
    tried.

    Deterministic for one sequence of results: each proposal is seeded by the search's seed, the
    depth and the number of tries the depth has had. slots: by trial number. evaluations: planned
    per trial.
    history: trials of an earlier session. selection: which evaluation's score is a trial's.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        rates: Rates,
        name: SamplerName,
        seed: int,
        evaluations: int,
        history: Sequence[Tried] = (),
        selection: Selection = Selection.LAST,
    ) -> None:
        self._slots = tuple(slots)
        self._rates = rates
        self._name = name
        self._seed = seed
        self._evaluations = evaluations
        self._history = tuple(history)
        self._selection = selection

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Nothing is sampled jointly: the depth is given and the rate depends on it."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See `infer_relative_search_space`."""
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> CategoricalChoiceType:
        """The slot's depth, or a learning rate for it."""
        slot = self._slots[trial.number % len(self._slots)]
        if param_name == FROZEN_LAYERS:
            return slot.depth.label
        if slot.learning_rate is not None:
            return slot.learning_rate
        return self._rate(slot.depth, self._tried(study, slot.depth, before=trial.number))

    def _tried(self, study: Study, depth: FreezeDepth, before: int) -> list[Tried]:
        """What this depth has had, running trials included (no scores yet)."""
        tried = [one for one in self._history if one.depth == depth]
        for trial in study.get_trials(deepcopy=False):
            if trial.number >= before or trial.params.get(FROZEN_LAYERS) != depth.label:
                continue
            values = tuple(trial.intermediate_values[i] for i in sorted(trial.intermediate_values))
            tried.append(
                Tried(
                    depth=depth,
                    learning_rate=canonical_rate(trial.params[LEARNING_RATE]),
                    scores=values,
                    # Ray tells Optuna COMPLETE for a trial that ASHA stopped, with its truncated
                    # value.
                    completed=trial.state is TrialState.COMPLETE
                    and len(values) >= self._evaluations,
                )
            )
        return tried

    def _rate(self, depth: FreezeDepth, tried: list[Tried]) -> float:
        used = {one.learning_rate for one in tried}
        values = self._rates.values
        untried = None if values is None else [value for value in values if value not in used]
        if self._name is SamplerName.GRID and untried:
            return untried[0]
        proposals = self._proposals(depth, tried)
        for proposal in proposals:
            if proposal not in used:
                return proposal
        if not untried:
            return proposals[0]
        return min(untried, key=lambda rate: abs(math.log(rate / proposals[0])))

    def _proposals(self, depth: FreezeDepth, tried: list[Tried]) -> list[float]:
        """Rates in the order in which the depth's own study asks for them."""
        entropy = (self._seed, depth.frozen_layers, int(depth.embeddings_frozen), len(tried))
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        sampler: BaseSampler
        if self._name is SamplerName.TPE:
            sampler = TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
        else:
            sampler = RandomSampler(seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distribution = rate_distribution(self._rates)
        for one in tried:
            study.add_trial(_as_trial(one, distribution, self._selection))
        asked = (study.ask({LEARNING_RATE: distribution}) for _ in range(ASK_LIMIT))
        return [canonical_rate(trial.params[LEARNING_RATE]) for trial in asked]


def _as_trial(tried: Tried, distribution: BaseDistribution, selection: Selection) -> FrozenTrial:
    """A stopped trial enters as PRUNED with its curve: TPE ranks it below every finished one."""
    state = TrialState.COMPLETE if tried.completed else TrialState.PRUNED
    if not tried.scores:
        state = TrialState.RUNNING
    return optuna.trial.create_trial(
        params={LEARNING_RATE: _inside(tried.learning_rate, distribution)},
        distributions={LEARNING_RATE: distribution},
        value=trial_score(selection, tried.scores) if state is TrialState.COMPLETE else None,
        intermediate_values=dict(enumerate(tried.scores, start=1)),
        state=state,
    )


def _inside(rate: float, distribution: BaseDistribution) -> float:
    """A canonical rate may lie a rounding error outside the range it was drawn from."""
    if isinstance(distribution, FloatDistribution):
        return min(max(rate, distribution.low), distribution.high)
    return rate


def settings(name: SamplerName, rates: Rates) -> dict[str, Any]:
    """What is recorded of the sampler, so that a study can be repeated."""
    return {
        "sampler": name.value,
        "optuna": optuna.__version__,
        "n_startup_trials": STARTUP_TRIALS if name is SamplerName.TPE else None,
        "per_depth": True,
        "without_replacement": isinstance(rates, RateList) or rates.step is not None,
        "rates": list(rates.values) if rates.values else [rates.low, rates.high],  # type: ignore[union-attr]  # a range without values has both ends
    }


__all__ = [
    "FROZEN_LAYERS",
    "LEARNING_RATE",
    "PlannedDepthSampler",
    "RateRange",
    "Slot",
    "Tried",
    "distributions",
    "settings",
]
