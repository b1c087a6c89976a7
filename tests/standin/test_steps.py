"""A training step on a GPU.

Nothing looks at numbers, nothing mixes devices, one copy goes to the device, and no more kernels
are launched than are written down here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.trial import Pooling, Precision
from elsa_tune.training.forward import packed_model
from elsa_tune.training.forward.packed_model import BLOCKS
from tests.pairs import one_of_each
from tests.standin.launches import ENDS, PADDED, SQUARE, WAYS, force, kernels, step
from tests.standin.standin import Seen
from tests.standin.tensors import ADDING_UP
from tests.unit.test_runner import PACKED, PADDED_BEHIND_A_CACHE
from tests.unit.tiny_models import ARCHITECTURES, make_tiny
from tests.unit.tiny_trials import data_for, make_trial

LAYERS = 3
DEPTHS = (0, "embeddings", 2, LAYERS)
# These two run by the same code as RoBERTa.
DIFFERENT = [name for name in ARCHITECTURES if name not in ("camembert", "xlm-roberta")]
BF16 = Precision.BF16
COPIES = "copy to the device"

# Of one layer that trains completely (BERT, bf16), forwards and backwards.
_EITHER_WAY = {
    "add": 6,  # two residuals, and where gradients meet
    "addmm": 6,
    "mm": 12,
    "sum": 6,  # gradients of the biases
    "gelu": 1,
    "gelu_backward": 1,
    "native_dropout": 2,
    "native_dropout_backward": 2,
    "native_layer_norm": 2,
    "native_layer_norm_backward": 6,
}
LAUNCHES: dict[str, dict[str, int]] = {
    ENDS: {
        **_EITHER_WAY,
        "_to_copy": 30,
        "_flash_attention_forward": 1,
        "_flash_attention_backward": 3,
    },
    SQUARE: {
        **_EITHER_WAY,
        "_to_copy": 30,
        "index_select": 8,
        "masked_fill_": 1,
        "_scaled_dot_product_efficient_attention": 1,
        "_scaled_dot_product_efficient_attention_backward": 3,
    },
    PADDED: {
        **_EITHER_WAY,
        "_to_copy": 34,
        # Transformers' mask is boolean, and every layer makes what its kernel wants of it.
        "where": 1,
        "fill_": 2,
        "constant_pad_nd": 2,
        "_scaled_dot_product_efficient_attention": 1,
        "_scaled_dot_product_efficient_attention_backward": 3,
    },
}
MOST_A_LAYER = 90


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    folder = tmp_path_factory.mktemp("models")
    return {name: resolve_model(str(make_tiny(name, folder / name, LAYERS))) for name in DIFFERENT}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    """With two layers that train completely, above them the last, which is another one."""
    return resolve_model(str(make_tiny("bert", tmp_path_factory.mktemp("bert"), LAYERS + 1)))


def ways(architecture: str) -> Iterator[str]:
    for way in WAYS:
        # MPNet adds a bias to its scores, which flash attention does not take.
        if way == PADDED or (
            architecture in PACKED and not (way == ENDS and architecture == "mpnet")
        ):
            yield way


@pytest.mark.parametrize(
    ("architecture", "way", "depth"),
    one_of_each([(name, way) for name in DIFFERENT for way in ways(name)], DEPTHS),
)
def test_a_step_makes_one_copy_and_never_waits(
    models: dict[str, ModelSpec],
    architecture: str,
    way: str,
    depth: int | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = architecture in {"bert", *PADDED_BEHIND_A_CACHE}
    force(way, monkeypatch, goes_on=goes_on)
    trial = make_trial(models[architecture], depth, precision=BF16)
    # DeBERTa's own code sends one number more for each layer that it runs, and waits for it.
    is_deberta = architecture == "deberta-v2"
    seen = step(trial, data_for(architecture), may_wait=is_deberta)
    assert not seen.operations[ADDING_UP]
    assert seen.operations[COPIES] == 1 + seen.waits.total()
    assert is_deberta or not seen.waits


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [{"precision": Precision.FP32}, {"frozen_dropout": True}])
def test_so_does_one_in_fp32_and_one_whose_prefix_is_computed(
    models: dict[str, ModelSpec],
    way: str,
    change: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if change == {"precision": Precision.FP32} and way == ENDS:
        pytest.skip("flash attention has no fp32")
    force(way, monkeypatch)
    seen = step(make_trial(models["bert"], 2, **{"precision": BF16, **change}), data_for("bert"))
    assert not seen.waits and not seen.operations[ADDING_UP]
    assert seen.operations[COPIES] == 1


def test_the_means_gradient_is_the_one_sum_in_any_order(models: dict[str, ModelSpec]) -> None:
    trial = make_trial(models["bert"], 2, precision=BF16, pooling=Pooling.MEAN)
    seen = step(trial, data_for("bert"))
    assert not seen.operations[ADDING_UP] and seen.operations[COPIES] == 1
    assert seen.operations["index_add"] == 1


def launches_of_a_layer(model: ModelSpec) -> dict[str, int]:
    """Return what a trial with one more layer to train launches more in a step."""
    more, less = (
        kernels(step(make_trial(model, n, precision=BF16), data_for("bert"))) for n in (1, 2)
    )
    assert less.keys() <= more.keys()
    found = {name: count - less.get(name, 0) for name, count in more.items()}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("way", WAYS)
def test_a_layer_launches_no_more_than_is_written_down(
    bert: ModelSpec, way: str, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    force(way, monkeypatch)
    found = launches_of_a_layer(bert)
    known = LAUNCHES[way]
    new = {name: count - known.get(name, 0) for name, count in found.items()}
    new = {name: count for name, count in new.items() if count > 0}
    assert not new, f"a layer {way} launches more than before: {new}"
    assert found == known, "it launches less: write that down, here and in the guide"
    assert sum(found.values()) <= MOST_A_LAYER
    guide = (root / "docs/guides/gpu.md").read_text()
    [said] = re.findall(rf"^\| {way} \|.* (\d+) \|$", guide, re.MULTILINE)
    assert int(said) == sum(found.values())


def test_what_must_not_be_in_a_step_is_seen_where_it_is(
    bert: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(SQUARE, monkeypatch)

    def step_with(run: Any) -> Seen:
        block = SimpleNamespace(fits=lambda layer: True, run=run)
        monkeypatch.setattr(packed_model, "BLOCKS", (block,))
        return step(make_trial(bert, 2, precision=BF16), data_for("bert"))

    block: Any = BLOCKS[0].run
    calm = step_with(block)

    def adding_up(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        every = torch.arange(len(hidden), device=hidden.device)
        return block(layer, hidden[every], *rest)

    # The first layer's input needs no gradient.
    assert step_with(adding_up).operations[ADDING_UP] == 1

    def copying(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        ones = torch.ones(len(hidden), 1).to(hidden.device)
        return block(layer, hidden * ones, *rest)

    def looking(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        return block(layer, hidden / float(hidden.detach().max()), *rest)

    for waiting in (copying, looking):
        with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
            step_with(waiting)

    def mixing(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        return block(layer, hidden + torch.ones(len(hidden), 1), *rest)

    with pytest.raises(RuntimeError, match="same device"):
        step_with(mixing)
    assert kernels(calm) == kernels(step_with(block))
