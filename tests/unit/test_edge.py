"""One step below a collapse a candidate is measured one step lower, where that costs little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from elsa_tune.searching.planning.edge import away_from_edge, edge_note, is_at_edge
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import UNRECORDED, Extension, Policy
from elsa_tune.specs.trial import Phase, TrialStatus
from tests.unit.search_examples import make_spec

SPEC = make_spec(chance=0.5, extend=Extension(), policy=Policy())
STOPPED = TrialStatus.STOPPED_EARLY
DIVERGED = TrialStatus.DIVERGED
FAILED = TrialStatus.FAILED
INTERRUPTED = TrialStatus.INTERRUPTED
BEST = 2e-5
LAST_THREE = FreezeDepth.of(3)
# Of a trial that ran to its end the scores; of others how they ended, and what they scored before.
Outcome = tuple[float, ...] | tuple[TrialStatus, tuple[float, ...]]
LEARNT: dict[float, Outcome] = {1e-5: (0.60, 0.79), BEST: (0.70, 0.80)}


def tried(outcomes: Mapping[float, Outcome], candidate: Candidate = LAST_THREE) -> list[KnownTrial]:
    """Return a candidate's exploring trials. outcomes: by their rates."""
    trials = []
    for rate, outcome in outcomes.items():
        status, scores = TrialStatus.COMPLETED, outcome
        if isinstance(outcome[0], TrialStatus):
            status, scores = outcome
        trial = SPEC.trial(Phase.EXPLORE, candidate, rate, 0)
        trials.append(KnownTrial(trial=trial, status=status, qualities=scores))
    return trials


@pytest.mark.parametrize(
    ("higher", "collapsed", "why"),
    [
        ({4e-5: (DIVERGED, ())}, True, "it diverged"),
        ({4e-5: (DIVERGED, (0.70,))}, True, "it diverged later"),
        ({4e-5: (0.5, 0.5)}, True, "it guesses"),
        ({4e-5: (0.70, 0.57)}, True, "it has a fourth of the gain no more"),
        ({4e-5: (0.5, 0.58)}, False, "it learns slowly"),
        (
            {4e-5: (STOPPED, (0.5,))},
            True,
            "it was stopped guessing; the best had learnt",
        ),
        ({4e-5: (STOPPED, (0.69,))}, False, "it was stopped a little below the best"),
        ({4e-5: (STOPPED, ())}, False, "it has said nothing"),
        ({4e-5: (FAILED, (0.5, 0.5))}, False, "it crashed"),
        ({4e-5: (INTERRUPTED, (0.5, 0.5))}, False, "it is to run again"),
        ({4e-5: (FAILED, (0.5,)), 8e-5: (0.5, 0.5)}, True, "the next of which something is known"),
        ({8e-5: (0.5, 0.5)}, True, "two steps higher is the next where nothing lies between"),
        ({1e-4: (0.5, 0.5)}, False, "five times the rate is another matter"),
        ({4e-5: (0.70, 0.795), 8e-5: (0.5, 0.5)}, False, "the next one learns"),
        ({}, False, "no higher one was tried"),
    ],
)
def test_a_rate_is_at_the_edge_where_training_collapses_just_above_it(
    higher: dict[float, Outcome], collapsed: bool, why: str
) -> None:
    trials = tried({**LEARNT, **higher})
    assert is_at_edge(SPEC, trials, BEST) is collapsed, why
    assert away_from_edge(SPEC, trials, BEST) == (1e-5 if collapsed else BEST), why


def test_what_was_stopped_before_anything_learnt_has_not_collapsed() -> None:
    late = {1e-5: (0.5, 0.79), BEST: (0.5, 0.80), 4e-5: (STOPPED, (0.5,))}
    assert not is_at_edge(SPEC, tried(late), BEST)


@pytest.mark.parametrize(
    ("lower", "measured", "why"),
    [
        ({1e-5: (0.6, 0.786)}, 1e-5, "95 % of the gain over guessing are 28.5 points"),
        ({1e-5: (0.6, 0.784)}, BEST, "28.4 points are less"),
        ({1e-5: (STOPPED, (0.69,))}, BEST, "it was stopped early: what it gives is not known"),
        ({1e-5: (DIVERGED, ())}, BEST, "it diverged"),
        ({5e-6: (0.6, 0.79), 1e-5: (0.6, 0.79)}, 1e-5, "one step, not two"),
        ({5e-6: (0.6, 0.79), 1e-5: (STOPPED, (0.69,))}, 5e-6, "the next that ran to its end"),
        ({4e-6: (0.6, 0.79)}, BEST, "a fifth of the rate is another matter"),
        ({}, BEST, "no lower one was tried"),
    ],
)
def test_the_next_lower_rate_is_measured_where_it_costs_little(
    lower: dict[float, Outcome], measured: float, why: str
) -> None:
    trials = tried({**lower, BEST: (0.70, 0.80), 4e-5: (0.5, 0.5)})
    assert away_from_edge(SPEC, trials, BEST) == measured, why


def test_a_search_measures_there_unless_it_keeps_to_given_rates_or_is_of_before_the_rule() -> None:
    trials = tried({**LEARNT, 4e-5: (0.5, 0.5)})
    assert strategy_of(SPEC).best_rates(trials)[LAST_THREE] == 1e-5
    before = replace(SPEC, policy=UNRECORDED)
    within_given_rates = replace(SPEC, extend=None)
    for other in (before, within_given_rates):
        assert strategy_of(other).best_rates(trials)[LAST_THREE] == BEST


def test_the_reference_is_measured_at_its_best_rate() -> None:
    trials = tried({**LEARNT, 4e-5: (0.5, 0.5)}, FULL_MODEL)
    assert is_at_edge(SPEC, trials, BEST)
    assert strategy_of(SPEC).best_rates(trials)[FULL_MODEL] == BEST


def test_a_search_says_that_it_does_not_measure_the_best_rate() -> None:
    trials = tried({**LEARNT, 4e-5: (0.5, 0.5)})
    assert edge_note(SPEC, trials, 1e-5) == (
        "The last 3 layers are measured at 1e-5, not at 2e-5, which did best: a step above that "
        "training collapsed"
    )
    assert edge_note(SPEC, trials, BEST) == ""
    assert edge_note(SPEC, (), BEST) == "", "a rate that comes from another candidate"
    assert edge_note(SPEC, tried(LEARNT), 1e-5) == "", "another reason"
