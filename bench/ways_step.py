"""Seconds per training step of every way, with and without the kept trunk, and as others train it.

    python bench/ways_step.py --data-dir ../shared/glue [--models minilm] [--head]

On rows of SST-2 and MRPC, with one thread, in seconds of that thread, which other work on the
machine does not lengthen. `seconds` is elsa-tune's step; `without_trunk` the same where the frozen
layers' output is not kept, but computed; `plain` the same model by transformers and peft as their
guides write it: batches padded to their longest row, dropout on everywhere, torch's AdamW, and
nothing around it, so that the Trainer's own work is left out. Of LoRA that trains the classifier
alone beside the matrices, as peft does by itself; ours trains BERT's pooler, too, which MPNet does
not have. All take turns, step by step; medians. Writes bench/results/ways_step.json, to which the
costs in specs/adapt/lora.py and specs/adapt/bitfit.py are fitted. --head measures the head alone,
beside the full model, and adds it to what is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from importlib import metadata
from typing import Any

import machine
import peft
import torch

from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training import loop
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.lora import adapter_config
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.data.tokens import IndexArray, TaskData
from elsa_tune.training.model.encoder import facts, load_classifier

STEPS = 9
NOT_COUNTED = 2
_HEAD_NOTE = (
    "; the head alone was measured later, on the processor named there, beside the full model: its "
    "seconds are in those of the first run (`scaled_by`)"
)


def main() -> None:
    """Measure every way on every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default="../shared/glue")
    parser.add_argument("--models", nargs="+", default=["minilm", "mpnet"])
    parser.add_argument("--head", action="store_true", help="add the head alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    version = metadata.version("peft")
    note = (
        "CPU seconds per step (batch 16, one thread, fp32), medians; share: of the full model's; "
        f"peft {version}, of whose LoRA `plain` trains the classifier alone, without BERT's pooler"
    )
    results: dict[str, Any] = {}
    for task in ("sst2", "mrpc"):
        for model in options.models:
            found = measured_on(model, task, options.data_dir, head_alone=options.head)
            print(model, task, json.dumps(found), flush=True)
            if options.head:
                add_head(f"{model} {task}", found)
                continue
            results[f"{model} {task}"] = found
            print(machine.write("ways_step", results, note))


def add_head(setting: str, found: dict[str, Any]) -> None:
    """Add the head alone, measured beside the full model, to a setting that is recorded."""
    path = machine.RESULTS / "ways_step.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    recorded = content["results"][setting]
    (_, full), (label, head) = found.items()
    # In seconds of the recorded run, which may have had another machine, or a less busy one.
    factor = recorded["0"]["seconds"] / full["seconds"]
    for name in ("seconds", "plain", "without_trunk"):
        head[name] = round(factor * head[name], 4)
    head["scaled_by"] = round(factor, 3)
    head["cpu"] = machine.describe()["cpu"]
    recorded[label] = head
    if _HEAD_NOTE not in content["note"]:
        content["note"] += _HEAD_NOTE
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def ways_of(model_name: str, layers: int) -> tuple[str, ...]:
    """Return the labels of all ways, the full model first and the head alone last."""
    half = layers // 2
    quarter = layers // 4
    names = "q+v" if model_name == "mpnet" else "query+value"
    ways = ("0", str(half), "lora", "lora-r64", f"lora-{names}")
    return (*ways, f"lora-last{half}", f"lora-last{quarter}", "bitfit", str(layers))


def measured_on(
    model_name: str, task_name: str, data_dir: str, *, head_alone: bool
) -> dict[str, Any]:
    """Return what every way takes on one task's rows, or the full model and the head alone."""
    model = resolve_model(model_name)
    ways = ways_of(model_name, facts(model).layers)
    if head_alone:
        ways = (ways[0], ways[-1])
    task = resolve_task(task_name, data_dir=data_dir)
    recipe = Recipe(train_size=300, precision=Precision.FP32, prefix_cache=PrefixCache.FP32)
    data = prepare(model, task, recipe)
    variants: dict[str, dict[str, Any]] = {}
    for way in ways:
        kept = trial_of(model, task, recipe, way)
        runs = {"seconds": Ours(kept, data), "plain": Plain(kept, data)}
        if runs["seconds"].prefix == "cached":
            not_kept = dataclasses.replace(recipe, prefix_cache=PrefixCache.NONE)
            runs["without_trunk"] = Ours(trial_of(model, task, not_kept, way), data)
        variants[way] = runs
    return measured(variants, data)


def trial_of(model: ModelSpec, task: TaskSpec, recipe: Recipe, way: str) -> TrialSpec:
    """Return a trial of this way."""
    return TrialSpec(
        model=model,
        task=task,
        recipe=recipe,
        candidate=read_candidate(way),
        learning_rate=5e-5,
        seed=1,
    )


class Ours:
    """A trial as a search trains it."""

    def __init__(self, trial: TrialSpec, data: TaskData) -> None:
        self.run = loop._Run(trial, data, torch.device("cpu"), ())
        self.prefix = self.run.runner.prefix
        self.trained = self.run.trainable_parameters

    def step(self, batch: IndexArray) -> None:
        """Take an optimiser step."""
        self.run.runner.train(True)
        self.run.step(batch)


class Plain:
    """The same model by transformers and peft alone, on padded batches."""

    def __init__(self, trial: TrialSpec, data: TaskData) -> None:
        self.data = data
        self.most_norm = trial.recipe.max_grad_norm
        self.model: Any = load_classifier(trial.model, trial.task.outputs, trial.seed)
        candidate = trial.candidate
        if isinstance(candidate, Lora):
            config = adapter_config(self.model, candidate, task_type="SEQ_CLS")
            self.model = peft.get_peft_model(self.model, config)
        else:
            methods.apply(self.model, candidate)
        trained = [each for each in self.model.parameters() if each.requires_grad]
        weight_decay = trial.recipe.weight_decay
        self.optimizer = torch.optim.AdamW(trained, lr=5e-5, weight_decay=weight_decay)
        self.trained = trained

    def step(self, batch: IndexArray) -> None:
        """Take an optimiser step."""
        self.model.train()
        padded = pad_batch(self.data.train, batch, self.data)
        labels = torch.from_numpy(self.data.train.labels)[padded.rows]
        output = self.model(**padded.inputs, labels=labels)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, self.most_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def measured(variants: dict[str, dict[str, Any]], data: TaskData) -> dict[str, Any]:
    """Return each way's median seconds, and elsa-tune's as a share of the first way's."""
    full = next(iter(variants.values()))["seconds"]
    batches = loop.shuffled_batches(full.run.trial, len(data.train))
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(STEPS + NOT_COUNTED):
        batch = next(batches)
        for way, runs in variants.items():
            for name, run in runs.items():
                started = time.process_time()
                run.step(batch)
                spent = time.process_time() - started
                if number >= NOT_COUNTED:
                    seconds.setdefault((way, name), []).append(spent)
    medians = {key: statistics.median(spent) for key, spent in seconds.items()}
    found: dict[str, Any] = {}
    first = next(iter(variants))
    for way, runs in variants.items():
        found[way] = {name: round(medians[way, name], 4) for name in runs}
        found[way]["share"] = round(medians[way, "seconds"] / medians[first, "seconds"], 3)
        found[way]["trainable_parameters"] = runs["seconds"].trained
        found[way]["prefix"] = runs["seconds"].prefix
    for runs in variants.values():
        for run in runs.values():
            if isinstance(run, Ours):
                run.run.close()
    return found


if __name__ == "__main__":
    main()
