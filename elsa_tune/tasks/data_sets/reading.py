"""Reads a data set once a process: of the hub, from save_to_disk, or a copy of a repository."""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from elsa_tune.errors import DataError
from elsa_tune.files import is_pointer, pointer_text
from elsa_tune.tasks.data_sets.data_set import DataSet
from elsa_tune.tasks.data_sets.hub import check_configuration, configurations, of_hub, why
from elsa_tune.tasks.table_file import listing

# What save_to_disk writes: the splits of several, and the files of each.
_SPLITS = "dataset_dict.json"
_STATE = "state.json"
# What `datasets` reads beside rows in a copy of a repository of the hub.
_CARDS = ("README.md", ".huggingface.yaml", "dataset_infos.json")

# Data sets of the hub by name, configuration and revision, both as asked and as found.
_read: dict[tuple[str, str | None, str | None], DataSet] = {}


def read_data_set(
    location: str,
    config: str | None = None,
    revision: str | None = None,
) -> DataSet:
    """Read a data set of the hub (`owner/name`, once a process), or one in an absolute folder.

    revision: a branch, tag or commit. A commit that was read before is not asked for again. Raises
    DataError, in one sentence with the ways out, for whatever cannot be had or read.
    """
    if os.path.isabs(location):
        with _quiet():
            return _of_folder(Path(location), config)
    key = (location, config, revision)
    if key not in _read:
        with _quiet():
            data_set = of_hub(location, config, revision)
        _read[key] = data_set
        _read[location, data_set.config, data_set.revision] = data_set
    return _read[key]


def files_read(folder: Path) -> list[Path]:
    """Return the files that are read of a data set's folder, as paths below it.

    Whatever else lies there, as keys and notes may, is none of them. The folder is one that
    `read_data_set` reads.
    """
    folder = folder.resolve()
    if _was_saved(folder):
        files = _saved_files(folder)
    else:
        with _quiet():
            files = _files_of_copy(folder)
    below = set()
    for file in files:
        path = Path(os.path.normpath(file))
        if path.is_relative_to(folder):
            below.add(path.relative_to(folder))
    return sorted(below)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep `datasets` and the hub's client quiet while inside.

    Progress is for terminals, and what goes wrong is said here.
    """
    import datasets
    from huggingface_hub.utils import logging as hub_logging

    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    with contextlib.ExitStack() as as_before:
        as_before.callback(datasets.logging.set_verbosity, datasets.logging.get_verbosity())
        as_before.callback(hub_logging.set_verbosity, hub_logging.get_verbosity())
        datasets.logging.set_verbosity(logging.CRITICAL)
        hub_logging.set_verbosity(logging.ERROR)
        if not has_terminal and not datasets.are_progress_bars_disabled():
            datasets.disable_progress_bars()
            as_before.callback(datasets.enable_progress_bars)
        yield


def _of_folder(folder: Path, config: str | None) -> DataSet:
    """Read what `save_to_disk` wrote, or a copy of a repository of the hub."""
    if not folder.is_dir():
        raise DataError(f"data set folder {folder} does not exist")
    if _was_saved(folder):
        if config is not None:
            raise DataError(
                f"`config` {config}: data set folder {folder} was written by save_to_disk, and "
                "holds one configuration; leave `config` out"
            )
        return _saved(folder)
    import datasets

    builder = None
    try:
        builder = datasets.load_dataset_builder(str(folder), config)
        builder.download_and_prepare()
        splits = builder.as_dataset()
    except MemoryError:
        raise
    except Exception as error:  # of datasets, pyarrow and pandas, and of any kind
        if builder is None and isinstance(error, ValueError):
            check_configuration(str(folder), config, configurations(str(folder)))
        _check_pointers(folder)
        hint = ""
        if (folder / "RTE" / "train.tsv").is_file() or (folder / "MRPC" / "train.tsv").is_file():
            hint = "; a folder of GLUE tasks is named by `data_dir`"
        raise DataError(
            f"folder {folder} is no data set: save_to_disk did not write it, and as a copy of one "
            f"of the hub it cannot be read ({why(error)}); it holds {listing(folder)}{hint}"
        ) from error
    return DataSet(str(folder), dict(splits), builder.config.name)


def _check_pointers(folder: Path) -> None:
    """Raise DataError where a file of the data set is git-lfs's pointer, as in a bare clone."""
    pointers: list[Path] = []
    with contextlib.suppress(Exception):  # the first error is said instead
        for file in files_read(folder):
            if is_pointer(folder / file):
                pointers.append(file)
    if pointers:
        raise DataError(f"data set folder {folder}: {pointer_text(str(pointers[0]))}")


def _was_saved(folder: Path) -> bool:
    return (folder / _SPLITS).is_file() or (folder / _STATE).is_file()


def _saved(folder: Path) -> DataSet:
    """Read what `save_to_disk` wrote."""
    import datasets

    try:
        loaded = datasets.load_from_disk(folder)
    except MemoryError:
        raise
    except Exception as error:  # of datasets and pyarrow, and of any kind
        _check_pointers(folder)
        raise DataError(
            f"data set folder {folder} cannot be read ({why(error)}); save it again"
        ) from error
    splits = dict(loaded) if isinstance(loaded, dict) else {"train": loaded}
    return DataSet(str(folder), splits)


def _saved_files(folder: Path) -> list[Path]:
    """Return the files that save_to_disk wrote."""
    files: list[Path] = []
    parts = [folder]
    splits = folder / _SPLITS
    if splits.is_file():
        files.append(splits)
        names = json.loads(splits.read_text(encoding="utf-8"))["splits"]
        parts += [folder / name for name in names]
    for part in parts:
        state = part / _STATE
        if state.is_file():
            files += [state, part / "dataset_info.json"]
            of_rows = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
            files += [part / file["filename"] for file in of_rows]
    return files


def _files_of_copy(folder: Path) -> list[Path]:
    """Return the files that `datasets` reads in a copy of a repository of the hub.

    Those of all configurations: it looks for the first one's whichever is wanted.
    """
    import datasets

    files = [folder / name for name in _CARDS if (folder / name).is_file()]
    for config in datasets.get_dataset_config_names(str(folder)):
        builder = datasets.load_dataset_builder(str(folder), config)
        for of_split in (builder.config.data_files or {}).values():
            # A card may name addresses, too.
            files += [Path(file) for file in of_split if os.path.isabs(file)]
    return files
