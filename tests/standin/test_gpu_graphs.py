"""A CUDA graph can hold the step of bench/gpu_graphs.py.

Nothing in it looks at numbers, and when it is launched again on the same memory it trains as plain
steps do, dropout included.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.standin.standin import state


def on_tape(step: Callable[[], None]) -> Callable[[], None]:
    """As `_captured`, with a tape for a graph."""
    for _ in range(3):
        step()
    state.tape = []
    try:
        step()
    finally:
        tape, state.tape = state.tape, None
    assert len(tape) > 30

    @torch.no_grad()
    def replay() -> None:
        for function, given, named, out in tape:
            again = function(*given, **named)
            for kept, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(kept, torch.Tensor) and kept.data_ptr() != new.data_ptr():
                    kept.copy_(new)

    return replay


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_complete_step_can_be_launched_again(
    frozen: int, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(root / "bench")
    bench: Any = importlib.import_module("gpu_bench")
    graphs: Any = importlib.import_module("gpu_graphs")
    monkeypatch.setattr(graphs, "_captured", on_tape)
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path / "cache"))
    options = argparse.Namespace(tiny=True, device="cuda", data=None, out=tmp_path, limit=60.0)
    step = bench.Bench("first", options, tmp_path)
    found: dict[str, Any] = {}
    for part in graphs._graph(step, frozen):
        found |= part
    assert found["eager again"]["equal"] and found["replayed against eager"]["equal"]
    assert found["replayed against eager"]["largest_step"] > 0
