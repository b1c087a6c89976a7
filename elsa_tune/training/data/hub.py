"""GLUE's Parquet files from the Hugging Face hub: from its local cache, or over the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from huggingface_hub import constants

from elsa_tune.errors import DataError, first_line
from elsa_tune.specs.known_tasks import HUB_REPOSITORY
from elsa_tune.specs.task import TaskKind, TaskSpec
from elsa_tune.tables.table_file import Table, read_table
from elsa_tune.training import hub

_CACHED = f"datasets--{HUB_REPOSITORY.replace('/', '--')}"
WAYS_OUT = (
    "Give a local GLUE folder with `data_dir`, take `task` stdlib, which needs no download, "
    "or run once with network access"
)


def read_hub_splits(task: TaskSpec, config: str, splits: Sequence[str]) -> dict[str, list[Table]]:
    """The files of splits of `nyu-mll/glue:CONFIG`, from the local cache if they are there.

    Raises DataError, within seconds, where the hub does not answer and nothing is cached.
    """
    # The cache first: searches must not ask the hub each time, nor see other data in between.
    folders = Path(constants.HF_HUB_CACHE, _CACHED, "snapshots").glob("*")
    newest = sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True)
    complete = (one for one in newest if all(_files(one, config, s) for s in splits))
    folder = next(complete, None) or _fetched(task, config, splits)
    return {
        split: [_table(task, file, split) for file in _files(folder, config, split)]
        for split in splits
    }


def _files(folder: Path, config: str, split: str) -> list[Path]:
    """All of a split's, or none: the end of their names says how many there are."""
    found = sorted((folder / config).glob(f"{split}-*-of-*.parquet"))
    return found if found and found[0].stem.endswith(f"-{len(found):05}") else []


def _fetched(task: TaskSpec, config: str, splits: Sequence[str]) -> Path:
    try:
        if hub.is_offline():
            raise OSError("HF_HUB_OFFLINE is set")
        names = hub.file_names(HUB_REPOSITORY, kind="dataset")
    except Exception as error:  # the many ways of a hub, a proxy or a mirror to fail
        raise DataError(
            f"task '{task.name}' is not in the hub's local cache and {constants.ENDPOINT} cannot "
            f"be asked ({first_line(error)[:300]}). {WAYS_OUT}"
        ) from error
    try:
        wanted = [n for n in names if n.startswith(tuple(f"{config}/{s}-" for s in splits))]
        folder = hub.fetch(HUB_REPOSITORY, wanted, kind="dataset")
        lacking = [split for split in splits if not _files(folder, config, split)]
        if lacking:
            raise FileNotFoundError(f"it has no complete {config}/{lacking[0]}")
    except Exception as error:  # likewise
        raise DataError(
            f"task '{task.name}': {HUB_REPOSITORY} could not be loaded from the hub "
            f"({type(error).__name__}: {first_line(error)[:300]}). {WAYS_OUT}"
        ) from error
    return folder


def _table(task: TaskSpec, file: Path, split: str) -> Table:
    """Labels as their texts, so that hub and files go through the same judgement; -1 stays -1."""
    table = read_table(file, "parquet", [*task.text_columns, task.label_column])
    if task.kind is TaskKind.CLASSIFICATION:
        names = {str(number): name for number, name in enumerate(task.classes)}
        labels = table.columns[task.label_column]
        table.columns[task.label_column] = [names.get(label or "", label) for label in labels]
    return replace(table, path=Path(HUB_REPOSITORY, file.parent.name, split))
