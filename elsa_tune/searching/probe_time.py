"""How long a plan takes, by a like search that ran here, or by a few seconds of training."""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from elsa_tune.errors import ElsaTuneError
from elsa_tune.searching.eta import TRIAL_SECONDS, seconds_per_trial
from elsa_tune.searching.planning.known import KnownTrial, known_trial, relative_cost
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import load_specification
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.searching.tune.shares import share
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState
from elsa_tune.words import duration

if TYPE_CHECKING:
    from elsa_tune.training.data.tokens import TaskData

# How long every model is trained on every task.
PROBE_SECONDS = 2.0
# What the probe does not see, roughly: Ray's, MLflow's and the workers' start.
SEARCH_SECONDS = 15.0


def recorded_seconds(
    request: Request, trials: Counter[Candidate]
) -> tuple[SearchSpec, float] | None:
    """Return the latest like search in the same place, and the request's seconds at its pace."""
    planned = request.spec
    latest: tuple[float, SearchSpec, list[KnownTrial]] | None = None
    for name in search_names(request.storage):
        with contextlib.suppress(ElsaTuneError):
            search = _ended_search(SearchPaths(request.storage, name), planned)
            if search is not None and (latest is None or search[0] > latest[0]):
                latest = search
    if latest is None:
        return None
    _, spec, known = latest
    each = seconds_per_trial(planned, known)
    total = sum(count * each[candidate] for candidate, count in trials.items())
    return spec, total / _side_by_side(known)


def _ended_search(
    paths: SearchPaths, planned: SearchSpec
) -> tuple[float, SearchSpec, list[KnownTrial]] | None:
    """Return when a recorded search's last trial ended, if it is like the planned one."""
    spec = load_specification(paths)
    if spec.address is not None or _kind(spec) != _kind(planned):
        return None
    state = SearchState.replay(read_journal(paths.journal), alive=False)
    known = [known_trial(spec, trial) for trial in state.planned_trials]
    ends = [one.ended for one in known if one.ended and one.reported]
    return (max(ends), spec, known) if ends else None


def _kind(spec: SearchSpec) -> tuple[object, ...]:
    """Return what like searches share; a recorded precision is what `auto` became."""
    recipe = {**spec.recipe.comparable(), "precision": None}
    return spec.model.location, spec.task.name, recipe


def _side_by_side(known: Sequence[KnownTrial]) -> float:
    """Return how many trials ran at once, on average, pauses between two sessions left out."""
    spans = sorted((one.started, one.ended) for one in known if one.ended)
    elapsed = 0.0
    until = 0.0
    for first, last in spans:
        elapsed += max(0.0, last - max(first, until))
        until = max(until, last)
    return sum(last - first for first, last in spans) / elapsed


# Requests with the trials that are left of each, by candidate.
Unfinished = Sequence[tuple[Request, Counter[Candidate]]]


def probed_time(unfinished: Unfinished) -> str:
    """Write how long these trials take here, by a few seconds of training; or why not known."""
    try:
        return f"about {duration(_probed_seconds(unfinished))} on this machine, from a short probe"
    except (ElsaTuneError, OSError) as error:
        return f"not known, {error}"


def _probed_seconds(unfinished: Unfinished) -> float:
    from elsa_tune.training.data.preparation import prepare

    specs = [request.spec for request, _ in unfinished]
    data = {spec.name: prepare(spec.model, spec.task, spec.recipe) for spec in specs}
    capacity = Capacity.of_this_machine()
    seconds = 0.0
    for location in {spec.model.location for spec in specs}:
        here = [request for request, _ in unfinished if request.spec.model.location == location]
        rates, at_once = _tokens_per_second(here, data, capacity)
        for request, left in unfinished:
            if request.spec.model.location != location:
                continue
            train, *evaluated = (
                int(rows.lengths.sum()) for rows in data[request.name].splits().values()
            )
            rate = rates[request.spec.task.name]
            seconds += training_seconds(request.spec, left, train, sum(evaluated), rate)
            seconds += SEARCH_SECONDS + TRIAL_SECONDS * left.total() / at_once
    return seconds


def _tokens_per_second(
    requests: Sequence[Request], data: "Mapping[str, TaskData]", capacity: Capacity
) -> tuple[dict[str, float], int]:
    """Train one model for a few seconds on each task.

    Returns the tokens a second of all trials side by side, by task, and how many trials that are.
    requests: of the same model. data: by the requests' names.
    """
    from elsa_tune.training.throughput import Division, measure

    tasks = {request.spec.task.name: request.spec for request in requests}
    each = share(requests[0], capacity)
    at_once = capacity.at_once(each)
    # What is measured on one GPU goes for all of them.
    beside = min(at_once, int(1 / each.gpus) or 1) if each.gpus else at_once
    measured = measure(
        [(_full_trial(spec), data[spec.name]) for spec in tasks.values()],
        Division(trials=beside, threads=max(1, int(each.cpus))),
        "cuda" if each.gpus else "cpu",
        PROBE_SECONDS,
    )
    rates: dict[str, float] = {}
    for task, throughput in zip(tasks, measured, strict=True):
        rates[task] = throughput.tokens_per_second * at_once / beside
    return rates, at_once


def _full_trial(spec: SearchSpec) -> TrialSpec:
    """Return a trial of the full model; its rate and seed do not change how long it takes."""
    return spec.trial(Phase.EXPLORE, REFERENCE, spec.given_rates(REFERENCE)[0], spec.seed)


def training_seconds(
    spec: SearchSpec, left: Counter[Candidate], train: int, evaluation: int, rate: float
) -> float:
    """Return how long these trials of a search, by candidate, train and evaluate.

    train, evaluation: tokens of one pass over the training and the evaluation examples. rate:
    tokens of the full model's training a second, of all trials side by side.
    """
    # A token is evaluated at a third of what its training costs.
    tokens = spec.recipe.epochs * train + spec.recipe.evaluations * evaluation / 3
    trials = sum(count * relative_cost(spec, candidate) for candidate, count in left.items())
    return trials * tokens / rate
