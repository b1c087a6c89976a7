"""A hunt, in virtual time: the product's own searcher and certificate on trials that are drawn."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elsa_tune.analysis.answer import Answer, Reason
from elsa_tune.analysis.answers import answer_rows, freeze_curves
from elsa_tune.errors import SpaceError
from elsa_tune.searching.eta import expected_trials
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.planning.hunt import Hunt, ladder_and_deep
from elsa_tune.searching.planning.known import KnownTrial, known_trial, relative_cost
from elsa_tune.searching.planning.outlook import planned_power, power_text
from elsa_tune.searching.planning.plan import planned_trials, trial_ranges
from elsa_tune.searching.planning.strategy import Findings, Step
from elsa_tune.searching.request import read_requests
from elsa_tune.searching.specification import (
    differing_settings,
    load_specification,
    specify,
    until_certain,
    with_seeds,
)
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.searching.tune.searcher import PlanSearcher, SessionParts
from elsa_tune.searching.tune.trainable import TRIAL
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.policy import UNRECORDED, Claim, Policy, SeedCounts
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.search import Looks, SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Phase, TrialSpec, TrialStatus
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from tests.unit.search_examples import asked_for

EXAMPLES = 1000
# Twelve layers: quality by frozen layers. 3 of 12 keep 90 % of .9, 2 do not.
CLEAR = {0: 0.90, 6: 0.89, 7: 0.89, 8: 0.88, 9: 0.87, 10: 0.75, 11: 0.70, 12: 0.60}


pytestmark = pytest.mark.usefixtures("fewer_draws")


def spec(
    folder: Path,
    *overrides: str,
    layers: int = 12,
    policy: Policy = UNRECORDED,
    joined: bool = False,
    **changes: Any,
) -> SearchSpec:
    """Return a hunt's plan. policy: by default the first, for whose looks worlds are drawn here."""
    space = load_space("hunt", ["epochs=2", *overrides])
    options, inputs = asked_for(folder, space, "hunt", layers=layers, **changes)
    planned = specify(options, inputs, policy=policy, joined=joined)
    return dataclasses.replace(planned, chance=0.5, evaluation_examples=EXAMPLES)


class Drawn:
    """Trials that are drawn instead of trained; the same trial always gives the same."""

    def __init__(self, plan: SearchSpec, qualities: Mapping[int, float], spread: float) -> None:
        self.spec, self.qualities, self.spread = plan, qualities, spread
        self.known: dict[str, KnownTrial] = {}
        self.rows: dict[str, ResultRow] = {}
        self.answers: dict[str, Predictions] = {}
        self.rates: dict[FreezeDepth, float] = {}
        self.decisions: dict[str, Any] = {}
        self.looks: dict[str, Looks | None] = {}
        self.beside: dict[str, set[str]] = {}  # of each trial, those that ran as it began
        self.limit = TimeLimit()
        self.best_rate = 3e-5  # of every depth
        draw = np.random.default_rng(7)
        self.labels = np.arange(EXAMPLES) % 2
        self.difficulty = draw.random(EXAMPLES)

    # ---- as `Evidence` ----

    def __call__(self, row: ResultRow) -> Predictions | None:
        return self.answers[row.trial or ""]

    # ---- a search ----

    def searcher(self) -> PlanSearcher:
        return PlanSearcher(
            Hunt(self.spec),
            lambda: list(self.known.values()),
            dict(self.rates) if self._has_measured() else {},
            self.rates.update,
            measuring=self._measuring,
            parts=SessionParts(limit=self.limit),
        )

    def _measuring(self, rates: Any, known: Any) -> Any:
        step = self.step(rates, known)
        if step.decision is not None:
            self.decisions[step.decision.what] = step.decision.value
        return step

    def step(self, rates: Any, known: Any) -> Step:
        findings = Findings(
            known=known, chosen_rates=rates, curve=self.curve, decisions=self.decisions
        )
        return Hunt(self.spec).next(findings)

    @property
    def ladder(self) -> list[int]:
        """Frozen layers of what is tested of the ladder."""
        hunt = Hunt(self.spec)
        tested = [one for one in hunt.tested(self.decisions) if one in hunt.ladder]
        return [one.frozen_layers for one in tested]

    def _has_measured(self) -> bool:
        return any(one.trial.phase is Phase.MEASURE for one in self.known.values())

    def curve(self) -> Any:
        return next(iter(freeze_curves(self.rows.values(), self)), None)

    def run(self, most: int = 1000, workers: int = 1, order: int = 0) -> list[str]:
        """Trials one after the other, or of so many at once the `order`th first; their keys."""
        searcher, running, keys = self.searcher(), [], []
        for number in range(most):
            while len(running) < workers:
                config = searcher.suggest(f"{number}-{len(running)}")
                if not isinstance(config, dict):
                    break
                beside = {trial.key.partition("-lr")[0] for _, trial in running}
                self.beside[config[TRIAL].key] = beside
                running.append((f"{number}-{len(running)}", config[TRIAL]))
                # Recorded as a trial begins, as `SearchRecord.begin` does it.
                begun = config[TRIAL]
                self.looks[begun.key] = Hunt(self.spec).looks(begun.candidate, self.decisions)
            if not running:
                break
            name, trial = running.pop(order % len(running))
            keys.append(trial.key)
            self.end(trial)
            searcher.on_trial_complete(name)
        return keys

    def end(self, trial: TrialSpec) -> None:
        seed = [trial.seed, trial.candidate.frozen_layers, round(1e7 * trial.learning_rate)]
        draw = np.random.default_rng([*seed, trial.phase is Phase.MEASURE])
        loss = 0.02 * abs(np.log2(trial.learning_rate / self.best_rate))
        quality = self.qualities[trial.candidate.frozen_layers] - loss + draw.normal(0, self.spread)
        wrong = np.argsort(self.difficulty + draw.normal(0, 0.1, EXAMPLES))
        answered = self.labels.copy()
        answered[wrong[: round((1 - quality) * EXAMPLES)]] ^= 1
        quality = float((answered == self.labels).mean())
        self.known[trial.key] = KnownTrial(
            trial=trial, status=TrialStatus.COMPLETED, qualities=(quality, quality)
        )
        if trial.phase is Phase.EXPLORE:
            return
        self.answers[trial.key] = Predictions(predictions=answered, labels=self.labels, classes=2)
        self.rows[trial.key] = ResultRow(
            model="minilm",
            task="drawn",
            layers=self.spec.layers,
            candidate=trial.candidate,
            quality=quality,
            status=TrialStatus.COMPLETED,
            phase=Phase.MEASURE,
            metric="accuracy",
            selection=self.spec.recipe.selection,
            chance=0.5,
            learning_rate=trial.learning_rate,
            seed=trial.seed,
            search="s",
            trial=trial.key,
            examples=EXAMPLES,
            predictions=trial.key,
            looks=self.looks.get(trial.key),
            policy=self.spec.policy,
        )

    def answer(self) -> Answer:
        [answer] = answer_rows(list(self.rows.values()), evidence=self)
        return answer

    def measured(self) -> dict[int, int]:
        """Seeds by frozen layers."""
        depths = [row.candidate.frozen_layers for row in self.rows.values()]
        return {depth: depths.count(depth) for depth in sorted(set(depths))}


def certified(answer: Answer) -> int | None:
    return None if answer.certified is None else answer.certified.fine_tuned_layers


def test_it_measures_what_decides_and_stops(tmp_path: Path) -> None:
    one = Drawn(spec(tmp_path), CLEAR, 0.004)
    one.run()
    assert certified(one.answer()) == 3
    # The first look at 9, and what costs nothing. What 9 shows makes the ladder needless; 10 is
    # far from the target.
    assert one.measured() == {0: 2, 9: 4, 11: 4, 12: 4}
    assert one.answer().next_step is None


@pytest.mark.parametrize(
    ("quality", "ladder", "first"),
    [(0.86, [], 9), (0.84, [8], 8), (0.82, [8], 8), (0.815, [6, 7, 8], 6), (0.8, [6, 7, 8], 6)],
)
def test_exploring_the_first_deep_depth_decides_how_much_of_the_ladder_is_tested(
    tmp_path: Path, quality: float, ladder: list[int], first: int
) -> None:
    one = Drawn(spec(tmp_path), {**CLEAR, 9: quality}, 0.0)
    keys = one.run()
    assert one.ladder == ladder and set(one.measured()) & {6, 7, 8} == set(ladder)
    looks = [row.looks for row in one.rows.values() if row.candidate == FreezeDepth.of(first)]
    assert {one.after for one in looks if one} == {"N0"}
    # What is tested is decided before any of it is measured, and paid for.
    assert {row.looks.error for row in one.rows.values() if row.looks} == {0.045}
    begun = next(n for n, key in enumerate(keys) if key.startswith(f"measure-N{first}-"))
    assert all(key.startswith("measure") for key in keys[begun:])
    assert certified(one.answer()) == (3 if quality > 0.83 else 4)


def test_the_ladder_is_decided_by_the_runs_at_the_rates_that_were_chosen(tmp_path: Path) -> None:
    one = Drawn(spec(tmp_path), {**CLEAR, 9: 0.82}, 0.0)
    one.run()
    known, deep = list(one.known.values()), FreezeDepth.of(9)
    tried = {k.trial.learning_rate for k in known if k.trial.candidate == deep} - {one.rates[deep]}
    assert one.ladder == [8] and tried
    poor = {**one.rates, deep: max(tried)}
    one.decisions = {}
    decision = one.step(poor, known).decision
    assert decision is not None and decision.value == ["N6", "N7", "N8"]


def test_a_hunt_recorded_before_ladders_were_shortened_goes_on_with_its_whole_ladder(
    tmp_path: Path,
) -> None:
    one = Drawn(dataclasses.replace(spec(tmp_path), ladder_error=0.0), CLEAR, 0.004)
    one.run()
    assert set(one.measured()) >= {6, 7, 8, 9}
    assert {row.looks.after for row in one.rows.values() if row.looks} >= {"N0", "N8"}
    assert {row.looks.error for row in one.rows.values() if row.looks} == {0.05}


@pytest.mark.parametrize(
    ("trials", "workers", "of_full", "of_others"), [(5, 1, 1, 1), (7, 1, 3, 1), (11, 3, 3, 2)]
)
def test_a_limit_of_trials_leaves_every_depth_its_tries(
    tmp_path: Path, trials: int, workers: int, of_full: int, of_others: int
) -> None:
    one = Drawn(spec(tmp_path, trials=trials), CLEAR, 0.0)
    # Beyond the given rates, so that every depth would go on outward.
    one.best_rate = 4e-4
    one.run(trials + workers, workers)
    exploring = [known for known in one.known.values() if known.explores]
    tried = Counter(known.candidate.frozen_layers for known in exploring)
    assert tried == {0: of_full, 9: of_others, 10: of_others, 11: of_others, 12: of_others}


def test_nothing_is_measured_beyond_a_full_model_that_learnt_nothing(tmp_path: Path) -> None:
    one = Drawn(spec(tmp_path), dict.fromkeys(CLEAR, 0.51), 0.004)
    one.run()
    # One seed of it agrees with every exploring run.
    assert one.measured() == {0: 1}
    assert one.answer().operating_point is None
    # Nor is anything explored, and what was not come to is not missing.
    assert {known.trial.candidate.frozen_layers for known in one.known.values()} == {0}


def test_a_full_model_that_learnt_nothing_is_measured_where_time_to_explore_is_over(
    tmp_path: Path,
) -> None:
    one = Drawn(spec(tmp_path), dict.fromkeys(CLEAR, 0.51), 0.0)
    # A second a trial; exploring has the time of its given rates.
    one.limit = TimeLimit(6.0, lambda: len(one.known))
    keys = one.run()
    assert [key.partition("-lr")[0] for key in keys] == [*["explore-N0"] * 2, "measure-N0"]
    last = one.step(one.rates, list(one.known.values()))
    assert "no better than a constant answer" in last.why and not last.trials and not last.waits


@pytest.mark.parametrize("seconds", [2.0, 6.0])
def test_a_hunt_finds_the_rates_that_it_needs_whatever_its_exploring_had_of_the_time(
    tmp_path: Path, seconds: float
) -> None:
    one = Drawn(dataclasses.replace(spec(tmp_path), max_time=seconds), CLEAR, 0.0)

    def passed() -> float:  # a trial of the full model takes a second
        return sum(relative_cost(one.spec, known.candidate) for known in one.known.values())

    one.best_rate = 4e-4  # every depth would go on outward
    one.limit = TimeLimit(seconds, passed)
    keys = one.run(3)
    # The ladder's rates wait for that of the first deep depth.
    assert set(one.rates) <= {FULL_MODEL}
    keys += one.run(9)
    exploring = [key.partition("-lr")[0] for key in keys if key.startswith("explore")]
    assert exploring[:5] == ["explore-N0", *(f"explore-N{n}" for n in (9, 10, 11, 12))]
    assert set(one.rates) == set(one.spec.candidates)


def test_a_full_model_that_learnt_nothing_is_measured_where_a_further_try_fails(
    tmp_path: Path,
) -> None:
    class Fails(Drawn):
        def end(self, trial: TrialSpec) -> None:
            super().end(trial)
            if trial.phase is Phase.EXPLORE and len(self.known) > self.spec.tries:
                failed = {"status": TrialStatus.FAILED, "qualities": ()}
                self.known[trial.key] = dataclasses.replace(self.known[trial.key], **failed)

    one = Fails(spec(tmp_path), dict.fromkeys(CLEAR, 0.51), 0.0)
    one.run()
    assert one.measured() == {0: 1}


def test_a_full_model_that_learns_only_when_it_is_measured_is_compared_all_the_same(
    tmp_path: Path,
) -> None:
    class Late(Drawn):
        def end(self, trial: TrialSpec) -> None:
            quality = self.qualities[0]
            explores = trial.phase is Phase.EXPLORE and trial.candidate.is_reference
            self.qualities = {**self.qualities, 0: 0.5 if explores else quality}
            super().end(trial)
            self.qualities = {**self.qualities, 0: quality}

    one = Late(spec(tmp_path), CLEAR, 0.0)
    keys = one.run(5)
    assert [key.partition("-lr")[0] for key in keys] == [*["explore-N0"] * 4, "measure-N0"]
    # The ladder's wait for the anchor's.
    assert {depth.frozen_layers for depth in one.rates} == {0}
    one.run()
    assert certified(one.answer()) == 3


@pytest.mark.parametrize(("quality", "why"), [(0.51, "no better than"), (None, "no result")])
def test_a_full_model_that_fails_only_when_it_is_measured_ends_the_hunt(
    tmp_path: Path, quality: float | None, why: str
) -> None:
    class Lucky(Drawn):
        def end(self, trial: TrialSpec) -> None:
            super().end(trial)
            if trial.candidate.is_reference and trial.phase is Phase.MEASURE:
                status = TrialStatus.COMPLETED if quality else TrialStatus.FAILED
                found = {"status": status, "quality": quality}
                self.rows[trial.key] = dataclasses.replace(self.rows[trial.key], **found)

    one = Lucky(spec(tmp_path), CLEAR, 0.0)
    one.run()
    assert one.measured() == {0: 2}
    last = one.step(one.rates, list(one.known.values()))
    assert not last.trials and why in last.why


def test_a_hunt_refuses_what_it_would_not_test(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"'embeddings' is only drawn.*leave it out"):
        spec(tmp_path, "depths=[0,embeddings,6,12]")


def test_without_predictions_the_whole_ladder_is_tested(tmp_path: Path) -> None:
    class Blind(Drawn):
        def end(self, trial: TrialSpec) -> None:
            super().end(trial)
            if trial.key in self.rows:
                blind = {"metric": "f1", "predictions": None}
                self.rows[trial.key] = dataclasses.replace(self.rows[trial.key], **blind)

    one = Blind(spec(tmp_path), dict.fromkeys(CLEAR, 0.9), 0.004)
    one.run()
    assert one.ladder == [6, 7, 8] and set(one.measured()) == set(CLEAR)


@pytest.mark.parametrize(
    ("scores", "waits"),
    [
        ((0.54, 0.5), False),  # 1.645 standard errors of 1,000 examples are 2.6 points
        ((0.52, 0.5), True),
        ((0.9, None), False),
        ((None, None), True),  # each diverged
    ],
)
def test_a_full_model_within_what_examples_leave_open_is_waited_for(
    tmp_path: Path, scores: tuple[float | None, ...], waits: bool
) -> None:
    plan = spec(tmp_path)
    assert plan.tries == len(scores)
    known = [
        KnownTrial(
            trial=plan.trial(Phase.EXPLORE, FULL_MODEL, rate, plan.seed),
            status=TrialStatus.DIVERGED if score is None else TrialStatus.COMPLETED,
            qualities=() if score is None else (score, score),
        )
        for rate, score in zip((3e-5, 5e-5), scores, strict=True)
    ]
    assert Hunt(plan).waits_for_reference(known) is waits
    assert not Hunt(plan).waits_for_reference(known[1:])


def test_where_all_layers_are_needed_the_walk_ends_at_its_first_step(tmp_path: Path) -> None:
    poor = {depth: 0.90 if depth == 0 else 0.62 for depth in CLEAR}
    one = Drawn(spec(tmp_path), poor, 0.004)
    one.run()
    # N = 6 would be the first step; it is measured, far below, and nothing else but what is free.
    assert one.measured() == {0: 2, 6: 2, 11: 4, 12: 4}
    assert one.answer().reason is Reason.NOTHING_REACHES_TARGET


def test_a_doubtful_depth_has_a_second_look_that_counts(tmp_path: Path) -> None:
    # Just above the target, with seeds that spread: four are too few for it.
    doubtful = {**CLEAR, 9: 0.845}
    one = Drawn(spec(tmp_path), doubtful, 0.02)
    one.run()
    assert one.measured()[9] == 8 and one.measured()[0] == 3
    look = one.answer().contrasts[FreezeDepth.of(9)].look
    assert look is not None and (look.number, look.seeds, look.full_seeds) == (2, 8, 3)


def test_two_seeds_that_tell_of_no_spread_wait_for_the_next_depths(tmp_path: Path) -> None:
    # 11 and 12 learn nothing, so that how seeds spread is known from 0 and 6 alone.
    one = Drawn(spec(tmp_path), {**CLEAR, 6: 0.86, 7: 0.86, 8: 0.86, 9: 0.80, 11: 0.6}, 0.004)
    keys = [key.partition("-lr")[0] for key in one.run() if key.startswith("measure")]
    assert list(dict.fromkeys(keys)) == [f"measure-N{n}" for n in (0, 11, 12, 6, 7, 8, 9)]
    assert (one.measured()[0], one.measured()[6]) == (2, 2)
    assert certified(one.answer()) == 4


def test_a_walk_that_waits_for_a_rate_says_so(tmp_path: Path) -> None:
    one = Drawn(spec(tmp_path), {**CLEAR, 9: 0.83}, 0.0)
    one.run()
    known = list(one.known.values())

    def without(*depths: int) -> tuple[bool, str]:
        rates = {d: rate for d, rate in one.rates.items() if d.frozen_layers not in depths}
        found = one.step(rates, known)
        return found.waits, found.why

    assert not without()[0]
    assert without(0) == (True, "the full model comes first")
    assert without(10, 11) == (
        True,
        "the learning rate of the last 2 and 1 layers is being explored",
    )
    assert one.ladder == [8]
    assert without(8) == (True, "the learning rate of the last 4 layers is being explored")


def test_thorough_takes_second_looks_with_more_of_the_full_model(tmp_path: Path) -> None:
    plan, plain = spec(tmp_path, "thorough=true"), spec(tmp_path)
    ladder, deep = FreezeDepth.of(6), FreezeDepth.of(9)
    for depth, first, second in ((ladder, (2, 2), (5, 5)), (deep, (4, 2), (8, 5))):
        looks, usual = Hunt(plan).looks(depth, {}), Hunt(plain).looks(depth, {})
        assert looks is not None and usual is not None
        assert looks.counts == (first, second) and usual.counts == (first, (second[0], 3))
    # What a hunt leaves because it promises little it takes without being asked.
    poor = {**CLEAR, 9: 0.82}
    one = Drawn(plan, poor, 0.004)
    one.run()
    assert (one.measured()[9], one.measured()[0]) == (8, 5)
    assert one.answer().next_step is None
    usual_one = Drawn(plain, poor, 0.004)
    usual_one.run()
    assert (usual_one.measured()[9], usual_one.measured()[0]) == (4, 2)
    assert "thorough True (recorded: False)" in differing_settings(plan, plain)


def test_what_is_for_hunts_is_refused_where_nothing_is_hunted(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="strategy even takes none; set strategy: hunt, or leave"):
        spec(tmp_path, "strategy=even", "thorough=true")


@pytest.mark.parametrize(("quality", "together"), [(0.85, {11}), (0.80, set())])
def test_what_looks_to_pass_and_costs_nothing_begins_beside_the_full_model(
    tmp_path: Path, quality: float, together: set[int]
) -> None:
    one = Drawn(spec(tmp_path), {**CLEAR, 9: 0.88, 10: 0.87, 11: quality}, 0.0)
    one.run(workers=3)
    begun = {
        row.candidate.frozen_layers
        for row in one.rows.values()
        if "measure-N0" in one.beside[row.trial or ""]
    }
    assert begun - {0} == together


@pytest.mark.parametrize("depths", ["[0, 6, 11]", "[0, 4, 8, 12]", "half"])
@pytest.mark.parametrize(("workers", "order"), [(1, 0), (2, 0), (4, 3), (8, 7)])
def test_what_a_depth_follows_is_decided_before_it_is_measured_by_any_number_of_workers(
    tmp_path: Path, depths: str, workers: int, order: int
) -> None:
    flat = dict.fromkeys(range(13), 0.89) | {0: 0.9}
    one = Drawn(spec(tmp_path, f"depths={depths}"), flat, 0.004)
    one.run(workers=workers, order=order)
    assert one.ladder == []
    assert not {depth.frozen_layers for depth in Hunt(one.spec).ladder} & set(one.measured())
    found = certified(one.answer())
    assert found is not None and found <= 1, one.answer().certainty


def test_of_several_tasks_each_has_the_whole_ladder(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("stdlib\nrte\n")
    wanted = SearchOptions(model="minilm", task=[str(tmp_path / "tasks.txt")], space="hunt")
    both = [one.spec for one in read_requests(wanted)]
    assert [one.ladder_error for one in both] == [0.0, 0.0]
    alone = read_requests(dataclasses.replace(wanted, task=["stdlib"]))
    assert alone[0].spec.ladder_error == Policy().ladder_error == 0.01


def test_a_search_that_ends_within_its_first_look_names_the_way_on(tmp_path: Path) -> None:
    whole = Drawn(spec(tmp_path), CLEAR, 0.004)
    keys = whole.run()
    cut = Drawn(whole.spec, CLEAR, 0.004)
    within = next(n for n, key in enumerate(keys) if key.startswith("measure-N9-"))
    cut.rows = {key: row for key, row in whole.rows.items() if key in keys[: within + 1]}
    cut.answers = whole.answers
    assert cut.measured()[9] == 1 and cut.answer().reason is Reason.TOO_FEW_SEEDS
    assert cut.answer().next_step == "elsa-tune resume s --until certified"


def test_killed_after_any_trial_it_goes_on_with_the_same_and_claims_no_more(tmp_path: Path) -> None:
    whole = Drawn(spec(tmp_path), CLEAR, 0.004)
    keys = whole.run()
    for after, key in enumerate(keys):
        cut = Drawn(whole.spec, CLEAR, 0.004)
        cut.known = {one: whole.known[one] for one in keys[:after]}
        cut.rows = {one: row for one, row in whole.rows.items() if one in cut.known}
        cut.answers = whole.answers
        cut.rates = dict(whole.rates) if cut.rows else {}
        assert cut.searcher().suggest("next")[TRIAL].key == key
        # In the middle of a look, too: what it certifies is certified in the end.
        if cut.rows:
            found = certified(cut.answer())
            assert found is None or found >= 3


@pytest.mark.parametrize(("workers", "order"), [(2, 1), (4, 0), (4, 3), (64, 0), (64, 7)])
def test_the_certificate_is_that_of_any_order_in_which_trials_end(
    tmp_path: Path, workers: int, order: int
) -> None:
    one = Drawn(spec(tmp_path), CLEAR, 0.004)
    one.run(workers=workers, order=order)
    assert certified(one.answer()) == 3


def test_a_seed_that_was_lost_is_run_again_and_one_that_diverged_is_not(tmp_path: Path) -> None:
    class Failing(Drawn):
        def end(self, trial: TrialSpec) -> None:
            here = trial.candidate.frozen_layers == 9 and trial.phase is Phase.MEASURE
            lost = here and trial.seed == 2 and trial.key not in self.known
            diverged = here and trial.seed == 3
            super().end(trial)
            if lost or diverged:
                status = TrialStatus.FAILED if lost else TrialStatus.DIVERGED
                one = dataclasses.replace(self.known[trial.key], status=status, qualities=())
                self.known[trial.key] = one
                row = self.rows.pop(trial.key)
                if diverged:
                    self.rows[trial.key] = dataclasses.replace(row, status=status, quality=None)

    one = Failing(spec(tmp_path), CLEAR, 0.004)
    keys = one.run()
    seeds = Counter(key for key in keys if key.startswith("measure-N9-"))
    assert sorted(seeds.values()) == [1] * (len(seeds) - 1) + [2]
    assert next(key for key, count in seeds.items() if count == 2).endswith("-s2")
    # It counts as chance, and every depth allows for as much.
    fewest = certified(one.answer())
    assert fewest is None or fewest > 4


@pytest.mark.parametrize("layers", [1, 2, 6, 24])
def test_a_model_of_any_depth_is_hunted_through_where_all_depths_pass_and_where_none_does(
    tmp_path: Path, layers: int
) -> None:
    for quality, fewest in ((0.89, 0), (0.62, None)):
        depths = {n: 0.90 if n == 0 else quality for n in range(layers + 1)}
        one = Drawn(spec(tmp_path, layers=layers), depths, 0.004)
        one.run()
        found = one.answer().operating_point
        assert found is not None and found.fine_tuned_layers == (layers if fewest is None else 0)
        assert certified(one.answer()) in ((None, layers) if fewest is None else (0,))
        assert "pooled" not in one.answer().certainty


@pytest.mark.parametrize(("quality", "seeds"), [(0.822, 8), (0.80, 4)])
def test_until_certified_takes_a_look_that_promises_little_and_none_that_promises_nothing(
    tmp_path: Path, quality: float, seeds: int
) -> None:
    one = Drawn(spec(tmp_path), {**CLEAR, 9: quality}, 0.004)
    one.run()
    assert one.measured()[9] == 4 and certified(one.answer()) == 4
    step = "elsa-tune resume s --until certified" if seeds == 8 else None
    assert one.answer().next_step == step
    one.spec = until_certain(one.spec)
    one.run()
    assert one.measured()[9] == seeds and one.answer().next_step is None


def test_which_depths_a_hunt_has() -> None:
    def of(layers: int, *frozen: int) -> list[int]:
        depths = [FreezeDepth.of(n) for n in frozen or (0, *range((layers + 1) // 2, layers + 1))]
        ladder, deep = ladder_and_deep(depths, layers, Policy())
        return [0, *(depth.frozen_layers for depth in (*ladder, *deep))]

    assert of(12) == [0, 6, 7, 8, 9, 10, 11, 12]
    assert of(12, *range(13)) == [0, 1, 4, 7, 9, 10, 11, 12]
    assert of(24) == [0, 12, 14, 16, *range(18, 25)]
    assert of(6) == [0, 3, 4, 5, 6]
    assert of(2) == [0, 1, 2]
    assert of(1) == [0, 1]
    assert of(12, 0, 3) == [0, 3]
    # Of two that fine-tune many layers only the deeper one is explored.
    assert of(12, 0, 2, 3) == [0, 2, 3]


@pytest.mark.parametrize(("frozen", "rate"), [(3, 2e-5), (6, 4e-5)])
def test_the_rate_of_the_ladder_lies_between_those_beside_it(
    tmp_path: Path, frozen: int, rate: float
) -> None:
    """From 1e-5 to 8e-5 are three octaves, of which each three of nine frozen layers take one."""
    hunt = Hunt(spec(tmp_path))
    chosen = {FULL_MODEL: 1e-5, FreezeDepth.of(9): 8e-5, FreezeDepth.of(10): 1e-3}
    assert hunt.rate_unexplored(FreezeDepth.of(frozen), chosen) == pytest.approx(rate)


def test_a_constant_answer_that_is_always_right_leaves_nothing_to_learn(tmp_path: Path) -> None:
    """Computed, its score may lie above 1 by rounding."""
    always_right = dataclasses.replace(spec(tmp_path), chance=1 + 1e-9, evaluation_examples=1)
    perfect = [
        KnownTrial(
            trial=always_right.trial(Phase.EXPLORE, FULL_MODEL, rate, always_right.seed),
            status=TrialStatus.COMPLETED,
            qualities=(1.0, 1.0),
        )
        for rate in (3e-5, 5e-5)
    ]
    assert Hunt(always_right).waits_for_reference(perfect)


def test_a_depth_is_planned_with_the_seeds_of_its_first_look(tmp_path: Path) -> None:
    plan = spec(tmp_path)
    for depth in plan.candidates:
        tries = plan.tries if depth in plan.explored else 0
        assert planned_trials(plan, [], depth) == Hunt(plan).seeds_at(0, depth) + tries
    full = plan.candidates[0]
    begun = [
        KnownTrial(
            trial=plan.trial(Phase.MEASURE, full, 3e-5, seed),
            status=TrialStatus.RUNNING,
            qualities=(),
        )
        for seed in range(1, 30)
    ]
    assert planned_trials(plan, begun, full) == 29 + plan.tries


def test_a_ladder_that_is_left_out_is_not_counted_as_waiting(tmp_path: Path) -> None:
    one = Drawn(spec(tmp_path), CLEAR, 0.004)
    one.run()
    counts = [planned_trials(one.spec, list(one.known.values()), d) for d in Hunt(one.spec).ladder]
    assert counts == [0, 0, 0]
    cut = dict(list(one.known.items())[:2])
    assert planned_trials(one.spec, list(cut.values()), Hunt(one.spec).ladder[0]) == 2


def test_a_plan_says_what_it_will_cost(tmp_path: Path) -> None:
    asked = Hunt(spec(tmp_path))
    # First looks: 2 of the full model, 2 of each of the ladder's depths, 4 of each deeper one.
    assert asked.measuring_trials == 2 + 3 * 2 + 4 * 4
    most = asked.measuring_at(-1).total()
    assert most - asked.measuring_trials == 1 + 3 * 3 + 4 * 4


@pytest.mark.parametrize(
    ("overrides", "changes", "says"),
    [
        (["depths=[6, 9]"], {}, "with the full model"),
        (["depths=[0]"], {}, "depths with frozen layers"),
        (["learning_rate=2e-5"], {}, "its own learning rate|own learning rate"),
        ([], {"seeds": 5}, "as many seeds as its tests need"),
    ],
)
def test_what_is_no_hunt_is_refused(
    tmp_path: Path, overrides: list[str], changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(SpaceError, match=says):
        spec(tmp_path, *overrides, **changes)


def test_seeds_and_looks_are_changed_only_where_they_can_be(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="is a hunt"):
        with_seeds(spec(tmp_path), 9)
    with pytest.raises(SpaceError, match="tests each depth once"):
        until_certain(spec(tmp_path, "strategy=even"))
    with pytest.raises(SpaceError, match="tests each depth once"):
        spec(tmp_path, "strategy=even", until="certified")
    assert spec(tmp_path, until="certified").until_certified


@pytest.mark.parametrize("costs_as_much", [True, False])
def test_what_is_measured_in_any_case_costs_less_than_is_free(
    tmp_path: Path, costs_as_much: bool
) -> None:
    plan = spec(tmp_path)
    cost = relative_cost(plan, FreezeDepth.of(11))
    free_cost = cost if costs_as_much else 1.001 * cost
    policy = dataclasses.replace(UNRECORDED, free_cost=free_cost)
    one = Drawn(spec(tmp_path, policy=policy), CLEAR, 0.004)
    one.run()
    assert (11 in one.measured()) is not costs_as_much
    assert 12 in one.measured()


@pytest.mark.parametrize(("layers", "in_all", "on_average"), [(12, 3, 2), (24, 3, 2), (6, 1, 1)])
def test_a_hunt_is_expected_to_test_a_part_of_its_ladder(
    layers: int, in_all: int, on_average: float, tmp_path: Path
) -> None:
    plan = spec(tmp_path, "extend=false", layers=layers)
    strategy = Hunt(plan)
    assert len(strategy.ladder) == in_all
    expected = expected_trials(plan)
    looks = strategy.measuring_at(0)
    of_ladder = [expected[candidate] for candidate in strategy.ladder]
    assert sum(of_ladder) == pytest.approx(looks[strategy.ladder[0]] * on_average)
    for candidate in plan.explored:
        assert expected[candidate] == plan.tries + looks[candidate]


# ---- by this version's policy ----


def test_a_depth_whose_seeds_give_no_quality_has_its_first_look_and_ends_the_hunt(
    tmp_path: Path,
) -> None:
    class Mute(Drawn):
        def end(self, trial: TrialSpec) -> None:
            super().end(trial)
            if trial.candidate.frozen_layers == 9 and trial.phase is Phase.MEASURE:
                nothing = {"status": TrialStatus.FAILED, "quality": None}
                self.rows[trial.key] = dataclasses.replace(self.rows[trial.key], **nothing)

    one = Mute(spec(tmp_path, policy=Policy()), CLEAR, 0.004)
    one.run()
    assert one.measured()[9] == 3
    last = one.step(one.rates, list(one.known.values()))
    assert not last.trials and last.why == "the last 3 layers gave no result"


class Grouped(Drawn):
    """Evaluation rows that share so many units."""

    def __init__(self, plan: SearchSpec, *drawn: Any, units: int) -> None:
        super().__init__(dataclasses.replace(plan, evaluation_units=units), *drawn)

    def end(self, trial: TrialSpec) -> None:
        super().end(trial)
        units = self.spec.evaluation_units
        if trial.key in self.rows:
            of_rows = np.arange(EXAMPLES) * units // EXAMPLES
            self.answers[trial.key] = dataclasses.replace(self.answers[trial.key], units=of_rows)
            self.rows[trial.key] = dataclasses.replace(self.rows[trial.key], evaluation_units=units)


@pytest.mark.parametrize(
    ("ten", "eleven", "says"),
    [
        (0.85, 0.80, "the score of the last 2 layers misses the target"),
        (0.88, 0.88, "every depth keeps the target"),
    ],
)
def test_where_units_are_too_few_to_certify_a_hunt_takes_first_looks_alone(
    tmp_path: Path, ten: float, eleven: float, says: str
) -> None:
    """It walks on by scores: the target is .5 + .9 x .4 = .86, and 9 of 12 keeps it."""
    qualities = {**CLEAR, 9: 0.88, 10: ten, 11: eleven, 12: eleven}
    plan = spec(tmp_path, policy=Policy(), until="certified")
    few = Grouped(plan, qualities, 0.004, units=99)
    few.run()
    measured = few.measured()
    assert measured[9] == 3 and measured[10] == 3 and max(measured.values()) == 3
    assert few.answer().reason is Reason.TOO_FEW_UNITS
    last = few.step(few.rates, list(few.known.values()))
    assert not last.trials
    assert (
        last.why == f"{says}; nothing can be certified, as that takes 100 units of evaluation rows"
    )


@pytest.mark.parametrize(("units", "fewest"), [(100, 100), (99, 1)])
def test_second_looks_are_taken_with_units_enough_and_kept_where_they_are_too_few(
    tmp_path: Path, units: int, fewest: int
) -> None:
    """Policies of before there was a least number of units ask for one."""
    plan = spec(tmp_path, "depths=[0, 9]", policy=Policy(), until="certified")
    enough = dataclasses.replace(plan, policy=dataclasses.replace(Policy(), fewest_units=fewest))
    qualities = {**CLEAR, 9: 0.92}
    one = Grouped(enough, qualities, 0.015, units=units)
    keys = one.run()
    assert one.measured() == {0: 4, 9: 10}
    # Resumed where 99 units are too few, as by an earlier version that took such looks.
    resumed = Grouped(plan, qualities, 0.015, units=99)
    resumed.known, resumed.rates, resumed.decisions = one.known, one.rates, one.decisions
    for key in one.rows:
        resumed.end(one.known[key].trial)
    assert resumed.run() == [] and set(resumed.known) == set(keys)
    assert resumed.measured() == {0: 4, 9: 10}
    assert resumed.answer().reason is Reason.TOO_FEW_UNITS
    anew = Grouped(plan, qualities, 0.015, units=99)
    anew.run()
    assert anew.measured() == {0: 3, 9: 3}


def test_where_epochs_are_chosen_on_the_judging_rows_a_hunt_takes_first_looks_alone(
    tmp_path: Path,
) -> None:
    plan = spec(tmp_path, "selection=best_epoch", policy=Policy(), until="certified")
    assert planned_power(plan) is None
    assert planned_power(spec(tmp_path, policy=Policy(), until="certified")) is not None
    one = Drawn(plan, {**CLEAR, 9: 0.88, 10: 0.85}, 0.004)
    one.run()
    measured = one.measured()
    assert measured[9] == 3 and measured[10] == 3 and max(measured.values()) == 3
    assert one.answer().reason is Reason.EPOCHS_NOT_FRESH
    last = one.step(one.rates, list(one.known.values()))
    assert not last.trials
    assert last.why.endswith("; nothing can be certified with selection=best_epoch")


def test_a_hunt_of_one_look_ends_after_it(tmp_path: Path) -> None:
    one_look = dataclasses.replace(
        Policy(), looks=(SeedCounts(3, 3),), ladder_looks=(SeedCounts(3, 3),)
    )
    one = Drawn(spec(tmp_path, "depths=[0, 9]", policy=one_look), {**CLEAR, 9: 0.865}, 0.02)
    one.run()
    assert one.measured() == {0: 3, 9: 3}
    last = one.step(one.rates, list(one.known.values()))
    assert last.why == "the last look at the last 3 layers decides nothing"


def test_where_seeds_are_too_few_to_promise_anything_a_depth_above_the_target_has_more(
    tmp_path: Path,
) -> None:
    """Two and two seeds have two degrees of freedom, of which this plan asks three."""
    policy = dataclasses.replace(
        Policy(), looks=(SeedCounts(2, 2), SeedCounts(5, 3)), fewest_freedom=3
    )
    one = Drawn(spec(tmp_path, "depths=[0, 9]", policy=policy), CLEAR, 0.004)
    keys = [key for key in one.run() if key.startswith("measure")]
    assert one.measured() == {0: 3, 9: 5}
    first_look = Drawn(one.spec, CLEAR, 0.004)
    first_look.known = {key: known for key, known in one.known.items() if key not in keys[4:]}
    first_look.rows = {key: one.rows[key] for key in keys[:4]}
    first_look.answers = one.answers
    step = first_look.step(one.rates, list(first_look.known.values()))
    assert step.why == "the second look at the last 3 layers"


def test_this_versions_hunt_certifies_with_three_seeds_of_each(tmp_path: Path) -> None:
    one = Drawn(spec(tmp_path, policy=Policy()), {**CLEAR, 8: 0.89}, 0.004)
    one.run()
    assert certified(one.answer()) == 3
    assert one.measured()[0] == 3 and one.measured()[9] == 3


def test_this_versions_looks_and_what_they_cost(tmp_path: Path) -> None:
    """Three seeds first; then ten and four of the full model, or five and four at the ladder."""
    plan = spec(tmp_path, policy=Policy())
    hunt = Hunt(plan)
    for frozen, counts in ((6, ((3, 3), (5, 4))), (9, ((3, 3), (10, 4)))):
        looks = hunt.looks(FreezeDepth.of(frozen), {})
        assert looks is not None and looks.counts == counts
    # At the least two tries and one seed of the full model, which learns nothing. At the most eight
    # further tries of each explored depth, and every look: of three and of four depths.
    assert trial_ranges(plan, []) == {
        Phase.EXPLORE: (2, 5 * (2 + 8)),
        Phase.MEASURE: (1, 4 + 3 * 5 + 4 * 10),
    }


RECORDED = Path(__file__).parents[2] / "bench" / "results"
HUNTS = [*sorted(RECORDED.glob("minilm/*")), *sorted(RECORDED.glob("mpnet/*"))]


@pytest.mark.parametrize("folder", HUNTS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_recorded_hunt_had_as_many_trials_as_were_said_all_the_time(folder: Path) -> None:
    plan = load_specification(SearchPaths(folder.parent, folder.name))
    records = read_journal(folder / "journal.jsonl")
    ran = Counter(trial.facts.phase for trial in SearchState.replay(records).planned_trials)
    so_far = SearchState()
    for record in records:
        so_far.add(record)
        known = [known_trial(plan, trial) for trial in so_far.planned_trials]
        for phase, (fewest, most) in trial_ranges(plan, known).items():
            assert fewest <= ran[phase] <= most


def test_the_power_of_a_plan_is_that_of_its_looks_at_the_last_depth(tmp_path: Path) -> None:
    plan = spec(tmp_path, policy=Policy())
    power = planned_power(plan)
    assert power is not None
    assert [(test.seeds, test.full_seeds) for test in power.tests] == [(3, 3), (10, 4)]
    assert power.tests[0].level == pytest.approx(0.5 * 0.035)  # the first look's share
    assert (power.target, power.seed_spread) == (0.9, Policy().seed_spread)
    assert power.guessing == plan.chance


def test_no_power_is_estimated_without_a_test_or_for_no_share_of_examples(tmp_path: Path) -> None:
    plan = spec(tmp_path, policy=Policy())
    assert planned_power(dataclasses.replace(plan, task=resolve_task("cola"))) is None
    alone = spec(tmp_path, "strategy=even", "depths=[0]", policy=Policy())
    assert planned_power(alone) is None
    few_units = dataclasses.replace(plan, evaluation_examples=300, evaluation_units=99)
    assert planned_power(few_units) is None


def test_the_power_of_a_plan_counts_rows_that_share_units_as_these(tmp_path: Path) -> None:
    plan = spec(tmp_path, policy=Policy())
    power = planned_power(plan)
    assert power is not None
    rows = power_text(power, dataclasses.replace(plan, evaluation_examples=300))
    assert rows.startswith("with 300 evaluation rows and ") and " rows or " in rows
    in_units = dataclasses.replace(plan, evaluation_examples=3000, evaluation_units=300)
    expected = rows.replace(" rows", " units").removesuffix(")") + " and units of like size)"
    assert power_text(power, in_units) == expected


@pytest.mark.parametrize(("target", "is_said"), [(0.9, True), (0.8, True), (0.79, False)])
def test_of_a_low_target_no_power_is_estimated_and_that_is_said(
    target: float, is_said: bool, tmp_path: Path
) -> None:
    plan = dataclasses.replace(spec(tmp_path, policy=Policy()), target=target)
    power = planned_power(plan)
    assert power is not None
    text = power_text(power, plan)
    assert ("% of cases" in text) == is_said
    assert ("is not estimated below a target of 80 %" in text) != is_said


def test_a_hunt_walks_on_what_it_claims(tmp_path: Path) -> None:
    """The last layers keep 93 % of the score, and 85 % of what the full model gains over .5."""
    qualities = {**CLEAR, 7: 0.89, 8: 0.89, 9: 0.84}
    one = Drawn(spec(tmp_path / "one", policy=Policy()), qualities, 0.004)
    one.run()
    measured = one.measured()
    answer = one.answer()
    assert answer.claims_corrected and answer.claimed is not None
    assert answer.claimed.fine_tuned_layers == 4
    # It lies so far below what it should gain that the hunt ends without its second look.
    assert measured[9] <= 3 and 10 not in measured
    both = dataclasses.replace(Policy(), claim=Claim.BOTH)
    raw = Drawn(spec(tmp_path / "raw", policy=both), qualities, 0.004)
    raw.run()
    assert certified(raw.answer()) == 3 and not raw.answer().claims_corrected


def test_what_lies_far_below_after_two_seeds_has_no_third(tmp_path: Path) -> None:
    """Nor has the full model, where nothing else is worth a test."""
    qualities = {n: 0.9 if n in (0, 11) else 0.6 for n in range(13)}
    one = Drawn(spec(tmp_path, policy=Policy()), qualities, 0.004)
    one.run()
    measured = one.measured()
    assert measured[0] == 2 and measured[6] == 2
    assert max(measured.values()) <= 3
    answer = one.answer()
    # It was given up, and does not wait for seeds.
    assert answer.certified is not None and answer.certified.candidate.is_reference
    assert answer.reason is None and not answer.open_look
    early = Drawn(spec(tmp_path), qualities, 0.004)
    early.run()
    assert early.measured()[6] == 2 and early.measured()[0] == 2


def test_a_hunt_pays_for_its_ladder_and_for_welchs_degrees_of_freedom(tmp_path: Path) -> None:
    hunt = Hunt(spec(tmp_path, policy=Policy()))
    errors = {hunt.looks(depth, {}).error for depth in hunt.spec.candidates}  # type: ignore[union-attr]
    assert errors == {0.035}
    joined = Hunt(spec(tmp_path, policy=Policy(), joined=True))
    looks = joined.looks(FreezeDepth.of(9), {})
    assert looks is not None and looks.error == 0.045
