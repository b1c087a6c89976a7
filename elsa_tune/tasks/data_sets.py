"""Data sets as the package `datasets` reads them, of the hub at a commit or in a folder.

Nothing of a data set is ever run.

`datasets` is imported within functions: whoever trains on files needs none of it. It must never
choose what is read: where the hub does not answer, it takes whichever version it loaded last.
"""

import contextlib
import dataclasses
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsa_tune.errors import DataError, first_line
from elsa_tune.tasks.table_file import CellTexts, Table, listing, plain_cells

# Seconds until a hub that does not answer counts as unreachable.
TIMEOUT = 5.0

# What save_to_disk writes: the splits of several, and the files of each.
_SPLITS = "dataset_dict.json"
_STATE = "state.json"
# What `datasets` reads beside rows in a copy of a repository of the hub.
_CARDS = ("README.md", ".huggingface.yaml", "dataset_infos.json")

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ON = ("1", "true", "yes", "on")  # of an environment variable
_WAYS_OUT = (
    "on a machine with a network run `hf download {id} --repo-type dataset --local-dir {folder}`, "
    "copy the folder here and name it by `task` ./{folder}, or take `task` stdlib, which needs no "
    "download"
)


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that can be read."""

    location: str  # `owner/name` of the hub, or an absolute folder
    splits: Mapping[str, Any]  # each a `datasets.Dataset`, by its name
    config: str | None = None  # the configuration that was read
    revision: str | None = None  # the commit that was read; None for a folder
    notes: tuple[str, ...] = ()  # what its reader should know
    train: str | None = None  # the split that is trained on; None before it is known

    @property
    def where(self) -> str:
        """What messages call it."""
        if not self.revision:
            return self.location
        config = "" if self.config == "default" else f"/{self.config}"
        return f"{self.location}{config} at {self.revision[:12]}"

    @property
    def features(self) -> Mapping[str, Any]:
        """What its columns hold, by name: those of the split that is trained on.

        Another split may hold its labels otherwise, as a test split without any does.
        """
        train = self.train or next(iter(self.splits))
        features: Mapping[str, Any] = self.splits[train].features
        return features


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
            data_set = _of_hub(location, config, revision)
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


def columns_of(features: Mapping[str, Any]) -> dict[str, str]:
    """Return what each column holds, in a few words."""
    return {name: _kind(feature) for name, feature in features.items()}


def listed_columns(features: Mapping[str, Any]) -> str:
    """Write the columns and what they hold, for a message."""
    texts = []
    for name, kind in columns_of(features).items():
        texts.append(f"'{name}' ({kind})")
    return ", ".join(texts)


def is_list(feature: Any) -> bool:
    """Whether a column holds several values a row."""
    return isinstance(feature, list | dict) or hasattr(feature, "feature")


def class_names(feature: Any) -> tuple[str, ...] | None:
    """Return the names of a column's classes, in id order; None where it declares none."""
    import datasets

    if not isinstance(feature, datasets.ClassLabel):
        return None
    return tuple(feature.names)


def is_text(feature: Any) -> bool:
    """Whether a column holds texts."""
    return getattr(feature, "dtype", "") in ("string", "large_string")


def is_float(feature: Any) -> bool:
    """Whether a column holds numbers that need not be whole."""
    dtype = str(getattr(feature, "dtype", ""))
    return dtype.startswith("float")


def split_table(data_set: DataSet, split: str, columns: Sequence[str]) -> Table:
    """Return the wanted columns of a split, classes by their names; rows count from 1.

    A class id of -1, as the hub marks rows without a label, is a missing cell. Raises DataError.
    """
    rows = data_set.splits[split]
    where = f"{data_set.where} {split}"
    for name in columns:
        if name not in rows.features:
            raise DataError(
                f"split '{split}' of data set '{data_set.where}' has no column '{name}'; it has "
                f"{listed_columns(rows.features)}: all splits that are read need the same columns"
            )
    arrow_rows = rows.select_columns(list(columns)).with_format("arrow")
    table = arrow_rows[:]
    cells = {}
    for name in columns:
        values = table.column(name).to_pylist()
        names = class_names(rows.features[name])
        if names is None:
            cells[name] = plain_cells(values, where, name)
        else:
            cells[name] = _class_cells(values, names, where, name)
    numbers = range(1, len(rows) + 1)
    return Table(Path(where), cells, list(numbers))


def _class_cells(
    values: list[int | None],
    names: Sequence[str],
    where: str,
    column: str,
) -> CellTexts:
    """Return the names of class ids. Raises DataError for an id that the column lacks."""
    cells: CellTexts = []
    for row, value in enumerate(values, start=1):
        if value is None or value < 0:
            cells.append(None)
        elif value < len(names):
            cells.append(names[value])
        else:
            raise DataError(
                f"{where} row {row} has class {value} in column '{column}', which declares "
                f"{len(names)} classes; correct the data set"
            )
    return cells


def _kind(feature: Any) -> str:
    """Write what a column holds, in a few words."""
    names = class_names(feature)
    if names is not None:
        return f"{len(names)} classes: {_shown(names, 5)}"
    if is_list(feature):
        inner = getattr(feature, "feature", None)
        if inner is None:
            return "several values"
        return f"list of {_kind(inner)}"
    return str(getattr(feature, "dtype", type(feature).__name__))


def _shown(names: Sequence[str], most: int) -> str:
    """Write at most so many names, and `…` where there are more."""
    text = ", ".join(names[:most])
    if len(names) <= most:
        return text
    return f"{text}, …"


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

    try:
        builder = datasets.load_dataset_builder(str(folder), config)
        builder.download_and_prepare()
        splits = builder.as_dataset()
    except MemoryError:
        raise
    except Exception as error:  # of datasets, pyarrow and pandas, and of any kind
        names = _configurations(str(folder)) if isinstance(error, ValueError) else []
        if names:
            raise _other_configuration(str(folder), config, names) from error
        hint = ""
        if (folder / "RTE" / "train.tsv").is_file() or (folder / "MRPC" / "train.tsv").is_file():
            hint = "; a folder of GLUE tasks is named by `data_dir`"
        raise DataError(
            f"folder {folder} is no data set: save_to_disk did not write it, and as a copy of one "
            f"of the hub it cannot be read ({_why(error)}); it holds {listing(folder)}{hint}"
        ) from error
    return DataSet(str(folder), dict(splits), builder.config.name)


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
        raise DataError(
            f"data set folder {folder} cannot be read ({_why(error)}); save it again"
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


def _of_hub(repository: str, config: str | None, revision: str | None) -> DataSet:
    """Read a data set of the hub; where the hub cannot be asked, from the cache of `datasets`."""
    if config and revision and _COMMIT.fullmatch(revision):
        # Searches must not ask the hub each time, nor see other rows in between.
        cached = _cached(repository, config, revision)
        if cached is not None:
            return cached
    try:
        commit = _commit(repository, revision)
    except DataError:
        raise
    except Exception as error:  # the hub's client raises its HTTP library's own errors, too
        reason = _why(error)
        cached = None if revision else _cached(repository, config, None)
        if cached is not None:
            note = f"{cached.where}: the hub cannot be asked ({reason}): taken from its cache"
            return dataclasses.replace(cached, notes=(note,))
        raise _unreachable(repository, config, revision, reason) from error
    # Without a name the hub's data set says itself which configuration is meant.
    cached = _cached(repository, config, commit) if config else None
    return cached or _loaded(repository, config, commit)


def _commit(repository: str, revision: str | None) -> str:
    """Return the commit that a revision is now.

    Raises DataError for a data set that cannot be given, and the client's errors where the hub does
    not answer.
    """
    import huggingface_hub
    from huggingface_hub import constants, errors

    offline = os.environ.get("HF_HUB_OFFLINE", os.environ.get("HF_DATASETS_OFFLINE", ""))
    if constants.HF_HUB_OFFLINE or offline.lower() in _ON:
        raise OSError("HF_HUB_OFFLINE forbids to ask it")
    hub = huggingface_hub.HfApi()
    try:
        info: Any = hub.repo_info(
            repository,
            revision=revision,
            repo_type="dataset",
            timeout=TIMEOUT,
        )
        names = [file.rfilename for file in info.siblings or ()]
        if "README.md" in names:  # a gated repository tells its commit, but gives no file
            hub.hf_hub_download(
                repository,
                "README.md",
                repo_type="dataset",
                revision=info.sha,
            )
    except errors.GatedRepoError as error:
        raise _gated(repository) from error
    except errors.RevisionNotFoundError as error:
        raise DataError(
            f"the hub's data set '{repository}' has no revision '{revision}'; give a branch, tag "
            "or commit of it"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(
            f"no data set on the hub is called '{repository}': check the spelling, or run "
            "`hf auth login` if it is private"
        ) from error
    except errors.HFValidationError as error:
        raise DataError(
            f"'{repository}' is no name of a data set on the hub; it is written owner/name"
        ) from error
    script = f"{repository.rsplit('/', 1)[-1]}.py"
    if script in names:
        raise DataError(
            f"the hub's data set '{repository}' is made by a Python script of its own ({script}), "
            "which is never run here; take a copy of it in Parquet: another owner's, or the hub's "
            "own, by a task file with `revision: refs/convert/parquet`"
        )
    return str(info.sha)


def _loaded(repository: str, config: str | None, commit: str) -> DataSet:
    """Have `datasets` fetch and prepare a data set of the hub."""
    import datasets

    # A folder of this name beside us is not what was asked for.
    name = f"hf://datasets/{repository}"
    try:
        builder = datasets.load_dataset_builder(name, config, revision=commit)
        if builder.hash != commit:
            raise OSError("the hub stopped answering")
        builder.download_and_prepare()
        splits = builder.as_dataset()
    except MemoryError:
        raise
    except Exception as error:  # of datasets, pyarrow, pandas and the hub's client
        names = _configurations(name, commit) if isinstance(error, ValueError) else []
        if names:
            raise _other_configuration(repository, config, names) from error
        if type(error).__name__ in ("DataFilesNotFoundError", "EmptyDatasetError"):
            raise DataError(
                f"the hub's data set '{repository}' holds no file of rows that `datasets` reads "
                "(Parquet, CSV, JSON); take another copy of it"
            ) from error
        if "gated" in str(error).lower():
            raise _gated(repository) from error
        raise DataError(
            f"the hub's data set '{repository}' cannot be read at {commit[:12]} ({_why(error)})"
        ) from error
    return DataSet(repository, dict(splits), builder.config.name, commit)


def _gated(repository: str) -> DataError:
    from huggingface_hub import constants

    return DataError(
        f"the hub gives data set '{repository}' only to those who accepted its terms: accept them "
        f"on {constants.ENDPOINT}/datasets/{repository}, then run `hf auth login`"
    )


def _configurations(name: str, commit: str | None = None) -> list[str]:
    """Return the names of a data set's configurations; none where they cannot be had."""
    import datasets

    try:
        return list(datasets.get_dataset_config_names(name, revision=commit))
    except Exception:  # the first error is said instead
        return []


def _other_configuration(
    location: str,
    config: str | None,
    names: Sequence[str],
) -> DataError:
    fault = f"has no configuration '{config}'" if config else "has several configurations"
    shown = _shown(sorted(names), 20)
    ways = "give `config` in a task file"
    if not os.path.isabs(location):
        ways = f"write `task` hub:{location}/CONFIG, or {ways}"
    return DataError(f"data set '{location}' {fault}; it has {shown}: {ways}")


def _cached(repository: str, config: str | None, commit: str | None) -> DataSet | None:
    """Return what `datasets` prepared before, at this commit, or at the last one; None if nothing.

    None too where it prepared several configurations and none is named: only the hub knows which of
    them is meant.
    """
    from datasets import config as settings
    from datasets.naming import camelcase_to_snakecase
    from datasets.packaged_modules.cache.cache import Cache

    owner, _, name = repository.rpartition("/")
    folder_name = camelcase_to_snakecase(name)
    if owner:
        folder_name = f"{owner}___{folder_name}"
    folder = Path(settings.HF_DATASETS_CACHE, folder_name)
    prepared = []  # folders CONFIG/VERSION/COMMIT
    for place in folder.glob(f"{config or '*'}/*/{commit or '*'}"):
        if _COMMIT.fullmatch(place.name) and (place / "dataset_info.json").is_file():
            prepared.append(place)
    if not prepared:
        return None
    last = max(prepared, key=lambda place: place.stat().st_mtime)
    last_commit = last.name
    last_config = last.parent.parent.name
    configs = set()
    for place in prepared:
        if place.name == last_commit:
            configs.add(place.parent.parent.name)
    if len(configs) > 1:
        return None
    builder = Cache(
        dataset_name=name,
        config_name=last_config,
        version=last.parent.name,
        hash=last_commit,
        repo_id=repository,
    )
    return DataSet(
        location=repository,
        splits=dict(builder.as_dataset()),
        config=last_config,
        revision=commit or last_commit,
    )


def _unreachable(
    repository: str,
    config: str | None,
    revision: str | None,
    reason: str,
) -> DataError:
    from huggingface_hub import constants

    name = repository.rsplit("/", 1)[-1]
    ways_out = _WAYS_OUT.format(id=repository, folder=name)
    which = f"'{repository}'"
    if config:
        which = f"'{repository}/{config}'"
    if revision:
        which += f" at revision {revision}"
    return DataError(
        f"the hub {constants.ENDPOINT} cannot be reached ({reason}), and data set {which} is "
        f"not in the cache of `datasets`: {ways_out}"
    )


def _why(error: BaseException) -> str:
    """Write another library's error in a few words."""
    is_wrapper = "error occurred while generating" in str(error)
    if is_wrapper and error.__cause__ is not None:
        error = error.__cause__
    text = first_line(error)[:300]
    return f"{type(error).__name__}: {text}"
