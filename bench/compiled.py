"""Whether torch.compile pays for training steps: seconds of compiling against seconds saved.

    python bench/compiled.py

For MiniLM on 200 examples of the embedded task at N = 0, 3, 5, one thread, fp32: the packed step as
it is against the same with its layer blocks compiled, with and without their attention, and padded
batches (to a multiple of 32 tokens, nothing kept of frozen layers) against the same with the whole
model compiled. All with dynamic shapes. Both sides take turns, step by step; medians of the steps
that compiled nothing. Seconds are those of the CPU, the C++ compiler's included: with one thread
they are the clock's on a free core, and they stay so on a busy one. Compiling is timed twice: with
empty caches, and again with torch's disk cache full, as in a search's later trials. Losses and
gradients are compared without dropout, at N = 3. Writes bench/results/compiled.json; `bench/gpu.sh`
runs the same on a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import machine
import torch
import torch._inductor.config
from torch import nn
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.tokens import TaskData, pad_batch
from elsa_tune.training.forward import blocks, runner
from elsa_tune.training.numerics import reproducible

# Two epochs of 200 examples, the last batch of each is smaller.
STEPS = 26
# Those behind empty and full disk caches are compared with the same batches.
AGAIN = 14
CHECKED = 3
MULTIPLE = 32
USUAL_STEPS = {"RTE, 500 examples, 3 epochs": 96, "SST-2, 67,000 examples, 3 epochs": 12_600}


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """What is compiled: the blocks of packed tokens, with or without their attention, or all of the
    model on padded batches. options: of torch.compile.
    """

    packed: bool
    attention: bool = True
    options: dict[str, Any] = dataclasses.field(default_factory=lambda: {"dynamic": True})

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """How trials of this way are built and run, compiled or not."""
        with contextlib.ExitStack() as stack:
            if not self.attention:
                hidden = torch.compiler.disable(blocks.attend)
                stack.enter_context(mock.patch.object(blocks, "attend", hidden))
            if not self.packed:
                for name, value in _PADDED.items():
                    stack.enter_context(mock.patch.object(runner, name, value))
            yield

    def of(self, trial: TrialSpec) -> TrialSpec:
        """The trial, without a prefix cache where batches are padded: they are padded further than
        what a cache gives.
        """
        if self.packed:
            return trial
        recipe = dataclasses.replace(trial.recipe, prefix_cache=PrefixCache.NONE)
        return dataclasses.replace(trial, recipe=recipe)

    def compile(self, model: Any) -> Any:
        """The runner's model with its part compiled."""
        if not self.packed:
            return torch.compile(model, **self.options)
        model._block = torch.compile(model._block, **self.options)
        return model


def _padded_batch(rows: Any, indices: Any, data: TaskData) -> dict[str, torch.Tensor]:
    """As `pad_batch`, to a multiple of MULTIPLE tokens: few widths, so few graphs."""
    batch = pad_batch(rows, indices, data)
    more = -batch["input_ids"].shape[1] % MULTIPLE
    fills = {
        "input_ids": data.pad_token_id,
        "attention_mask": 0,
        "token_type_ids": data.pad_token_type_id,
    }
    for name in fills.keys() & batch.keys():
        batch[name] = nn.functional.pad(batch[name], (0, more), value=fills[name])
    return batch


# A batch in one pass: every length group would be one more shape.
_PADDED = {
    "packed_doubt": lambda *_: "padded on purpose",
    "pad_batch": _padded_batch,
    "GROUP_COST": 10**9,
}

WAYS = {
    "packed, blocks but for attention": Way(packed=True, attention=False),
    "padded, whole model": Way(packed=False),
    "packed, blocks": Way(packed=True),
}


def main() -> None:
    """Compare every way at every depth, each from empty caches."""
    from elsa_tune.specs.model import resolve_model
    from elsa_tune.specs.tasks import resolve_task
    from elsa_tune.training.data.preparation import prepare

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", type=int, nargs="*", default=[0, 3, 5])
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, task = resolve_model("minilm"), resolve_task("stdlib")
    recipe = Recipe(train_size=200, precision=Precision.FP32)
    data = prepare(model, task, recipe)
    with empty_cache():
        start = _seconds(_compile_a_line, "cpu")
    # What a process pays once, so that it does not count for whichever way comes first.
    results: dict[str, Any] = {
        "usual_steps": USUAL_STEPS,
        "compiler_start_seconds": round(start, 1),
    }
    for name, way in WAYS.items():
        for n in options.depths:
            trial = TrialSpec(
                model=model,
                task=task,
                recipe=recipe,
                depth=FreezeDepth.of(n),
                learning_rate=5e-5,
                seed=1,
            )
            with empty_cache(), torch._inductor.config.patch(compile_threads=1):
                found = compare(trial, data, way, "cpu", STEPS)
                if n == 3:
                    found["largest_difference"] = difference(trial, data, way, "cpu")
            results[f"{name} N={n}"] = found
            print(name, n, found, flush=True)
            note = (
                "batch 16, one thread for steps and one for the compiler, fp32; CPU seconds, per "
                "step medians, the ratio is the median of the steps' ratios (above 1: compiled is "
                "faster); break_even_steps: compile seconds over seconds saved per step, null "
                "where nothing is saved; compiler_start_seconds: a process's first compilation, of "
                "a line, in none of the others"
            )
            machine.write("compiled", results, note)


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Torch's disk cache in a new folder."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder}),
    ):
        yield


def compare(
    trial: TrialSpec, data: TaskData, way: Way, device: str, count: int = STEPS
) -> dict[str, Any]:
    """Seconds of `count` eager steps and of the same compiled, and what the compiler did."""
    first = _turns(trial, data, way, device, count)
    again = _turns(trial, data, way, device, min(AGAIN, count))
    steady = [step for step in first if not step.compiled_now and step.number >= 2]
    if not steady:
        raise RuntimeError(f"every one of {count} steps compiled something")
    eager = statistics.median(step.eager for step in steady)
    compiled = statistics.median(step.compiled for step in steady)
    spent = _excess(first, compiled)
    ratio = statistics.median(step.eager / step.compiled for step in steady)
    # From the ratio: a slow spell of the machine moves a median, but both sides of a ratio.
    saved = eager * (1 - 1 / ratio)
    spent_again = _excess(again, compiled)
    return {
        "eager": round(eager, 4),
        "compiled": round(compiled, 4),
        "times_faster": round(ratio, 2),
        "steady_steps": len(steady),
        "compile_seconds": round(spent, 1),
        "compile_seconds_of_a_later_trial": round(spent_again, 1),
        "steps_that_compiled": [step.number for step in first if step.compiled_now],
        "graphs": sum(step.graphs for step in first),
        "recompiles": sum(step.recompiles for step in first),
        "graph_breaks": sum(step.breaks for step in first),
        "break_even_steps": round(spent / saved) if saved > 0 else None,
        "break_even_steps_of_a_later_trial": round(spent_again / saved) if saved > 0 else None,
    }


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """Seconds of a step, eager and compiled, and what was compiled for it."""

    number: int
    eager: float
    compiled: float
    compiled_now: bool
    graphs: int
    recompiles: int
    breaks: int


def _turns(trial: TrialSpec, data: TaskData, way: Way, device: str, count: int) -> list[_Step]:
    torch._dynamo.reset()
    found = []
    with _pair(trial, data, way, device) as (eager, compiled):
        batches = eager.batches()
        for number in range(count):
            batch = next(batches)
            seconds = _seconds(lambda: eager.step(batch), device)  # noqa: B023
            counters.clear()
            clear_compilation_metrics()
            seconds_compiled = _seconds(lambda: compiled.step(batch), device)  # noqa: B023
            metrics = get_compilation_metrics()
            found.append(
                _Step(
                    number=number,
                    eager=seconds,
                    compiled=seconds_compiled,
                    compiled_now=bool(metrics),
                    graphs=counters["stats"]["unique_graphs"],
                    recompiles=sum(_is_recompile(one) for one in metrics),
                    breaks=sum(counters["graph_break"].values()),
                )
            )
    return found


def _is_recompile(one: Any) -> bool:
    """Whether it is not the first of its piece of code: 5/1 behind 5/0. Backwards have its id."""
    return one.is_forward is not False and not str(one.compile_id).split("_")[0].endswith("/0")


@contextlib.contextmanager
def _pair(
    trial: TrialSpec, data: TaskData, way: Way, device: str
) -> Iterator[tuple[loop._Run, loop._Run]]:
    """The same trial twice, ready for its first step: as it is, and compiled."""
    where = torch.device(device)
    with way.patched(), reproducible(trial.seed, where):
        eager, compiled = (loop._Run(way.of(trial), data, where, ()) for _ in range(2))
        assert eager.runner.how == ("packed" if way.packed else "padded")
        compiled.runner.model = way.compile(compiled.runner.model)  # type: ignore[misc]
        for run in (eager, compiled):
            run.runner.train(True)
        try:
            yield eager, compiled
        finally:
            for run in (eager, compiled):
                run.close()


def difference(trial: TrialSpec, data: TaskData, way: Way, device: str) -> dict[str, float]:
    """The largest of some batches, without dropout and relative: of the loss, and of the gradient's
    length. A fresh head's loss hardly follows the encoder, so the loss alone would not tell.
    """
    torch._dynamo.reset()
    losses, gradients = [], []
    with _pair(trial, data, way, device) as pair:
        for run in pair:
            for module in run.runner.model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
        batches = pair[0].batches()
        for _ in range(CHECKED):
            batch = next(batches)
            eager, compiled = (float(run._gradients(batch)) for run in pair)
            losses.append(abs(compiled - eager) / abs(eager))
            whole, other = (
                torch.cat([p.grad.ravel() for p in run.trained if p.grad is not None])
                for run in pair
            )
            gradients.append(float((other - whole).norm() / whole.norm()))
            for run in pair:
                run.optimizer.zero_grad(set_to_none=True)
    return {"loss": max(losses), "gradient": max(gradients)}


def _compile_a_line() -> None:
    torch.compile(lambda x: (x * 2).sum())(torch.ones(8, requires_grad=True)).backward()


def _seconds(step: Callable[[], Any], device: str) -> float:
    """Of the clock on a GPU, else of the CPU: this process and the compilers that it started."""
    started = _clock(device)
    step()
    return _clock(device) - started


def _clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _excess(steps: list[_Step], steady: float) -> float:
    """Seconds that steps took longer because they compiled."""
    return sum(step.compiled - steady for step in steps if step.compiled_now)


if __name__ == "__main__":
    main()
