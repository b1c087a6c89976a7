"""The strategy `even`: every candidate is measured alike."""

from collections import Counter

from elsa_tune.errors import SpaceError
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning.strategy import (
    Findings,
    Outline,
    Step,
    Strategy,
    measuring_trials,
)
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.rate_space import RateSpace
from elsa_tune.specs.trial import Phase


class Even(Strategy):
    """Each candidate explores its learning rates, and is measured with the same seeds."""

    name = "even"

    @classmethod
    def outline(
        cls, inputs: Inputs, policy: Policy, *, seeds: int | None, whole_ladder: bool
    ) -> Outline:
        space = inputs.space
        if space.thorough:
            raise SpaceError("thorough is for hunts; set strategy: hunt, or leave thorough out")
        candidates = space.depths_for(inputs.layers)
        seeds = seeds or space.seeds
        explored = [one for one in candidates if not _is_one_rate(space.rates_for(one))]
        if space.follows_full_model and not _is_one_rate(space.rates):
            if REFERENCE not in candidates:
                raise SpaceError(
                    "learning_rate is from_full_model, but depths leave the full model (0) out; "
                    "add 0"
                )
            explored = [one for one in explored if one.is_reference or one.rates is not None]
        return Outline(candidates=candidates, explored=tuple(explored), seeds=seeds)

    def next(self, findings: Findings) -> Step:
        trials = measuring_trials(self.spec, findings.rates, findings.known)
        return Step(trials=trials, waits=True)

    def lacking(self, findings: Findings) -> Counter[Candidate]:
        """Return the measuring trials to go, whatever the rates will be."""
        ended = Counter(
            one.trial.candidate
            for one in findings.known
            if one.trial.phase is Phase.MEASURE and one.status.is_final
        )
        return Counter(dict.fromkeys(self.spec.candidates, self.spec.seeds)) - ended

    @property
    def opening(self) -> str:
        seeds = "1 seed" if self.spec.seeds == 1 else f"{self.spec.seeds} seeds"
        return f"measuring: {self.measuring_trials} trials, {seeds} of each depth"


def _is_one_rate(rates: RateSpace) -> bool:
    """Whether there is nothing to explore."""
    return rates.values is not None and len(rates.values) == 1
