"""`elsa-tune trial`: one trial without Ray, for debugging; a line per evaluation."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Literal

import typer

from elsa_tune.cli.options import DataDir, Metric, Settings
from elsa_tune.searching.saying import say
from elsa_tune.words import points


def trial(
    model: Annotated[str, typer.Option(help="Short name, local folder or hub id.")],
    task: Annotated[str, typer.Option(help="Task name or YAML file.")],
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate, above 0 and up to 1.")],
    frozen_layers: Annotated[
        str, typer.Option(help="N: 0 (nothing frozen) .. L, or `embeddings`.")
    ] = "0",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    train_size: Annotated[
        int | None, typer.Option(help="Train on a stratified subset of N examples.")
    ] = None,
    data_dir: DataDir = None,
    metric: Metric = None,
    settings: Settings = None,
    output: Annotated[
        Literal["lines", "json"],
        typer.Option("--format", help="`lines`, or `json`: one object per evaluation."),
    ] = "lines",
) -> None:
    """Run one trial here, without Ray or MLflow."""
    from elsa_tune.errors import UsageError
    from elsa_tune.searching.inputs import read_inputs
    from elsa_tune.specs.freeze import FreezeDepth
    from elsa_tune.specs.space import OWN_FIELDS
    from elsa_tune.specs.trial import trial_quality

    depth = FreezeDepth.of(frozen_layers)
    overrides = list(settings or [])
    for override in overrides:
        field = override.partition("=")[0].split(".")[0].strip()
        if field in OWN_FIELDS - {"epochs", "metric", "revision"}:
            raise UsageError(f"--set {override}: {field} belongs to a search; a trial has options")
    if train_size is not None:
        overrides.append(f"train_size={train_size}")
    inputs = read_inputs(model, task, overrides=overrides, data_dir=data_dir, metric=metric)
    spec = inputs.trial(depth, learning_rate, seed)

    from elsa_tune.training.loop import few_steps, train

    notes: set[str] = set()
    qualities, held_out = [], []
    for result in train(spec):
        for note in (few_steps(spec.recipe, result.steps), *result.notes):
            if note is not None and note not in notes:
                notes.add(note)
                say(f"note: {note}")
        qualities.append(result.quality)
        if result.holdout_quality is not None:
            held_out.append(result.holdout_quality)
        if output == "json":
            typer.echo(json.dumps(dataclasses.asdict(result)))
            continue
        scores = {**result.metrics, "holdout_quality": result.holdout_quality}
        said = [f"{name} {points(value)}" for name, value in scores.items() if value is not None]
        typer.echo(
            f"epoch {result.epoch:g}/{spec.recipe.epochs}  step {result.step}/{result.steps}  "
            f"{'  '.join(said)}  "
            f"train_loss {result.train_loss:.4f}  eval_loss {result.eval_loss:.4f}  "
            f"{result.train_seconds:.1f} s  {result.peak_memory_mb:.0f} MiB"
        )
    quality = trial_quality(spec.recipe.selection, qualities, held_out)
    say(
        f"{spec.key}: {inputs.task.metric.value} {points(quality)} "
        f"(a constant answer scores {points(result.chance)}); "
        f"{result.trainable_parameters:,} parameters trained, {result.precision}, "
        f"{result.batches} batches, frozen layers {result.prefix}"
    )
