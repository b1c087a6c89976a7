"""GLUE from the Hugging Face hub, through `datasets`: from its local cache, or over the network."""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elsa_tune.errors import DataError, first_line
from elsa_tune.specs.known_tasks import HUB_REPOSITORY
from elsa_tune.specs.task import TaskKind, TaskSpec
from elsa_tune.tables.table_file import Table, cell_text

PROBE_SECONDS = 5.0
WAYS_OUT = (
    "Give a local GLUE folder with `data_dir`, take `task` stdlib, which needs no download, "
    "or run once with network access"
)


def read_hub_splits(task: TaskSpec, config: str, splits: Sequence[str]) -> dict[str, Table]:
    """The splits of `nyu-mll/glue:CONFIG`, from the local cache if they are there.

    Raises DataError, within seconds, where the hub does not answer and nothing is cached.
    """
    loaded = _load(task, config)
    missing = [split for split in splits if split not in loaded]
    if missing:
        raise DataError(
            f"task '{task.name}': {HUB_REPOSITORY} has no split '{missing[0]}' for '{config}'; it "
            f"has {', '.join(loaded)}"
        )
    return {
        split: _table(task, Path(HUB_REPOSITORY, config, split), loaded[split]) for split in splits
    }


def _load(task: TaskSpec, config: str) -> Any:
    # Imported here: 1 s and pandas, for the one source that needs it.
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    # The cache first: a hundred trials must not ask the hub a hundred times, nor change data in
    # mid-search.
    with contextlib.suppress(ConnectionError, FileNotFoundError, ValueError), _offline():
        return datasets.load_dataset(HUB_REPOSITORY, config)
    _check_reachable(task)
    try:
        return datasets.load_dataset(HUB_REPOSITORY, config)
    except Exception as error:  # the many ways of a hub, a proxy or a mirror to fail
        raise DataError(
            f"task '{task.name}': {HUB_REPOSITORY} could not be loaded from the hub "
            f"({type(error).__name__}: {first_line(error)[:300]}). {WAYS_OUT}"
        ) from error


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """`datasets` reads HF_HUB_OFFLINE once, at import; this is the switch that it then looks at."""
    from datasets import config
    from datasets.utils import logging

    before, verbosity = config.HF_HUB_OFFLINE, logging.get_verbosity()
    config.HF_HUB_OFFLINE = True
    logging.set_verbosity_error()
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before
        logging.set_verbosity(verbosity)


def _check_reachable(task: TaskSpec) -> None:
    """One short question first: the hub's own client retries for minutes where nothing answers."""
    from datasets import config

    endpoint = str(config.HF_ENDPOINT)
    said = os.environ.get("HF_HUB_OFFLINE", "").lower()
    if config.HF_HUB_OFFLINE or said in ("1", "true", "yes", "on"):
        reason = "HF_HUB_OFFLINE is set"
    else:
        reason = _silence(endpoint)
    if reason:
        raise DataError(
            f"task '{task.name}' is not in the local cache of `datasets` and the hub cannot be "
            f"asked ({reason}). {WAYS_OUT}"
        )


def _silence(endpoint: str) -> str:
    """Why nothing answers at the endpoint; empty where something does, whatever it says."""
    request = urllib.request.Request(endpoint, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError:
        return ""
    except urllib.error.URLError as error:
        # A certificate that urllib does not trust is an answer; the hub's client has its own store.
        return "" if "CERTIFICATE" in str(error.reason) else f"{endpoint}: {error.reason}"
    except (OSError, ValueError) as error:
        return f"{endpoint}: {error}"
    return ""


def _table(task: TaskSpec, where: Path, rows: Any) -> Table:
    """Labels as their texts, so that hub and files go through the same judgement; -1 stays -1."""
    wanted = [*task.text_columns, task.label_column]
    missing = [name for name in wanted if name not in rows.column_names]
    if missing:
        raise DataError(
            f"{where} has no column '{missing[0]}'; its columns are {', '.join(rows.column_names)}"
        )
    columns: dict[str, list[str | None]] = {}
    for name in wanted:
        values = rows[name][:]
        if name == task.label_column and task.kind is TaskKind.CLASSIFICATION:
            names = dict(enumerate(task.classes))
            values = [names.get(value, value) for value in values]
        columns[name] = [
            cell_text(value, f"{where} row {row}", name)
            for row, value in enumerate(values, start=1)
        ]
    return Table(where, columns, list(range(1, len(rows) + 1)))
