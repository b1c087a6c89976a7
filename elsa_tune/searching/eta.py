"""How long a search still takes, by those of its trials that ran."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.searching.planning.known import KnownTrial, relative_cost, tried
from elsa_tune.searching.planning.plan import planned_trials
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.planning.strategy import Strategy
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus

# A depth's time is the median of its last trials: the machine may be busier now than it was.
RECENT = 3
# What a trial takes beside its training, roughly: weights, first step, records.
TRIAL_SECONDS = 1.0
# Tries beyond the given rates that a depth is expected to make (bench/results/time_left.json).
FURTHER_TRIES = 2.0
# As many as a depth hardly exceeds there.
MOST_FURTHER = 4.0
# How far trials of a depth may differ from those that ran, and from what the plan says.
SEEN = 1.1
UNSEEN = 1.5


def time_range(
    spec: SearchSpec, known: Sequence[KnownTrial], now: float
) -> tuple[float, float] | None:
    """Return the least and the most seconds to the end; None before the trials can tell.

    One evaluation tells nothing: the first one also loads libraries and fills caches. A depth's
    trials last as long as its shortest or longest one, with a little more; one of which nothing ran
    may differ from the plan's costs. now: seconds since the epoch.
    """
    if not any(len(one.reported) > 1 or (one.reported and one.ended) for one in known):
        return None
    least: dict[Candidate, float] = {}
    most: dict[Candidate, float] = {}
    for candidate, seconds in seconds_per_trial(spec, known).items():
        lasted = _last_seconds(spec, known, candidate)
        least[candidate] = min(lasted) / SEEN if lasted else seconds / UNSEEN
        most[candidate] = max(lasted) * SEEN if lasted else seconds * UNSEEN
    fewest = Expected(further=0.0, looks=0)
    low = seconds_left(spec, known, now, seconds=least, expected=fewest)
    high = seconds_left(spec, known, now, seconds=most, expected=Expected(MOST_FURTHER, looks=2))
    assert low is not None and high is not None  # something has reported
    return min(low, high), high


@dataclass(frozen=True, slots=True)
class Expected:
    """How many trials a search is expected to have where that is not decided yet."""

    further: float = FURTHER_TRIES  # tries of a candidate beyond those it has in any case
    looks: int = 1  # 0: the full model's first alone; 1: every first one; 2: its second one, too


@dataclass(slots=True)
class _Load:
    """What is left of one phase, in seconds of one worker."""

    total: float = 0.0
    longest: float = 0.0  # the longest row of trials that wait for one another

    def add(self, seconds: float) -> None:
        self.total += seconds

    def holds_up(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)


def seconds_left(
    spec: SearchSpec,
    known: Sequence[KnownTrial],
    now: float,
    *,
    seconds: Mapping[Candidate, float] | None = None,
    expected: Expected | None = None,
) -> float | None:
    """Return the seconds to the end of the plan, None before the first evaluation was reported.

    now: seconds since the epoch. seconds: of a trial of each candidate; None takes them to last as
    long as a candidate's last ones did, and where nothing ran yet, in proportion to the plan's
    costs. A time limit is not counted.
    """
    each = seconds or seconds_per_trial(spec, known)
    if not each:
        return None
    strategy = strategy_of(spec)
    loads = {phase: _Load() for phase in Phase}
    for candidate in spec.candidates:
        _add_left(loads, strategy, known, now, (candidate, each[candidate]), expected or Expected())
    if expected is None or expected.looks:
        for candidate in strategy.undecided(known):
            loads[Phase.MEASURE].add(strategy.seeds_at(0, candidate) * each[candidate])
    workers = _workers(known, now)
    return sum(max(load.total / workers, load.longest) for load in loads.values())


def _add_left(
    loads: Mapping[Phase, _Load],
    strategy: Strategy,
    known: Sequence[KnownTrial],
    now: float,
    pace: tuple[Candidate, float],
    expected: Expected,
) -> None:
    """Add what is left of a candidate to both phases. pace: it, and the seconds of its trials."""
    candidate, seconds = pace
    here = [one for one in known if one.trial.candidate == candidate]
    is_measured = any(one.trial.phase is Phase.MEASURE for one in here)
    rests = _rests(here, seconds, strategy.spec.recipe.evaluations, now)
    measuring, exploring = _waiting(strategy, known, candidate, expected.looks)

    later = 0.0  # each further try waits for the one before it
    planned = strategy.rates.planned(candidate)
    if strategy.rates.most(candidate) > planned and not is_measured:
        beyond = max(0, len(tried(here, candidate)) - planned)
        later = max(0.0, expected.further - beyond) * seconds

    runs = loads[Phase.MEASURE if is_measured else Phase.EXPLORE]
    runs.add(sum(rests))
    runs.holds_up(max(rests, default=0.0) + later)
    loads[Phase.EXPLORE].add(exploring * seconds + later)
    loads[Phase.MEASURE].add(measuring * seconds)
    if measuring > 0:
        loads[Phase.MEASURE].holds_up(seconds)


def _waiting(
    strategy: Strategy, known: Sequence[KnownTrial], candidate: Candidate, looks: int
) -> tuple[int, int]:
    """Return the measuring and the exploring trials of a candidate that have not begun."""
    begun = 0
    for one in known:
        if one.trial.candidate == candidate and one.status is not TrialStatus.INTERRUPTED:
            begun += 1
    waiting = planned_trials(strategy.spec, known, candidate) - begun
    first = strategy.seeds_at(0, candidate)
    measuring = min(waiting, first, strategy.planned_seeds(candidate, known))
    exploring = waiting - measuring
    if looks == 0 and strategy.may_leave_out(candidate):
        measuring = 0
    if looks == 2 and candidate.is_reference:
        measuring += strategy.seeds_at(-1, candidate) - first
    return measuring, exploring


def _rests(here: Sequence[KnownTrial], seconds: float, evaluations: int, now: float) -> list[float]:
    """Return the seconds that each running trial of a candidate still takes."""
    running = [one for one in here if one.status is TrialStatus.RUNNING]
    return [_rest(one, seconds, evaluations, now) for one in running]


def seconds_per_trial(spec: SearchSpec, known: Sequence[KnownTrial]) -> dict[Candidate, float]:
    """Return what a trial of each candidate takes, by trials of it or of a like search.

    {} without reports.
    """
    usual: dict[Candidate, float] = {}
    for candidate in dict.fromkeys(one.trial.candidate for one in known if one.reported):
        usual[candidate] = statistics.median(_last_seconds(spec, known, candidate))
    if not usual:
        return {}
    training = sum(max(0.0, seconds - TRIAL_SECONDS) for seconds in usual.values())
    full = training / sum(relative_cost(spec, candidate) for candidate in usual)
    seconds: dict[Candidate, float] = {}
    for candidate in spec.candidates:
        unseen = TRIAL_SECONDS + full * relative_cost(spec, candidate)
        seconds[candidate] = usual.get(candidate, unseen)
    return seconds


def _last_seconds(
    spec: SearchSpec, known: Sequence[KnownTrial], candidate: Candidate
) -> list[float]:
    """Return the seconds of a candidate's last trials, those that ended last at the end."""
    here = [one for one in known if one.trial.candidate == candidate and one.reported]
    here.sort(key=lambda one: one.reported[-1])
    return [_whole(one, spec.recipe.evaluations) for one in here[-RECENT:]]


def evaluation_seconds(
    spec: SearchSpec, known: Sequence[KnownTrial], trial: TrialSpec
) -> float | None:
    """Return the longest that a trial of this candidate has taken to an evaluation so far.

    The first one is included. By trials of other candidates where none has reported; None where
    nothing has.
    """
    here = [one for one in known if one.reported and one.trial.candidate == trial.candidate]
    cost = relative_cost(spec, trial.candidate)
    longest: float | None = None
    for one in here or known:
        dearer = max(1.0, cost / relative_cost(spec, one.trial.candidate))
        for earlier, later in itertools.pairwise((one.started, *one.reported)):
            seconds = (later - earlier) * dearer
            longest = seconds if longest is None else max(longest, seconds)
    return longest


def _whole(one: KnownTrial, evaluations: int) -> float:
    """Return the seconds of a trial with all its evaluations, at the pace of those it reported.

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
    """Return the seconds that a running trial still takes. whole: what one like it takes."""
    count = len(one.reported)
    pace = whole / evaluations
    if count > 1:  # at its own pace, as soon as it has one
        pace = (one.reported[-1] - one.reported[0]) / (count - 1)
    last_sign = one.reported[-1] if one.reported else one.started
    return max(0.0, (evaluations - count) * pace - (now - last_sign))


def _workers(known: Sequence[KnownTrial], now: float) -> int:
    """Return how many trials run side by side, or ran half-way through the one that ended last."""
    running = sum(one.status is TrialStatus.RUNNING for one in known)
    ended = [(one.ended, one.started) for one in known if one.ended and one.status.is_final]
    last_end, its_start = max(ended, default=(now, now))
    middle = (last_end + its_start) / 2
    before = sum(one.started <= middle < (one.ended or now) for one in known)
    return max(1, running, before)
