"""The specification of a search, made of what was asked."""

import math
import uuid

from elsa_tune.errors import SpaceError, UsageError
from elsa_tune.searching.inputs import Request
from elsa_tune.searching.planning.strategies import strategy_named, strategy_of
from elsa_tune.searching.planning.strategy import Outline
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import MOST
from elsa_tune.tracking.uris import shown_uri


def specify(request: Request, policy: Policy | None = None) -> SearchSpec:
    """Return the whole plan of a search.

    policy: of the search that is recorded under this name, None for this version's. Resources are a
    placeholder until the machine or cluster is known. Raises SpaceError where its parts contradict
    each other, UsageError for resources that no machine has.
    """
    _check_numbers(request)
    policy = policy or Policy()
    space = request.space
    outline = strategy_named(space.strategy).outline(request, policy)
    explores = bool(outline.explored)
    seeds = outline.seeds
    spec = SearchSpec(
        name=request.name,
        search_id=uuid.uuid4().hex,
        model=request.model,
        layers=request.layers,
        task=request.task,
        recipe=request.recipe,
        space=request.space_name,
        depths=outline.candidates,
        explored=outline.explored,
        rates=space.rates,
        tries=_tries(request, outline, policy.tries),
        sampler=space.sampler,
        asha=space.asha,
        seeds=seeds,
        planned_seeds=seeds if seeds >= policy.fewest_seeds else None,
        strategy=space.strategy,
        target=space.target,
        thorough=space.thorough,
        ladder_error=outline.ladder_error,
        seed=space.seed,
        resources=Resources(cpus=1, gpus=0),
        tracking_uri=shown_uri(request.tracking_uri),
        address=request.address,
        extend=policy.extension if space.extend and explores else None,
        exploring_limit=request.trials if space.extend and explores else None,
        max_time=request.max_time,
        linear_probe=space.linear_probe,
        command=request.command,
        policy=policy,
    )
    if request.until_certified or space.thorough:
        return strategy_of(spec).until_certain()
    return spec


def _check_numbers(request: Request) -> None:
    """Raise for numbers that no search or machine could give, before one is looked at."""
    for name, given in (("trials", request.trials), ("seeds", request.seeds)):
        if given is not None and given < 1:
            raise SpaceError(f"`{name}` is {given}; it must be 1 or more")
    if request.seeds is not None and request.seeds > MOST:
        raise SpaceError(f"`seeds` is {request.seeds:,}; it must be at most {MOST:,}")
    hours, cpus = request.gpu_hours, request.cpus_per_trial
    for name, amount in (("gpu_hours", hours), ("cpus_per_trial", cpus)):
        # Written so that nan, which compares to nothing, is refused too.
        if amount is not None and not 0 < amount < math.inf:
            raise UsageError(f"`{name}` is {amount:g}; it must be above 0")
    if request.gpus_per_trial is not None and not 0 <= request.gpus_per_trial < math.inf:
        raise UsageError(f"`gpus_per_trial` is {request.gpus_per_trial:g}; it must be 0 or more")


def _tries(request: Request, outline: Outline, usual: int) -> int:
    """Return the exploring trials of the given rates that each explored depth has, all alike."""
    depths = len(outline.explored)
    if not depths:
        return 0
    given = request.space.rates.values
    most = MOST if given is None else len(given)
    space_tries = request.space.tries or usual
    if request.trials is None:
        return min(space_tries, most)
    if request.trials < depths:
        raise SpaceError(
            f"`trials` is {request.trials}, but {depths} depths are explored with equally many "
            f"tries each; give at least {depths}, or fewer depths by `set` depths=[0,...]"
        )
    tries = request.trials // depths
    if request.space.extend:
        tries = min(tries, space_tries)
    return min(tries, most)
