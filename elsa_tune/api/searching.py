"""`search` and `resume` from Python."""

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

import pandas as pd

from elsa_tune.api.arguments import Time, given_of, json_of, storage_at, text_of, time_text
from elsa_tune.api.asking import Search
from elsa_tune.errors import DataError, RunError, UsageError
from elsa_tune.searching.answering import Finished
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.output import say
from elsa_tune.searching.request import read_request
from elsa_tune.specs.arguments import checked
from elsa_tune.specs.space_fields import SpaceFields
from elsa_tune.tasks.frames import write_task
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths

# A task's name or file, or its rows: a DataFrame, two of them, or a mapping of splits.
Task: TypeAlias = str | Path | pd.DataFrame | Sequence[Any] | Mapping[str, Any]


@checked("task")
def search(
    model: str | Path,
    task: Task,
    *,
    name: str | None = None,
    space: str | Path | None = None,
    methods: str | Sequence[str] | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    group: str | None = None,
    regression: bool | None = None,
    task_name: str | None = None,
    drop_leaked: bool | None = None,
    drop_duplicates: bool | None = None,
    drop_contradictions: bool | None = None,
    merge_labels: bool | None = None,
    missing_labels: Sequence[str] | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    train_size: int | None = None,
    metric: str | None = None,
    max_time: Time | None = None,
    gpu_hours: float | None = None,
    max_workers: int | None = None,
    until: Literal["certified"] | None = None,
    checkpoint: Time | None = None,
    artifacts: str | Path | None = None,
    hung_after: Time | None = None,
    max_failures: int | None = None,
    data_dir: str | Path | None = None,
    tracking_uri: str | None = None,
    storage_path: str | Path | None = None,
    address: str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | Literal["auto"] | None = None,
    **fields: Unpack[SpaceFields],
) -> Search:
    """`elsa-tune search`: run a search to its end, or go on with the one of this name.

    model: a known name, a local folder or a hub id. task: a known name, `hub:owner/name`, a folder
    that `save_to_disk` wrote, a task file, or rows: a DataFrame (a fifth is held out), a pair
    (training, evaluation), or a Dataset or DatasetDict. Rows are kept beside the searches, under
    `task_name` ("own"); `text` names one or two of their columns ("text"), `label` one ("label"),
    as they do for a task that is a table or a data set, which may tell them itself; rows without a
    label are skipped, and counted. group: a column whose equal cells (one document, one user) make
    rows one unit, which counts once in every certificate. regression: whether the labels of given
    rows are numbers to predict; by default their values tell. drop_leaked, drop_duplicates,
    drop_contradictions, merge_labels, missing_labels: of given rows, as in a task file.

    name: by default model, task and time. space: a shipped one or a file, by default `joint`.
    methods: what is compared, of `freeze` (the space's depths), `head`, `lora`, `lora_last`,
    `bitfit` and what an installed package brings. trials: exploring trials in all. seeds: measuring
    trials per depth. train_size: a subset of the training rows. max_time: `90s`, `30m` or `2h`, a
    number of seconds, or a timedelta; then the search ends with what is done, as at so many
    `gpu_hours`, counted while trials hold GPUs, in every session. max_workers: trials at once.
    until: `certified`, in a hunt.
    checkpoint: how often a running trial's state is saved: `never`, a time, or `auto`. hung_after:
    when a trial without news is begun again: likewise. artifacts: a folder or URL that keeps a copy
    of the record, from where the search is fetched where this machine has none of its name.
    max_failures: how many trials may fail. The others are the command's. fields: of the space, as
    `epochs=6` or `depths=[0, 3]`.

    A Ray that runs in this process already is used and left running. Raises UsageErrors before any
    work starts, RunError where the plan was not completed.
    """
    given: dict[str, Any] = {
        "space": text_of(space),
        "name": name,
        "trials": trials,
        "seeds": seeds,
        "train_size": train_size,
        "metric": metric,
        "max_time": None if max_time is None else time_text(max_time),
        "gpu_hours": gpu_hours,
        "max_workers": max_workers,
        "until": until,
        "checkpoint": None if checkpoint is None else time_text(checkpoint),
        "artifacts": text_of(artifacts),
        "hung_after": None if hung_after is None else time_text(hung_after),
        "max_failures": max_failures,
        "data_dir": text_of(data_dir),
        "tracking_uri": tracking_uri,
        "storage_path": text_of(storage_path),
        "address": address,
        "cpus_per_trial": cpus_per_trial,
        "gpus_per_trial": None if gpus_per_trial == "auto" else gpus_per_trial,
    }
    options = given_of(given)
    if methods is not None:
        options["methods"] = methods if isinstance(methods, str) else ",".join(methods)
    of_rows: dict[str, Any] = {
        "regression": regression,
        "drop_leaked": drop_leaked,
        "drop_duplicates": drop_duplicates,
        "drop_contradictions": drop_contradictions,
        "merge_labels": merge_labels,
        "missing_labels": None if missing_labels is None else list(missing_labels),
    }
    described = given_of(of_rows)
    kept: Path | None = None  # the task file of rows that are given here
    if not isinstance(task, str | Path):
        paths = StorePaths(Path.cwd())
        storage = paths.storage_at(text_of(storage_path))
        place = paths.rows_of(storage)
        further = given_of({"group": group, **described})
        kept = write_task(task, place, task_name or "own", text, label, further)
        task = kept
    elif described or task_name is not None:
        first = next(iter(described), "task_name")
        raise UsageError(f"`{first}` is for rows that are given here; task '{task}' has its own")
    else:
        options["label"] = label
        options["group"] = group
        options["text"] = [text] if isinstance(text, str) else text
    settings = []
    for field, value in fields.items():
        settings.append(f"{field}={json_of(field, value)}")
    wanted = SearchOptions(model=str(model), task=[str(task)], settings=settings, **options)
    from elsa_tune.searching.fetched import fetch_lacking
    from elsa_tune.searching.launch import start

    try:
        request = read_request(wanted, str(task))
        if fetch_lacking([request], say):
            request = read_request(wanted, str(task))
        say(f"search: {request.columns}")
        with _keeping_random_state():
            finished = start(request, say)
    except DataError as error:
        if kept is not None:
            error.args = (_of_given_rows(str(error), kept),)
        raise
    return _ended(finished)


def _of_given_rows(text: str, task_file: Path) -> str:
    """Return an error with the rows and an argument in place of their files and a field."""
    about_rows = text.replace(f"task file {task_file}:", "the given rows:")
    folder = task_file.resolve().parent
    for part, name in (("train", "training"), ("evaluation", "evaluation")):
        file = f"{folder}/{part}.parquet"
        rows = f"the given {name} rows"
        for count in ("row", "line"):  # a row is a line
            about_rows = about_rows.replace(f"{file} {count} ", f"{rows}: row ")
        about_rows = about_rows.replace(file, rows)
    return about_rows.replace("regression: true", "regression=True")


@checked()
def resume(
    name: str | Search,
    *,
    seeds: int | None = None,
    until: Literal["certified"] | None = None,
    max_time: Time | None = None,
    gpu_hours: float | None = None,
    max_workers: int | None = None,
    checkpoint: Time | None = None,
    artifacts: str | Path | None = None,
    hung_after: Time | None = None,
    max_failures: int | None = None,
    storage_path: str | Path | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
) -> Search:
    """`elsa-tune resume`: go on with a search, or give it more seeds.

    name: a search's, or itself. Arguments and errors are those of `search`; by default the search's
    own. storage_path: where a search of this name is; a `Search` knows its own. artifacts: the
    store of its copy, from where it is fetched where it is not there; `none` copies it no more.
    address: of a cluster, or `none` for this machine.
    """
    from elsa_tune.searching.resuming import ResumeOptions, resume_as_asked

    storage = storage_at(storage_path)
    options = ResumeOptions(
        seeds=seeds,
        until=until,
        max_time=None if max_time is None else time_text(max_time),
        tracking_uri=tracking_uri,
        address=address,
        checkpoint=None if checkpoint is None else time_text(checkpoint),
        hung_after=None if hung_after is None else time_text(hung_after),
        gpu_hours=gpu_hours,
        max_workers=max_workers,
        max_failures=max_failures,
        artifacts=text_of(artifacts),
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
    )
    wanted: str | SearchPaths
    if isinstance(name, Search):
        wanted = name.paths
        if storage_path is not None and storage.resolve() != wanted.storage.resolve():
            raise UsageError(
                f"`storage_path` is {storage_path}, but search '{name.name}' is in "
                f"{wanted.storage}; leave it out, or give the search's name"
            )
    else:
        wanted = name
    with _keeping_random_state():
        finished = resume_as_asked(wanted, storage, options, say)
    return _ended(finished)


@contextlib.contextmanager
def _keeping_random_state() -> Iterator[None]:
    """Leave Python's own generator as it was: Ray draws from it."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


def _ended(finished: Finished) -> Search:
    """Say what is missing; raise where the plan was not carried out."""
    if finished.status is SearchStatus.TIME_UP:
        say(f"search '{finished.spec.name}': {finished.message}; `resume` continues it")
    if finished.unsent:
        say(f"{finished.unsent_words}; `resume` sends the rest")
    if finished.uncopied:
        say(finished.uncopied)
    if finished.unwritten:
        raise RunError(finished.unwritten)
    if finished.status is SearchStatus.INTERRUPTED:
        name = finished.spec.name
        raise KeyboardInterrupt(f"search '{name}' is saved; `elsa_tune.resume` continues it")
    if finished.status is SearchStatus.FAILED:
        raise RunError(f"search '{finished.spec.name}' is not complete: {finished.message}")
    return Search(finished.paths.name, finished.paths.storage)
