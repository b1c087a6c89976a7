"""How long a search still takes, by those of its trials that ran."""

import enum
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.searching.planning.known import (
    KnownTrial,
    measured_rates,
    relative_cost,
    tries_of,
)
from elsa_tune.searching.planning.plan import planned_trials
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.planning.strategy import FIRST_LOOK, LAST_LOOK, Strategy
from elsa_tune.specs.adapt.candidate import Candidate
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
    spec: SearchSpec,
    trials: Sequence[KnownTrial],
    now: float,
) -> tuple[float, float] | None:
    """Return the least and the most seconds to the end; None before the trials can tell.

    A depth's trials last as long as its shortest or longest one, with a little more; one of which
    nothing ran may differ from the plan's costs. The least assumes that the full model learns: a
    hunt whose full model does not ends at once. now: seconds since the epoch.
    """
    can_tell = any(_shows_its_pace(trial) for trial in trials)
    if not can_tell:
        return None
    least: dict[Candidate, float] = {}
    most: dict[Candidate, float] = {}
    for candidate, seconds in seconds_per_trial(spec, trials).items():
        lasted = _last_seconds(spec, trials, candidate)
        if lasted:
            least[candidate] = min(lasted) / SEEN
            most[candidate] = max(lasted) * SEEN
        else:
            least[candidate] = seconds / UNSEEN
            most[candidate] = seconds * UNSEEN
    low = seconds_left(
        spec,
        trials,
        now,
        seconds=least,
        expected=Expected(further=0.0, looks=LooksExpected.FULL_MODEL_FIRST),
    )
    high = seconds_left(
        spec,
        trials,
        now,
        seconds=most,
        expected=Expected(further=MOST_FURTHER, looks=LooksExpected.EVERY_SECOND),
    )
    assert low is not None and high is not None  # something has reported
    return min(low, high), high


def _shows_its_pace(trial: KnownTrial) -> bool:
    """Return whether a trial tells how long such trials last.

    One evaluation of a running trial does not: the first one also loads libraries and fills caches.
    """
    _, own_reports = _own_reports(trial)
    reports = len(own_reports)
    has_ended = bool(trial.ended)
    if has_ended:
        return reports > 0
    return reports > 1


def _own_reports(trial: KnownTrial) -> tuple[float, tuple[float, ...]]:
    """Return since when a trial's pace can be seen, and when it reported evaluations since then.

    Of a trial that continued from a checkpoint that is since the first evaluation it made itself: a
    part of that one was trained before, and earlier ones were reported again at once.
    """
    own_reports = trial.reported[trial.restored :]
    if trial.restored and own_reports:
        return own_reports[0], own_reports[1:]
    return trial.started, own_reports


class LooksExpected(enum.Enum):
    """Up to which look candidates are expected to be measured where that is not decided yet."""

    FULL_MODEL_FIRST = enum.auto()  # the full model to its first look, and no other candidate
    EVERY_FIRST = enum.auto()  # every candidate to its first look
    EVERY_SECOND = enum.auto()  # every candidate to its last look, a hunt's second


@dataclass(frozen=True, slots=True)
class Expected:
    """How many trials a search is expected to have where that is not decided yet."""

    further: float = FURTHER_TRIES  # tries of a candidate beyond those it has in any case
    looks: LooksExpected = LooksExpected.EVERY_FIRST


@dataclass(frozen=True, slots=True)
class _CandidateExpected:
    """What is expected of one candidate."""

    candidate: Candidate
    seconds: float  # that one of its trials takes
    further: float  # tries beyond those it has in any case
    looks: LooksExpected


@dataclass(frozen=True, slots=True)
class _TrialsToBegin:
    """How many trials of a candidate have not begun."""

    exploring: int
    measuring: int


@dataclass(slots=True)
class _Load:
    """What is left of one phase, in seconds of one worker."""

    total: float = 0.0  # of all its trials
    longest: float = 0.0  # the longest row of trials that wait for one another

    def add(self, seconds: float) -> None:
        """Add trials that any worker may run."""
        self.total += seconds

    def holds_up(self, seconds: float) -> None:
        """Note a row of trials that wait for one another."""
        self.longest = max(self.longest, seconds)


def expected_trials(spec: SearchSpec) -> dict[Candidate, float]:
    """Return the trials of a new search, by candidate: the planned ones, and tries beyond these.

    Of measuring trials those of first looks, as far as these are expected.
    """
    strategy = strategy_of(spec)
    trials: dict[Candidate, float] = {}
    for candidate, further in _further_tries(strategy, (), FURTHER_TRIES).items():
        tries = strategy.rates.planned(candidate) + further
        trials[candidate] = tries + strategy.expected_seeds(candidate)
    return trials


def seconds_left(
    spec: SearchSpec,
    trials: Sequence[KnownTrial],
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
    seconds = seconds or seconds_per_trial(spec, trials)
    if not seconds:
        return None
    expected = expected or Expected()
    strategy = strategy_of(spec)
    further = _further_tries(strategy, trials, expected.further)
    loads = {phase: _Load() for phase in Phase}
    for candidate in spec.candidates:
        of_candidate = _CandidateExpected(
            candidate=candidate,
            seconds=seconds[candidate],
            further=further[candidate],
            looks=expected.looks,
        )
        _add_left(loads, strategy, trials, now, of_candidate)
    for candidate in strategy.undecided(trials):
        count = _undecided_seeds(strategy, candidate, expected.looks)
        loads[Phase.MEASURE].add(count * seconds[candidate])
    at_once = workers_of(trials, now)
    left = 0.0
    for load in loads.values():
        shared = load.total / at_once
        left += max(shared, load.longest)
    return left


def _add_left(
    loads: Mapping[Phase, _Load],
    strategy: Strategy,
    trials: Sequence[KnownTrial],
    now: float,
    expected: _CandidateExpected,
) -> None:
    """Add what is left of a candidate to both phases."""
    candidate = expected.candidate
    seconds = expected.seconds
    own_trials = _trials_of(candidate, trials)
    is_measured = any(trial.trial.phase is Phase.MEASURE for trial in own_trials)

    evaluations = strategy.spec.recipe.evaluations
    rests = []
    for trial in own_trials:
        if trial.status is TrialStatus.RUNNING:
            rest = _rest(trial, seconds, evaluations, now)
            rests.append(rest)
    longest_rest = max(rests, default=0.0)

    later = expected.further * seconds  # each of them waits for the one before it

    running = loads[Phase.EXPLORE]
    if is_measured:
        running = loads[Phase.MEASURE]
    running.add(sum(rests))
    running.holds_up(longest_rest + later)

    to_begin = _trials_to_begin(strategy, trials, candidate, expected.looks)
    loads[Phase.EXPLORE].add(to_begin.exploring * seconds + later)
    loads[Phase.MEASURE].add(to_begin.measuring * seconds)
    if to_begin.measuring > 0:
        loads[Phase.MEASURE].holds_up(seconds)


def _further_tries(
    strategy: Strategy,
    trials: Sequence[KnownTrial],
    expected: float,
) -> dict[Candidate, float]:
    """Return how many more rates each candidate is expected to try beyond those it has in any case.

    None once its exploring has ended. Where fewer are allowed in all, each has its part of them.
    """
    rates = strategy.rates
    over = strategy.settled(trials) | measured_rates(trials).keys()
    further: dict[Candidate, float] = {}
    in_any_case = 0
    for candidate in strategy.spec.candidates:
        planned = rates.planned(candidate)
        begun = len(tries_of(trials, candidate))
        in_any_case += max(planned, begun)
        to_come = 0.0
        if candidate not in over:
            most = float(rates.most(candidate) - planned)
            beyond = max(0, begun - planned)
            to_come = max(0.0, min(expected, most) - beyond)
        further[candidate] = to_come
    limit = strategy.spec.exploring_limit
    in_all = sum(further.values())
    if limit is None or in_all == 0:
        return further
    allowed = max(0, limit - in_any_case)
    share = min(1.0, allowed / in_all)
    return {candidate: share * to_come for candidate, to_come in further.items()}


def _trials_of(candidate: Candidate, trials: Sequence[KnownTrial]) -> list[KnownTrial]:
    """Return a candidate's trials."""
    return [trial for trial in trials if trial.trial.candidate == candidate]


def _trials_to_begin(
    strategy: Strategy,
    trials: Sequence[KnownTrial],
    candidate: Candidate,
    looks: LooksExpected,
) -> _TrialsToBegin:
    """Return how many trials of a candidate have not begun, as far as they are expected."""
    begun = 0
    for trial in _trials_of(candidate, trials):
        if trial.status is not TrialStatus.INTERRUPTED:
            begun += 1
    planned = planned_trials(strategy.spec, trials, candidate)
    waiting = planned - begun
    planned_seeds = strategy.planned_seeds(candidate, trials)
    first_look = strategy.seeds_at(FIRST_LOOK, candidate)
    measuring = min(waiting, first_look, planned_seeds)
    exploring = waiting - measuring
    if looks is LooksExpected.FULL_MODEL_FIRST and strategy.may_leave_out(candidate):
        measuring = 0
    if looks is LooksExpected.EVERY_SECOND and planned_seeds:
        counted = max(first_look, planned_seeds)
        second_look = strategy.seeds_at(LAST_LOOK, candidate)
        measuring += max(0, second_look - counted)
    return _TrialsToBegin(exploring=exploring, measuring=measuring)


def _undecided_seeds(strategy: Strategy, candidate: Candidate, looks: LooksExpected) -> int:
    """Return how many measuring trials are expected of a candidate that may yet be left out."""
    match looks:
        case LooksExpected.FULL_MODEL_FIRST:
            return 0
        case LooksExpected.EVERY_FIRST:
            return strategy.seeds_at(FIRST_LOOK, candidate)
        case LooksExpected.EVERY_SECOND:
            return strategy.seeds_at(LAST_LOOK, candidate)


def seconds_per_trial(spec: SearchSpec, trials: Sequence[KnownTrial]) -> dict[Candidate, float]:
    """Return what a trial of each candidate takes, by trials of it or of a like search.

    {} without reports.
    """
    usual: dict[Candidate, float] = {}  # of the candidates that have reported
    for trial in trials:
        candidate = trial.trial.candidate
        _, own_reports = _own_reports(trial)
        if own_reports and candidate not in usual:
            lasted = _last_seconds(spec, trials, candidate)
            usual[candidate] = statistics.median(lasted)
    if not usual:
        return {}
    training = 0.0
    cost = 0.0
    for candidate, seconds in usual.items():
        seconds_of_training = seconds - TRIAL_SECONDS
        training += max(0.0, seconds_of_training)
        cost += relative_cost(spec, candidate)
    full_training = training / cost  # of the full model
    expected: dict[Candidate, float] = {}
    for candidate in spec.candidates:
        by_cost = full_training * relative_cost(spec, candidate)
        unseen = TRIAL_SECONDS + by_cost
        expected[candidate] = usual.get(candidate, unseen)
    return expected


def _last_seconds(
    spec: SearchSpec,
    trials: Sequence[KnownTrial],
    candidate: Candidate,
) -> list[float]:
    """Return the seconds of a candidate's last trials, those that ended last at the end.

    Of trials that show their pace, as soon as there are any.
    """
    reporting = _reporting(candidate, trials)
    telling = [trial for trial in reporting if _shows_its_pace(trial)]
    last = telling or reporting
    last.sort(key=lambda trial: trial.reported[-1])
    evaluations = spec.recipe.evaluations
    return [_whole(trial, evaluations) for trial in last[-RECENT:]]


def _reporting(candidate: Candidate, trials: Sequence[KnownTrial]) -> list[KnownTrial]:
    """Return a candidate's trials whose pace can be seen."""
    reporting = []
    for trial in _trials_of(candidate, trials):
        _, own_reports = _own_reports(trial)
        if own_reports:
            reporting.append(trial)
    return reporting


def evaluation_seconds(
    spec: SearchSpec,
    trials: Sequence[KnownTrial],
    next_trial: TrialSpec,
) -> float | None:
    """Return the longest that a trial of this candidate has taken to an evaluation so far.

    The first one is included. By trials of other candidates where none has reported; None where
    nothing has.
    """
    candidate = next_trial.candidate
    reporting = _reporting(candidate, trials)
    cost = relative_cost(spec, candidate)
    longest: float | None = None
    for trial in reporting or trials:
        cost_of_trial = relative_cost(spec, trial.trial.candidate)
        times_as_much = cost / cost_of_trial
        scale = max(1.0, times_as_much)
        took = longest_evaluation([trial])
        if took is None:
            continue
        seconds = took * scale
        if longest is None or seconds > longest:
            longest = seconds
    return longest


def longest_evaluation(trials: Sequence[KnownTrial]) -> float | None:
    """Return the longest that these trials took to an evaluation, the first ones included.

    None where none has reported.
    """
    longest: float | None = None
    for trial in trials:
        since, own_reports = _own_reports(trial)
        moments = (since, *own_reports)
        for earlier, later in itertools.pairwise(moments):
            took = later - earlier
            if longest is None or took > longest:
                longest = took
    return longest


def _whole(trial: KnownTrial, evaluations: int) -> float:
    """Return the seconds of a trial with all its evaluations, at the pace of those it reported.

    The first trials also import libraries and keep the frozen layers' output; that is seen in their
    first evaluation, and not expected of others.
    """
    since, own_reports = _own_reports(trial)
    first_report = own_reports[0]
    last_sign = own_reports[-1]
    if trial.ended and trial.status.is_final:
        last_sign = trial.ended
    reports = len(own_reports)
    in_all = last_sign - since
    pace = in_all / reports
    if reports > 1:
        after_first = last_sign - first_report
        later_pace = after_first / (reports - 1)
        later_pace += TRIAL_SECONDS / evaluations
        pace = min(pace, later_pace)
    return pace * evaluations


def _rest(
    trial: KnownTrial,
    whole: float,
    evaluations: int,
    now: float,
) -> float:
    """Return the seconds that a running trial still takes. whole: what one like it takes."""
    _, own_reports = _own_reports(trial)
    reports = len(own_reports)
    last_sign = trial.started
    if trial.reported:
        last_sign = trial.reported[-1]
    pace = whole / evaluations
    if reports > 1:  # at its own pace, as soon as it has one
        after_first = last_sign - own_reports[0]
        pace = after_first / (reports - 1)
    evaluations_to_come = evaluations - len(trial.reported)
    to_come = evaluations_to_come * pace
    since_last_sign = max(0.0, now - last_sign)  # clocks may be set back
    return max(0.0, to_come - since_last_sign)


def workers_of(trials: Sequence[KnownTrial], now: float) -> int:
    """Return how many trials run side by side, or ran half-way through the one that ended last."""
    running = 0
    spans = []  # (end, start) of each trial that has ended
    for trial in trials:
        if trial.status is TrialStatus.RUNNING:
            running += 1
        if trial.ended and trial.status.is_final:
            span = (trial.ended, trial.started)
            spans.append(span)
    last_end, its_start = max(spans, default=(now, now))
    middle = (last_end + its_start) / 2
    side_by_side = 0
    for trial in trials:
        until = trial.ended or now
        if trial.started <= middle < until:
            side_by_side += 1
    return max(1, running, side_by_side)
