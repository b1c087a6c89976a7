"""A training step on a GPU, as far as a machine without one can hold it: nothing looks at numbers,
nothing mixes devices, one copy to the device, and no more launches than are written down here.
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
from elsa_tune.training.forward.packed import Attention
from elsa_tune.training.forward.packed_model import BLOCKS
from tests.unit.gpu_on_paper import META, Launches, step_on_paper
from tests.unit.test_runner import PACKED, PADDED_BEHIND_A_CACHE
from tests.unit.tiny_models import ARCHITECTURES, make_tiny
from tests.unit.tiny_trials import data_for, make_trial

LAYERS = 3
DEPTHS = (0, "embeddings", 2, LAYERS)
# These two run by the same code as RoBERTa.
DIFFERENT = [name for name in ARCHITECTURES if name not in ("camembert", "xlm-roberta")]
BF16 = Precision.BF16

WAYS: dict[str, Attention | None] = {
    "by the ends of rows": Attention.ENDS,
    "in a padded square": Attention.SQUARE,
    "padded batches": None,
}
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
    "by the ends of rows": {
        **_EITHER_WAY,
        "_to_copy": 30,
        "_flash_attention_forward": 1,
        "_flash_attention_backward": 3,
    },
    "in a padded square": {
        **_EITHER_WAY,
        "_to_copy": 30,
        "index_select": 8,
        "masked_fill_": 1,
        "_scaled_dot_product_efficient_attention": 1,
        "_scaled_dot_product_efficient_attention_backward": 3,
    },
    "padded batches": {
        **_EITHER_WAY,
        "_to_copy": 34,
        # Transformers' mask is boolean, and every layer makes what its kernel wants of it.
        "bitwise_not": 1,
        "masked_fill": 1,
        "zeros_like": 1,
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
    for name, attention in WAYS.items():
        # MPNet adds a bias to its scores, which flash attention does not take.
        if attention is None or (
            architecture in PACKED and not (attention is Attention.ENDS and architecture == "mpnet")
        ):
            yield name


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("architecture", "way"), [(name, way) for name in DIFFERENT for way in ways(name)]
)
def test_a_step_is_launched_without_a_look_at_what_it_computes(
    models: dict[str, ModelSpec],
    architecture: str,
    way: str,
    depth: int | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = architecture in {"bert", *PADDED_BEHIND_A_CACHE}
    trial = make_trial(models[architecture], depth, precision=BF16)
    seen = step_on_paper(trial, data_for(architecture), WAYS[way], monkeypatch, goes_on)
    assert not seen.accumulating
    # Rows, tokens and places; DeBERTa's own code makes one number on the host.
    assert len(seen.copies) == (2 if architecture == "deberta-v2" else 1)
    assert seen.copies[1:] in ([], [8])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [{"precision": Precision.FP32}, {"frozen_dropout": True}])
def test_so_is_one_in_fp32_and_one_whose_prefix_is_computed(
    models: dict[str, ModelSpec],
    way: str,
    change: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if change == {"precision": Precision.FP32} and WAYS[way] is Attention.ENDS:
        pytest.skip("flash attention has no fp32")
    trial = make_trial(models["bert"], 2, **{"precision": BF16, **change})
    seen = step_on_paper(trial, data_for("bert"), WAYS[way], monkeypatch)
    assert not seen.accumulating and len(seen.copies) == 1


def test_the_means_gradient_is_the_one_sum_in_any_order(
    models: dict[str, ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(models["bert"], 2, precision=BF16, pooling=Pooling.MEAN)
    seen = step_on_paper(trial, data_for("bert"), Attention.ENDS, monkeypatch)
    assert not seen.accumulating and len(seen.copies) == 1
    assert seen.operations["index_add"] == 1


def launches_of_a_layer(model: ModelSpec, way: str, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """What a trial with one more layer to train launches more in a step."""
    more, less = (
        step_on_paper(make_trial(model, n, precision=BF16), data_for("bert"), WAYS[way], patch)
        for n in (1, 2)
    )
    assert less.kernels.keys() <= more.kernels.keys()
    found = {name: count - less.kernels.get(name, 0) for name, count in more.kernels.items()}
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("way", WAYS)
def test_a_layer_launches_no_more_than_is_written_down(
    bert: ModelSpec, way: str, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    found = launches_of_a_layer(bert, way, monkeypatch)
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
    def step(run: Any) -> Launches:
        block = SimpleNamespace(fits=lambda layer: True, run=run)
        monkeypatch.setattr(packed_model, "BLOCKS", (block,))
        trial = make_trial(bert, 2, precision=BF16)
        return step_on_paper(trial, data_for("bert"), Attention.SQUARE, monkeypatch)

    block: Any = BLOCKS[0].run
    calm = step(block)

    def accumulating(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        return block(layer, hidden[torch.arange(len(hidden), device=META)], *rest)

    assert step(accumulating).accumulating == 1

    def copying(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        return block(layer, hidden * torch.ones(len(hidden), 1).to(META), *rest)

    copied = step(copying)
    assert len(copied.copies) == 1 + 2
    assert copied.kernels["mul"] > calm.kernels.get("mul", 0)

    def looking(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        return block(layer, hidden / float(hidden.max()), *rest)

    with pytest.raises(RuntimeError, match="item"):
        step(looking)

    def mixing(layer: Any, hidden: Tensor, *rest: Any) -> Any:
        return block(layer, hidden + torch.ones(len(hidden), 1), *rest)

    with pytest.raises(RuntimeError, match="device cpu is not on the expected device meta"):
        step(mixing)
