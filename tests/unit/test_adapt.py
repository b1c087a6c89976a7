"""Methods of adaptation: one more than freezing, in a file of its own, trains as it should."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, get_linear_schedule_with_warmup

from elsa_tune.errors import ExtensionError, SpaceError
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable, frozen_modules, frozen_prefix, train_only
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.forward import runner
from elsa_tune.training.model.encoder import load_classifier
from elsa_tune.training.model.parts import divide
from tests.registering import registered
from tests.unit.tiny_trials import calm, data_for, make_trial

LAYERS = 4
CPU = torch.device("cpu")


class TrainLayer(Method[Candidate]):
    """Layer 2 and the head, of another candidate."""

    def apply(self, model: PreTrainedModel, candidate: Candidate) -> Trainable:
        parts = divide(model)
        return train_only(model, {*parts.layers[2], *parts.head})


TRAIN_LAYER = TrainLayer()


@pytest.fixture(scope="module", autouse=True)
def candidates() -> Iterator[dict[str, Candidate]]:
    """Of two methods that another package brings."""
    with registered("tests.biases") as biases:
        fields = {"method": "layer alone", "trains_by": f"{__name__}:TRAIN_LAYER"}
        layer_alone = type("LayerAlone", (biases.Biases,), fields)
        yield {"biases": biases.Biases(), "one layer": layer_alone()}


@pytest.fixture(params=["bert", "distilbert", "modernbert"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> ModelSpec:
    return calm(request.param, tmp_path / request.param, LAYERS)


def trial_of(model: ModelSpec, candidate: Candidate, **changes: Any) -> TrialSpec:
    return dataclasses.replace(make_trial(model, **changes), candidate=candidate)  # type: ignore[arg-type]


def by_a_plain_loop(trial: TrialSpec, data: TaskData, trained: set[str]) -> list[float]:
    """Mean losses of each epoch as anybody would train these parameters."""
    model: Any = load_classifier(trial.model, 2, trial.seed)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name in trained
    optimizer = loop.adamw({n: p for n, p in model.named_parameters() if p.requires_grad}, trial)
    a_batch = trial.recipe.batch_size
    per_epoch = math.ceil(len(data.train) / a_batch)
    steps = per_epoch * trial.recipe.epochs
    warmup = math.ceil(trial.recipe.warmup_ratio * steps)
    schedule = get_linear_schedule_with_warmup(optimizer, warmup, steps)
    batches = loop.shuffled_batches(trial, len(data.train))
    means = []
    for _ in range(trial.recipe.epochs):
        total = 0.0
        for _ in range(per_epoch):
            rows = next(batches)
            labels = torch.from_numpy(data.train.labels[rows])
            loss = model(**pad_batch(data.train, rows, data).inputs, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), trial.recipe.max_grad_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += float(loss.detach()) * len(rows)
        means.append(total / len(data.train))
    return means


def names(model: ModelSpec, *, biases: bool) -> set[str]:
    """Return what should train, by the names of tiny models.

    It is found without the package's own division.
    """
    every = [name for name, _ in load_classifier(model, 2, 0).named_parameters()]
    head = {n for n in every if any(w in n for w in ("classifier", "pooler", "head", "final_norm"))}
    if biases:
        return head | {name for name in every if name.endswith(".bias")}
    return head | {name for name in every if ".2." in name}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["biases", "one layer"])
def test_a_method_of_twenty_lines_trains_what_it_says_as_a_plain_loop_does(
    model: ModelSpec,
    candidates: dict[str, Candidate],
    name: str,
    padded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if padded:
        monkeypatch.setattr(runner, "packed_doubt", lambda *_: "on purpose")
    data = data_for("bert")
    trial = trial_of(model, candidates[name], epochs=3)
    kept: dict[str, torch.Tensor] = {}
    results = list(loop.train(trial, data, device="cpu", keep=lambda named: kept.update(named)))
    expected = names(model, biases=name == "biases")
    assert set(kept) == expected
    assert results[-1].trainable_parameters == sum(tensor.numel() for tensor in kept.values())
    plain = by_a_plain_loop(trial, data, expected)
    assert [r.train_loss for r in results] == pytest.approx(plain, rel=1e-4)
    assert plain[0] - plain[-1] > 0.01
    # What can be kept follows from what trains: nothing where the embeddings' own biases do, and
    # every layer of ModernBERT, whose layers have no biases.
    has_none = any("embeddings" in name for name in expected)
    assert results[-1].prefix == ("none" if has_none else "cached")


def test_the_optimiser_keeps_state_of_what_trains_alone(
    candidates: dict[str, Candidate], tmp_path: Path
) -> None:
    model = calm("bert", tmp_path / "bert", LAYERS)
    trial = trial_of(model, candidates["biases"])
    data = data_for("bert")
    with contextlib.closing(loop._Run(trial, data, CPU)) as run:
        run.runner.train(True)
        run.step(np.arange(8))
        with_state = {id(parameter) for parameter in run.optimizer.state}
        assert with_state == {id(p) for p in run.runner.model.parameters() if p.requires_grad}
        sizes = [parameter.numel() for parameter in run.optimizer.state]
    every = dict(load_classifier(model, 2, 1).named_parameters())
    assert sorted(sizes) == sorted(every[name].numel() for name in names(model, biases=True))


def test_what_is_frozen_follows_from_what_trains(tmp_path: Path) -> None:
    spec = calm("bert", tmp_path / "bert", LAYERS)
    model = load_classifier(spec, 2, 0)
    parts = divide(model)
    norm = "bert.embeddings.LayerNorm.bias"
    cases: list[tuple[set[str], int, bool]] = [
        (set(parts.head), LAYERS, False),
        ({parts.layers[1][0], parts.layers[3][0]}, 1, False),
        ({parts.layers[0][-1]}, 0, False),
        ({norm, *parts.layers[3]}, 0, True),
        (set(), LAYERS, False),
    ]
    for trained, first, embeddings_train in cases:
        assert train_only(model, trained) == Trainable(frozenset(trained), first, embeddings_train)
        assert {n for n, p in model.named_parameters() if p.requires_grad} == trained
    # Only what lies in front of the first trained layer can be kept, not layer 2.
    trainable = train_only(model, {parts.layers[1][0], parts.layers[3][0]})
    assert frozen_prefix(model, trainable) == {*parts.embedding, *parts.layers[0]}
    modules = frozen_modules(model, trainable)
    stack: Any = model.bert.encoder.layer
    assert any(module is stack[0] for module in modules)
    assert not any(module is stack[2] for module in modules)
    trainable = train_only(model, {norm})
    assert frozen_modules(model, trainable) == []
    assert frozen_prefix(model, trainable) == frozenset()
    with pytest.raises(ValueError, match="no parameter 'nobody'"):
        train_only(model, {"nobody"})


def test_a_trial_leaves_the_checkpoint_in_memory_as_it_was(
    candidates: dict[str, Candidate], tmp_path: Path
) -> None:
    spec = calm("bert", tmp_path / "bert", LAYERS)
    before = {n: p.clone() for n, p in load_classifier(spec, 2, 1).state_dict().items()}
    list(loop.train(trial_of(spec, candidates["biases"]), data_for("bert"), device="cpu"))
    after = load_classifier(spec, 2, 1).state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_the_first_trained_layers_of_a_search_are_known_as_far_as_its_methods_say(
    candidates: dict[str, Candidate],
) -> None:
    others = [candidates["biases"], candidates["one layer"]]
    depths = [FULL_MODEL, FreezeDepth.of("embeddings"), FreezeDepth.of(3), *others]
    assert methods.first_trained_layers(depths, LAYERS) == [3]


@pytest.mark.parametrize(
    ("trains_by", "why"),
    [
        ("", "is ''"),
        ("no_such_package:METHOD", "No module named 'no_such_package'"),
        ("elsa_tune.training.adapt.no_such_file:METHOD", "No module named"),
        ("elsa_tune.training.adapt.bitfit:OTHER", "which is no Method"),
        ("elsa_tune.training.adapt.bitfit:TrainBiases", "which is a class"),
        ("elsa_tune.training.adapt.bitfit", "is 'elsa_tune.training.adapt.bitfit'; name"),
        (BitFit, "is <class"),
    ],
)
def test_a_candidate_that_nothing_trains_says_what_its_class_lacks(
    candidates: dict[str, Candidate], trains_by: object, why: str
) -> None:
    fields = {"method": "magic", "trains_by": trains_by}
    magic = type("Magic", (type(candidates["biases"]),), fields)
    with pytest.raises(SpaceError, match="nothing here trains by the method 'magic'") as caught:
        methods.first_trained_layers([magic()], LAYERS)
    assert why in str(caught.value)
    assert str(caught.value).endswith("; name a Method there, as module:NAME")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("undefined_name", "NameError: name 'undefined_name' is not defined"),
        ("def", "SyntaxError: "),
    ],
)
def test_what_is_wrong_in_a_methods_own_file_is_one_sentence(
    candidates: dict[str, Candidate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    why: str,
) -> None:
    (tmp_path / "broken_way.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    fields = {"method": "magic", "trains_by": "broken_way:METHOD"}
    magic = type("Magic", (type(candidates["biases"]),), fields)
    with pytest.raises(ExtensionError, match="'magic' is trained by broken_way, which") as caught:
        methods.check([magic()], lambda: pytest.fail("asked for a model"))
    assert why in str(caught.value)
