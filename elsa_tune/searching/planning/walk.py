"""What a hunt measures next: a chain of small steps, from what it has found so far."""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from elsa_tune.analysis.contrasts import (
    claimed_contrast,
    example_error,
    is_far_below,
    second_look_promises,
)
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.searching.planning.known import relative_cost, tries_of
from elsa_tune.searching.planning.strategy import (
    FIRST_LOOK,
    LAST_LOOK,
    Findings,
    Step,
    left_to_measure,
)
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.words import candidates_text

if TYPE_CHECKING:
    from elsa_tune.searching.planning.hunt import Hunt


class Walk:
    """What a hunt measures next, from what it has found so far.

    `next` asks one step after the other. A step returns what is to be done, or None where it has
    nothing to say, and the next one is asked. tested: what of the ladder is, None before that is
    decided.
    """

    def __init__(
        self, hunt: "Hunt", findings: Findings, tested: Sequence[Candidate] | None
    ) -> None:
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
        if self.can_certify_nothing:
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
        for trial in tries_of(self.findings.known, REFERENCE):
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
        of_full = self.lacking(REFERENCE, self.hunt.seeds_at(FIRST_LOOK, REFERENCE))
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
        trials = self.lacking(REFERENCE, self.hunt.seeds_at(LAST_LOOK, REFERENCE))
        trials += self.lacking(candidate, self.hunt.seeds_at(LAST_LOOK, candidate))
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
    def can_certify_nothing(self) -> bool:
        """Whether no number of seeds certifies anything: first looks are for the curve alone."""
        if self.curve is None:
            return False
        return self.curve.has_too_few_units or self.curve.judges_best_epochs

    @property
    def but_nothing_certified(self) -> str:
        """What is added to the end of a walk where nothing can be certified; "" elsewhere."""
        if not self.can_certify_nothing:
            return ""
        assert self.curve is not None
        if self.curve.judges_best_epochs:
            return "; nothing can be certified with selection=best_epoch"
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
            trials += self.lacking(candidate, self.hunt.seeds_at(FIRST_LOOK, candidate))
        return trials

    def quality(self, candidate: Candidate, otherwise: float) -> float:
        """Return that of the exploring run at a candidate's rate, if it has one."""
        if candidate not in self.rates:
            return otherwise
        return self.findings.explored_quality(candidate)

    def is_hopeless(self, candidate: Candidate) -> bool:
        """Whether a deep candidate's exploring run lies so far below that no test is worth it."""
        if candidate not in self.hunt.deep:
            return False
        if self.error is None:
            return False
        enough = self.hunt.enough(self.full_quality)
        below = enough - self.findings.explored_quality(candidate)
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
