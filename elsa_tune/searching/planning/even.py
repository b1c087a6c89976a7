"""The strategy `even`: every candidate is measured alike."""

from collections import Counter

from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning.strategy import (
    Findings,
    Outline,
    Step,
    Strategy,
    explored_of,
    left_to_measure,
)
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Policy
from elsa_tune.words import kind_text, seeds_text


class Even(Strategy):
    """Each candidate explores its learning rates, and is measured with the same seeds."""

    name = "even"
    certifies = True

    @classmethod
    def outline(cls, inputs: Inputs, policy: Policy, *, seeds: int | None, joined: bool) -> Outline:
        space = inputs.space
        candidates = space.candidates_for(inputs.layers)
        return Outline(
            candidates=candidates,
            explored=explored_of(space, candidates),
            seeds=seeds or space.seeds,
        )

    def next(self, findings: Findings) -> Step:
        trials = left_to_measure(self.spec, findings.chosen_rates, findings.known)
        return Step(trials=trials, waits=True)

    def lacking(self, findings: Findings) -> Counter[Candidate]:
        """Return the measuring trials to go, whatever the rates will be."""
        left = Counter(dict.fromkeys(self.spec.candidates, self.spec.seeds))
        for trial in findings.known:
            if trial.measures and trial.is_final:
                left[trial.candidate] -= 1
        return +left  # without those that are measured

    @property
    def opening(self) -> str:
        seeds = seeds_text(self.spec.seeds)
        kind = kind_text(self.spec.candidates)
        return f"measuring: {self.measuring_trials} trials, {seeds} of each {kind}"
