"""The forward pass on CUDA tensors without CUDA: torch's fake tensors, which know devices and kinds
and no numbers.

They find what `meta` lets pass: an embedding or a linear layer that is given something from the
host. A build of torch without CUDA refuses indexing on such tensors until two lines of C++ give it
a device guard that does nothing, so this needs a compiler.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForSequenceClassification

from elsa_tune.specs.freeze import FULL_MODEL
from elsa_tune.specs.trial import Recipe
from elsa_tune.training.forward.equality import Setting
from elsa_tune.training.forward.packed import Attention, Layout
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.runner import Runner
from tests.unit.tiny_models import make_tiny
from tests.unit.tiny_trials import data_for

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
static c10::impl::DeviceGuardImplRegistrar guard(
    c10::DeviceType::CUDA, new c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>());
"""
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A device guard for CUDA, in this process to its end."""
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch has CUDA; the tests marked gpu are for it")
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler for a device guard (g++ or clang++), and none is here")
    folder, torchs = tmp_path_factory.mktemp("guard"), Path(torch.__file__).parent
    (folder / "guard.cpp").write_text(GUARD)
    command = [compiler, "-shared", "-fPIC", "-std=c++20", f"-I{torchs / 'include'}"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    command += ["guard.cpp", "-o", "guard.so", f"-L{torchs / 'lib'}", "-lc10"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"the device guard could not be built: {built.stderr.strip()[:500]}")
    torch.ops.load_library(str(folder / "guard.so"))


@pytest.fixture
def like_a_gpu(guard: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's autocast and attention as on a GPU, for fake tensors."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)

    def attention(q: Any, k: Any, v: Any, attn_mask: Any, dropout_p: float, **how: Any) -> Any:
        mask = None if attn_mask is None else attn_mask.expand(*q.shape[:3], k.shape[2])
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
        assert mask is None or mask.dtype == q.dtype == torch.bfloat16
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        return kernel(q, k, v, mask, False, dropout_p, False, scale=how["scale"])[0]

    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)


def runner_on_cuda(config: Any, attention: Attention | None) -> Runner:
    """A random model, made on the fake device, in what runs it."""
    data = data_for(config.model_type)
    with torch.device("cuda"):
        model = AutoModelForSequenceClassification.from_config(config)
    setting = Setting(
        depth=FULL_MODEL, recipe=Recipe(), precision="bf16", device=CUDA, name="made up"
    )
    runs: PackedModel | PaddedModel = PaddedModel(model, data)
    if attention is not None:
        layout = Layout(CUDA, attention, torch.bfloat16)
        runs = PackedModel(model, FULL_MODEL, layout=layout)
    return Runner(runs, data, setting, frozen_prefix=[], prefix="none", notes=[])


@pytest.mark.usefixtures("like_a_gpu")
@pytest.mark.parametrize(
    ("architecture", "attention"),
    [
        *((name, Attention.ENDS) for name in ("bert", "roberta", "distilbert", "electra")),
        *((name, Attention.SQUARE) for name in ("bert", "distilbert", "mpnet")),
        *((name, None) for name in ("bert", "roberta", "deberta-v2")),
    ],
)
def test_logits_come_from_the_device_alone(
    architecture: str,
    attention: Attention | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = AutoConfig.from_pretrained(make_tiny(architecture, tmp_path / "model", 2))
    with FakeTensorMode():
        runner = runner_on_cuda(config, attention)
        empty = torch.empty
        # Real memory cannot be pinned without CUDA.
        monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **h: empty(*a, **h))
        few = runner.data.train.lengths.argsort()[[0, 30, 79]]
        for training in (True, False):
            runner.train(training)
            logits, rows = runner.logits("train", few)
            assert logits.shape == (3, 2) and logits.dtype == torch.float32
            assert logits.device.type == rows.device.type == "cuda"


@pytest.mark.usefixtures("like_a_gpu")
def test_what_must_not_be_on_the_way_is_found() -> None:
    with FakeTensorMode():
        x = torch.ones(3, 4, device=CUDA)
        with pytest.raises(DataDependentOutputException):
            float(x.sum())
        with pytest.raises(DynamicOutputShapeException):
            x[x > 0]
        with pytest.raises(RuntimeError, match="found at least two devices"):
            F.embedding(torch.zeros(2, dtype=torch.int64), x)
