"""The specification of a search, made of what was asked."""

import uuid

from elsa_tune.errors import SpaceError
from elsa_tune.searching.cluster.join_address import asked_address
from elsa_tune.searching.inputs import (
    Inputs,
    SearchOptions,
    read_checkpoint,
    read_duration,
    read_hung_after,
    read_until,
)
from elsa_tune.searching.planning.strategies import strategy_named, strategy_of
from elsa_tune.searching.planning.strategy import Outline, Strategy
from elsa_tune.searching.planning.strategy_settings import recorded_settings
from elsa_tune.searching.specification.changing import check_amounts, check_seeds
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.bounds import MOST
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.tracking.uris import shown_uri
from elsa_tune.words import kind_text


def specify(
    options: SearchOptions,
    inputs: Inputs,
    *,
    policy: Policy | None = None,
    joined: bool = False,
    command: str = "",
) -> SearchSpec:
    """Return the whole plan of a search, under a new id.

    options: with the search's name and the stores' places. policy: of the search that is recorded
    under this name, None for this version's. joined: one of several tasks', which are to measure
    the same depths. What data, weights and machine are is a placeholder. Raises SpaceError where
    its parts contradict each other, UsageError for resources that no machine has.
    """
    _check_numbers(options)
    policy = policy or Policy()
    space = inputs.space
    strategy = strategy_named(space.strategy)
    if space.thorough and not strategy.takes_second_looks:
        raise SpaceError(
            f"thorough is for second looks, and strategy {space.strategy} takes none; set "
            "strategy: hunt, or leave thorough out"
        )
    settings = strategy.settings_of(space.strategy_settings)
    outline = strategy.outline(inputs, policy, seeds=options.seeds, joined=joined)
    _check_order(strategy, outline)
    inputs.check(outline.candidates)
    explores = bool(outline.explored)
    seeds = outline.seeds
    spec = SearchSpec(
        name=options.name or "",
        search_id=uuid.uuid4().hex,
        model=inputs.model,
        layers=inputs.layers,
        task=inputs.task,
        recipe=inputs.recipe,
        space=inputs.space_name,
        candidates=outline.candidates,
        explored=outline.explored,
        rates=space.rates,
        tries=_tries(options.trials, space, outline, policy.tries),
        sampler=space.sampler,
        asha=space.asha,
        seeds=seeds,
        planned_seeds=seeds,
        strategy=space.strategy,
        strategy_settings=recorded_settings(settings),
        target=space.target,
        thorough=space.thorough,
        ladder_error=outline.spent_error,
        seed=space.seed,
        resources=Resources(cpus=1, gpus=0),
        tracking_uri=shown_uri(options.tracking_uri or ""),
        address=asked_address(options.address),
        extend=policy.extension if space.extend and explores else None,
        exploring_limit=options.trials if space.extend and explores else None,
        max_time=None if options.max_time is None else read_duration(options.max_time),
        gpu_hours=options.gpu_hours,
        max_workers=options.max_workers,
        cpus_per_trial=options.cpus_per_trial,
        gpus_per_trial=options.gpus_per_trial,
        checkpoint=read_checkpoint(options.checkpoint),
        artifacts=options.artifacts,
        hung_after=read_hung_after(options.hung_after),
        max_failures=options.max_failures,
        linear_probe=space.linear_probe,
        command=command,
        policy=policy,
    )
    if read_until(options.until) or space.thorough:
        return strategy_of(spec).until_certain()
    return spec


def _check_order(strategy: type[Strategy], outline: Outline) -> None:
    """Raise SpaceError where tests could not begin with the full model, though it is measured."""
    if not strategy.certifies:
        return
    order = [each for each in outline.candidates if each.is_in_order_of_tests]
    if REFERENCE in order[1:]:
        raise SpaceError(
            f"strategy {strategy.name} has candidates ahead of the full model, with which tests "
            "begin, so that it could certify nothing; its `outline` must name the full model first"
        )


def _check_numbers(options: SearchOptions) -> None:
    """Raise for numbers that no search or machine could give, before one is looked at."""
    counts = {
        "trials": options.trials,
        "seeds": options.seeds,
        "max_workers": options.max_workers,
    }
    for name, count in counts.items():
        if count is not None and count < 1:
            raise SpaceError(f"`{name}` is {count}; it must be 1 or more")
    if options.seeds is not None:
        check_seeds(options.seeds)
    amounts = {
        "gpu_hours": options.gpu_hours,
        "cpus_per_trial": options.cpus_per_trial,
        "gpus_per_trial": options.gpus_per_trial,
    }
    check_amounts(amounts)


def _tries(trials: int | None, space: Space, outline: Outline, usual: int) -> int:
    """Return the exploring trials of the given rates that each explored depth has, all alike.

    trials: as many as there may be in all. usual: where the space does not say.
    """
    candidates = len(outline.explored)
    if not candidates:
        return 0
    most = 1
    for candidate in outline.explored:
        given = space.rates_for(candidate).values
        most = max(most, MOST if given is None else len(given))
    space_tries = space.tries or usual
    if trials is None:
        return min(space_tries, most)
    if trials < candidates:
        raise SpaceError(
            f"`trials` is {trials}, but {kind_text(outline.explored, candidates)} are explored "
            f"with equally many tries each; give at least {candidates}, or compare fewer by `set` "
            "depths=[0,...]"
        )
    tries = trials // candidates
    if space.extend:
        tries = min(tries, space_tries)
    return min(tries, most)
