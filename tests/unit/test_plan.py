"""The plan: what is left to do follows from the specification and the trials so far.

It follows from nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from elsa_tune.errors import UsageError
from elsa_tune.searching.planning.even import Even
from elsa_tune.searching.planning.hunt import Hunt
from elsa_tune.searching.planning.known import (
    KnownTrial,
    Slot,
    failed_slots,
    measured_rates,
    scores_of,
    tries_of,
)
from elsa_tune.searching.planning.outlook import plan_warnings
from elsa_tune.searching.planning.plan import Plan, exploring_share, steps_per_trial, trial_range
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.planning.strategy import Findings, Step, explored_of, left_to_measure
from elsa_tune.searching.request import Request
from elsa_tune.searching.startup.gpus import check_gpu_hours
from elsa_tune.searching.startup.rows import Rows, plan, rows_in_use
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.policy import Extension
from elsa_tune.specs.rate_space import RateList, RateRange
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.task import FilesSource, GlueSource
from elsa_tune.specs.trial import Phase, Pooling, Recipe, Selection, TrialStatus
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from tests.conftest import Run
from tests.recorded_search import searched
from tests.unit.search_examples import DEPTHS, make_spec, planned_request

COMPLETED, STOPPED = TrialStatus.COMPLETED, TrialStatus.STOPPED_EARLY


def known(
    spec: SearchSpec,
    depth: FreezeDepth,
    rate: float,
    qualities: tuple[float, ...],
    status: TrialStatus = COMPLETED,
    phase: Phase = Phase.EXPLORE,
    seed: int = 0,
) -> KnownTrial:
    trial = spec.trial(phase, depth, rate, seed)
    return KnownTrial(trial=trial, status=status, qualities=qualities)


def test_a_fresh_search_gives_every_depth_its_tries_in_turn() -> None:
    spec = make_spec()
    assert strategy_of(spec).slots([]) == (*map(lambda d: Slot(candidate=d), DEPTHS),) * 2


def test_a_depth_that_is_measured_lacks_no_exploring_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its rate, so `resume` explores it no further: nothing may be called left."""
    spec = make_spec(seeds=1)
    rates = dict.fromkeys(DEPTHS, 2e-5)
    explored = [known(spec, DEPTHS[0], 2e-5, (0.6, 0.7))]
    measured = [known(spec, one, 2e-5, (0.7,), phase=Phase.MEASURE, seed=1) for one in DEPTHS]
    plan = Plan(spec, SearchState, tmp_path)
    both = itertools.product(DEPTHS, (2e-5, 5e-5))
    all_but_one = [known(spec, depth, rate, (0.6, 0.7)) for depth, rate in both][:-1]
    for so_far, left in (
        (explored, "5 exploring trials to go"),
        (all_but_one, "1 exploring trial to go"),
        (explored + measured, ""),
    ):
        monkeypatch.setattr(Plan, "known", tuple(so_far))
        assert plan.missing(rates, explores=True).partition(" and ")[0] == left


def test_what_has_no_learning_rate_is_named_as_what_it_is(tmp_path: Path) -> None:
    candidates = (*DEPTHS, Lora(last=3), BitFit())
    plan = Plan(make_spec(candidates=candidates), SearchState, tmp_path)
    rates = dict.fromkeys(DEPTHS[:2], 2e-5)
    assert plan.missing(rates, explores=False).endswith(
        "no learning rate for LoRA of rank 8 on the last 3 layers, the biases and the head alone"
    )


def test_whoever_asks_a_plan_writes_nothing(tmp_path: Path) -> None:
    """The journal that it follows, and all else in the search's folder, stay as they are."""
    spec = make_spec()
    paths = SearchPaths(tmp_path, spec.name)
    journal = searched(paths.storage, spec.name).journal
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert journal in before
    state = SearchState.replay(read_journal(journal))
    plan = Plan.of(spec, paths, state)
    assert len(plan.known) == len(state.planned_trials) > 0
    assert plan.left.total() > 0 and not plan.is_complete
    assert plan.missing(dict.fromkeys(DEPTHS, 3e-5), explores=True)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_a_trial_of_which_nothing_was_recorded_since_is_not_read_again(tmp_path: Path) -> None:
    """The board asks again and again, of searches with thousands of trials."""
    spec = make_spec()
    journal = searched(tmp_path, spec.name).journal
    before = SearchState.replay(read_journal(journal))
    key, recorded = next(iter(before.trials.items()))
    recorded_since = dataclasses.replace(recorded)
    after = dataclasses.replace(before, trials={**before.trials, key: recorded_since})
    states = [before]
    plan = Plan(spec, lambda: states[-1], tmp_path)
    first = plan.known
    assert all(one is other for one, other in zip(first, plan.known, strict=True))
    states.append(after)
    is_kept = [one is other for one, other in zip(first, plan.known, strict=True)]
    assert is_kept == [False, True, True, True]


def test_what_is_left_counts_the_tries_and_seeds_of_each_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tries and two seeds at every depth one try has ended."""
    spec = make_spec()
    monkeypatch.setattr(Plan, "known", (known(spec, DEPTHS[0], 2e-5, (0.6, 0.7)),))
    left = Plan(spec, SearchState, tmp_path).left
    assert left == {DEPTHS[0]: 3, DEPTHS[1]: 4, DEPTHS[2]: 4}
    assert trial_range(spec, []) == (12, 12)


@pytest.mark.parametrize(("rates", "explored"), [("[2e-5]", ()), ("[2e-5, 5e-5]", (0, 3))])
def test_a_depth_with_one_rate_has_nothing_to_explore(
    rates: str, explored: tuple[int, ...]
) -> None:
    space = load_space("quick", [f"learning_rate={rates}"])
    depths = list(map(FreezeDepth.of, (0, 3)))
    assert explored_of(space, depths) == tuple(map(FreezeDepth.of, explored))


def test_a_resumed_search_restarts_the_unfinished_with_their_rates_and_adds_the_rest() -> None:
    spec = make_spec()
    so_far = [
        known(spec, DEPTHS[0], 2e-5, (0.6, 0.7)),
        known(spec, DEPTHS[1], 5e-5, (0.6,), TrialStatus.INTERRUPTED),
        known(spec, DEPTHS[2], 5e-5, (0.5,), STOPPED),
    ]
    assert strategy_of(spec).slots(so_far) == (
        Slot(candidate=DEPTHS[1], learning_rate=5e-5),
        Slot(candidate=DEPTHS[0]),
        Slot(candidate=DEPTHS[1]),
        Slot(candidate=DEPTHS[2]),
    )
    (unfinished,) = tries_of(so_far, DEPTHS[1])
    assert (unfinished.trial.learning_rate, unfinished.is_unfinished) == (5e-5, True)
    assert [one.trial.learning_rate for one in tries_of(so_far, DEPTHS[2])] == [5e-5]


def test_a_failed_trial_is_tried_again_and_a_diverged_one_is_not() -> None:
    spec = make_spec(tries=1)
    failed = known(spec, DEPTHS[0], 2e-5, (), TrialStatus.FAILED)
    diverged = known(spec, DEPTHS[1], 5e-5, (), TrialStatus.DIVERGED)
    assert (diverged.is_unfinished, failed.is_unfinished) == (False, True)
    slots = strategy_of(spec).slots([failed, diverged])
    assert slots == (Slot(candidate=DEPTHS[0], learning_rate=2e-5), Slot(candidate=DEPTHS[2]))


def test_of_a_measured_depth_only_what_failed_is_left() -> None:
    spec = make_spec()
    failed = known(spec, DEPTHS[0], 5e-5, (), TrialStatus.FAILED)
    so_far = [
        failed,
        known(spec, DEPTHS[1], 5e-5, (), TrialStatus.DIVERGED),
        known(spec, DEPTHS[2], 5e-5, (0.6,), TrialStatus.INTERRUPTED),
        *(known(spec, one, 2e-5, (0.7,), phase=Phase.MEASURE, seed=1) for one in DEPTHS),
    ]
    kept = measured_rates(so_far)
    assert kept == dict.fromkeys(DEPTHS, 2e-5)
    assert failed_slots(so_far) == (Slot(candidate=DEPTHS[0], learning_rate=5e-5),)
    assert strategy_of(spec).slots_left(so_far, kept) == failed_slots(so_far)
    # What is not measured yet goes on as ever.
    assert strategy_of(spec).slots_left(so_far, ()) == strategy_of(spec).slots(so_far)


def test_a_hunt_counts_what_is_left_at_the_rates_that_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that is tried again may give a better rate: that makes no measured depth new."""
    spec = make_spec(strategy="hunt")
    better = known(spec, DEPTHS[0], 5e-5, (0.9,))
    measured = known(spec, DEPTHS[0], 2e-5, (0.7,), phase=Phase.MEASURE, seed=1)
    asked: list[Mapping[Candidate, float]] = []

    def step(hunt: Hunt, findings: Findings) -> Step:
        asked.append(findings.chosen_rates)
        return Step()

    monkeypatch.setattr(Plan, "known", (better, measured))
    monkeypatch.setattr(Hunt, "next", step)
    assert Plan(spec, SearchState, tmp_path).left
    assert strategy_of(spec).best_rates([better, measured]) == {DEPTHS[0]: 5e-5}
    assert asked == [{DEPTHS[0]: 2e-5}]


def test_the_best_rate_comes_from_completed_trials_only() -> None:
    spec = make_spec()
    so_far = [
        known(spec, DEPTHS[0], 2e-5, (0.6, 0.70)),
        known(spec, DEPTHS[0], 5e-5, (0.9,), STOPPED),
        known(spec, DEPTHS[1], 2e-5, (0.6, 0.65)),
        known(spec, DEPTHS[1], 5e-5, (0.6, 0.66)),
        known(spec, DEPTHS[2], 5e-5, (0.5,), TrialStatus.DIVERGED),
    ]
    assert strategy_of(spec).best_rates(so_far) == {DEPTHS[0]: 2e-5, DEPTHS[1]: 5e-5}


def test_only_completed_trials_give_their_rate_a_score() -> None:
    spec = make_spec()
    tries = [
        known(spec, DEPTHS[0], 1e-5, (0.6, 0.7)),
        known(spec, DEPTHS[0], 2e-5, (0.9,), STOPPED),
        known(spec, DEPTHS[0], 3e-5, (0.9,), TrialStatus.RUNNING),
        known(spec, DEPTHS[0], 4e-5, ()),  # recorded as completed, without an evaluation
    ]
    assert scores_of(tries) == {1e-5: 0.7}


def test_a_tie_goes_to_the_lower_rate_and_an_unfinished_depth_is_judged_at_equal_age() -> None:
    spec = make_spec()
    so_far = [
        known(spec, DEPTHS[0], 5e-5, (0.6, 0.7)),
        known(spec, DEPTHS[0], 2e-5, (0.5, 0.7)),
        known(spec, DEPTHS[1], 2e-5, (0.6, 0.9, 0.95), TrialStatus.INTERRUPTED),
        known(spec, DEPTHS[1], 5e-5, (0.7,), TrialStatus.INTERRUPTED),
    ]
    assert strategy_of(spec).best_rates(so_far) == {DEPTHS[0]: 2e-5, DEPTHS[1]: 5e-5}


def test_best_epoch_chooses_rates_by_the_best_epoch() -> None:
    spec = make_spec(recipe=Recipe(epochs=3, selection=Selection.BEST_EPOCH))
    so_far = [
        known(spec, DEPTHS[0], 2e-5, (0.6, 0.7, 0.72)),
        known(spec, DEPTHS[0], 5e-5, (0.6, 0.9, 0.70)),
    ]
    assert strategy_of(spec).best_rates(so_far) == {DEPTHS[0]: 5e-5}


def test_holdout_chooses_rates_by_the_holdout_and_reports_the_quality() -> None:
    spec = make_spec(recipe=Recipe(epochs=3, selection=Selection.HOLDOUT))
    so_far = [
        dataclasses.replace(known(spec, DEPTHS[0], rate, qualities), holdout_qualities=held_out)
        for rate, qualities, held_out in (
            (2e-5, (0.6, 0.7, 0.5), (0.5, 0.8, 0.8)),
            (5e-5, (0.9, 0.9, 0.9), (0.4, 0.7, 0.6)),
        )
    ]
    assert strategy_of(spec).best_rates(so_far) == {DEPTHS[0]: 2e-5}
    # The first of the best on the holdout, not the best nor the last.
    assert [(one.score, one.quality) for one in so_far] == [(0.8, 0.7), (0.7, 0.9)]
    found = tries_of(so_far, DEPTHS[0])
    assert [one.scores for one in found] == [(0.5, 0.8, 0.8), (0.4, 0.7, 0.6)]
    assert [one.score for one in found] == [0.8, 0.7]


def request_for(space: str = "quick", **changes: Any) -> Request:
    """space: its name and overrides, in one line."""
    name, *overrides = space.split()
    read = load_space(name, overrides)
    return planned_request(Path("/nowhere"), read, name, **{"recipe": Recipe(), **changes})


@pytest.mark.parametrize(
    "share",
    [
        {"cpus_per_trial": 0.0},
        {"cpus_per_trial": float("nan")},
        {"gpus_per_trial": -1.0},
        {"gpu_hours": 0.0},
        {"gpu_hours": float("inf")},
    ],
)
def test_shares_that_no_machine_has_are_refused_by_a_dry_run_too(share: dict[str, float]) -> None:
    (name,) = share
    with pytest.raises(UsageError, match=f"`{name}` is"):
        plan(request_for(**share), Rows(100, 50, 50, 0.5))


def test_gpu_hours_need_gpus() -> None:
    check_gpu_hours(2.0, 0.5)
    check_gpu_hours(None, 0)
    with pytest.raises(UsageError, match="trials train on CPUs here; give `max_time`"):
        check_gpu_hours(2.0, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has what is asked for")
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--gpu-hours", "2"), "--gpu-hours is 2, but trials train on CPUs here"),
        (("--set", "precision=tf32"), "precision is tf32, which only GPUs have"),
    ],
)
def test_what_only_gpus_do_is_refused_by_a_dry_run_too(
    asked: tuple[str, str], words: str, run: Run
) -> None:
    search = ("search", "--model", "minilm", "--task", "stdlib", "--dry-run")
    done = run(*search, *asked)
    assert done.status == 2
    assert words in done.err
    # Of a cluster nothing is known before it is asked.
    assert run(*search, *asked, "--address", "auto").status == 0


def test_a_store_of_an_unknown_scheme_is_refused_by_a_dry_run_too() -> None:
    with pytest.raises(UsageError, match="has the unknown scheme 'foo'"):
        plan(request_for(artifacts="foo://bar"), Rows(100, 50, 50, 0.5))


def test_guessing_is_what_is_known_of_glue_on_the_hub_else_an_even_guess() -> None:
    rte = resolve_task("rte")
    assert rows_in_use(rte, Recipe()) == (2490, 277, 277, rte.published_chance["accuracy"])
    by_an_unknown_metric = dataclasses.replace(rte, published_chance={})
    assert rows_in_use(by_an_unknown_metric, Recipe()).chance == 0.5
    assert plan(request_for(), Rows(100, 50, 50, 0.7)).chance == 0.7


def test_a_holdout_is_not_trained_on() -> None:
    request = request_for(recipe=Recipe(epochs=2, selection=Selection.HOLDOUT, holdout=0.3))
    assert steps_per_trial(plan(request, Rows(100, 50, 50, 0.5))) == 10  # ceil(70 / 16) x 2 epochs


def test_a_depth_whose_every_try_diverged_is_measured_at_its_lowest_rate() -> None:
    spec = make_spec()
    diverged = [known(spec, DEPTHS[0], rate, (), TrialStatus.DIVERGED) for rate in (5e-5, 2e-5)]
    assert strategy_of(spec).best_rates(diverged) == {DEPTHS[0]: 2e-5}
    assert strategy_of(spec).best_rates(diverged[:1]) == {}  # there are tries to come


def test_depths_that_are_not_explored_take_the_full_models_rate() -> None:
    spec = make_spec(explored=(FULL_MODEL,))
    so_far = [known(spec, FULL_MODEL, 2e-5, (0.1, 0.7)), known(spec, FULL_MODEL, 5e-5, (0.1, 0.8))]
    assert strategy_of(spec).best_rates(so_far) == dict.fromkeys(DEPTHS, 5e-5)
    assert strategy_of(spec).best_rates([]) == {}


def test_one_rate_needs_no_exploring() -> None:
    spec = make_spec(explored=(), tries=0, rates=RateList(values=(5e-5,)))
    assert strategy_of(spec).slots([]) == ()
    assert strategy_of(spec).best_rates([]) == dict.fromkeys(DEPTHS, 5e-5)
    assert exploring_share(spec) == 0


def test_measuring_takes_fresh_seeds_in_rounds_over_the_depths() -> None:
    spec = make_spec()
    rates = {DEPTHS[0]: 2e-5, DEPTHS[2]: 5e-5}
    trials = left_to_measure(spec, rates, [])
    assert [(t.candidate, t.seed) for t in trials] == [
        (DEPTHS[0], 1), (DEPTHS[2], 1), (DEPTHS[0], 2), (DEPTHS[2], 2),
    ]  # fmt: skip
    done = [
        known(spec, DEPTHS[0], 2e-5, (0.5, 0.6), phase=Phase.MEASURE, seed=1),
        known(spec, DEPTHS[2], 5e-5, (0.5,), TrialStatus.INTERRUPTED, Phase.MEASURE, 1),
    ]
    left = left_to_measure(spec, rates, done)
    assert [(t.candidate, t.seed) for t in left] == [(DEPTHS[2], 1), (DEPTHS[0], 2), (DEPTHS[2], 2)]


def test_the_estimate_counts_every_step() -> None:
    spec = make_spec()
    assert (strategy_of(spec).exploring_trials, strategy_of(spec).measuring_trials) == (6, 6)
    assert steps_per_trial(spec) == 14  # ceil(100 / 16) x 2 epochs
    assert exploring_share(make_spec()) == 0.5
    assert exploring_share(make_spec(tries=20)) == 0.5
    assert exploring_share(make_spec(seeds=4)) == pytest.approx(6 / 18)


def test_keys_tell_trials_apart_and_equal_trials_have_equal_keys() -> None:
    spec = make_spec()
    trial = spec.trial(Phase.MEASURE, DEPTHS[1], 3.0000000000000004e-05, 2)
    assert trial.key == "measure-N3-lr3e-05-s2"
    embeddings = spec.trial(Phase.EXPLORE, FreezeDepth(0, True), 1.25e-5, 0)
    assert embeddings.key == "explore-Nembeddings-lr1.25e-05-s0"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recipe": Recipe(selection=Selection.HOLDOUT, holdout=0.2)},
        {"rates": RateRange(low=1e-5, high=5e-5), "asha": None, "max_time": 60.0},
        {"task": resolve_task("mnli")},
        {"task": resolve_task("stdlib_shuffled")},
    ],
)
def test_a_specification_survives_its_file(changes: dict[str, object]) -> None:
    spec = make_spec(**changes)
    adapter = TypeAdapter(SearchSpec)
    assert adapter.validate_json(adapter.dump_json(spec)) == spec


def test_a_specification_from_before_holdouts_is_read_and_pooled_as_it_was() -> None:
    adapter, spec = TypeAdapter(SearchSpec), make_spec()
    values = json.loads(adapter.dump_json(spec))
    del values["recipe"]["holdout"], values["holdout_examples"]
    assert adapter.validate_json(json.dumps(values)) == spec
    assert "holdout" not in str(spec.comparison)
    held_out = make_spec(recipe=Recipe(epochs=2, train_size=100, selection=Selection.HOLDOUT))
    assert "selection=holdout, holdout=0.1" in str(held_out.comparison)


def test_standardised_targets_are_part_of_what_is_comparable_for_regressions_only() -> None:
    adapter, plain = TypeAdapter(SearchSpec), make_spec()
    values = json.loads(adapter.dump_json(plain))
    del values["recipe"]["standardize_targets"]
    assert adapter.validate_json(json.dumps(values)) == plain
    standardised = dataclasses.replace(plain.recipe, standardize_targets=True)
    assert make_spec(recipe=standardised).comparison == plain.comparison
    regression = make_spec(task=resolve_task("stsb"))
    assert "standardize" not in f"{regression.comparison}{plain.comparison}"
    found = dataclasses.replace(regression, recipe=standardised).comparison
    assert str(found) == f"{regression.comparison}, standardize_targets=True"


def test_pooling_is_part_of_what_is_comparable_where_it_is_not_the_heads_own() -> None:
    plain = make_spec()
    assert "pooling" not in str(plain.comparison)
    by_mean = make_spec(recipe=dataclasses.replace(plain.recipe, pooling=Pooling.MEAN))
    assert str(by_mean.comparison) == f"{plain.comparison}, pooling=mean"


def test_sources_are_told_apart_in_the_file() -> None:
    adapter = TypeAdapter(SearchSpec)
    for source in (
        GlueSource(config="rte", folder="RTE", data_dir="/data"),
        FilesSource(format="csv", train=("/a.csv",), evaluation_share=0.2),
    ):
        spec = make_spec(task=dataclasses.replace(resolve_task("rte"), source=source))
        assert adapter.validate_json(adapter.dump_json(spec)).task.source == source


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ((1, 2), "depths without 0 (the full model) leave nothing to compare"),
        ((0,), "depths without frozen layers leave nothing to compare"),
        ((0, "embeddings"), None),
    ],
)
def test_a_plan_that_cannot_be_answered_is_doubted(
    labels: tuple[int | str, ...], words: str | None
) -> None:
    spec = make_spec(candidates=tuple(map(FreezeDepth.of, labels)), train_examples=10_000)
    found = list(plan_warnings(spec))
    assert len(found) == (words is not None) and (words or "") in "".join(found)


@pytest.mark.parametrize(("seeds", "is_said"), [(2, True), (3, False)])
def test_a_comparison_with_too_few_seeds_is_said_before_it_trains(
    seeds: int, is_said: bool
) -> None:
    spec = make_spec(candidates=(FreezeDepth.of(0), BitFit()), seeds=seeds, train_examples=10_000)
    said = " ".join(plan_warnings(spec))
    assert ("3 seeds of each or more; this one, with 2, will be measured alone" in said) is is_said


def test_that_best_epochs_certify_nothing_is_said_before_it_trains() -> None:
    by_last = make_spec(recipe=Recipe(epochs=3))
    by_best = make_spec(recipe=Recipe(epochs=3, selection=Selection.BEST_EPOCH))
    words = "with selection=best_epoch nothing can be certified"
    assert words not in " ".join(plan_warnings(by_last))
    assert words in " ".join(plan_warnings(by_best))


def test_measuring_is_announced_by_the_seeds_that_a_depth_has() -> None:
    announced = [strategy_of(make_spec(seeds=seeds)).opening for seeds in (1, 2)]
    assert "1 seed of" in announced[0] and "2 seeds of" in announced[1]


class Patient(Even):
    """Holds all else back until the full model was measured."""

    def in_order(self, slots: list[Slot], known: Sequence[KnownTrial]) -> list[Slot]:
        is_measured = any(one.trial.phase is Phase.MEASURE for one in known)
        return [slot for slot in slots if is_measured or slot.candidate == FULL_MODEL]


def test_a_depth_whose_turn_comes_by_a_measured_trial_is_not_settled_before() -> None:
    spec = make_spec(extend=Extension())
    deep = DEPTHS[1]
    trials = [known(spec, deep, rate, (0.6, score)) for rate, score in ((2e-5, 0.7), (5e-5, 0.8))]
    trials += [known(spec, FULL_MODEL, rate, (0.6, 0.9)) for rate in (1e-5, 2e-5, 5e-5)]
    measured = known(spec, FULL_MODEL, 2e-5, (0.9,), phase=Phase.MEASURE, seed=1)
    patient = Patient(spec)
    assert deep in {slot.candidate for slot in patient.slots([*trials, measured])}
    assert deep not in patient.settled([*trials, measured])


def test_of_an_even_search_every_seed_that_has_not_ended_is_left() -> None:
    spec = make_spec(seeds=3)
    measured = {"phase": Phase.MEASURE}
    trials = [
        known(spec, DEPTHS[0], 2e-5, (0.7,)),
        known(spec, DEPTHS[0], 2e-5, (0.7,), seed=1, **measured),
        known(spec, DEPTHS[0], 2e-5, (0.7,), TrialStatus.DIVERGED, seed=2, **measured),
        known(spec, DEPTHS[0], 2e-5, (), TrialStatus.RUNNING, seed=3, **measured),
        *(known(spec, DEPTHS[1], 2e-5, (0.7,), seed=seed, **measured) for seed in (1, 2, 3)),
    ]
    findings = Findings(known=trials, chosen_rates={}, curve=lambda: None)
    assert strategy_of(spec).lacking(findings) == {DEPTHS[0]: 1, DEPTHS[2]: 3}
