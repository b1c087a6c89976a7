"""What ways take in service: who shares a bundle with how many layers, and which numbers go where.

How fast anything is depends on the machine, and no test says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.specs.bitfit import BitFit
from elsa_tune.specs.candidates import read_candidate
from elsa_tune.specs.lora import Lora
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.training import latency
from elsa_tune.training.bundled import Bundle
from tests.unit.tiny_models import make_tiny

TEXTS = ["the film was good", "a dull story", "fun"]


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("latency")
    return resolve_model(str(make_tiny(request.param, folder, layers=4)))


WAYS = [*map(read_candidate, ("0", "2", "3", "4")), Lora(), Lora(last=2), BitFit()]


def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, int, int]]:
    """Have the clock left out; returns what was to be timed: shared layers, tasks, texts."""
    asked: list[tuple[int | None, int, int]] = []

    def in_turns(bundles: Mapping[int | None, Bundle], texts: Any) -> dict[int | None, float]:
        for layers, bundle in bundles.items():
            assert bundle.predict(list(texts)).keys() == set(bundle.tasks)
            asked.append((layers, len(bundle.tasks), len(texts)))
        return {layers: 1.0 if layers is None else 0.1 * (10 - layers) for layers in bundles}

    monkeypatch.setattr(latency, "_in_turns", in_turns)
    return asked


def test_alone_every_way_is_one_model(model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = taken(monkeypatch)
    found = latency.latencies(model, WAYS, TEXTS, max_length=16, tasks=1)
    assert asked == [(None, 1, 3)]
    assert found == dict.fromkeys(WAYS, 1.0)


def test_in_a_bundle_ways_share_what_they_leave_as_it_is(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = taken(monkeypatch)
    found = latency.latencies(model, WAYS, TEXTS, max_length=16, tasks=2)
    assert sorted(asked, key=str) == [(0, 2, 3), (2, 2, 3), (3, 2, 3), (4, 2, 3), (None, 1, 3)]
    by_label = {way.label: round(seconds, 3) for way, seconds in found.items()}
    # Half of what two tasks take together; who shares nothing takes what it takes alone.
    assert by_label == {
        **{"0": 1.0, "bitfit": 1.0, "lora": 0.5, "lora-last2": 0.4},
        **{"2": 0.4, "3": 0.35, "4": 0.3},
    }


def test_models_that_cannot_share_take_as_long_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = resolve_model(str(make_tiny("xlnet", tmp_path, layers=2)))
    asked = taken(monkeypatch)
    ways = [read_candidate("0"), read_candidate("1")]
    found = latency.latencies(model, ways, TEXTS, max_length=16, tasks=2)
    assert asked == [(None, 1, 3)]
    assert found == dict.fromkeys(ways, 1.0)


def test_few_texts_are_timed_of_many(model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = taken(monkeypatch)
    latency.latencies(model, WAYS[:1], TEXTS * 20, max_length=16, tasks=1)
    assert asked == [(None, 1, latency.MOST_TEXTS)]


def test_they_are_timed(tmp_path: Path) -> None:
    model = resolve_model(str(make_tiny("bert", tmp_path, layers=2)))
    [(_, seconds)] = latency.latencies(
        model, [read_candidate("0")], TEXTS, max_length=16, tasks=1
    ).items()
    assert 0 < seconds < 60
