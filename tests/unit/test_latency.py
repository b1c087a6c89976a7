"""What ways take in service: who shares a bundle with how many layers, and which numbers go where.

How fast anything is depends on the machine, and no test says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from elsa_tune.errors import UsageError
from elsa_tune.exporting import progress_line
from elsa_tune.exporting.latencies import latencies_of
from elsa_tune.searching import specification
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.source import Question
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.training import latency
from elsa_tune.training.bundle.together import Bundle
from elsa_tune.training.data import preparation
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.model import encoder
from tests.conftest import Run
from tests.exporting import made_up_search
from tests.recorded_search import searched
from tests.searching import make_bench
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

    def in_turns(
        bundles: Mapping[int | None, Bundle], texts: Any, tell: Any
    ) -> dict[int | None, float]:
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
    assert found.alone == 1.0 and found.of_task == dict.fromkeys(WAYS, 1.0)


def test_in_a_bundle_ways_share_what_they_leave_as_it_is(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = taken(monkeypatch)
    found = latency.latencies(model, WAYS, TEXTS, max_length=16, tasks=2)
    assert sorted(asked, key=str) == [(0, 2, 3), (2, 2, 3), (3, 2, 3), (4, 2, 3), (None, 1, 3)]
    by_label = {way.label: round(seconds, 3) for way, seconds in found.of_task.items()}
    assert found.alone == 1.0
    # Half of what two tasks take together; who shares nothing takes what it takes alone.
    assert by_label == {
        **{"0": 1.0, "bitfit": 1.0, "lora": 0.5, "lora-last2": 0.4},
        **{"2": 0.4, "3": 0.35, "4": 0.3},
    }


@pytest.mark.parametrize("architecture", ["xlnet", "longformer"])
def test_models_that_cannot_share_take_as_long_together(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = resolve_model(str(make_tiny(architecture, tmp_path, layers=2)))
    asked = taken(monkeypatch)
    ways = [read_candidate("0"), read_candidate("1")]
    found = latency.latencies(model, ways, TEXTS, max_length=16, tasks=2)
    assert asked == [(None, 1, 3)]
    assert found.of_task == dict.fromkeys(ways, 1.0)


def how_they_run(model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> dict[int | None, str]:
    """Return how bundles run that would be timed, by the layers that are shared."""
    found: dict[int | None, str] = {}

    def in_turns(
        bundles: Mapping[int | None, Bundle], texts: Any, tell: Any
    ) -> dict[int | None, float]:
        for layers, bundle in bundles.items():
            found[layers] = bundle.how
        return dict.fromkeys(bundles, 1.0)

    monkeypatch.setattr(latency, "_in_turns", in_turns)
    latency.latencies(model, [read_candidate("2")], TEXTS, max_length=16, tasks=2)
    return found


def test_layers_that_only_look_like_berts_are_timed_on_padded_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = resolve_model(str(make_tiny("mobilebert", tmp_path, layers=4)))
    assert how_they_run(model, monkeypatch) == {None: "padded", 2: "padded"}


def test_packed_tokens_are_timed_where_they_compute_the_same(
    model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert how_they_run(model, monkeypatch) == {None: "packed", 2: "packed"}
    forward = PackedModel.forward
    monkeypatch.setattr(PackedModel, "forward", lambda *given: forward(*given) + 1.0)
    assert how_they_run(model, monkeypatch) == {None: "padded", 2: "padded"}


def test_few_texts_are_timed_of_many(model: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = taken(monkeypatch)
    latency.latencies(model, WAYS[:1], TEXTS * 20, max_length=16, tasks=1)
    assert asked == [(None, 1, latency.MOST_TEXTS)]


def test_they_are_timed_and_each_step_is_told(tmp_path: Path) -> None:
    model = resolve_model(str(make_tiny("bert", tmp_path, layers=2)))
    way = read_candidate("0")
    told: list[str] = []
    found = latency.latencies(model, [way], TEXTS, max_length=16, tasks=1, tell=told.append)
    assert 0 < found.alone < 60 and found.of_task == {way: found.alone}
    assert told[:3] == ["loading the model", "loading way 1 of 1", "timing, pass 1 of 6"]
    assert len(told) == 2 + latency.PASSES


def test_of_a_bundle_both_numbers_are_known_and_the_wait_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement itself is left out."""
    searched(tmp_path)
    [curve] = Journals(tmp_path).ways(Question(), Journals(tmp_path).ask(Question(), str))
    asked: list[dict[str, Any]] = []

    def measured(*of: Any, **how: Any) -> latency.Latency:
        asked.append(how)
        how["tell"]("timing, pass 3 of 6")
        return latency.Latency(alone=0.01, of_task={one: 0.002 for one in of[1]})

    recorded = SimpleNamespace(
        task=None,
        model=SimpleNamespace(name="minilm"),
        recipe=SimpleNamespace(max_length=16),
    )
    splits = {"evaluation": SimpleNamespace(texts=[TEXTS])}
    monkeypatch.setattr(specification, "load_specification", lambda paths: recorded)
    monkeypatch.setattr(preparation, "read_splits", lambda *of: splits)
    monkeypatch.setattr(encoder, "check_weights", lambda model: None)
    monkeypatch.setattr(latency, "latencies", measured)
    monkeypatch.setattr(progress_line, "EVERY", 0.0)
    said: list[str] = []
    folder = tmp_path / "first"
    [found] = latencies_of([(curve, folder)], Cost.BUNDLE, said.append)
    assert set(found[Cost.LATENCY].values()) == {0.01}
    assert set(found[Cost.BUNDLE].values()) == {0.002}
    assert said == [
        "measuring on this machine what minilm takes for one text: alone, and per task of a bundle "
        f"of 8, in {len(curve.measured)} ways",
        "timing, pass 3 of 6",
    ]
    [alone] = latencies_of([(curve, folder)], Cost.LATENCY, said.append)
    assert list(alone) == [Cost.LATENCY]
    assert [how["tasks"] for how in asked] == [8, 1]
    assert latencies_of([(curve, None)], Cost.TIME, said.append) == [{}]
    with pytest.raises(UsageError, match="these results name none"):
        latencies_of([(curve, None)], Cost.BUNDLE, said.append)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of two searches, on `calm` and `mood`, of which nothing may be measured."""
    make_bench(tmp_path)
    weights = str(tmp_path / "model")
    mood = tmp_path / "task.yaml"
    calm = tmp_path / "calm.yaml"
    calm.write_text(mood.read_text().replace("name: mood", "name: calm"))
    of_mood = mood.read_text().replace("evaluation: dev", "evaluation: mood")
    mood.write_text(of_mood)
    (tmp_path / "mood.csv").write_bytes((tmp_path / "dev.csv").read_bytes())
    made_up_search(tmp_path, weights, str(calm), name="pair-calm")
    monkeypatch.setattr(latency, "latencies", Mock(side_effect=AssertionError))
    return made_up_search(tmp_path, weights, str(mood), name="pair-mood").storage


@pytest.mark.parametrize("command", ["report", "compare"])
@pytest.mark.parametrize("lost", ["mood.csv", "pair-mood/search.json", "model/model.safetensors"])
def test_what_cannot_be_measured_is_refused_before_the_first_measurement(
    command: str, lost: str, storage: Path, tmp_path: Path, run: Run
) -> None:
    folder = storage if lost.startswith("pair") else tmp_path
    (folder / lost).unlink()
    arguments = ("--model", str(tmp_path / "model"), "--task", "all", "--cost", "latency")
    out = tmp_path / "report"
    more = ("--out", out) if command == "report" else ()
    done = run(command, *arguments, "--storage-path", storage, *more)
    assert (done.status, done.out) == (2, ""), done.err
    assert Path(lost).name in done.err or "pair-mood" in done.err
    assert not out.exists()


def test_a_report_is_refused_before_anything_is_measured(
    storage: Path, tmp_path: Path, run: Run
) -> None:
    arguments = ("--model", str(tmp_path / "model"), "--task", "all", "--cost", "latency")
    out = tmp_path / "report"
    excluded = ("--exclude-task", "calm", "--exclude-task", "mood")
    done = run("report", *arguments, "--storage-path", storage, "--out", out, *excluded)
    assert (done.status, done.out) == (2, "") and "every task is excluded" in done.err
    for place in (tmp_path / "task.yaml", tmp_path / "task.yaml" / "below", Path("/proc/report")):
        done = run("report", *arguments, "--storage-path", storage, "--out", place)
        assert (done.status, done.out) == (2, "")
        assert f"the report cannot be written to {place}: " in done.err
