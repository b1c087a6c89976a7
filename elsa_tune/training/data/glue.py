"""Tables of GLUE's tasks, from a local folder, the hub's cache or the hub."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from huggingface_hub import constants

from elsa_tune.errors import DataError, first_line
from elsa_tune.specs.task import GlueSource, TaskSpec
from elsa_tune.tasks.known import HUB_REPOSITORY, LAYOUTS, GlueLayout
from elsa_tune.tasks.table_file import Table, listing, read_table
from elsa_tune.training.hub import fetch

_CACHED = f"datasets--{HUB_REPOSITORY.replace('/', '--')}"
_WAYS_OUT = (
    "Give a local GLUE folder with `data_dir`, take `task` stdlib, which needs no download, "
    "or run once with network access"
)


# A split's name, and its tables.
_Tables = tuple[str, list[Table]]


def glue_tables(task: TaskSpec, source: GlueSource) -> Iterator[_Tables]:
    """Yield the name of each split of the task, and its tables.

    Those of a local folder have the columns of the task's `GlueLayout`, others the task's own.
    Raises DataError where a table cannot be had or read.
    """
    layout = LAYOUTS[source.config]
    if source.data_dir is not None:
        folder = _task_folder(Path(source.data_dir), source.folder)
        for name, glue_split in layout.splits:
            table = _local_table(task, layout, folder, glue_split)
            yield name, [table]
        return
    glue_splits = [glue_split for _, glue_split in layout.splits]
    folder = _hub_folder(task, source.config, glue_splits)
    for name, glue_split in layout.splits:
        files = _hub_files(folder, source.config, glue_split)
        tables = [_hub_table(task, file) for file in files]
        yield name, tables


def local_files(task: TaskSpec, source: GlueSource) -> list[Path]:
    """Return the files of a task in its local folder. Raises DataError where one is missing."""
    assert source.data_dir is not None
    folder = _task_folder(Path(source.data_dir), source.folder)
    splits = LAYOUTS[source.config].splits
    return [_local_file(task, folder, glue_split) for _, glue_split in splits]


def _task_folder(data_dir: Path, name: str) -> Path:
    if not data_dir.is_dir() and not data_dir.is_absolute():
        # Searches record absolute paths; who passes one on may have shortened them.
        raise DataError(
            f"the data folder is recorded as '{data_dir}', which leads nowhere from {Path.cwd()}; "
            f"run the command in the folder that '{data_dir}' lies in"
        )
    if not data_dir.is_dir():
        raise DataError(f"the data folder {data_dir} does not exist on this machine")
    for entry in sorted(data_dir.iterdir()):
        is_named_so = entry.name.lower() == name.lower()
        if is_named_so and entry.is_dir():
            return entry
    hint = ""
    if (data_dir / "train.tsv").is_file():
        hint = "; give the folder above it"
    content = listing(data_dir)
    raise DataError(f"the data folder {data_dir} has no folder '{name}'; it holds {content}{hint}")


def _local_table(
    task: TaskSpec,
    layout: GlueLayout,
    folder: Path,
    split: str,
) -> Table:
    path = _local_file(task, folder, split)
    wanted = [*layout.text_columns, layout.label_column]
    return read_table(path, "tsv", wanted, layout.header)


def _local_file(task: TaskSpec, folder: Path, split: str) -> Path:
    """Return the file of a split. Raises DataError where it is missing."""
    file_name = split.replace("validation", "dev")
    path = folder / f"{file_name}.tsv"
    if not path.is_file():
        content = listing(folder)
        raise DataError(
            f"task '{task.name}' needs {path.name} in {folder}, which holds {content} (no test "
            "file can stand in for it: GLUE's server keeps the labels)"
        )
    return path


def _hub_folder(task: TaskSpec, config: str, splits: Sequence[str]) -> Path:
    """Return the folder of these splits of `nyu-mll/glue:CONFIG`, fetched if it is not cached.

    Raises DataError within seconds where it cannot be had.
    """
    # The cache first: searches must not ask the hub each time, nor see other data in between.
    cached = _cached_folder(config, splits)
    if cached is not None:
        return cached
    beginnings = tuple(f"{config}/{split}-" for split in splits)

    def files_of_splits(names: Sequence[str]) -> list[str]:
        return [name for name in names if name.startswith(beginnings)]

    try:
        folder = fetch(HUB_REPOSITORY, files_of_splits, kind="dataset")
        for split in splits:
            if not _hub_files(folder, config, split):
                raise FileNotFoundError(f"it has no complete {config}/{split}")
    except Exception as error:  # the many ways of a hub, a proxy or a mirror to fail
        failure = type(error).__name__
        reason = first_line(error)[:300]
        raise DataError(
            f"task '{task.name}' is not in the hub's local cache, and {HUB_REPOSITORY} could not "
            f"be loaded from {constants.ENDPOINT} ({failure}: {reason}). {_WAYS_OUT}"
        ) from error
    return folder


def cached_tasks() -> list[str]:
    """Return the tasks of GLUE that lie in the hub's cache: they need no download."""
    cached = []
    for config, layout in LAYOUTS.items():
        glue_splits = [glue_split for _, glue_split in layout.splits]
        if _cached_folder(config, glue_splits) is not None:
            cached.append(config)
    return cached


def _cached_folder(config: str, splits: Sequence[str]) -> Path | None:
    """Return the latest snapshot in the hub's cache that has all of these splits."""
    snapshots = Path(constants.HF_HUB_CACHE, _CACHED, "snapshots")
    latest_first = sorted(
        snapshots.glob("*"),
        key=lambda snapshot: snapshot.stat().st_mtime,
        reverse=True,
    )
    for folder in latest_first:
        if all(_hub_files(folder, config, split) for split in splits):
            return folder
    return None


def _hub_files(folder: Path, config: str, split: str) -> list[Path]:
    """Return all of a split's files, or none: the end of their names says how many there are."""
    files = sorted((folder / config).glob(f"{split}-*-of-*.parquet"))
    if not files:
        return []
    number_of_files = f"-{len(files):05}"
    is_complete = files[0].stem.endswith(number_of_files)
    return files if is_complete else []


def _hub_table(task: TaskSpec, file: Path) -> Table:
    """Read labels as their texts, so that hub and files are judged alike; -1 stays -1."""
    wanted = [*task.text_columns, task.label_column]
    table = read_table(file, "parquet", wanted)
    if task.classes:
        name_by_id: dict[str | None, str] = {}
        for number, name in enumerate(task.classes):
            name_by_id[str(number)] = name
        labels = []
        for label in table.columns[task.label_column]:
            labels.append(name_by_id.get(label, label))
        table.columns[task.label_column] = labels
    config = file.parent.name
    split = file.name.split("-")[0]
    return replace(table, path=Path(HUB_REPOSITORY, config, split))
