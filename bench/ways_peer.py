"""Freeze, LoRA, BitFit or the head: minutes by one command, and by Trainer and peft.

    python bench/ways_peer.py

The embedded task, MiniLM, 1,000 rows, three epochs. Ours is `elsa-tune search --space ways`, the
whole command, with an empty cache, as in a fresh clone once it is installed. The peer is what the
guides of transformers and peft write: a Trainer, batches padded to their longest row, on all cores,
one trial at a time. Of each way it trains TRIALS trials, and is given as many of them as ours took;
its minutes are the sum of those, by each way's median. They are an estimate, without its start, and
without what it would need to find rates, repeat seeds and record. Of LoRA and BitFit it trains a
little less than ours: beside LoRA peft trains the classifier alone, and BitFit the pooler's bias,
where ours trains all of BERT's pooler, which is part of the head. Writes
bench/results/ways_peer.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import machine

from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.state import read_state
from elsa_tune.training.adapt.lora import adapter_config
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.data.tokens import Split
from elsa_tune.training.model.model_files import model_folder

NAME = "ways_peer"
MODEL = "minilm"
TASK = "stdlib"
ROWS = 1000
EPOCHS = 3
BATCH = 16
RATE = 5e-5
TRIALS = 2


def main() -> None:
    """Run our command, then the peer's trials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="the peer's trials alone, once more")
    parser.add_argument("--trial", metavar="WAY", help="train one of the peer's, and print it")
    options = parser.parse_args()
    if options.trial is not None:
        print(json.dumps(trained(read_candidate(options.trial))))
        return
    file = machine.RESULTS / f"{NAME}.json"
    ours = json.loads(file.read_text())["results"]["ours"] if options.again else searched()
    print(json.dumps(ours), flush=True)
    peer: dict[str, Any] = {}
    for way, trials in ours["trials"].items():
        runs = [in_a_process(way) for _ in range(TRIALS)]
        seconds = statistics.median(run["seconds"] for run in runs)
        peer[way] = {
            "seconds_of_a_trial": round(seconds, 1),
            "trained_parameters": runs[0]["trained_parameters"],
            "trials": trials,
            "minutes": round(trials * seconds / 60, 1),
        }
        print(way, json.dumps(peer[way]), flush=True)
    minutes = round(sum(found["minutes"] for found in peer.values()), 1)
    results = {
        "ours": ours,
        "peer": {"minutes_estimated": minutes, "ways": peer},
        "times_faster": round(minutes / ours["minutes"], 1),
    }
    note = (
        f"{MODEL}, {TASK}, {ROWS:,} rows, {EPOCHS} epochs, fp32; ours: one command; the peer: "
        f"{TRIALS} trials of each way on all cores, times the number that ours took, without the "
        "pooler's weights in LoRA and BitFit, where ours trains them"
    )
    print(machine.write(NAME, results, note))


def searched() -> dict[str, Any]:
    """Run the search as a new user would; return its minutes, and the trials of each way."""
    with tempfile.TemporaryDirectory() as place:
        words = ["search", "--model", MODEL, "--task", TASK, "--space", "ways", "--name", "ways"]
        words += ["--train-size", str(ROWS), "--set", f"epochs={EPOCHS}"]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "elsa_tune", *words],
            cwd=place,
            env={**os.environ, "ELSA_TUNE_CACHE": f"{place}/cache"},
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        minutes = (time.perf_counter() - began) / 60
        assert done.returncode in (0, 3), done.returncode
        state = read_state(Path(place, "mlruns/searches/ways/journal.jsonl"))
    trials = Counter(trial.facts.candidate.label for trial in state.planned_trials)
    return {
        "minutes": round(minutes, 1),
        "trials": dict(trials),
        "first_line": done.stdout.strip().splitlines()[0],
    }


def in_a_process(way: str) -> dict[str, Any]:
    """Train one of the peer's trials in a process of its own."""
    command = [sys.executable, __file__, "--trial", way]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def trained(candidate: Candidate) -> dict[str, Any]:
    """Train one trial as the guides write it; return its seconds, imports left out."""
    import datasets
    import peft  # noqa: F401  # its import, too, is left out
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    began = time.perf_counter()
    set_seed(1)
    folder = str(model_folder(resolve_model(MODEL)))
    task = resolve_task(TASK)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(task.classes)
    )
    model = adapted(model, candidate)
    splits = read_splits(task, Recipe(train_size=ROWS))
    train_set, evaluation_set = (
        datasets.Dataset.from_dict(encoded(splits[name], tokenizer))
        for name in ("train", "evaluation")
    )
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=2 * BATCH,
            learning_rate=RATE,
            num_train_epochs=EPOCHS,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=train_set,
            eval_dataset=evaluation_set,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.train()
    weights = [each.numel() for each in model.parameters() if each.requires_grad]
    return {"seconds": time.perf_counter() - began, "trained_parameters": sum(weights)}


def adapted(model: Any, candidate: Candidate) -> Any:
    """Return the model with what this way trains, as the guides of either library do it."""
    if isinstance(candidate, Lora):
        import peft

        return peft.get_peft_model(model, adapter_config(model, candidate, task_type="SEQ_CLS"))
    if isinstance(candidate, BitFit):
        for name, parameter in model.named_parameters():
            parameter.requires_grad = name.endswith("bias") or name.startswith("classifier")
        return model
    frozen = candidate.frozen_layers
    if frozen:
        model.base_model.embeddings.requires_grad_(False)
        model.base_model.encoder.layer[:frozen].requires_grad_(False)
    return model


def encoded(rows: Split, tokenizer: Any) -> dict[str, Any]:
    """Return a split's tokens, unpadded, and its labels."""
    tokens = tokenizer(*rows.texts, truncation=True, max_length=128)
    return {**tokens, "labels": rows.labels.tolist()}


if __name__ == "__main__":
    main()
