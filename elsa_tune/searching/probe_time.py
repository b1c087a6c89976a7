"""How long a plan takes, by a like search that ran here, or by a few seconds of training."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elsa_tune.errors import ElsaTuneError
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.shares import share
from elsa_tune.searching.eta import TRIAL_SECONDS, seconds_per_trial
from elsa_tune.searching.planning.known import KnownTrial, known_trial, relative_cost
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndedSearch:
    """A search that is recorded, and by whose pace another one can be judged."""

    spec: SearchSpec  # what was asked for
    trials: list[KnownTrial]  # those of its plan
    ended: float  # when the last of its trials that reported ended, in seconds since the epoch


def recorded_seconds(
    request: Request, trials: Mapping[Candidate, float]
) -> tuple[SearchSpec, float] | None:
    """Return the latest like search in the same place, and the request's seconds at its pace."""
    planned = request.spec
    latest: _EndedSearch | None = None
    for name in search_names(request.storage):
        paths = SearchPaths(request.storage, name)
        with contextlib.suppress(ElsaTuneError):
            search = _ended_search(paths, planned)
            if search is None:
                continue
            if latest is None or search.ended > latest.ended:
                latest = search
    if latest is None:
        return None
    seconds = seconds_per_trial(planned, latest.trials)
    total = sum(count * seconds[candidate] for candidate, count in trials.items())
    at_once = _side_by_side(latest.trials)
    if planned.max_workers is not None:
        at_once = min(at_once, planned.max_workers)
    return latest.spec, total / at_once


def _ended_search(paths: SearchPaths, planned: SearchSpec) -> _EndedSearch | None:
    """Return a recorded search of which trials have ended, if it is like the planned one."""
    spec = load_specification(paths)
    if spec.address is not None or _kind(spec) != _kind(planned):
        return None
    records = read_journal(paths.journal)
    state = SearchState.replay(records, alive=False)
    trials = [known_trial(spec, recorded) for recorded in state.planned_trials]
    ends = [trial.ended for trial in trials if trial.ended and trial.reported]
    if not ends or not seconds_per_trial(spec, trials):
        return None
    return _EndedSearch(spec=spec, trials=trials, ended=max(ends))


def _kind(spec: SearchSpec) -> tuple[object, ...]:
    """Return what like searches share; a recorded precision is what `auto` became."""
    recipe = {**spec.recipe.comparable(), "precision": None}
    return spec.model.location, spec.task.name, recipe


def _side_by_side(trials: Sequence[KnownTrial]) -> float:
    """Return how many trials ran at once, on average, pauses between two sessions left out."""
    spans = sorted((trial.started, trial.ended) for trial in trials if trial.ended)
    elapsed = 0.0
    in_all = 0.0
    until = 0.0
    for first, last in spans:
        in_all += last - first
        since = max(first, until)
        elapsed += max(0.0, last - since)
        until = max(until, last)
    return in_all / elapsed


# Requests with the trials that are left of each, by candidate.
Unfinished = Sequence[tuple[Request, Mapping[Candidate, float]]]


def probed_time(unfinished: Unfinished) -> str:
    """Write how long these trials take here, by a few seconds of training; or why not known."""
    try:
        seconds = _probed_seconds(unfinished)
    except (ElsaTuneError, OSError) as error:
        return f"not known, {error}"
    return f"about {duration(seconds)} on this machine, from a short probe"


def _probed_seconds(unfinished: Unfinished) -> float:
    from elsa_tune.training.data.preparation import prepare

    data = {}
    requests_by_model: dict[str, list[Request]] = {}
    for request, _ in unfinished:
        spec = request.spec
        data[spec.name] = prepare(spec.model, spec.task, spec.recipe)
        requests_by_model.setdefault(spec.model.location, []).append(request)
    capacity = Capacity.of_this_machine()
    seconds = 0.0
    for location, requests in requests_by_model.items():
        rates, at_once = _tokens_per_second(requests, data, capacity)
        for request, left in unfinished:
            if request.spec.model.location != location:
                continue
            train = 0
            evaluation = 0
            for split, rows in data[request.name].splits().items():
                tokens = int(rows.lengths.sum())
                if split == "train":
                    train = tokens
                else:
                    evaluation += tokens
            spec = request.spec
            rate = rates[spec.task.name]
            seconds += training_seconds(spec, left, train, evaluation, rate)
            seconds += SEARCH_SECONDS + TRIAL_SECONDS * sum(left.values()) / at_once
    return seconds


def _tokens_per_second(
    requests: Sequence[Request], data: "Mapping[str, TaskData]", capacity: Capacity
) -> tuple[dict[str, float], int]:
    """Train one model for a few seconds on each task.

    Returns the tokens a second of all trials side by side, by task, and how many trials that are.
    requests: of the same model. data: by the requests' names.
    """
    from elsa_tune.training.throughput import Division, measure

    specs = {request.spec.task.name: request.spec for request in requests}
    trainings = []
    for spec in specs.values():
        trial = _full_trial(spec)
        trainings.append((trial, data[spec.name]))
    resources = share(requests[0], capacity)
    at_once = capacity.at_once(resources)
    most = requests[0].spec.max_workers  # all come of one command
    if most is not None:
        at_once = min(at_once, most)
    beside = at_once
    device = "cpu"
    if resources.gpus:
        device = "cuda"
        # What is measured on one GPU goes for all of them.
        on_one_gpu = int(1 / resources.gpus) or 1
        beside = min(at_once, on_one_gpu)
    threads = max(1, int(resources.cpus))
    division = Division(trials=beside, threads=threads)
    measured = measure(trainings, division, device, PROBE_SECONDS)
    rates: dict[str, float] = {}
    for task, throughput in zip(specs, measured, strict=True):
        rates[task] = throughput.tokens_per_second * at_once / beside
    return rates, at_once


def _full_trial(spec: SearchSpec) -> TrialSpec:
    """Return a trial of the full model; its rate and seed do not change how long it takes."""
    rates = spec.given_rates(REFERENCE)
    return spec.trial(Phase.EXPLORE, REFERENCE, rates[0], spec.seed)


def training_seconds(
    spec: SearchSpec, left: Mapping[Candidate, float], train: int, evaluation: int, rate: float
) -> float:
    """Return how long these trials of a search, by candidate, train and evaluate.

    train, evaluation: tokens of one pass over the training and the evaluation examples. rate:
    tokens of the full model's training a second, of all trials side by side.
    """
    # A token is evaluated at a third of what its training costs.
    recipe = spec.recipe
    tokens = recipe.epochs * train + recipe.evaluations * evaluation / 3
    trials = sum(count * relative_cost(spec, candidate) for candidate, count in left.items())
    return trials * tokens / rate
