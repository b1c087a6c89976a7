"""The step `graphs` of bench/gpu.sh: what CUDA graphs of complete training steps would give.

A capture that fails can leave CUDA unusable, so this is a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpu_bench
import numpy as np
import torch
from gpu_bench import NEEDS_GPU, Bench
from torch import Tensor, nn

from elsa_tune.training import loop

# Steps after which a graph's parameters are compared with those of plain steps.
COMPARED_STEPS = 5


def graphs(bench: Bench) -> None:
    """Compare steps that are launched kernel by kernel with the same steps as one graph each.

    First, where the host's time goes that a graph would save.
    """
    bench.record("versions", gpu_bench.versions)
    for frozen in bench.sharing:
        bench.record(f"host N={frozen}", lambda n=frozen: _host(bench, n))
    for frozen in bench.depths:
        bench.record(f"graph N={frozen}", lambda n=frozen: _graph(bench, n))


def _host(bench: Bench, frozen: int) -> dict[str, Any]:
    with gpu_bench.stepping(bench, frozen) as step:
        return gpu_bench.by_call(bench, step)


class FixedStep:
    """A trial's complete step on one batch on the device, as a CUDA graph can hold it.

    It is forwards, backwards, clipping and AdamW, with nothing copied from the host. AdamW's rate
    and count of steps are tensors; a graph would keep any other as it was.

    state: what a step changes, the trained parameters first.
    """

    def __init__(self, run: loop._Run, rows: np.ndarray) -> None:
        self._run, self._size = run, len(rows)
        self._batch = run.runner.model.batch(run.data.train, rows)
        self._labels = run.objective.labels("train", self._batch.rows)
        rate: Tensor | float = run.trial.learning_rate
        if on_gpu := run.device.type == "cuda":
            rate = torch.tensor(rate, device=run.device)
        groups = [
            {"params": group["params"], "weight_decay": group["weight_decay"]}
            for group in run.optimizer.param_groups
        ]
        self._adamw = torch.optim.AdamW(groups, lr=rate, fused=True, capturable=on_gpu)

    def __call__(self) -> None:
        run = self._run
        kept = run.runner.kept_states.hidden.get("train")
        given = None if kept is None else kept[self._batch.places].float()
        # Left within the step: autocast's copies of weights must not outlive a capture.
        with run.runner.setting.arithmetic():
            logits = run.runner.model(self._batch, given)
        (run.objective.loss(logits.float(), self._labels) / self._size).backward()
        norm = nn.utils.get_total_norm([p.grad for p in run.trained if p.grad is not None])
        loop.clip_in_step(self._adamw, norm, run.trial.recipe.max_grad_norm)
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)

    @property
    def state(self) -> list[Tensor]:
        kept = [value for one in self._adamw.state.values() for value in one.values()]
        return [*self._run.trained, *kept]


def _graph(bench: Bench, frozen: int) -> Iterator[dict[str, Any]]:
    """Yield the same step launched kernel by kernel and as one CUDA graph.

    Also whether both give the same parameters: with dropout, whose numbers a graph draws at each
    replay.
    """
    with gpu_bench.running(bench, frozen) as run:
        chosen = next(gpu_bench.batches_of(run))
        step = FixedStep(run, chosen)
        yield {"tokens": int(run.data.train.lengths[chosen].sum())}
        yield {"eager": gpu_bench.clocked(bench, step)}
        # Where not even plain steps repeat themselves, a graph cannot be blamed.
        yield {"eager again": _compared(step.state, len(run.trained), step, step)}
        if bench.device != "cuda":
            yield {"graph": NEEDS_GPU}
            return
        started = time.perf_counter()
        replay = _captured(step)
        yield {"capture_s": round(time.perf_counter() - started, 3)}
        yield {"replayed": gpu_bench.clocked(bench, replay)}
        yield {"replayed against eager": _compared(step.state, len(run.trained), step, replay)}


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    """Return a function that launches the step's kernels as one graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    # Whatever is made at a first call must be there: nothing may be while capturing.
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _compared(
    state: Sequence[Tensor], parameters: int, one: Callable[[], object], other: Callable[[], object]
) -> dict[str, Any]:
    """How the parameters differ after a few steps of either, from the same state and random seed.

    state: what steps change; the first tensors of it are the parameters.
    """
    before = _copies(state)
    outcomes = []
    for step in (one, other):
        _put_back(state, before)
        torch.manual_seed(1)
        for _ in range(COMPARED_STEPS):
            step()
        outcomes.append(_copies(state[:parameters]))
    pairs = list(zip(*outcomes, strict=True))
    moved = zip(outcomes[0], before[:parameters], strict=True)
    return {
        "equal": all(torch.equal(a, b) for a, b in pairs),
        "largest_difference": max(float((a - b).abs().max()) for a, b in pairs),
        "largest_step": max(float((a - b).abs().max()) for a, b in moved),
    }


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def _put_back(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Into the same memory: it is the one that a graph knows."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
