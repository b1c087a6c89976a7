"""How long a plan takes, by the pace of a like search that is recorded here."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.errors import UsageError
from elsa_tune.searching import probe_time
from elsa_tune.searching.cluster.capacity import Capacity, Node
from elsa_tune.searching.eta import FURTHER_TRIES, expected_trials
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.searching.probe_time import recorded_seconds
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import save_specification
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import Extension, Resources, SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Precision, TrialStatus
from elsa_tune.tracking.journal_records import Record
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.training import throughput
from tests.recorded_search import (
    probed,
    record,
    report,
    search_started,
    trial_ended,
    trial_started,
)
from tests.unit.search_examples import make_spec, planned_request


def timed(trials: list[tuple[str, float, float]]) -> Iterator[Record]:
    """Trials of two evaluations with their first and last second."""
    yield search_started()
    events: list[tuple[float, Record]] = []
    for key, first, last in trials:
        reports = [(first + (last - first) * n / 2, report(key, n, 0.5)) for n in (1, 2)]
        end = trial_ended(key, TrialStatus.COMPLETED, 0.5)
        events += [(first, trial_started(key)), *reports, (last + 0.001, end)]
    for time, one in sorted(events, key=lambda event: event[0]):
        yield dataclasses.replace(one, time=time)


RAN = [
    ("explore-N0-s0", 1000.0, 1100.0),
    ("explore-N3-s1", 1000.0, 1050.0),
    ("measure-N3-s3", 1050.0, 1100.0),
    # A pause, and one trial alone.
    ("measure-N0-s4", 5000.0, 5100.0),
]


def searched(storage: Path, spec: SearchSpec, trials: Any = RAN) -> None:
    paths = SearchPaths(storage, spec.name)
    paths.folder.mkdir(parents=True)
    save_specification(spec, paths)
    record(paths, [*timed(trials), *probed(0.5)])


def asked(storage: Path, spec: SearchSpec) -> Request:
    space = load_space("quick", ["depths=[0, 3, 5]", "extend=false"])
    return planned_request(
        storage,
        space,
        "quick",
        model=spec.model,
        layers=spec.layers,
        task=spec.task,
        recipe=spec.recipe,
        max_workers=spec.max_workers,
    )


N3, N5 = FreezeDepth.of(3), FreezeDepth.of(5)


def test_rates_beyond_those_given_take_time(tmp_path: Path) -> None:
    searched(tmp_path, make_spec())
    request = asked(tmp_path, make_spec())
    seconds = []
    for extend in (None, Extension()):
        spec = dataclasses.replace(request.spec, extend=extend)
        found = recorded_seconds(request, expected_trials(spec))
        assert found is not None
        seconds.append(found[1])
    assert seconds[1] > 1.2 * seconds[0]


def test_a_limited_search_is_expected_to_have_no_more_trials_than_it_may() -> None:
    spec = make_spec(extend=Extension())
    strategy = strategy_of(spec)
    planned = strategy.exploring_trials + strategy.measuring_trials
    explored = len(spec.explored)
    assert sum(expected_trials(spec).values()) == planned + FURTHER_TRIES * explored
    limited = dataclasses.replace(spec, exploring_limit=strategy.exploring_trials + 1)
    assert sum(expected_trials(limited).values()) == pytest.approx(planned + 1)


def test_a_like_search_tells_how_long_each_depth_takes(tmp_path: Path) -> None:
    settled = dataclasses.replace(make_spec().recipe, precision=Precision.FP32)
    searched(tmp_path, make_spec(recipe=settled))
    request = asked(tmp_path, make_spec())
    found = recorded_seconds(request, Counter({FULL_MODEL: 3, N3: 2}))
    assert found is not None and found[0].name == "example"
    assert found[1] == pytest.approx(400 / (300 / 200), rel=1e-3)
    # No trial ran at N = 5.
    each = [recorded_seconds(request, Counter({depth: 1})) for depth in (N3, N5)]
    assert each[0] is not None and each[1] is not None and 0 < each[1][1] < each[0][1]


def test_one_trial_at_a_time_takes_as_long_as_all_of_them_together(tmp_path: Path) -> None:
    searched(tmp_path, make_spec())
    alone = dataclasses.replace(make_spec(), max_workers=1)
    found = recorded_seconds(asked(tmp_path, alone), Counter({FULL_MODEL: 3, N3: 2}))
    assert found is not None and found[1] == pytest.approx(3 * 100 + 2 * 50, rel=1e-3)


@pytest.mark.parametrize(("most", "at_once"), [(None, 4), (1, 1), (3, 3), (9, 4)])
def test_a_probe_trains_as_many_trials_as_the_search_would(
    most: int | None, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_of: list[throughput.Division] = []

    def measured(
        trainings: Sequence[Any], division: throughput.Division, device: str, seconds: float
    ) -> list[throughput.Throughput]:
        asked_of.append(division)
        return [throughput.Throughput(tokens_per_second=1000.0, peak_memory_mb=1.0)]

    monkeypatch.setattr(throughput, "measure", measured)
    request = asked(tmp_path, dataclasses.replace(make_spec(), max_workers=most))
    four = Capacity(nodes=(Node(cpus=4.0),))
    data: Any = {request.spec.name: None}
    resources = Resources(cpus=1.0, gpus=0.0)
    monkeypatch.setattr(probe_time, "share", lambda *_: resources)
    _, found = probe_time._tokens_per_second([request], data, four)
    assert found == at_once and [division.trials for division in asked_of] == [at_once]


@pytest.mark.parametrize(
    "change", [{"model": "bert_base"}, {"train_size": 50}, {"address": "auto"}, {"trials": []}]
)
def test_an_unlike_search_tells_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    spec = make_spec()
    if "model" in change:
        spec = make_spec(model=dataclasses.replace(spec.model, location="another"))
    elif "train_size" in change:
        spec = make_spec(recipe=dataclasses.replace(spec.recipe, **change))
    elif "address" in change:
        spec = make_spec(**change)
    searched(tmp_path, spec, change.get("trials", RAN))
    assert recorded_seconds(asked(tmp_path, make_spec()), Counter({N3: 1})) is None


def test_the_latest_search_counts(tmp_path: Path) -> None:
    searched(tmp_path, make_spec())
    later = [(key, first + 9000, last + 9000) for key, first, last in RAN]
    searched(tmp_path, make_spec(name="later"), later)
    found = recorded_seconds(asked(tmp_path, make_spec()), Counter({N3: 1}))
    assert found is not None and found[0].name == "later"


def test_a_probe_is_for_a_dry_run() -> None:
    from elsa_tune.cli.commands.search import search

    with pytest.raises(UsageError, match="is for --dry-run"):
        search(model="minilm", task="stdlib", probe=True)
