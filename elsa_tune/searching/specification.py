"""The specification of a search: made from what was asked, saved, and read back by `resume`."""

import dataclasses
import functools
import math
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from elsa_tune.errors import (
    ElsaTuneError,
    SpaceError,
    StorageError,
    UsageError,
    quoted,
    shortlist,
)
from elsa_tune.files import write_aside
from elsa_tune.searching.inputs import Request
from elsa_tune.searching.output import Say
from elsa_tune.specs.checked import problems
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import (
    RateList,
    RateRange,
    Resources,
    SearchSpec,
    Strategy,
    hunted,
)
from elsa_tune.specs.trial import MOST, Precision, Recipe
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SEARCH_NAME, SearchPaths
from elsa_tune.tracking.uris import shown_uri

if TYPE_CHECKING:
    from elsa_tune.training.machine import Gpu

_SPECIFICATION = TypeAdapter(SearchSpec)


def specify(request: Request, policy: Policy | None = None) -> SearchSpec:
    """Return the whole plan. Raises SpaceError where its parts contradict each other, UsageError
    for resources that no machine has.

    policy: of the search that is recorded under this name, None for this version's.
    Resources are a placeholder until the machine or cluster is known.
    """
    _check_numbers(request)
    policy = policy or Policy()
    space = request.space
    depths = space.depths_for(request.layers)
    is_hunt = space.strategy is Strategy.HUNT
    if is_hunt:
        _check_hunt(request, depths)
        ladder, deep = hunted(depths, request.layers, policy)
        depths = (FULL_MODEL, *ladder, *deep)
    rates = space.rates
    if rates.values is not None and len(rates.values) == 1:
        # One rate leaves nothing to explore.
        explored: tuple[FreezeDepth, ...] = ()
        tries = 0
    else:
        explored = (FULL_MODEL,) if space.follows_full_model else depths
        if is_hunt:
            explored = (FULL_MODEL, *deep)
        if space.follows_full_model and FULL_MODEL not in depths:
            raise SpaceError(
                "learning_rate is from_full_model, but depths leave the full model (0) out; add 0"
            )
        tries = _tries(request, len(explored), policy.tries)
        if rates.values is not None:
            tries = min(tries, len(rates.values))
    seeds = policy.looks[-1][0] if is_hunt else request.seeds or space.seeds  # of a hunt at most
    shortens = is_hunt and len(ladder) > 0 and not request.whole_ladder
    spec = SearchSpec(
        name=request.name,
        search_id=uuid.uuid4().hex,
        model=request.model,
        layers=request.layers,
        task=request.task,
        recipe=request.recipe,
        space=request.space_name,
        depths=depths,
        explored=explored,
        rates=rates,
        tries=tries,
        sampler=space.sampler,
        asha=space.asha,
        seeds=seeds,
        planned_seeds=seeds if seeds >= policy.fewest_seeds else None,
        strategy=space.strategy,
        target=space.target,
        thorough=space.thorough,
        speculate=space.speculate,
        ladder_error=policy.ladder_error if shortens else 0.0,
        seed=space.seed,
        resources=Resources(cpus=1, gpus=0),
        tracking_uri=shown_uri(request.tracking_uri),
        address=request.address,
        extend=policy.extension if space.extend and explored else None,
        exploring_limit=request.trials if space.extend and explored else None,
        max_time=request.max_time,
        linear_probe=space.linear_probe,
        command=request.command,
        policy=policy,
    )
    return until_certain(spec) if request.until_certified or space.thorough else spec


def _check_hunt(request: Request, depths: Sequence[FreezeDepth]) -> None:
    """Raise SpaceError where what was asked for is no hunt."""
    space = request.space
    if request.seeds is not None:
        raise SpaceError(
            f"`seeds` is {request.seeds}, but a hunt runs as many seeds as its tests need; "
            "leave it out, or measure every depth alike by `set` strategy=even"
        )
    if FULL_MODEL not in depths or not any(depth.frozen_layers for depth in depths):
        raise SpaceError(
            "a hunt compares depths with frozen layers with the full model (0); give both in depths"
        )
    if space.follows_full_model or (space.rates.values is not None and len(space.rates.values) < 2):
        raise SpaceError(
            "a hunt finds each depth's own learning rate; give a range or a list of rates, or "
            "measure every depth alike by `set` strategy=even"
        )


def _check_numbers(request: Request) -> None:
    """What no search or machine could give is refused before one is looked at."""
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


def _tries(request: Request, depths: int, usual: int) -> int:
    """Exploring trials per depth: every depth gets as many as any other."""
    space_tries = request.space.tries or usual
    if request.trials is None:
        return space_tries
    if request.trials < depths:
        raise SpaceError(
            f"`trials` is {request.trials}, but {depths} depths are explored with equally many "
            f"tries each; give at least {depths}, or fewer depths by `set` depths=[0,...]"
        )
    tries = request.trials // depths
    return min(tries, space_tries) if request.space.extend else tries


def with_seeds(spec: SearchSpec, seeds: int) -> SearchSpec:
    """The search with this number of measuring seeds, at least as many as now. Raises SpaceError.

    Those beyond the planned ones count for the curve, not for the certificate.
    """
    if spec.strategy is Strategy.HUNT:
        raise SpaceError(
            f"`seeds` is {seeds}, but search '{spec.name}' is a hunt, which has as many as its "
            "tests need; `until` certified runs the next planned test"
        )
    if seeds < spec.seeds:
        raise SpaceError(
            f"`seeds` is {seeds}, but search '{spec.name}' has {spec.seeds} already, and what is "
            f"measured stays; write {spec.seeds} or more"
        )
    planned = seeds if spec.seeds < spec.policy.fewest_seeds <= seeds else spec.planned_seeds
    return dataclasses.replace(spec, seeds=seeds, planned_seeds=planned)


def until_certain(spec: SearchSpec) -> SearchSpec:
    """The hunt that takes every look it planned. Raises SpaceError for a search that is none."""
    if spec.strategy is not Strategy.HUNT:
        raise SpaceError(
            f"`until` certified: search '{spec.name}' tests each depth once, with the seeds it "
            "planned; start another one by `space` hunt, or with more seeds"
        )
    return dataclasses.replace(spec, until_certified=True)


def more_of(seeds: int | None, until_certified: bool) -> Callable[[SearchSpec], SearchSpec] | None:
    """What `seeds` and `until` ask of a recorded search. Raises UsageError for both at once."""
    if seeds is not None and until_certified:
        raise UsageError("`seeds` and `until` exclude each other: a hunt chooses its own seeds")
    if seeds is not None:
        return functools.partial(with_seeds, seeds=seeds)
    return until_certain if until_certified else None


def replace_specification(spec: SearchSpec, paths: SearchPaths) -> SearchSpec:
    """Write it over the one that is there, and return it; StorageError where a driver runs."""
    with Journal(paths.journal):
        _write(spec, paths, paths.specification)
    return spec


def save_specification(spec: SearchSpec, paths: SearchPaths) -> None:
    """Write it aside, then give it its name; StorageError where such a search began meanwhile."""
    aside = paths.specification.with_suffix(f".{os.getpid()}.tmp")
    _write(spec, paths, aside)
    try:
        os.link(aside, paths.specification)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        raise taken(paths) from None
    finally:
        aside.unlink()


def _write(spec: SearchSpec, paths: SearchPaths, file: Path) -> None:
    kept = dataclasses.replace(spec, tracking_uri=paths.uri_to_keep(spec.tracking_uri))
    write_aside(file, _SPECIFICATION.dump_json(kept, indent=1))


def check_same(request: Request) -> None:
    """Raise StorageError if a search of this name is recorded with other settings."""
    paths = SearchPaths(request.storage, request.name)
    if not paths.exists:
        return
    recorded = load_specification(paths)
    if why := differences(specify(request, recorded.policy), recorded):
        raise taken(paths, why)


def differences(asked: SearchSpec, recorded: SearchSpec) -> list[str]:
    """What a search that is recorded would have otherwise, in words. Not what a later session may
    change: fewer seeds than it has, its time, its store, its share of the machine.
    """
    wanted, there = _decided(asked), _decided(recorded)
    found = [
        f"{name} {_shown(value)} (recorded: {_shown(there.get(name))})"
        for name, value in wanted.items()
        # `auto` is settled when a search starts.
        if value != there.get(name) and not (name == "precision" and value is Precision.AUTO)
    ]
    if asked.seeds > recorded.seeds:
        found.append(f"seeds {asked.seeds} (recorded: {recorded.seeds})")
    return found


def _decided(spec: SearchSpec) -> dict[str, object]:
    names = ("depths", "rates", "tries", "exploring_limit", "strategy", "sampler", "asha", "extend")
    return {
        "model": spec.model.location,
        "task": spec.task.name,
        "text": spec.task.text_columns,
        "label": spec.task.label_column,
        "metric": spec.task.metric,
        **dataclasses.asdict(spec.task.cleaning),
        **{name: getattr(spec, name) for name in (*names, "target", "thorough", "seed")},
        **spec.recipe.comparable(),
    }


def _shown(value: object) -> str:
    if isinstance(value, RateList):
        return _shown(value.values)
    if isinstance(value, RateRange):
        return f"{value.low:g}..{value.high:g}"
    if isinstance(value, tuple):
        return shortlist(map(_shown, value))
    if isinstance(value, FreezeDepth):
        return value.label
    return f"{value:g}" if isinstance(value, float) else str(value)


def taken(paths: SearchPaths, why: Sequence[str] = ()) -> StorageError:
    """The error for a name that a search already has. why: the settings in which the two differ."""
    otherwise = f", but with other settings: {'; '.join(why)}" if why else ""
    return StorageError(
        f"a search named '{paths.name}' exists in {paths.storage}{otherwise}; go on with it by "
        f"`{paths.resume}`, or choose another `name`"
    )


def load_specification(paths: SearchPaths) -> SearchSpec:
    """Read it back; StorageError when it is missing or damaged."""
    if not paths.specification.exists():
        raise StorageError(
            f"search '{paths.name}' has no specification ({paths.specification}), so that it "
            "cannot go on; delete it, or start it again under another name"
        )
    try:
        spec = _SPECIFICATION.validate_json(paths.specification.read_bytes())
        if not SEARCH_NAME.fullmatch(spec.name):  # it goes into commands that are printed
            raise StorageError(f"{quoted(spec.name)} is no search's name")
        # An earlier version may have kept what is a secret.
        uri = shown_uri(paths.uri_kept(spec.tracking_uri))
        return dataclasses.replace(spec, tracking_uri=uri)
    except (OSError, ValidationError, ElsaTuneError) as error:
        reason = problems(error) if isinstance(error, ValidationError) else error
        raise StorageError(
            f"the specification of search '{paths.name}' ({paths.specification}) cannot be read: "
            f"{reason}"
        ) from error


def settled(spec: SearchSpec, gpus: "Sequence[Gpu]", say: Say) -> Recipe:
    """The recipe with its precision decided, one for all nodes that may train. gpus: theirs.

    Says what whoever uses such GPUs should know. Raises SpaceError for a precision that one of them
    has not, UsageError for one without room for a trial.
    """
    from elsa_tune.searching.tune.shares import check_memory, notes
    from elsa_tune.training.machine import resolve_precision
    from elsa_tune.training.model.encoder import facts

    if not spec.resources.gpus:
        precision = resolve_precision(spec.recipe.precision, "cpu")
        return dataclasses.replace(spec.recipe, precision=precision)
    model = facts(spec.model)
    check_memory(spec.resources.gpus, model, gpus)
    has_units = all(gpu.has_bf16 for gpu in gpus)
    precision = resolve_precision(spec.recipe.precision, "cuda", has_units)
    recipe = dataclasses.replace(spec.recipe, precision=precision)
    for note in notes(dataclasses.replace(spec, recipe=recipe), model, gpus):
        say(f"note: {note}")
    return recipe
