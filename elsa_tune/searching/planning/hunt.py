"""The strategy `hunt`: measured is only what can decide the answer, with as many seeds as it takes.

A hunt tests the candidates in their order, from the full model down, and ends at the first that is
not certified. Where nothing can be (evaluation rows share too few units, or choose each run's
epoch), it takes no second looks and ends at the first whose score misses the target. Which trials
run never endangers the certificate (docs/concepts/how-sure.md): it uses planned seeds at planned
looks alone. Measured and simulated: bench/strategy.py.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elsa_tune.analysis.contrasts import example_error, target_score
from elsa_tune.errors import SpaceError
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning.known import KnownTrial, Slot, exploring_of
from elsa_tune.searching.planning.strategy import FIRST_LOOK, Findings, Outline, Step, Strategy
from elsa_tune.searching.planning.walk import Walk
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Policy, SeedCounts
from elsa_tune.specs.rate_space import canonical_rate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.tracking.journal_records import Decision
from elsa_tune.tracking.record_names import LADDER
from elsa_tune.words import candidates_text


class Hunt(Strategy):
    """The full model, then the ladder, evenly spaced, then the deep candidates one by one.

    The ladder is not explored: its rates lie between those of the full model and of the first deep
    candidate. How that one scores as it explores decides how much of the ladder is tested.
    """

    name = "hunt"
    certifies = True
    takes_second_looks = True

    # ---- what a search is asked to do ----

    @classmethod
    def outline(cls, inputs: Inputs, policy: Policy, *, seeds: int | None, joined: bool) -> Outline:
        candidates = inputs.space.candidates_for(inputs.layers)
        _check(inputs.space, seeds, candidates)
        ladder, deep = ladder_and_deep(candidates, inputs.layers, policy)
        shortens = bool(ladder) and not joined
        return Outline(
            candidates=(REFERENCE, *ladder, *deep),
            explored=(REFERENCE, *deep),
            seeds=policy.looks[-1].depth,
            spent_error=policy.ladder_error if shortens else 0.0,
        )

    def with_seeds(self, seeds: int) -> SearchSpec:
        raise SpaceError(
            f"`seeds` is {seeds}, but search '{self.spec.name}' is a hunt, which has as many as "
            "its tests need; `until` certified runs the next planned test"
        )

    # ---- which learning rates are explored ----

    def in_order(self, slots: list[Slot], known: Sequence[KnownTrial]) -> list[Slot]:
        """Return the full model's slots alone where all else waits for it, else before the others'.

        Where a budget may cut exploring short, the order stays, in which candidates take turns: the
        walk needs a rate of each deep one, and the full model's further rates cost most.
        """
        of_reference = []
        others = []
        for slot in slots:
            if slot.candidate.is_reference:
                of_reference.append(slot)
            else:
                others.append(slot)
        if self.waits_for_reference(known):
            return of_reference
        has_budget = self.spec.max_time is not None or self.spec.gpu_hours is not None
        if has_budget:
            return slots
        return of_reference + others

    def waits_for_reference(self, known: Iterable[KnownTrial]) -> bool:
        """Whether the full model had its given rates and may have learnt nothing at any of them.

        That is where no trial of it so far is better than a constant answer by more than evaluation
        examples may give. It is measured next: if it still is no better then, nothing else matters.
        """
        ended = [trial for trial in known if trial.candidate.is_reference and trial.is_final]
        if len(exploring_of(ended)) < self.spec.tries:
            return False
        scores = [trial.score for trial in ended if trial.score is not None]
        if not scores:
            return True
        return max(scores) <= self._surely_above_chance

    @property
    def _surely_above_chance(self) -> float:
        """The score above which a trial has learnt, whatever examples and noise may give."""
        chance = self.spec.chance
        policy = self.spec.policy
        examples = self.spec.independent_rows or math.inf
        variance = max(0.0, chance * (1 - chance) / examples)
        by_examples = policy.above_chance * math.sqrt(variance)
        return chance + max(policy.noise, by_examples)

    @property
    def leading(self) -> Sequence[Candidate]:
        """The full model and the first deep candidate: the ladder's rates lie between theirs."""
        return self.spec.explored[:2]

    def rate_unexplored(self, candidate: Candidate, chosen: Mapping[Candidate, float]) -> float:
        """Return a rate between the full model's and the next explored one's, by their ranks."""
        rate_of_full = chosen[REFERENCE]
        for deeper in self.spec.explored:
            if deeper > candidate and deeper in chosen:
                share = candidate.rank / deeper.rank
                factor = chosen[deeper] / rate_of_full
                return canonical_rate(rate_of_full * factor**share)
        return rate_of_full

    # ---- what is measured ----

    @property
    def ladder(self) -> tuple[Candidate, ...]:
        """The candidates between the full model and those explored."""
        explored = self.spec.explored
        return tuple(candidate for candidate in self.spec.candidates if candidate not in explored)

    @property
    def deep(self) -> tuple[Candidate, ...]:
        """The explored candidates but the full model."""
        explored = self.spec.explored
        return tuple(candidate for candidate in explored if not candidate.is_reference)

    def next(self, findings: Findings) -> Step:
        """Return what is measured next; which of the ladder is tested is decided once."""
        if LADDER in findings.decisions:
            tested = self._recorded_ladder(findings.decisions)
            return Walk(self, findings, tested).next()
        chosen = self._chosen_ladder(findings)
        step = Walk(self, findings, chosen).next()
        if chosen is None or not self.spec.ladder_error:
            return step
        keys = [candidate.key for candidate in chosen]
        decision = Decision(what=LADDER, value=keys)
        return replace(step, decision=decision, note=self._note_of(chosen))

    def _note_of(self, tested: Sequence[Candidate]) -> str:
        """Return what to say where some of the ladder is left out."""
        left_out = [candidate for candidate in self.ladder if candidate not in tested]
        if not left_out:
            return ""
        left_out_text = candidates_text(left_out, self.spec.layers)
        good = candidates_text(self.deep[:1], self.spec.layers)
        return f"leaving out {left_out_text}, because of the good score of {good}"

    def _recorded_ladder(self, decisions: Mapping[str, Any]) -> Sequence[Candidate]:
        """Return what of the ladder is tested; early versions recorded frozen layers."""
        recorded = decisions[LADDER]
        tested = []
        for candidate in self.ladder:
            if candidate.key in recorded or candidate.rank in recorded:
                tested.append(candidate)
        return tested

    def _chosen_ladder(self, findings: Findings) -> Sequence[Candidate] | None:
        """Return what of the ladder to test; None as long as that is open.

        Exploring runs decide it, whose seeds no test uses: that of the first deep candidate beside
        the full model's. Far above the target, none is tested; above it, only the last. The
        measured runs' predictions tell what is far.
        """
        if not self.spec.ladder_error:
            return self.ladder
        curve = findings.curve()
        if curve is None or curve.full is None:
            return None
        first_deep = self.deep[0]
        if curve.full.seeds < self.seeds_to_begin_with(REFERENCE):
            return None
        for candidate in (REFERENCE, first_deep):
            if candidate not in findings.chosen_rates:
                return None
        enough = self.enough(findings.explored_quality(REFERENCE))
        above = findings.explored_quality(first_deep) - enough
        error = example_error(curve, self.spec.target)
        if error is None or not math.isfinite(above):
            return self.ladder
        policy = self.spec.policy
        if above <= policy.likely * error:
            return self.ladder
        if above <= policy.clear * error:
            return self.ladder[-1:]
        return ()

    def enough(self, full_quality: float) -> float:
        """Return the score that keeps the target, where the full model has this one."""
        spec = self.spec
        return target_score(full_quality, spec.target, claim=spec.policy.claim, chance=spec.chance)

    def tested(self, decisions: Mapping[str, Any]) -> Sequence[Candidate]:
        if LADDER not in decisions:
            return self.spec.candidates
        kept = {*self.spec.explored, *self._recorded_ladder(decisions)}
        return [candidate for candidate in self.spec.candidates if candidate in kept]

    def look_counts(self, candidate: Candidate) -> tuple[SeedCounts, ...]:
        policy = self.spec.policy
        looks = policy.ladder_looks
        if candidate in self.spec.explored:
            looks = policy.looks
        if not self.spec.thorough:
            return looks
        first, second = looks
        return first, SeedCounts(depth=second.depth, full=policy.thorough_seeds)

    def seeds_at(self, look: int, candidate: Candidate) -> int:
        looks = self.looks(candidate, {})
        if looks is None:
            return self.spec.seeds
        seeds = looks.counts[look]
        return seeds.full if candidate.is_reference else seeds.depth

    def seeds_to_begin_with(self, candidate: Candidate) -> int:
        """Return those of its first look that are measured before it may be given up."""
        seeds = self.seeds_at(FIRST_LOOK, candidate)
        first_of_them = self.spec.policy.seeds_before_giving_up
        return seeds if first_of_them is None else min(seeds, first_of_them)

    def may_leave_out(self, candidate: Candidate) -> bool:
        return not candidate.is_reference

    def planned_seeds(self, candidate: Candidate, known: Iterable[KnownTrial]) -> int:
        """Return those of the first look, then of the second one as they begin.

        None of a ladder whose next candidate has begun: the walk has passed it.
        """
        measured = [trial.candidate for trial in known if trial.measures]
        begun = measured.count(candidate)
        is_passed = candidate in self.ladder and self.deep[0] in measured
        if is_passed:
            return begun
        return max(begun, self.seeds_at(FIRST_LOOK, candidate))

    # ---- how many trials that is ----

    def fewest_tries(self, candidate: Candidate) -> int:
        # A full model that learns nothing ends the hunt before anything else begins.
        return self.rates.planned(candidate) if candidate.is_reference else 0

    def fewest_seeds(self, candidate: Candidate) -> int:
        return 1 if candidate.is_reference else 0

    def expected_seeds(self, candidate: Candidate) -> float:
        seeds = super().expected_seeds(candidate)
        if candidate not in self.ladder:
            return seeds
        # The walk may begin further down and end further up: from one to all are tested.
        in_all = len(self.ladder)
        on_average = (1 + in_all) / 2
        return seeds * on_average / in_all


def _check(space: Space, seeds: int | None, candidates: Sequence[Candidate]) -> None:
    """Raise SpaceError where what was asked for is no hunt."""
    if seeds is not None:
        raise SpaceError(
            f"`seeds` is {seeds}, but a hunt runs as many seeds as its tests need; "
            "leave it out, or measure every depth alike by `set` strategy=even"
        )
    if REFERENCE not in candidates or not any(map(is_hunted, candidates)):
        raise SpaceError(
            "a hunt compares depths with frozen layers with the full model (0); give both in depths"
        )
    others = [other for other in candidates if other.family != REFERENCE.family]
    if others:
        raise SpaceError(
            f"a hunt tests depths one after the other, and '{others[0].label}' is no depth; leave "
            "it out, or measure everything alike by `set` strategy=even"
        )
    untested = [other for other in candidates if not other.is_tested]
    if untested:
        raise SpaceError(
            f"a hunt measures what it tests, and '{untested[0].label}' is only drawn beside the "
            "curve; leave it out, or measure everything alike by `set` strategy=even"
        )
    rates = space.rates.values
    if space.follows_full_model or (rates is not None and len(rates) < 2):
        raise SpaceError(
            "a hunt finds each depth's own learning rate; give a range or a list of rates, or "
            "measure every depth alike by `set` strategy=even"
        )


def is_hunted(candidate: Candidate) -> bool:
    """Whether a hunt tests it against the full model."""
    return candidate.is_tested and not candidate.is_reference


def ladder_and_deep(
    candidates: Sequence[Candidate], layers: int, policy: Policy
) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
    """Return the candidates that a hunt tests: a ladder, evenly spaced, and the deep ones.

    These fine-tune at most a share of the layers, rounded up, or others than the last layers.
    """
    most = math.ceil(layers * policy.deep_share)
    deep = []
    above = []
    for candidate in candidates:
        if not is_hunted(candidate):
            continue
        if (candidate.fine_tuned_layers(layers) or 0) <= most:
            deep.append(candidate)
        else:
            above.append(candidate)
    if not deep:
        deep = above[-1:]
        above = above[:-1]
    step = math.ceil(len(above) / policy.ladder_depths)
    return above[:: step or 1], deep
