"""What `--task` may name: the GLUE tasks, the embedded default and its control, or a YAML file.

It must not read any data set, and it imports pydantic and yaml only for a YAML file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elsa_tune.errors import DataError, UnknownNameError
from elsa_tune.specs.known_tasks import KNOWN_TASKS
from elsa_tune.specs.task import GlueSource, TaskSpec

YAML_SUFFIXES = (".yaml", ".yml")


def resolve_task(text: str, data_dir: str | None = None, metric: str | None = None) -> TaskSpec:
    """Read a known task's name or the path of a YAML file that describes the user's own task.

    data_dir: a local GLUE folder in the official layout, for GLUE tasks only; it must exist.
    metric: replaces the headline metric. Raises UnknownNameError or DataError.
    """
    task = _named_or_described(text)
    if data_dir is not None:
        task = _from_folder(task, data_dir)
    return task if metric is None else task.with_metric(metric)


def _named_or_described(text: str) -> TaskSpec:
    if text in KNOWN_TASKS:
        return KNOWN_TASKS[text]
    if text.lower().endswith(YAML_SUFFIXES):
        from elsa_tune.specs.task_file import read_task_file

        return read_task_file(Path(text))
    raise UnknownNameError.among(
        "task", text, KNOWN_TASKS, hint="Your own task is the path of a .yaml file."
    )


def _from_folder(task: TaskSpec, data_dir: str) -> TaskSpec:
    if not isinstance(task.source, GlueSource):
        raise DataError(
            f"`data_dir` is a folder of GLUE tasks, and task '{task.name}' is none of them; drop it"
        )
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"`data_dir` '{data_dir}' is not a folder; give the one that holds "
            f"{task.source.folder}/train.tsv"
        )
    return replace(task, source=replace(task.source, data_dir=str(folder.resolve())))
