"""A data set of the hub: which commit is meant, and its rows from there or from the cache."""

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elsa_tune.errors import DataError, first_line
from elsa_tune.tasks.data_sets.data_set import DataSet, shown_names

# Seconds until a hub that does not answer counts as unreachable.
TIMEOUT = 5.0

_COMMIT = re.compile(r"[0-9a-f]{40}")

_ON = ("1", "true", "yes", "on")  # of an environment variable

_WAYS_OUT = (
    "on a machine with a network run `hf download {id} --repo-type dataset --local-dir {folder}`, "
    "copy the folder here and name it by `task` ./{folder}, or take `task` stdlib, which needs no "
    "download"
)


def of_hub(repository: str, config: str | None, revision: str | None) -> DataSet:
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
        reason = why(error)
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
    builder = None
    try:
        builder = datasets.load_dataset_builder(name, config, revision=commit)
        if builder.hash != commit:
            raise OSError("the hub stopped answering")
        builder.download_and_prepare()
        splits = builder.as_dataset()
    except MemoryError:
        raise
    except Exception as error:  # of datasets, pyarrow, pandas and the hub's client
        if builder is None and isinstance(error, ValueError):
            check_configuration(repository, config, configurations(name, commit))
        if type(error).__name__ in ("DataFilesNotFoundError", "EmptyDatasetError"):
            raise DataError(
                f"the hub's data set '{repository}' holds no file of rows that `datasets` reads "
                "(Parquet, CSV, JSON); take another copy of it"
            ) from error
        if "gated" in str(error).lower():
            raise _gated(repository) from error
        raise DataError(
            f"the hub's data set '{repository}' cannot be read at {commit[:12]} ({why(error)})"
        ) from error
    return DataSet(repository, dict(splits), builder.config.name, commit)


def _gated(repository: str) -> DataError:
    from huggingface_hub import constants

    return DataError(
        f"the hub gives data set '{repository}' only to those who accepted its terms: accept them "
        f"on {constants.ENDPOINT}/datasets/{repository}, then run `hf auth login`"
    )


def configurations(name: str, commit: str | None = None) -> list[str]:
    """Return the names of a data set's configurations; none where they cannot be had."""
    import datasets

    try:
        return list(datasets.get_dataset_config_names(name, revision=commit))
    except Exception:  # the first error is said instead
        return []


def check_configuration(location: str, config: str | None, names: Sequence[str]) -> None:
    """Raise DataError where the configurations of these names leave open which one is meant.

    Does nothing without names: they could not be had.
    """
    if config in names or not names:
        return
    if config is None and len(names) == 1:
        return
    fault = "has several configurations" if config is None else f"has no configuration '{config}'"
    shown = shown_names(sorted(names), 20)
    ways = "give `config` in a task file"
    if not os.path.isabs(location):
        ways = f"write `task` hub:{location}/CONFIG, or {ways}"
    raise DataError(f"data set '{location}' {fault}; it has {shown}: {ways}")


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


def why(error: BaseException) -> str:
    """Write another library's error in a few words."""
    is_wrapper = "error occurred while generating" in str(error)
    if is_wrapper and error.__cause__ is not None:
        error = error.__cause__
    text = first_line(error)[:300]
    return f"{type(error).__name__}: {text}"
