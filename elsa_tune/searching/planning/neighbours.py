"""An Optuna sampler that proposes a learning rate by what neighbouring candidates have found.

It models the scores as a Gaussian process over the rate's logarithm and the candidate's rank, and
compares rates by how much they can be expected to gain over the candidate's best one. Optuna's own
samplers cannot be asked for one candidate: `PartialFixedSampler` takes the fixed parameter out of
their model (optuna#6620), so that all candidates count as one (bench/samplers.py).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from elsa_tune.specs.policy import Policy

LEARNING_RATE = "learning_rate"
RANK = "rank"
# The attribute of a trial that names its candidate, by its key: several may have one rank.
CANDIDATE = "candidate"

Array = NDArray[np.float64]


class ScoreProcess:
    """What trials so far say of the score at other points, as a Gaussian process.

    points [n, 2]: of trials that have a value, in length scales. values [n]: 0 is a constant
    answer, which is also expected where nothing is known. noise: the standard deviation of values
    at one point. pending [m, 2]: of trials that run; they make a point less unknown, and move no
    expectation.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        level: float,
        noise: float,
        pending: Array,
    ) -> None:
        self._level = level
        self._noise = noise
        self._points = points
        noisy_kernel = self._noisy_kernel(points)
        self._weights = np.linalg.solve(noisy_kernel, values)
        self._all = np.concatenate([points, pending])
        self._covered = self._noisy_kernel(self._all)

    def _noisy_kernel(self, points: Array) -> Array:
        """Return the covariances [n, n] of one run at each point."""
        covariances = self._kernel(points, points)
        variance = self._noise**2
        count = len(points)
        noise = variance * np.eye(count)
        return covariances + noise

    def _kernel(self, left: Array, right: Array) -> Array:
        """Return the covariances [len(left), len(right)]: Matern's, twice differentiable."""
        differences = left[:, None] - right[None]
        squares = differences**2
        squared_distances = squares.sum(axis=-1)
        distances = np.sqrt(squared_distances)
        scaled = math.sqrt(5) * distances
        quadratic = scaled**2 / 3
        polynomial = 1 + scaled + quadratic
        decay = np.exp(-scaled)
        variance = self._level**2
        kernel: Array = variance * decay * polynomial
        return kernel

    def expected(self, points: Array) -> Array:
        """Return the expected values at points [k, 2]."""
        across = self._kernel(points, self._points)
        expected: Array = across @ self._weights
        return expected

    def gains(self, points: Array, best: float) -> Array:
        """Return by how much one trial at each point can be expected to raise the best value.

        The expected improvement (Mockus 1978; Jones et al. 1998, J. Global Optim. 13, 455).
        """
        unknown = self._unknown(points)
        # One noisy trial moves the expectation by less than what is unknown.
        noisy = unknown + self._noise**2
        moves = unknown / np.sqrt(noisy)
        above_best = self.expected(points) - best
        lead = above_best / moves
        density = _normal_density(lead)
        below = _normal_shares(lead)
        gains_in_moves = lead * below + density
        gains: Array = moves * gains_in_moves
        return gains

    def _unknown(self, points: Array) -> Array:
        """Return the variance [k] that is left of the values at points [k, 2]."""
        across = self._kernel(points, self._all)
        solved = np.linalg.solve(self._covered, across.T)
        explained = np.einsum("ij,ji->i", across, solved)
        prior_variance = self._level**2
        left = prior_variance - explained
        unknown: Array = np.maximum(left, 1e-12)
        return unknown


def _normal_density(values: Array) -> Array:
    """Return the density of a standard normal distribution at each value."""
    squares = values**2
    powers = -squares / 2
    height = math.sqrt(2 * math.pi)
    density: Array = np.exp(powers) / height
    return density


def _normal_shares(values: Array) -> Array:
    """Return the share of a standard normal distribution that lies below each value."""
    shares = []
    for value in values:
        scaled = -value / math.sqrt(2)
        share = math.erfc(scaled) / 2
        shares.append(share)
    return np.array(shares)


class NeighbourSampler(BaseSampler):
    """Proposes the learning rate that promises the candidate most.

    The candidate is the trial's attribute `CANDIDATE`, and its place the parameter `RANK`; both
    must be given. Complete trials count with their values, running ones as points whose value is to
    come; others do not count. allowed: the rates to choose from, one or more. chance: the score of
    a constant answer. Afterwards `gain` says by how much the proposed rate can be expected to raise
    the candidate's best score.
    """

    def __init__(
        self,
        policy: Policy,
        layers: int,
        chance: float,
        allowed: Sequence[float],
    ) -> None:
        self._policy = policy
        self._layers = layers
        self._chance = chance
        self._allowed = allowed
        self.gain = 0.0

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> float:
        if param_name != LEARNING_RATE:
            raise ValueError(f"{param_name} must be given; only {LEARNING_RATE} is proposed")
        complete = []
        running = []
        for other in study.get_trials(deepcopy=False):
            if other.number == trial.number:
                continue
            if other.state is TrialState.COMPLETE:
                complete.append(other)
            elif other.state is TrialState.RUNNING:
                running.append(other)
        return self._proposed(trial, complete, running)

    def _proposed(
        self,
        trial: FrozenTrial,
        complete: Sequence[FrozenTrial],
        running: Sequence[FrozenTrial],
    ) -> float:
        """Return the rate that promises a trial's candidate most; keep what it promises as `gain`.

        complete, running: other trials, of any candidate.
        """
        policy = self._policy
        scores = np.array([other.value for other in complete], float)
        best_score = float(scores.max(initial=self._chance))
        # What is learnt at best is the unit, so that tasks whose scores differ little look alike.
        learnt = best_score - self._chance
        unit = max(policy.least_learnt, learnt)
        seed_noise = policy.seed_spread / unit
        process = ScoreProcess(
            points=self._points(complete),
            values=(scores - self._chance) / unit,
            level=policy.prior_level,
            noise=max(policy.prior_noise, seed_noise),
            pending=self._points(running),
        )
        candidate = trial.user_attrs[CANDIDATE]
        own = [other for other in complete if other.user_attrs[CANDIDATE] == candidate]
        own_points = self._points(own or complete)
        expected = process.expected(own_points)
        best_expected = float(expected.max(initial=0.0))
        ranks = [trial.params[RANK]] * len(self._allowed)
        proposals = self._places(ranks, self._allowed)
        gains = process.gains(proposals, best_expected)
        chosen = int(np.argmax(gains))
        gain_in_units = float(gains[chosen])
        self.gain = unit * gain_in_units
        return self._allowed[chosen]

    def _points(self, trials: Sequence[FrozenTrial]) -> Array:
        """Return where these trials lie."""
        ranks = []
        rates = []
        for trial in trials:
            ranks.append(trial.params[RANK])
            rates.append(trial.params[LEARNING_RATE])
        return self._places(ranks, rates)

    def _places(self, ranks: Sequence[float], rates: Sequence[float]) -> Array:
        """Return points [n, 2] in length scales of the rate and of the rank."""
        policy = self._policy
        exact_rates = np.array(rates, float)
        exact_ranks = np.array(ranks, float)
        octaves = np.log2(exact_rates)
        shares = exact_ranks / self._layers
        scaled_octaves = octaves / policy.rate_scale
        scaled_shares = shares / policy.rank_scale
        return np.column_stack([scaled_octaves, scaled_shares])
