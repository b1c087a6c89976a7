"""A search as it is asked for: its options, read and planned in one step.

Heavy imports come after the cheap checks.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elsa_tune.errors import StorageError, UsageError
from elsa_tune.files import LONGEST_NAME, slug
from elsa_tune.searching.cluster.join_address import asked_address
from elsa_tune.searching.inputs import (
    Inputs,
    SearchOptions,
    asked_inputs,
    check_max_failures,
    read_checkpoint,
    read_duration,
    read_hung_after,
    read_until,
    search_command,
)
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tasks.known import GLUE_TASKS
from elsa_tune.tasks.task_file import has_columns
from elsa_tune.tracking.artifacts.places import asked_artifacts, check_apart
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.words import metric_text

_STAMP = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A search that is asked for: its specification, and what concerns this session alone."""

    # As it is planned; what data, weights and machine are is filled in when it starts.
    spec: SearchSpec
    storage: Path  # the folder that its own is in
    tracking_uri: str  # of a new search's store, with credentials, which a specification never has
    # The store that an option names, likewise: a recorded search that goes on is moved there. None
    # without it.
    named_uri: str | None = None
    seeds: int | None = None  # measuring seeds that were asked for; None takes the space's
    seed_is_given: bool = False  # whether the space or an option says where seeds are counted from
    until_certified: bool = False  # whether a hunt is to take every look it planned

    @property
    def name(self) -> str:
        """The search's name."""
        return self.spec.name

    @property
    def columns(self) -> str:
        """The columns and the metric that the task takes, in words; some may be guessed."""
        task = self.spec.task
        texts = " and ".join(task.text_columns)
        labels = f"{len(task.classes)} classes" if task.classes else "numbers"
        group = "" if task.group_column is None else f", group {task.group_column}"
        label = f"label {task.label_column} ({labels})"
        return f"task {task.name}: text {texts}, {label}{group}, {metric_text(task.metric)}"

    @property
    def paths(self) -> SearchPaths:
        """The places where the search is, or will be."""
        return SearchPaths(self.storage, self.spec.name)


def read_requests(options: SearchOptions) -> list[Request]:
    """Return a search for each task, in their order.

    Of several each is called by the name and its task. Errors as in `read_request`; UsageError
    where two would share a name.
    """
    tasks = []
    for given in options.task:
        tasks += listed_tasks(given)
    if len(tasks) == 1:
        return [read_request(options, tasks[0])]
    if options.max_time is not None or options.gpu_hours is not None:
        raise UsageError(
            "`max_time` and `gpu_hours` limit one search; end several by `timeout 2h elsa-tune ...`"
        )
    all_options = []
    for task in tasks:
        task_options = _options_of(task, options, tasks)
        all_options.append(_checked(task_options, task))
    all_inputs = []
    for task, task_options in zip(tasks, all_options, strict=True):
        inputs = asked_inputs(task_options, task)
        all_inputs.append(inputs)
    model = Path(all_inputs[0].model.name).name
    longest_task = max(len(slug(inputs.task.name)) for inputs in all_inputs)
    name = options.name or _name_of(model, room=LONGEST_NAME - longest_task - 1)
    names = [slug(f"{name}-{inputs.task.name}") for inputs in all_inputs]
    for shared, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"{count} of the tasks would share the search name '{shared}'")
    command = search_command(options)
    requests = []
    for task_options, inputs, task_name in zip(all_options, all_inputs, names, strict=True):
        named = replace(task_options, name=task_name)
        request = request_of(named, inputs, is_one_of_several=True, command=command)
        requests.append(request)
    return requests


def _name_of(what: str, room: int = LONGEST_NAME) -> str:
    """Return a name for a search of a model and a task, of at most so many characters.

    It is readable, sortable, and free unless two start in one second.
    """
    stamp = time.strftime(_STAMP)
    shortened = slug(what)[: max(1, room - len(stamp) - 1)]
    return slug(f"{shortened}-{stamp}")


def read_request(options: SearchOptions, task: str) -> Request:
    """Return the search on one task.

    Raises UsageErrors, cheapest first: for options, for what model, task or space are not, and for
    what contradicts itself.
    """
    inputs = asked_inputs(_checked(options, task), task)
    return request_of(options, inputs, command=search_command(options))


def request_of(
    options: SearchOptions,
    inputs: Inputs,
    *,
    is_one_of_several: bool = False,
    command: str = "",
) -> Request:
    """Return the search that the options ask for on a model and a task.

    is_one_of_several: each has the depths of the others, so that their answers can be joined.
    command: what is typed to ask the same again, "" where that is not known. Raises SpaceError
    where the options contradict each other, UsageError for resources that no machine has, and for
    a copy that would lie among the records.
    """
    # Plans need libraries that are slow to import: only once everything else is checked.
    from elsa_tune.searching.specification import specify

    places = StorePaths(Path.cwd())
    storage = places.storage_at(options.storage_path)
    uri = places.tracking_uri(options.tracking_uri)
    artifacts = asked_artifacts(options.artifacts, Path.cwd())
    name = options.name or _name_of(f"{Path(inputs.model.name).name}-{inputs.task.name}")
    paths = SearchPaths(storage, name)
    if artifacts is not None:
        check_apart(artifacts, paths)
    recorded = _recorded(paths)
    spec = specify(
        replace(options, name=name, tracking_uri=uri, artifacts=artifacts),
        inputs,
        policy=None if recorded is None else recorded.policy,
        joined=is_one_of_several,
        command=command,
    )
    seed_is_given = "seed" in inputs.space.model_fields_set
    if recorded is not None and recorded.earlier.names and not seed_is_given:
        # As it began, it took a seed behind those of the searches that it found.
        spec = replace(spec, seed=recorded.seed, earlier=recorded.earlier)
    return Request(
        spec=spec,
        storage=storage,
        tracking_uri=uri,
        named_uri=None if options.tracking_uri is None else uri,
        seeds=options.seeds,
        seed_is_given=seed_is_given,
        until_certified=read_until(options.until),
    )


def _recorded(paths: SearchPaths) -> SearchSpec | None:
    """Return the search that has this name, None where there is none."""
    from elsa_tune.searching.specification import load_specification

    with contextlib.suppress(StorageError):  # why it cannot be read is said when it is gone on with
        if paths.exists:
            return load_specification(paths)
    return None


def _checked(options: SearchOptions, task: str) -> SearchOptions:
    """Return the options, if what is cheap to check about them is right. Raises UsageErrors."""
    if task == "all":
        raise UsageError("`task` all: name each of the tasks")
    _check_utf8(options, task)
    if options.max_time is not None:
        read_duration(options.max_time)
    read_checkpoint(options.checkpoint)
    asked_address(options.address)
    read_hung_after(options.hung_after)
    check_max_failures(options.max_failures)
    places = StorePaths(Path.cwd())
    storage = places.storage_at(options.storage_path)
    places.tracking_uri(options.tracking_uri)
    asked_artifacts(options.artifacts, Path.cwd())
    if options.name is not None:
        SearchPaths(storage, options.name)  # raises for a name that is no name
    return options


def _check_utf8(options: SearchOptions, task: str) -> None:
    """Raise UsageError for a path that is not UTF-8: no search's record could name it."""
    paths = {
        "the working directory": str(Path.cwd()),
        "`task`": task,
        "`model`": options.model,
        "`space`": options.space,
        "`data_dir`": options.data_dir,
        "`storage_path`": options.storage_path,
        "`tracking_uri`": options.tracking_uri,
        "`artifacts`": options.artifacts,
    }
    for what, path in paths.items():
        try:
            (path or "").encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{what} {path} has a name that is not UTF-8, which no record of a search can "
                "hold; rename it, or take another"
            ) from error


def _options_of(task: str, options: SearchOptions, tasks: Sequence[str]) -> SearchOptions:
    """Return the options for one of the tasks.

    A folder of GLUE tasks and a table's columns are not for tasks of other kinds beside such ones.
    """
    some_are_glue = any(name in GLUE_TASKS for name in tasks)
    if some_are_glue and task not in GLUE_TASKS:
        options = replace(options, data_dir=None)
    some_are_tables = any(has_columns(name) for name in tasks)
    if some_are_tables and not has_columns(task):
        options = replace(options, label=None, text=None, group=None)
    return options


def listed_tasks(given: str) -> list[str]:
    """Return the tasks that a text file lists, one a line; any other name is one itself."""
    if not given.endswith(".txt"):
        return [given]
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`task` {given} cannot be read as a list of tasks: {error}") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise UsageError(f"`task` {given} lists no task; write one on each line")
    return names
