"""`elsa-tune tasks`: the tasks that are known, or one task's data looked at.

It must not import anything heavy outside its functions.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.errors import UsageError
from elsa_tune.search.saying import say
from elsa_tune.specs.known_tasks import KNOWN_TASKS
from elsa_tune.specs.table_file import format_of
from elsa_tune.specs.task import FilesSource, GlueSource, TaskKind, TaskSpec
from elsa_tune.specs.tasks import resolve_task

if TYPE_CHECKING:
    from elsa_tune.training.data.split import Split

EXAMPLES = 3
EXAMPLE_WIDTH = 160
MOST_CLASSES_SHOWN = 20


class Format(enum.StrEnum):
    """How the answer is printed on stdout."""

    TABLE = "table"
    JSON = "json"


def tasks(
    task: Annotated[
        str | None,
        typer.Argument(
            help="A task to look at, by its name or its YAML file: sizes, labels, oddities. Or "
            "your table (.csv, .tsv, .jsonl, .parquet): prints a YAML file to start from."
        ),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="A local GLUE folder in the official layout (RTE/train.tsv).")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Replaces the task's metric.")] = None,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.TABLE,
) -> None:
    """List the tasks, look at one, or begin a task file."""
    is_table = task is not None and format_of(Path(task)) is not None
    if (task is None or is_table) and (data_dir is not None or metric is not None):
        raise UsageError("--data-dir and --metric are about one task; name it: elsa-tune tasks rte")
    if task is not None and is_table:
        from elsa_tune.specs.task_draft import draft_task

        typer.echo(draft_task(Path(task)), nl=False)
        say("next: save it here as a .yaml file, check it, and `elsa-tune tasks FILE.yaml`")
        return
    if task is None:
        specs = list(KNOWN_TASKS.values())
        if format is Format.JSON:
            _print_json([described(spec) for spec in specs])
        else:
            _print_list(specs)
        return
    spec = resolve_task(task, data_dir, metric)
    looked_at = {**described(spec), **look(spec)}
    if format is Format.JSON:
        _print_json(looked_at)
    else:
        _print_task(looked_at)


def described(spec: TaskSpec) -> dict[str, Any]:
    """What is known of a task without reading any data, JSON-ready."""
    return {
        "name": spec.name,
        "kind": spec.kind.value,
        "texts": list(spec.text_columns),
        "classes": list(spec.classes),
        "metric": spec.metric.value,
        "companions": [metric.value for metric in spec.companions],
        "chance": spec.known_chance,
        "source": source_text(spec),
    }


def source_text(spec: TaskSpec) -> str:
    """Where the rows come from, in a few words."""
    source = spec.source
    if isinstance(source, GlueSource):
        if source.data_dir is not None:
            return f"{source.data_dir}/{source.folder}"
        return f"hub nyu-mll/glue:{source.config}, or --data-dir with {source.folder}/"
    if isinstance(source, FilesSource):
        return ", ".join((*source.train, *source.evaluation))
    shuffled = ", labels shuffled" if source.shuffled_labels else ""
    return f"this machine's Python standard library{shuffled}"


def look(spec: TaskSpec) -> dict[str, Any]:
    """Read the task's data: sizes, counts of labels, measured chance, examples, notes; JSON-ready.

    Raises DataError as reading does.
    """
    from elsa_tune.specs.trial import Recipe
    from elsa_tune.training.data.preparation import read_splits
    from elsa_tune.training.metrics import chance

    splits = read_splits(spec, Recipe())
    notes = dict.fromkeys(note for split in splits.values() for note in split.notes)
    return {
        "chance": chance(spec.metric, splits["evaluation"].labels, spec.outputs),
        "splits": {name: _split_facts(spec, split) for name, split in splits.items()},
        "examples": _examples(spec, splits["train"]),
        "notes": list(notes),
    }


def _split_facts(spec: TaskSpec, split: Split) -> dict[str, Any]:
    facts: dict[str, Any] = {"rows": len(split), "from": split.where}
    if spec.kind is TaskKind.REGRESSION:
        labels = split.labels
        facts |= {
            "lowest": float(labels.min()),
            "mean": round(float(labels.mean()), 6),
            "highest": float(labels.max()),
        }
    else:
        counts = {name: int((split.labels == c).sum()) for c, name in enumerate(spec.classes)}
        facts["labels"] = counts
    return facts


def _examples(spec: TaskSpec, split: Split) -> list[dict[str, Any]]:
    """The first rows, and the first of each further class while there is room."""
    rows = list(range(min(EXAMPLES, len(split))))
    if spec.kind is TaskKind.CLASSIFICATION:
        firsts = [int((split.labels == c).argmax()) for c in range(min(EXAMPLES, spec.outputs))]
        rows = sorted(list(dict.fromkeys([*firsts, *rows]))[:EXAMPLES])
    return [
        {
            **{
                name: column[row]
                for name, column in zip(spec.text_columns, split.texts, strict=True)
            },
            "label": _label_text(spec, split, row),
        }
        for row in rows
    ]


def _label_text(spec: TaskSpec, split: Split, row: int) -> str | float:
    if spec.kind is TaskKind.REGRESSION:
        return round(float(split.labels[row]), 6)
    return spec.classes[int(split.labels[row])]


# --- Printing ------------------------------------------------------------------------------------


def _print_json(values: object) -> None:
    print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _print_list(specs: list[TaskSpec]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for name in ("task", "kind", "texts", "metric", "chance", "data"):
        table.add_column(
            name, justify="right" if name == "chance" else "left", no_wrap=name != "data"
        )
    for spec in specs:
        kind = "regression" if spec.kind is TaskKind.REGRESSION else f"{spec.outputs} classes"
        texts, metric = "pair" if len(spec.text_columns) == 2 else "single", spec.metric.value
        chance = _percent(spec.known_chance)
        table.add_row(spec.name, kind, texts, metric, chance, source_text(spec))
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console.width = 140  # a pipe has no edge; 80 would fold the last column
    console.print(table)


def _print_task(facts: dict[str, Any]) -> None:
    companions = f" (beside it: {', '.join(facts['companions'])})" if facts["companions"] else ""
    print(f"{facts['name']}: {facts['kind']} of {' + '.join(facts['texts'])}")
    print(f"metric      {facts['metric']}{companions}")
    print(f"chance      {_percent(facts['chance'])} (the best constant answer, x 100)")
    for name, split in facts["splits"].items():
        print(f"{name:<11} {split['rows']:,} rows ({_labels_text(split)})")
        print(f"            from {split['from']}")
    print("examples")
    for example in facts["examples"]:
        *texts, label = example.values()
        print(f"  [{label}] " + " | ".join(_shortened(str(text)) for text in texts))
    for note in facts["notes"]:
        print(f"note: {note}")


def _labels_text(split: dict[str, Any]) -> str:
    if "labels" not in split:
        return f"values {split['lowest']:g}..{split['highest']:g}, mean {split['mean']:.3g}"
    labels = list(split["labels"].items())
    shown = ", ".join(f"{name}: {count:,}" for name, count in labels[:MOST_CLASSES_SHOWN])
    more = len(labels) - MOST_CLASSES_SHOWN
    return f"{shown}, and {more} more classes" if more > 0 else shown


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= EXAMPLE_WIDTH else text[: EXAMPLE_WIDTH - 1] + "…"
