"""A method that adds parameters: trained, compared, merged, exported, bundled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from elsa_tune.errors import ExtensionError, SpaceError
from elsa_tune.searching.cluster.node_versions import question
from elsa_tune.searching.startup.versions import versions_here
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop, saved
from elsa_tune.training.adapt import methods
from elsa_tune.training.bundle.members import read_members
from elsa_tune.training.bundle.together import load_bundle
from elsa_tune.training.forward import equality
from elsa_tune.training.forward.packed_model import Block
from elsa_tune.training.model.encoder import load_classifier, skeleton
from tests.registering import registered
from tests.unit.adapted import by_a_plain_loop, exported, logits_of
from tests.unit.tiny_trials import calm, data_for, make_trial

LAYERS = 4


@pytest.fixture(scope="module", autouse=True)
def low_rank() -> Iterator[Any]:
    with registered("tests.low_rank") as module:
        yield module


def spec_of(folder: Path, architecture: str = "bert") -> ModelSpec:
    return calm(architecture, folder / architecture, LAYERS)


def trial_of(model: ModelSpec, candidate: Any, **changes: Any) -> TrialSpec:
    return dataclasses.replace(make_trial(model, **changes), candidate=candidate)


def state_of(model: ModelSpec) -> dict[str, torch.Tensor]:
    """Return the checkpoint as the process has it in memory."""
    return {n: p.clone() for n, p in load_classifier(model, 2, 1).state_dict().items()}


@pytest.mark.parametrize(
    ("architecture", "first", "prefix"),
    [("bert", 0, "none"), ("bert", 2, "cached"), ("distilbert", 2, "cached")],
)
def test_it_trains_as_a_plain_loop_does(
    low_rank: Any, architecture: str, first: int, prefix: str, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, architecture)
    trial = trial_of(spec, low_rank.LowRank(4, first), epochs=3)
    results = list(loop.train(trial, data_for("bert"), device="cpu"))
    assert (results[-1].batches, results[-1].prefix) == ("packed", prefix)
    adapted = load_classifier(spec, 2, trial.seed)
    trainable = methods.apply(adapted, trial.candidate, trial.seed)
    assert (trainable.first_trained_layer, trainable.embeddings_train) == (first, False)
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert results[-1].trainable_parameters == trained
    losses = by_a_plain_loop(trial, adapted)
    assert [r.train_loss for r in results] == pytest.approx(losses, rel=1e-4)
    assert losses[0] - losses[-1] > 0.01


def test_what_it_draws_follows_the_seed_alone(low_rank: Any, tmp_path: Path) -> None:
    spec = spec_of(tmp_path)

    def drawn(seed: int, before: int) -> torch.Tensor:
        model = load_classifier(spec, 2, 1)
        torch.manual_seed(before)
        state = torch.get_rng_state()
        methods.apply(model, low_rank.LowRank(4), seed)
        assert torch.equal(torch.get_rng_state(), state)
        [(_, linear), *_] = low_rank.projections(model, low_rank.LowRank(4))
        return linear.low_a.detach()  # type: ignore[no-any-return]

    assert torch.equal(drawn(1, before=5), drawn(1, before=6))
    assert not torch.equal(drawn(1, before=5), drawn(2, before=5))


def test_a_fast_path_without_the_adapter_is_noticed(
    low_rank: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Block.run

    def run_without(*arguments: Any) -> Any:
        with patch.object(low_rank.LowRankLinear, "forward", nn.Linear.forward):
            return run(*arguments)

    monkeypatch.setattr(equality, "_doubts", {})
    monkeypatch.setattr(Block, "run", run_without)
    trial = trial_of(spec_of(tmp_path), low_rank.LowRank(4))
    *_, last = loop.train(trial, data_for("bert"), device="cpu")
    assert last.batches == "padded"
    assert any("on packed tokens its logits differ" in note for note in last.notes)


def test_an_export_is_a_plain_model_with_the_trials_logits(low_rank: Any, tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    trial = trial_of(spec, low_rank.LowRank(4, 1), epochs=3)
    before = state_of(spec)
    logits = exported(trial, tmp_path / "out")
    after = state_of(spec)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    model, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert np.abs(logits_of(model) - logits).max() < 1e-5
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    queries = {n for n in changed if ".query.weight" in n or ".value.weight" in n}
    assert len(queries) == 2 * (LAYERS - 1)
    assert not any("layer.0." in name or "embeddings" in name for name in changed)
    assert (
        json.loads((tmp_path / "out/config.json").read_text())["elsa_tune"]["low_rank_width"] == 4
    )


def test_its_adapter_is_written_as_its_method_does(low_rank: Any, tmp_path: Path) -> None:
    trial = trial_of(spec_of(tmp_path), low_rank.LowRank(4, 1))
    saved.save_adapter(tmp_path, trial, data_for("bert"), {})
    values = torch.load(tmp_path / "adapter" / "low_rank.pt")
    added = [name for name in values if name.endswith((".low_a", ".low_b"))]
    assert len(added) == 2 * 2 * (LAYERS - 1)


def test_the_version_of_what_it_takes_is_recorded_and_compared_with_the_nodes() -> None:
    version = metadata.version("numpy")
    assert versions_here()["version.numpy"] == question()()["numpy"] == version


def test_it_answers_in_a_bundle_beside_a_depth(low_rank: Any, tmp_path: Path) -> None:
    from elsa_tune.exporting.bundle import bundle

    spec = spec_of(tmp_path)
    exported(trial_of(spec, low_rank.LowRank(4, 2)), tmp_path / "adapted")
    exported(make_trial(spec, 3), tmp_path / "frozen")
    [member] = read_members(tmp_path / "adapted").values()
    assert member.trainable.first_trained_layer == 2 and member.has_prefix
    assert not any("low_rank" in name for name in member.model.state_dict())
    folder = bundle([tmp_path / "adapted", tmp_path / "frozen"], tmp_path / "both")
    about = json.loads((folder / "bundle.json").read_text())
    assert about["runs"] == "packed"
    assert max(about["largest_difference"].values()) < 1e-5
    assert set(load_bundle(folder).tasks) == {"adapted", "frozen"}


@pytest.mark.parametrize("half", ["LowRank", "AddLowRank"])
def test_a_method_of_the_program_itself_is_refused(
    half: str, low_rank: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = spec_of(tmp_path)
    monkeypatch.setattr(getattr(low_rank, half), "__module__", "__main__")
    with pytest.raises(ExtensionError, match="method 'low_rank' is defined in the program itself"):
        methods.check([low_rank.LowRank(4)], lambda: skeleton(model))


def test_a_model_that_it_does_not_fit_is_refused_without_weights(
    low_rank: Any, tmp_path: Path
) -> None:
    fits = spec_of(tmp_path)
    methods.check([low_rank.LowRank(4)], lambda: skeleton(fits))
    other = spec_of(tmp_path, "modernbert")
    with pytest.raises(SpaceError, match="'low4' needs projections to query and value"):
        methods.check([low_rank.LowRank(4)], lambda: skeleton(other))
