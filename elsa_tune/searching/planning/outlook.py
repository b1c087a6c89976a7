"""What a search says of its plan before it trains: its doubts, and what it can probably certify."""

from collections.abc import Iterator

from elsa_tune.analysis.comparing.ways import FEWEST_SEEDS
from elsa_tune.analysis.comparing.ways_power import ways_power
from elsa_tune.analysis.evidence import levels
from elsa_tune.analysis.power import LEAST_TARGET, MARGIN, PROBABLY, PlannedTest, Power
from elsa_tune.analysis.wording.ways_power import not_estimated_text, ways_power_text
from elsa_tune.searching.planning.plan import steps_per_trial
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.search import SearchSpec
from elsa_tune.words import metric_text, points


def plan_warnings(spec: SearchSpec) -> Iterator[str]:
    """Yield what to tell whoever is about to train all of this, and might not want to."""
    from elsa_tune.training.loop import few_steps

    strategy = strategy_of(spec)
    if not strategy.plans_tests:
        yield f"strategy {strategy.name} certifies nothing: its answer will be a measured one"
    if spec.judges_best_epochs:
        yield (
            "with selection=best_epoch nothing can be certified, as each run's epoch is taken on "
            "the rows that judge it; selection=last and selection=holdout can certify"
        )
    lacks = ""
    if REFERENCE not in spec.candidates:
        lacks = "0 (the full model)"
    elif len(spec.candidates) == 1:
        lacks = "frozen layers"
    if lacks:
        yield f"depths without {lacks} leave nothing to compare: no answer by this search alone"
    compares_ways = not all(candidate.is_ranked for candidate in spec.candidates)
    if compares_ways and spec.seeds < FEWEST_SEEDS:
        yield (
            f"a comparison of ways is certified with {FEWEST_SEEDS} seeds of each or more; this "
            f"one, with {spec.seeds}, will be measured alone"
        )
    note = few_steps(spec.recipe, steps_per_trial(spec))
    if note:
        yield note


def said_before_training(spec: SearchSpec) -> Iterator[str]:
    """Yield what a search whose rows are read says of its plan, in sentences."""
    yield from plan_warnings(spec)
    ways = ways_outlook(spec)
    if ways is not None:
        yield ways


def planned_power(spec: SearchSpec) -> Power | None:
    """Return what can be estimated of the planned tests of the last depth.

    None where nothing is tested or certified, and for a metric that is no share of the examples.
    """
    strategy = strategy_of(spec)
    tested = []
    for candidate in strategy.tested({}):
        if candidate.is_in_order_of_tests:
            tested.append(candidate)
    if len(tested) < 2 or not spec.task.metric.is_share:
        return None
    if spec.has_too_few_units or spec.judges_best_epochs:
        return None
    looks = strategy.looks(tested[-1], {})
    if looks is None or not looks.are_planned:
        return None
    policy = spec.policy
    if min(looks.counts[0]) < policy.fewest_seeds:
        return None
    by_look = levels(looks.counts, looks.error, policy.first_look_share)
    tests: list[PlannedTest] = []
    for seeds, level in zip(looks.counts, by_look, strict=True):
        tests.append(PlannedTest(seeds=seeds.depth, full_seeds=seeds.full, level=level))
    return Power(
        guessing=spec.chance,
        target=spec.target,
        tests=tuple(tests),
        seed_spread=policy.seed_spread,
    )


def ways_outlook(spec: SearchSpec) -> str | None:
    """Return what a comparison of ways on its evaluation rows can certify: one sentence.

    None where only depths are compared, and where nothing is certified in any case, which is said
    elsewhere.
    """
    if all(candidate.is_ranked for candidate in spec.candidates):
        return None
    if spec.seeds < FEWEST_SEEDS or spec.has_too_few_units or spec.judges_best_epochs:
        return None
    if not spec.task.metric.is_share:
        return not_estimated_text(metric_text(spec.task.metric))
    power = ways_power(
        seeds=spec.seeds,
        rows=spec.independent_rows,
        are_units=spec.independent_rows < spec.evaluation_examples,
        ways=sum(candidate.is_tested for candidate in spec.candidates),
        guessing=spec.chance,
        policy=spec.policy,
    )
    return ways_power_text(power)


def power_text(power: Power, spec: SearchSpec) -> str:
    """Return what a search with these evaluation rows can probably certify: one sentence."""
    if not power.is_known:
        return (
            "what this search can certify is not estimated below a target of "
            f"{100 * LEAST_TARGET:.0f} %; if it certifies nothing, its answer says what would"
        )
    rows = spec.independent_rows
    noun = "rows"
    assumed = f"for a full model at {points(power.full)}"
    if rows < spec.evaluation_examples:
        noun = "units"
        assumed += " and units of like size"
    share = power.share_certified(rows, MARGIN)
    cases = f"{100 * share:.0f} % of cases"
    text = (
        f"with {rows:,} evaluation {noun} and {_seeds_text(power)}, a depth that truly lies "
        f"{_points_text(MARGIN)} above the target is certified in about {cases}"
    )
    margin = power.margin_needed(rows)
    needed: list[str] = []
    if share < PROBABLY:
        more_rows = power.rows_needed(rows, MARGIN)
        if more_rows is not None:
            needed.append(f"{more_rows:,} {noun}")
    if margin is not None:
        needed.append(_points_text(margin))
    if needed:
        text += f"; for {100 * PROBABLY:.0f} % it takes {' or '.join(needed)}"
    return f"{text} (an estimate, {assumed})"


def _seeds_text(power: Power) -> str:
    last = power.tests[-1]
    if last.seeds == last.full_seeds:
        return f"{last.seeds} seeds"
    return f"up to {last.seeds} seeds ({last.full_seeds} of the full model)"


def _points_text(margin: float) -> str:
    """Return `3 points` or `5.5 points`."""
    return f"{100 * margin:g} points"
