"""How long trials take: by those that ran, by a like search that ran here, or by a probe."""

import contextlib
import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from elsa_tune.errors import ElsaTuneError
from elsa_tune.searching.inputs import Request
from elsa_tune.searching.planning.known import KnownTrial, known_trial, relative_cost, tried
from elsa_tune.searching.planning.plan import planned_trials
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.specification import load_specification, specify
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.searching.tune.shares import share
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState
from elsa_tune.words import duration

# A depth's time is the median of its last trials: the machine may be busier now than it was.
RECENT = 3
# What a trial takes beside its training, roughly: weights, first step, records.
TRIAL_SECONDS = 1.0
# Tries beyond the given rates that a depth is expected to make (bench/results/time_left.json).
FURTHER_TRIES = 2.0
# As many as a depth hardly exceeds there.
MOST_FURTHER = 4.0
# How far trials of a depth may differ from those that ran, and from what the plan says.
SEEN, UNSEEN = 1.1, 1.5
# How long every model is trained on every task.
PROBE_SECONDS = 2.0
# What the probe does not see, roughly: Ray's, MLflow's and the workers' start.
SEARCH_SECONDS = 15.0


def time_range(
    spec: SearchSpec, known: Sequence[KnownTrial], now: float
) -> tuple[float, float] | None:
    """The least and the most seconds to the end, by the trials so far; None before they can tell.

    One evaluation tells nothing: the first one also loads libraries and fills caches. A depth's
    trials last as long as its shortest or longest one, with a little more; one of which nothing ran
    may differ from the plan's costs. now: seconds since the epoch.
    """
    if not any(len(one.reported) > 1 or (one.reported and one.ended) for one in known):
        return None
    usual = seconds_per_trial(spec, known)
    least, most = {}, {}
    for depth, seconds in usual.items():
        here = [one for one in known if one.trial.depth == depth and one.reported]
        here.sort(key=lambda one: one.reported[-1])
        lasted = [_whole(one, spec.recipe.evaluations) for one in here[-RECENT:]]
        least[depth] = min(lasted) / SEEN if lasted else seconds / UNSEEN
        most[depth] = max(lasted) * SEEN if lasted else seconds * UNSEEN
    low = seconds_left(spec, known, now, seconds=least, further=0.0, looks=0)
    high = seconds_left(spec, known, now, seconds=most, further=MOST_FURTHER, looks=2)
    assert low is not None and high is not None  # something has reported
    return min(low, high), high


def seconds_left(
    spec: SearchSpec,
    known: Sequence[KnownTrial],
    now: float,
    *,
    seconds: Mapping[Candidate, float] | None = None,
    further: float = FURTHER_TRIES,
    looks: int = 1,
) -> float | None:
    """Seconds to the end of the plan, None before the first evaluation was reported.

    now: seconds since the epoch. seconds: of a trial of each depth; None takes them to last as long
    as a depth's last ones did, and where nothing ran yet, in proportion to the plan's costs.
    further: tries beyond the given rates that a depth makes. looks: that a hunt takes: none but the
    full model's, each first one, or the full model's second one, too. A time limit is not counted.
    """
    seconds = seconds or seconds_per_trial(spec, known)
    if not seconds:
        return None
    strategy = strategy_of(spec)
    # Of each phase: all that is left, and the longest row of trials that wait for one another.
    total, longest = dict.fromkeys(Phase, 0.0), dict.fromkeys(Phase, 0.0)
    for depth in spec.depths:
        here = [one for one in known if one.trial.depth == depth]
        measures = any(one.trial.phase is Phase.MEASURE for one in here)
        rests = [
            _rest(one, seconds[depth], spec.recipe.evaluations, now)
            for one in here
            if one.status is TrialStatus.RUNNING
        ]
        begun = sum(one.status is not TrialStatus.INTERRUPTED for one in here)
        waiting = planned_trials(spec, known, depth) - begun
        first = strategy.seeds_at(0, depth)
        measuring = min(waiting, first)
        if looks == 0 and strategy.may_leave_out(depth):
            waiting, measuring = waiting - measuring, 0
        if looks == 2 and depth.is_reference:
            second = strategy.seeds_at(-1, depth) - first
            waiting, measuring = waiting + second, measuring + second
        later = 0.0  # each try beyond the given rates waits for the one before it
        if strategy.rates.most(depth) > strategy.rates.planned(depth) and not measures:
            beyond = max(0, len(tried(here, depth)) - strategy.rates.planned(depth))
            later = max(0.0, further - beyond) * seconds[depth]
        phase = Phase.MEASURE if measures else Phase.EXPLORE
        total[phase] += sum(rests)
        longest[phase] = max(longest[phase], max(rests, default=0.0) + later)
        total[Phase.EXPLORE] += (waiting - measuring) * seconds[depth] + later
        total[Phase.MEASURE] += measuring * seconds[depth]
        longest[Phase.MEASURE] = max(longest[Phase.MEASURE], (measuring > 0) * seconds[depth])
    workers = _workers(known, now)
    return sum(max(total[phase] / workers, longest[phase]) for phase in total)


def seconds_per_trial(spec: SearchSpec, known: Sequence[KnownTrial]) -> dict[Candidate, float]:
    """What a trial of each depth takes, by trials of it or of a like search; {} without reports."""
    by_depth: dict[Candidate, list[KnownTrial]] = {}
    for one in sorted((one for one in known if one.reported), key=lambda one: one.reported[-1]):
        by_depth.setdefault(one.trial.depth, []).append(one)
    if not by_depth:
        return {}
    found = {
        depth: statistics.median(_whole(one, spec.recipe.evaluations) for one in here[-RECENT:])
        for depth, here in by_depth.items()
    }
    training = sum(max(0.0, each - TRIAL_SECONDS) for each in found.values())
    full = training / sum(relative_cost(spec, depth) for depth in found)
    return {
        depth: found.get(depth, TRIAL_SECONDS + full * relative_cost(spec, depth))
        for depth in spec.depths
    }


def evaluation_seconds(
    spec: SearchSpec, known: Sequence[KnownTrial], trial: TrialSpec
) -> float | None:
    """The longest that a trial of this depth has taken to an evaluation, its first included, so
    far; of other depths where none has reported; None where nothing has.
    """
    here = [one for one in known if one.reported and one.trial.depth == trial.depth]
    cost = relative_cost(spec, trial.depth)
    spans = [
        (later - earlier) * max(1.0, cost / relative_cost(spec, one.trial.depth))
        for one in here or known
        for earlier, later in itertools.pairwise((one.started, *one.reported))
    ]
    return max(spans, default=None)


def _whole(one: KnownTrial, evaluations: int) -> float:
    """Seconds of a trial with all its evaluations, at the pace of those that it has reported.

    The first trials also import libraries and keep the frozen layers' output; that is seen in their
    first evaluation, and not expected of others.
    """
    until = one.ended if one.ended and one.status.is_final else one.reported[-1]
    pace = (until - one.started) / len(one.reported)
    if len(one.reported) > 1:
        later = (until - one.reported[0]) / (len(one.reported) - 1)
        pace = min(pace, later + TRIAL_SECONDS / evaluations)
    return pace * evaluations


def _rest(one: KnownTrial, whole: float, evaluations: int, now: float) -> float:
    """Seconds that a running trial still takes. whole: what a trial of its depth takes."""
    count, pace = len(one.reported), whole / evaluations
    if count > 1:  # at its own pace, as soon as it has one
        pace = (one.reported[-1] - one.reported[0]) / (count - 1)
    heard = one.reported[-1] if one.reported else one.started
    return max(0.0, (evaluations - count) * pace - (now - heard))


def _workers(known: Sequence[KnownTrial], now: float) -> int:
    """Trials side by side: those that run, or ran half-way through the one that ended last."""
    running = sum(one.status is TrialStatus.RUNNING for one in known)
    ended = [(one.ended, one.started) for one in known if one.ended and one.status.is_final]
    middle = sum(max(ended, default=(now, now))) / 2
    before = sum(one.started <= middle < (one.ended or now) for one in known)
    return max(1, running, before)


def recorded_seconds(
    request: Request, trials: Counter[Candidate]
) -> tuple[SearchSpec, float] | None:
    """The latest like search in the same place, and the request's seconds at its pace, if any."""
    planned = specify(request)
    alike: list[tuple[float, SearchSpec, list[KnownTrial]]] = []
    for name in search_names(request.storage):
        paths = SearchPaths(request.storage, name)
        with contextlib.suppress(ElsaTuneError):
            spec = load_specification(paths)
            if spec.address is not None or _kind(spec) != _kind(planned):
                continue
            state = SearchState.replay(read_journal(paths.journal), alive=False)
            known = [known_trial(spec, trial) for trial in state.planned_trials]
            if ends := [one.ended for one in known if one.ended and one.reported]:
                alike.append((max(ends), spec, known))
    if not alike:
        return None
    _, spec, known = max(alike, key=lambda one: one[0])
    each = seconds_per_trial(planned, known)
    total = sum(count * each[depth] for depth, count in trials.items())
    return spec, total / _side_by_side(known)


def _kind(spec: SearchSpec) -> tuple[object, ...]:
    """What must be equal; a recorded precision is what `auto` became."""
    recipe = {**spec.recipe.comparable(), "precision": None}
    return spec.model.location, spec.task.name, recipe


def _side_by_side(known: Sequence[KnownTrial]) -> float:
    """How many trials ran at once, on average, pauses between two sessions left out."""
    spans = sorted((one.started, one.ended) for one in known if one.ended)
    elapsed, until = 0.0, 0.0
    for first, last in spans:
        elapsed += max(0.0, last - max(first, until))
        until = max(until, last)
    return sum(last - first for first, last in spans) / elapsed


Unfinished = Sequence[tuple[Request, Counter[Candidate]]]


def probed_time(unfinished: Unfinished) -> str:
    """How long these trials take here, in words, by a few seconds of training; or why not known."""
    try:
        return f"about {duration(_probed_seconds(unfinished))} on this machine, from a short probe"
    except (ElsaTuneError, OSError) as error:
        return f"not known, {error}"


def _probed_seconds(unfinished: Unfinished) -> float:
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.throughput import Division, measure

    data = {one.name: prepare(one.model, one.task, one.recipe) for one, _ in unfinished}
    capacity = Capacity.of_this_machine()
    seconds = 0.0
    for location in {request.model.location for request, _ in unfinished}:
        here = [one for one in unfinished if one[0].model.location == location]
        tasks = {request.task.name: request for request, _ in here}
        each = share(here[0][0], capacity)
        at_once = capacity.at_once(each)
        # What is measured on one GPU goes for all of them.
        beside = min(at_once, int(1 / each.gpus) or 1) if each.gpus else at_once
        measured = measure(
            [(one.trial(), data[one.name]) for one in tasks.values()],
            Division(trials=beside, threads=max(1, int(each.cpus))),
            "cuda" if each.gpus else "cpu",
            PROBE_SECONDS,
        )
        rates = dict(zip(tasks, (one.tokens_per_second for one in measured), strict=True))
        for request, left in here:
            train, *evaluated = (
                int(rows.lengths.sum()) for rows in data[request.name].splits().values()
            )
            rate = rates[request.task.name] * at_once / beside
            seconds += training_seconds(specify(request), left, train, sum(evaluated), rate)
            seconds += SEARCH_SECONDS + TRIAL_SECONDS * left.total() / at_once
    return seconds


def training_seconds(
    spec: SearchSpec, left: Counter[Candidate], train: int, evaluation: int, rate: float
) -> float:
    """How long these trials of a search, by depth, train and evaluate: a third of the cost.

    train, evaluation: tokens of one pass over the training and the evaluation examples. rate:
    tokens of the full model's training a second, of all trials side by side.
    """
    tokens = spec.recipe.epochs * train + spec.recipe.evaluations * evaluation / 3
    return sum(count * relative_cost(spec, depth) for depth, count in left.items()) * tokens / rate
