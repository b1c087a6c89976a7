"""Fused trials seen from outside: each looks like a trial of its own, to its caller and to Ray,
ASHA, the journal and MLflow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elsa_tune.errors import DivergedError, RunError
from elsa_tune.search import fusing
from elsa_tune.search.cluster import held
from elsa_tune.search.fusing import Fusing
from elsa_tune.search.plan import by_depth
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import EpochResult, TrialSpec
from elsa_tune.training.loop import train
from tests.searching import ONE_AT_A_TIME, Bench, make_bench, of_kind
from tests.unit.tiny_trials import break_head, calm, make_data, make_trial

DATA = make_data()


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    """Two layers, no dropout."""
    return calm("bert", tmp_path / "bert", 2)


def trials_of(model: ModelSpec, depths: Sequence[int], **changes: Any) -> list[TrialSpec]:
    return [
        make_trial(model, depth, seed=seed, **changes) for seed, depth in enumerate(depths, start=1)
    ]


def ask(one: Fusing, trial: TrialSpec, leave_after: int | None = None) -> list[Any]:
    """What a trial's own process does: every result, or the error at the end."""
    found: list[Any] = []
    one.join(trial)
    try:
        while (result := one.next(trial.key)) is not None:
            found.append(result)
            if len(found) == leave_after:
                break
    except Exception as error:
        found.append(error)
    one.leave(trial.key)
    return found


def ask_all(one: Fusing, trials: Sequence[TrialSpec], **leaving: int) -> dict[str, list[Any]]:
    """All of them at once."""
    found: dict[str, list[Any]] = {}

    def asking(trial: TrialSpec) -> None:
        found[trial.key] = ask(one, trial, leaving.get(trial.key.replace("-", "_")))

    threads = [threading.Thread(target=asking, args=(trial,)) for trial in trials]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == len(trials), "somebody still waits"
    return found


def fusing_for(together: int, expected: dict[int, int] | None = None) -> Fusing:
    """By default it expects as many as go together, at every depth."""
    counts = dict.fromkeys(range(3), together) if expected is None else expected
    by_depth = {FreezeDepth.of(n): count for n, count in counts.items()}
    return Fusing(DATA, together, "cpu", [1, 2], by_depth, patience=0.5)


def losses(results: Sequence[EpochResult]) -> list[float]:
    return [value for result in results for value in (result.train_loss, result.eval_loss)]


def alone(trial: TrialSpec) -> list[EpochResult]:
    return list(train(trial, DATA, device="cpu"))


def test_each_gets_what_it_would_get_alone(model: ModelSpec) -> None:
    trials = trials_of(model, [1, 1, 1], learning_rate=1e-4)
    found = ask_all(fusing_for(3), trials)
    for trial in trials:
        own = found[trial.key]
        assert {result.batches for result in own} == {"fused"}
        assert losses(own) == pytest.approx(
            losses(list(train(trial, DATA, device="cpu"))), rel=1e-5
        )


def test_only_trials_of_one_depth_meet_and_nobody_waits_for_ever(model: ModelSpec) -> None:
    trials = trials_of(model, [1, 2, 1, 0, 2], learning_rate=1e-4)
    found = ask_all(fusing_for(4), trials)
    how = {key: {result.batches for result in own} for key, own in found.items()}
    assert [how[trial.key] for trial in trials] == [
        {"fused"},
        {"fused"},
        {"fused"},
        {"packed"},  # the only one of its depth
        {"fused"},
    ]


def test_more_than_go_together_make_two_groups(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sizes_of_groups(monkeypatch)
    found = ask_all(fusing_for(2), trials_of(model, [1] * 5))
    assert sizes == [2, 2] and all(len(own) == 2 for own in found.values())


def sizes_of_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    original = fusing.train_fused

    def spy(trials: Sequence[TrialSpec], *more: Any, **options: Any) -> Any:
        sizes.append(len(trials))
        return original(trials, *more, **options)

    monkeypatch.setattr(fusing, "train_fused", spy)
    return sizes


def test_a_group_waits_for_those_who_will_come_and_for_nobody_else(model: ModelSpec) -> None:
    one = fusing_for(8, {1: 2})
    one._patience = 60.0
    first, second = trials_of(model, [1, 1])
    found: list[Any] = []
    early = threading.Thread(target=lambda: found.extend(ask(one, first)))
    early.start()
    time.sleep(1.0)
    assert early.is_alive()
    started = time.monotonic()
    assert {result.batches for result in ask(one, second)} == {"fused"}
    early.join(30)
    assert {result.batches for result in found} == {"fused"}
    # Nobody is expected any more: a trial that is tried again does not wait.
    assert {result.batches for result in ask(one, first)} == {"packed"}
    assert time.monotonic() - started < 50


def test_who_leaves_holds_nobody_up(model: ModelSpec) -> None:
    trials = trials_of(model, [1, 1], epochs=3)
    found = ask_all(fusing_for(2), trials, **{trials[0].key.replace("-", "_"): 1})
    assert [len(found[trial.key]) for trial in trials] == [1, 3]


def test_who_is_lost_holds_nobody_up_and_hears_why(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusing, "_LOST_SECONDS", 0.5)
    one, (lost, other) = fusing_for(2), trials_of(model, [1, 1], epochs=3)
    one.join(lost)
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.extend(ask(one, other)))
    asking.start()
    assert one.next(lost.key) is not None
    asking.join(30)
    assert [result.evaluation for result in found] == [1, 2, 3]
    with pytest.raises(RunError, match="did not ask"):
        one.next(lost.key)


def test_training_waits_until_results_are_dealt_with(model: ModelSpec) -> None:
    """Else it would be over before ASHA has judged its first evaluation."""
    one, (trial, other) = fusing_for(2), trials_of(model, [1, 1], epochs=3)
    waiting = threading.Thread(target=ask, args=(one, other))
    waiting.start()
    one.join(trial)
    assert one.next(trial.key) is not None
    time.sleep(1.0)
    assert waiting.is_alive()
    one.leave(trial.key)
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_diverging_member_gets_its_error_and_the_other_goes_on(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_head(monkeypatch, 2)
    trials = trials_of(model, [1, 1])
    found = ask_all(fusing_for(2), trials)
    assert isinstance(found[trials[1].key][0], DivergedError)
    assert [type(result) for result in found[trials[0].key]] == [EpochResult, EpochResult]


def test_a_group_too_large_for_the_memory_is_halved(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    original = fusing.train_fused

    def limited(trials: Sequence[TrialSpec], *more: Any, **options: Any) -> Any:
        sizes.append(len(trials))
        for number, event in enumerate(original(trials, *more, **options)):
            if len(trials) > 2 and number >= len(trials):
                raise torch.OutOfMemoryError("CUDA out of memory (made up)")
            yield event

    monkeypatch.setattr(fusing, "train_fused", limited)
    trials = trials_of(model, [1] * 4, learning_rate=1e-4)
    found = ask_all(fusing_for(4), trials)
    assert sizes == [4, 2, 2]
    for trial in trials:  # the first evaluation came from the group of four, and came once
        own = found[trial.key]
        assert [result.evaluation for result in own] == [1, 2]
        assert losses(own) == pytest.approx(
            losses(list(train(trial, DATA, device="cpu"))), rel=1e-5
        )


def test_what_cannot_be_fused_is_trained_one_by_one(model: ModelSpec) -> None:
    trials = trials_of(model, [1, 1], frozen_dropout=True)
    found = ask_all(fusing_for(2), trials)
    for own in found.values():
        assert {result.batches for result in own} == {"packed"}
        assert "trained one by one: " in own[0].notes[-1] and "frozen_dropout" in own[0].notes[-1]


def test_a_broken_group_ends_its_trials_and_not_the_next_ones(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fusing_for(2)
    with monkeypatch.context() as patch:
        patch.setattr(fusing, "train_fused", lambda *_, **__: 1 / 0)
        found = ask_all(one, trials_of(model, [1, 1]))
        assert all(isinstance(own[0], ZeroDivisionError) for own in found.values())
    found = ask_all(one, trials_of(model, [1, 1]))
    assert all(len(own) == 2 for own in found.values())


def test_places_are_counted_node_by_node_and_gpu_by_gpu() -> None:
    assert held(3, 0, Resources(cpus=2, gpus=0)) == 1
    assert held(16, 2, Resources(cpus=2, gpus=0.6)) == 2
    assert held(16, 2, Resources(cpus=2, gpus=0.4)) == 4
    assert held(16, 2, Resources(cpus=8, gpus=0.25)) == 2
    assert held(64, 8, Resources(cpus=4, gpus=2)) == 4
    assert held(16, 0, Resources(cpus=2, gpus=1)) == 0


def test_the_plan_brings_a_depths_trials_together() -> None:
    depths = [FreezeDepth.of(n) for n in (0, 1, 2)] * 3
    order = by_depth(list(range(9)), lambda item: depths[item], 2)
    assert order == [0, 3, 1, 4, 2, 5, 6, 7, 8]
    assert by_depth(list(range(9)), lambda item: depths[item], 1) == list(range(9))


@pytest.mark.timeout(300)
def test_a_search_records_fused_trials_like_any_other(tmp_path: Path) -> None:
    """With a holdout, which they see as any other trial does."""
    bench: Bench = make_bench(tmp_path / "bench", train=256)
    done = bench.run(
        *bench.search("fused", "--set", "epochs=3", "--set", "depths=[1]"),
        *("--set", "learning_rate=[0.001, 0.002]", "--set", "tries=2", "--seeds", "2"),
        *("--set", "fused_trials=2", *ONE_AT_A_TIME, "--set", "selection=holdout"),
        timeout=280,
    )
    assert done.returncode == 3, done.stderr  # without the full model there is no answer
    ended = of_kind(bench.records("fused"), "trial_ended")
    assert len(ended) == 4
    measured = [one for one in ended if one["trial"].startswith("measure")]
    assert {one["status"] for one in measured} == {"completed"}
    assert all(one["artifact"] for one in measured)
    assert {one["status"] for one in ended} <= {"completed", "stopped_early"}
    runs = bench.query("select status, count(*) from runs group by status")
    assert sum(count for _, count in runs) == 5 and "RUNNING" not in dict(runs)
    batches = bench.query("select distinct value from tags where key = 'batches'")
    assert batches == [("fused",)]
    seconds = [one["metrics"]["train_seconds"] for one in measured]
    assert all(value > 0 for value in seconds)
    records = bench.records("fused")
    check_holdout(bench, records, ended)


def check_holdout(bench: Bench, records: list[dict[str, Any]], ended: list[dict[str, Any]]) -> None:
    """The holdout chose the rate and each trial's evaluation; quality is the evaluation split's."""
    scores: dict[str, list[float]] = {}
    qualities: dict[str, list[float]] = {}
    for report in of_kind(records, "report"):
        scores.setdefault(report["trial"], []).append(report["metrics"]["holdout_quality"])
        qualities.setdefault(report["trial"], []).append(report["metrics"]["quality"])
    for one in ended:
        held_out = scores[one["trial"]]
        chosen = qualities[one["trial"]][held_out.index(max(held_out))]
        assert one["metrics"]["quality"] == chosen
        if one["artifact"]:
            kept = np.load(bench.journal("fused").parent / one["artifact"])
            assert np.mean(kept["predictions"] == kept["labels"]) == pytest.approx(chosen)
    completed = [one["trial"] for one in ended if one["status"] == "completed"]
    best = max(
        (max(scores[key]), -rate_of(records, key)) for key in completed if key.startswith("explore")
    )
    measured = {rate_of(records, key) for key in completed if key.startswith("measure")}
    assert measured == {-best[1]}
    params = dict(bench.query("select key, max(value) from params group by key"))
    assert params["holdout"] == "0.1" and params["selection"] == "holdout"
    assert params["train_size"] == "256" and params["train_examples"] == "230"
    logged = bench.query("select count(*) from metrics where key = 'holdout_quality'")
    assert logged[0][0] == sum(map(len, scores.values()))


def rate_of(records: list[dict[str, Any]], key: str) -> float:
    """The learning rate that a trial started with."""
    (start,) = (one for one in of_kind(records, "trial_started") if one["trial"] == key)
    return float(start["params"]["learning_rate"])
