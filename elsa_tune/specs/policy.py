"""The tuned constants of a search: a certificate belongs to the procedure that was planned.

A search is recorded with its policy, and is planned, resumed and answered by that one, whatever a
later version would plan. What a user asks (seeds, target, ranges of rates) is no part of it.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Final, NamedTuple

from elsa_tune.specs.bounds import Bounds

_Share = Annotated[float, Bounds(gt=0, lt=1)]
_Positive = Annotated[float, Bounds(gt=0)]
_Least = Annotated[float, Bounds(ge=0)]
_Number = Annotated[int, Bounds(ge=1)]


class SeedCounts(NamedTuple):
    """How many seeds a planned look at a depth uses; `[3, 3]` in JSON."""

    depth: int  # seeds of the tested depth
    full: int  # seeds of the full model


class SeedTerms(enum.StrEnum):
    """How the spreads of two depths' seeds are added up."""

    # One Student's t, with Welch's degrees of freedom (Welch 1947, Biometrika 34, 28-35).
    WELCH = "welch"
    # Two Student's t, drawn independently: the Behrens-Fisher distribution.
    DRAWN = "drawn"


class Claim(enum.StrEnum):
    """What a search claims with its error, named before its first trial."""

    # One claim: depths keep the target of what the full model gains over chance, at the planned
    # target and below it in one sequence. Raw answers and higher targets are exploratory.
    CORRECTED = "corrected"
    # The raw answer, the corrected one, and each of every target that is asked, with an error each.
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """How far a depth may go beyond the given rates, where its best one lies at their border."""

    low: float = 1e-6  # no rate below this is tried
    high: float = 1e-2  # nor one above this
    tries: int = 8  # further exploring trials of one depth, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every tuned constant that decides what is trained or what is certified.

    Learning rates are tried by the first part, what is measured next is decided by the second,
    what is certified by the third. Costs are in trials of the full model, scores and qualities in
    fractions.
    """

    # ---- Which learning rates are tried, and to which end ----

    # Tries of the given rates per depth where a space does not say: two and the way outward find as
    # good a rate as three (bench/results/rate_search_6_layers.json).
    tries: _Number = 2
    # Beyond the given rates, which the best one lies at the border of for many deep depths
    # (bench/results/rate_search_6_layers.json).
    extension: Extension = field(default_factory=Extension)
    # What one run of one seed scores above another by chance alone: on MiniLM's recorded tables
    # (bench/lab) single runs at neighbouring rates of a plateau differ by about as much.
    noise: _Least = 0.005
    # Outward, the next rate is the last one times or divided by this.
    rate_factor: Annotated[float, Bounds(gt=1)] = 2.0
    # One step below a rate where training collapses, seeds fail that do not fail lower: the next
    # lower rate is measured if it keeps this share of the best gain over guessing (bench/edge.py).
    # None: the best one always is.
    kept_off_edge: _Share | None = 0.95
    # Training has collapsed where it gained less than this share of the best trial's gain.
    collapsed_gain: _Share = 0.25
    # A rate lent by a neighbour may skip some: a gap above the best wider than this factor is
    # filled at its lower end. Two steps outward are no gap.
    widest_gap: Annotated[float, Bounds(gt=1)] = 4.5
    # Nearer by this factor to a rate that was tried, a bound is not worth a trial.
    least_step: Annotated[float, Bounds(gt=1)] = 1.2
    # Trials that cost less run to their end, and their depth tries more rates: what that takes is
    # hardly noticed (bench/results/step.json).
    cheap_cost: _Least = 0.05
    # How many rates beyond its best a cheap depth tries before it stops; others try one.
    cheap_patience: _Number = 2
    # What sampler `gp` begins with where no trial has ended yet: the upper end of the rates that
    # models are usually fine-tuned with, and the middle.
    first_rates: tuple[float, ...] = (5e-5, 2e-5)
    # Its length scales, what fits the laboratory's tables (bench/samplers.py, as the next four):
    rate_scale: _Positive = 2.7  # of the rate, in octaves
    rank_scale: _Positive = 0.25  # of a candidate's rank, in shares of the layers
    # What a rate that nothing is known of may score above or below a constant answer, one standard
    # deviation, in what the search has learnt at best.
    prior_level: _Positive = 0.6
    least_learnt: _Positive = 0.02  # the least that this unit may be, in scores
    # How far single runs at one rate lie apart, in that unit.
    prior_noise: _Positive = 0.02
    # The least of that in scores (bench/results/seed_spreads.json has about a point).
    seed_spread: _Positive = 0.01
    # A depth goes on while a trial promises to raise its best score by this much at the full model.
    worth_a_trial: _Positive = 0.04
    worth_if_free: _Share = 0.4  # the share of it that is enough where trials cost nothing
    # Before a depth learns at any rate, the next one lies within this factor of those tried.
    blind_step: Annotated[float, Bounds(gt=1)] = 4.0
    # How many such rates follow the planned tries where no other depth learns either.
    blind_tries: _Number = 2
    # The points that a TPE study begins with: both ends of the range and its middle.
    first_points: _Number = 3
    # How often a sampler is asked again when it proposes a rate that its depth has tried.
    ask_limit: _Number = 8
    # ASHA stops no trial before this share of its evaluations, where a space does not say: fewer
    # are inside warm-up and noise (bench/lab/replay.py).
    grace: _Share = 0.5
    # Of a time limit, the most that exploring may take, so that something is measured.
    exploring_share: _Share = 0.5

    # ---- What a hunt measures (bench/strategy.py: simulated studies and their costs) ----

    # Depths that fine-tune at most this share of the layers are explored and tested one by one:
    # most published answers lie there.
    deep_share: _Share = 0.25
    # Of those above, at most this many are tested, the ladder: they are the expensive ones.
    ladder_depths: _Number = 3
    # Planned looks at a deep depth.
    looks: tuple[SeedCounts, ...] = (SeedCounts(3, 3), SeedCounts(10, 4))
    # Those at a depth of the ladder, which costs more and is further from the target.
    ladder_looks: tuple[SeedCounts, ...] = (SeedCounts(3, 3), SeedCounts(5, 4))
    # A thorough hunt's seeds of the full model at second looks.
    thorough_seeds: _Number = 5
    # What the quality of the full model must exceed chance by, in standard errors of the
    # evaluation examples, before anything else is measured: one-sided 95 %.
    above_chance: _Least = 1.645
    # In standard errors of what the examples leave open, with the full model's spread for both
    # depths: an exploring run this far below the target is not worth a measuring one; this far
    # above it, no depth of the ladder is worth one either. With a depth's own spread it is about .8
    # at a Pearson of .97, and 2.3 to 2.5 in accuracy and F1 (`example_error`).
    clear: _Least = 2.5
    # This far above the target in the same unit, a depth is expected to keep it.
    likely: _Least = 0.5
    # A depth that costs less is measured in any case: its point of the curve costs nothing.
    free_cost: _Least = 0.03
    # A first look is taken in two steps: after so many seeds a depth that lies far below the target
    # is given up, and a test that is never finished rejects nothing. None: all seeds at once.
    seeds_before_giving_up: _Number | None = 2
    # A second look is taken if it would reject in at least this share of cases.
    promising: _Least = 0.3
    # One that would reject in fewer cases than this is never taken.
    no_promise: _Least = 0.02

    # ---- What is certified ----

    # Family-wise, of a search that tests its depths in order.
    error: _Share = 0.05
    # The part of it that pays for leaving out depths of the ladder by exploring runs: what an
    # adversary gains by it (bench/certificate.py).
    ladder_error: Annotated[float, Bounds(ge=0, lt=1)] = 0.01
    # The part that pays for Welch's degrees of freedom, which reject a ninth more often than they
    # should where the two spreads are unlike (the same bench).
    approximation_error: Annotated[float, Bounds(ge=0, lt=1)] = 0.005
    # The same where a depth has two seeds.
    approximation_error_of_pairs: Annotated[float, Bounds(ge=0, lt=1)] = 0.01
    # The first look's share of the error. With less of it the second look, which has more seeds,
    # certifies more than the first one loses (bench/results/strategy_first_look.json).
    first_look_share: _Share = 0.5
    # What a contrast takes at least:
    fewest_seeds: _Number = 2  # at either depth
    # Degrees of freedom of the spread between seeds, over all depths that learn.
    fewest_freedom: _Number = 2
    # Where evaluation rows share units, so many units: in the worst simulated kind of rows
    # certificates were false in 8 % of studies with 20 units, 6 to 7 with 30 to 50, 4 with 100
    # (bench/units.py).
    fewest_units: _Number = 100
    # The most that the spread of other depths counts for, in degrees of freedom. Any such loan is
    # false more often than 5 % where one depth's seeds spread more than the others'
    # (bench/certificate.py).
    prior_freedom: _Least = 0.0
    # How the seeds' spreads of two depths are added up.
    seed_terms: SeedTerms = SeedTerms.WELCH
    # Taking out of the examples' variance what the seeds' spread has leaves at least this share.
    least_example_share: _Least = 0.25
    # A depth learns if its working runs gain this share of what those of the best depth do.
    learning_share: _Least = 0.5
    # A run has failed if it lies below its depth's median run by more than this share of what that
    # one gains over guessing, which is enough to matter. None: only guessing is failing.
    failed_loss: _Share | None = 0.25
    # And by more than this many spreads of seeds: further than seeds that merely differ.
    failed_spreads: _Positive = 4.0
    # A seed within this of chance has not left it: chance is often printed with four decimals.
    at_chance: _Least = 5e-5
    # Qualities with fewer decimals than this were rounded when they were written down.
    exact_decimals: _Number = 6
    # A quality computed again from predictions may differ from the recorded one by rounding; where
    # it differs by more, predictions are not used.
    same_score: _Least = 1e-5
    # .9 x q_0 computed in binary may miss an exact .9 x q_0 by 1e-17; no quality is known to 1e-9.
    rounding: _Least = 1e-9
    # Whether something is certified where the evaluation examples cannot count: without predictions
    # only accuracy over a known number of examples tells how far they move it. By seeds alone 7 to
    # 34 % of the claims in F1 or Matthews were false (docs/decisions.md).
    by_seeds_alone: bool = False
    # What is certified: two claims with an error each are false in up to 8 % of simulated searches,
    # three targets in up to 13 %, one claim in about 5 % (bench/results/questions.json).
    claim: Claim = Claim.CORRECTED

    @property
    def confidence(self) -> float:
        """The confidence with which a claim is certified, and the full model has learnt."""
        return 1 - self.error

    @property
    def ends(self) -> tuple[float, float, float]:
        """The shares that lie below an interval's low, high and one-sided lower end."""
        return self.error / 2, 1 - self.error / 2, self.error

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic read a policy that was recorded before some field existed."""
        # Only where pydantic is there: a trial does without it.
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_with_unrecorded, handler(source))

    def ends_of_test(self, fewest_seeds: int, tasks: int = 1) -> tuple[float, float, float]:
        """Return `ends` for a contrast that is tested. tasks: how many are asked about together."""
        half = self.error / 2
        return half, 1 - half / tasks, self.test_error(fewest_seeds)

    def test_error(self, fewest_seeds: int) -> float:
        """Return the error that a depth is tested with, so that the claim's is `error`.

        fewest_seeds: of the two depths that are compared.
        """
        paid = self.approximation_error
        if fewest_seeds <= 2:
            paid = self.approximation_error_of_pairs
        return self.error - paid


# What searches were planned by that were recorded without a policy, or without a field of it. Where
# a default changes, and where a field is new, the value of before goes here (a test has them).
UNRECORDED: Final = Policy(
    looks=(SeedCounts(4, 2), SeedCounts(8, 3)),
    ladder_looks=(SeedCounts(2, 2), SeedCounts(5, 3)),
    ladder_error=0.005,
    approximation_error=0.0,
    approximation_error_of_pairs=0.0,
    fewest_freedom=3,
    prior_freedom=2.0,
    seed_terms=SeedTerms.DRAWN,
    fewest_units=1,
    kept_off_edge=None,
    seeds_before_giving_up=None,
    promising=0.2,
    first_look_share=0.6,
    failed_loss=None,
    by_seeds_alone=True,
    claim=Claim.BOTH,
)


def _with_unrecorded(recorded: object) -> object:
    """Return a recorded policy with the fields that its version did not have."""
    if not isinstance(recorded, Mapping):
        return recorded
    return {**asdict(UNRECORDED), **recorded}


def changed_fields(policy: Policy) -> dict[str, object]:
    """Return the fields that a record needs, so that the same policy is read of it again."""
    changed: dict[str, object] = {}
    for spec in fields(Policy):
        value = getattr(policy, spec.name)
        if value != getattr(UNRECORDED, spec.name):
            changed[spec.name] = value
    return changed


def common_policy(policies: Iterable[Policy]) -> Policy:
    """Return the policy by which these searches are answered together.

    Where they were planned by unlike ones it is this version's: how a run scored does not depend on
    a policy, and what was planned by several searches certifies no depth with frozen layers.
    """
    distinct = set(policies)
    return distinct.pop() if len(distinct) == 1 else Policy()
