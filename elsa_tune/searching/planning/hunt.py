"""The strategy `hunt`: measured is only what can decide the answer, with as many seeds as it takes.

A hunt tests the candidates in their order, from the full model down, and ends at the first that is
not certified. Where evaluation rows share too few units to certify anything, it takes no second
looks and ends at the first whose score misses the target. Which trials run never endangers the
certificate (docs/concepts/how-sure.md): it uses planned seeds at planned looks alone. Measured and
simulated: bench/strategy.py.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from elsa_tune.analysis.certainty import (
    claimed_contrast,
    example_error,
    is_far_below,
    second_look_promises,
    target_score,
)
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.errors import SpaceError
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning.known import (
    KnownTrial,
    Slot,
    exploring_of,
    relative_cost,
    tried,
)
from elsa_tune.searching.planning.strategy import (
    Findings,
    Outline,
    Step,
    Strategy,
    left_to_measure,
)
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.specs.trial import TrialSpec, canonical_rate
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
            seeds=policy.looks[-1][0],
            spent_error=policy.ladder_error if shortens else 0.0,
        )

    def with_seeds(self, seeds: int) -> SearchSpec:
        raise SpaceError(
            f"`seeds` is {seeds}, but search '{self.spec.name}' is a hunt, which has as many as "
            "its tests need; `until` certified runs the next planned test"
        )

    # ---- which learning rates are explored ----

    def in_order(self, slots: list[Slot], known: Sequence[KnownTrial]) -> list[Slot]:
        """Return the slots with the full model's first; alone, where all else waits for it."""
        of_reference = []
        others = []
        for slot in slots:
            if slot.candidate.is_reference:
                of_reference.append(slot)
            else:
                others.append(slot)
        if self.waits_for_reference(known):
            return of_reference
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
        examples = self.spec.evaluation_units or self.spec.evaluation_examples or math.inf
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
            return _Walk(self, findings, tested).next()
        chosen = self._chosen_ladder(findings)
        step = _Walk(self, findings, chosen).next()
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
        enough = self.enough(explored_quality(findings, REFERENCE))
        above = explored_quality(findings, first_deep) - enough
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

    def look_counts(self, candidate: Candidate) -> tuple[tuple[int, int], ...]:
        policy = self.spec.policy
        looks = policy.ladder_looks
        if candidate in self.spec.explored:
            looks = policy.looks
        if not self.spec.thorough:
            return looks
        first, second = looks
        return first, (second[0], policy.thorough_seeds)

    def seeds_at(self, look: int, candidate: Candidate) -> int:
        looks = self.looks(candidate, {})
        if looks is None:
            return self.spec.seeds
        return looks.counts[look][candidate.is_reference]

    def seeds_to_begin_with(self, candidate: Candidate) -> int:
        """Return those of its first look that are measured before it may be given up."""
        seeds = self.seeds_at(0, candidate)
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
        return max(begun, self.seeds_at(0, candidate))

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


class _Walk:
    """What a hunt measures next, from what it has found so far.

    `next` asks one step after the other. A step returns what is to be done, or None where it has
    nothing to say, and the next one is asked. tested: what of the ladder is, None before that is
    decided.
    """

    def __init__(self, hunt: Hunt, findings: Findings, tested: Sequence[Candidate] | None) -> None:
        self.hunt = hunt
        self.spec = hunt.spec
        self.policy = hunt.spec.policy
        self.findings = findings
        self.rates = findings.chosen_rates
        self.tested = tested
        self.ladder: list[Candidate] = []
        if tested:
            self.ladder = [candidate for candidate in hunt.ladder if candidate in tested]
        self.order = [*self.ladder, *hunt.deep]
        self.contrasts: dict[Candidate, Interval | None] = {}
        self.left = left_to_measure(self.spec, self.rates, findings.known)

    def next(self) -> Step:
        """Return what the first step that has something to say wants."""
        for ask in (
            self.full_model_comes_first,
            self.full_model_gave_no_result,
            self.full_model_learnt_nothing,
            self.a_rate_is_being_explored,
            self.first_looks_to_begin_with,
        ):
            step = ask()
            if step is not None:
                return step
        for candidate in self.order:
            step = self.step_at(candidate)
            if step is not None:
                return step
        return Step(why=f"every depth keeps the target{self.but_nothing_certified}")

    def step_at(self, candidate: Candidate) -> Step | None:
        """Return what a candidate wants; None where it is passed, and the walk goes on.

        It is where it is certified, or keeps the target by its score where nothing can be.
        """
        for ask in (
            self.its_rate_is_being_explored,
            self.it_is_far_from_the_target,
            self.its_first_seeds,
            self.it_falls_short,
            self.its_first_look,
        ):
            step = ask(candidate)
            if step is not None:
                return step
        if self.has_too_few_units:
            return self.it_gave_no_result(candidate) or self.its_score_misses_the_target(candidate)
        if self.is_certified(candidate):
            return None
        for ask in (self.it_gave_no_result, self.others_tell_how_seeds_spread):
            step = ask(candidate)
            if step is not None:
                return step
        return self.its_second_look(candidate)

    # ---- the full model, and what may begin beside it ----

    def full_model_comes_first(self) -> Step | None:
        seeds = self.hunt.seeds_to_begin_with(REFERENCE)
        if self.may_be_at_chance:
            seeds = 1
        trials = self.lacking(REFERENCE, seeds)
        waits = REFERENCE not in self.rates
        if not waits and not trials:
            return None
        if not self.may_be_at_chance:
            trials += self.needed_in_any_case()
        return Step(trials=trials, why="the full model comes first", waits=waits)

    def needed_in_any_case(self) -> tuple[TrialSpec, ...]:
        """Return what workers run that would wait for the full model's trials."""
        of_full = []
        for trial in tried(self.findings.known, REFERENCE):
            if trial.is_final and trial.quality is not None:
                of_full.append(trial.quality)
        enough = self.hunt.enough(max(of_full, default=math.inf))
        needed = []
        for candidate in self.first:
            if self.quality(candidate, 0.0) >= enough:
                needed.append(candidate)
        return self.first_looks(needed)

    def full_model_gave_no_result(self) -> Step | None:
        if self.curve is None or self.curve.full is None:
            return Step(why="the full model gave no result")
        return None

    def full_model_learnt_nothing(self) -> Step | None:
        is_at_chance = self.may_be_at_chance
        chance = None if self.curve is None else self.curve.chance
        if self.error is not None and chance is not None:
            error_of_full = self.error / math.hypot(1, self.spec.target)
            gain = self.full_quality - chance
            if gain <= self.policy.above_chance * error_of_full:
                is_at_chance = True
        if is_at_chance:
            return Step(why="the full model is no better than a constant answer")
        return None

    @property
    def may_be_at_chance(self) -> bool:
        """Whether the full model has learnt nothing so far, and all else waits for it."""
        return self.hunt.waits_for_reference(self.findings.known)

    # ---- before the first test ----

    def a_rate_is_being_explored(self) -> Step | None:
        missing = [candidate for candidate in self.hunt.deep if candidate not in self.rates]
        if not missing:
            return None
        return self.waits_for_rates(missing)

    def waits_for_rates(self, candidates: Sequence[Candidate]) -> Step:
        why = f"the learning rate of {self.named(*candidates)} is being explored"
        return Step(why=why, waits=True)

    def first_looks_to_begin_with(self) -> Step | None:
        wanted = []
        for candidate in self.first:
            if self.is_free(candidate) or not self.is_hopeless(candidate):
                wanted.append(candidate)
        return self.measuring(self.first_seeds(wanted + self.ladder[:1]))

    @property
    def first(self) -> list[Candidate]:
        """The candidates that are measured before anything is tested.

        How seeds spread is learnt where they are cheap. What the first deep candidate follows must
        be decided before it begins; beyond a complete ladder the walk will hardly come.
        """
        first_deep, *deeper = self.hunt.deep
        cheap = [candidate for candidate in deeper if self.is_free(candidate)]
        is_complete = bool(self.ladder) and len(self.ladder) == len(self.hunt.ladder)
        if self.tested is None or is_complete:
            return cheap
        return [first_deep, *cheap]

    # ---- one candidate after the other ----

    def its_rate_is_being_explored(self, candidate: Candidate) -> Step | None:
        if candidate in self.rates:
            return None
        return self.waits_for_rates([candidate])

    def it_is_far_from_the_target(self, candidate: Candidate) -> Step | None:
        if self.is_hopeless(candidate) and not self.is_free(candidate):
            return Step(why=f"the score of {self.named(candidate)} is far from the target")
        return None

    def its_first_seeds(self, candidate: Candidate) -> Step | None:
        """Return the first of its seeds, after which it may be given up."""
        return self.measuring(self.first_seeds([candidate]))

    def it_falls_short(self, candidate: Candidate) -> Step | None:
        """End where a candidate that lacks seeds of its first look lies far below the target."""
        quality = self.measured_quality(candidate)
        if quality is None or self.curve is None or not self.first_looks([candidate]):
            return None
        if not is_far_below(self.curve, quality, self.spec.target):
            return None
        return Step(why=f"the score of {self.named(candidate)} is far below the target")

    def its_first_look(self, candidate: Candidate) -> Step | None:
        """Return what its first look lacks, of the full model's seeds and of its own."""
        of_full = self.lacking(REFERENCE, self.hunt.seeds_at(0, REFERENCE))
        return self.measuring(of_full + self.first_looks([candidate]))

    def is_certified(self, candidate: Candidate) -> bool:
        contrast = self.contrast(candidate)
        return contrast is not None and contrast.lower > self.policy.rounding

    def it_gave_no_result(self, candidate: Candidate) -> Step | None:
        if self.measured_quality(candidate) is None:
            return Step(why=f"{self.named(candidate)} gave no result")
        return None

    def its_score_misses_the_target(self, candidate: Candidate) -> Step | None:
        if self.is_above_target(candidate):
            return None
        name = self.named(candidate)
        return Step(why=f"the score of {name} misses the target{self.but_nothing_certified}")

    def others_tell_how_seeds_spread(self, candidate: Candidate) -> Step | None:
        """Return the first look at a later candidate, where seeds are too few to tell here."""
        if self.contrast(candidate) is not None or not self.is_above_target(candidate):
            return None
        place = self.order.index(candidate)
        for other in self.order[place + 1 :]:
            step = self.measuring(self.first_looks([other]))
            if step is not None and not self.is_hopeless(other):
                return step
        return None

    def its_second_look(self, candidate: Candidate) -> Step:
        """Return the last thing to try: more seeds, where they promise enough."""
        trials = self.lacking(REFERENCE, self.hunt.seeds_at(-1, REFERENCE))
        trials += self.lacking(candidate, self.hunt.seeds_at(-1, candidate))
        if not trials:
            return Step(why=f"the last look at {self.named(candidate)} decides nothing")
        promise = self.promise_of(candidate)
        if promise is None:
            is_worth_it = self.spec.until_certified or self.is_above_target(candidate)
            odds = ""
        else:
            is_worth_it = promise >= self.least_promise
            odds = f", which would certify in about {100 * promise:.0f} % of cases"
        name = self.named(candidate)
        if is_worth_it:
            return Step(trials=trials, why=f"the second look at {name}{odds}")
        return Step(
            why=f"the first look at {name} decides nothing, and no second one is taken{odds}"
        )

    @property
    def least_promise(self) -> float:
        """The least share of cases in which a second look must certify to be taken."""
        if self.spec.until_certified:
            return self.policy.no_promise
        return self.policy.promising

    def promise_of(self, candidate: Candidate) -> float | None:
        """Return the share of cases in which a second look certifies; None with too few seeds."""
        if self.contrast(candidate) is None or self.curve is None:
            return None
        return second_look_promises(self.curve, candidate, self.spec.target)

    # ---- what the steps ask ----

    @functools.cached_property
    def curve(self) -> FreezeCurve | None:
        return self.findings.curve()

    @property
    def has_too_few_units(self) -> bool:
        """Whether no number of seeds certifies anything: first looks are for the curve alone."""
        return self.curve is not None and self.curve.has_too_few_units

    @property
    def but_nothing_certified(self) -> str:
        """What is added to the end of a walk where nothing can be certified; "" elsewhere."""
        if not self.has_too_few_units:
            return ""
        fewest = self.policy.fewest_units
        return f"; nothing can be certified, as that takes {fewest} units of evaluation rows"

    @functools.cached_property
    def error(self) -> float | None:
        """What the evaluation examples leave open of a contrast with the full model."""
        return None if self.curve is None else example_error(self.curve, self.spec.target)

    @property
    def full_quality(self) -> float:
        """The full model's measured quality; -inf where there is none."""
        full = None if self.curve is None else self.curve.full
        if full is None or full.quality is None:
            return -math.inf
        return full.quality

    def lacking(self, candidate: Candidate, count: int) -> tuple[TrialSpec, ...]:
        """Return those of the first `count` seeds of a candidate that have not ended."""
        seeds = self.spec.measuring_seeds[:count]
        lacking = []
        for trial in self.left:
            if trial.candidate == candidate and trial.seed in seeds:
                lacking.append(trial)
        return tuple(lacking)

    def measuring(self, trials: tuple[TrialSpec, ...]) -> Step | None:
        """Return the step that runs these trials of first looks, if there are any."""
        if not trials:
            return None
        begun = trials[0].candidate
        for trial in trials:
            if not trial.candidate.is_reference:
                begun = trial.candidate
                break
        return Step(trials=trials, why=f"the first look at {self.named(begun)}")

    def first_seeds(self, candidates: Iterable[Candidate]) -> tuple[TrialSpec, ...]:
        """Return what candidates lack of the seeds that come before they may be given up."""
        trials: tuple[TrialSpec, ...] = ()
        for candidate in candidates:
            trials += self.lacking(candidate, self.hunt.seeds_to_begin_with(candidate))
        return trials

    def first_looks(self, candidates: Iterable[Candidate]) -> tuple[TrialSpec, ...]:
        """Return what candidates lack, one after the other; nothing of those without a rate."""
        trials: tuple[TrialSpec, ...] = ()
        for candidate in candidates:
            trials += self.lacking(candidate, self.hunt.seeds_at(0, candidate))
        return trials

    def quality(self, candidate: Candidate, otherwise: float) -> float:
        """Return that of the exploring run at a candidate's rate, if it has one."""
        if candidate not in self.rates:
            return otherwise
        return explored_quality(self.findings, candidate)

    def is_hopeless(self, candidate: Candidate) -> bool:
        """Whether a deep candidate's exploring run lies so far below that no test is worth it."""
        if candidate not in self.hunt.deep:
            return False
        if self.error is None:
            return False
        enough = self.hunt.enough(self.full_quality)
        below = enough - explored_quality(self.findings, candidate)
        return below > self.policy.clear * self.error

    def is_free(self, candidate: Candidate) -> bool:
        return relative_cost(self.spec, candidate) < self.policy.free_cost

    def contrast(self, candidate: Candidate) -> Interval | None:
        """Return how far a candidate lies above the target; None with too few seeds."""
        if self.curve is None:
            return None
        if candidate not in self.contrasts:
            self.contrasts[candidate] = claimed_contrast(self.curve, candidate, self.spec.target)
        return self.contrasts[candidate]

    def measured_quality(self, candidate: Candidate) -> float | None:
        if self.curve is None:
            return None
        for point in self.curve.measured:
            if point.candidate == candidate:
                return point.quality
        return None

    def is_above_target(self, candidate: Candidate) -> bool:
        quality = self.measured_quality(candidate)
        return quality is not None and quality > self.hunt.enough(self.full_quality)

    def named(self, *candidates: Candidate) -> str:
        return candidates_text(candidates, self.spec.layers)


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


def explored_quality(findings: Findings, candidate: Candidate) -> float:
    """Return the quality of a candidate's exploring run at its rate; infinite without any."""
    rate = findings.chosen_rates[candidate]
    qualities = []
    for trial in tried(findings.known, candidate):
        if trial.learning_rate == rate and trial.quality is not None:
            qualities.append(trial.quality)
    return max(qualities, default=math.inf)
