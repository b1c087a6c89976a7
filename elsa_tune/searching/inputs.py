"""From a user's words to checked values; heavy imports come after the cheap checks."""

import re
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from elsa_tune.errors import SpaceError, UsageError
from elsa_tune.files import slug
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.model import ModelSpec, default_epochs, resolve_model
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Recipe, TrialSpec
from elsa_tune.tasks.draft import GUESSED, Columns
from elsa_tune.tasks.known import GLUE_TASKS
from elsa_tune.tasks.task_file import has_columns, resolve_task
from elsa_tune.tracking.paths import SearchPaths, StorePaths
from elsa_tune.tracking.uris import shown_uri

if TYPE_CHECKING:
    from elsa_tune.specs.space import Space

DEFAULT_SPACE = "joint"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_STAMP = "%Y%m%d-%H%M%S"
# Another search may have them otherwise, and finds the same.
_NOT_REPEATED = ("name", "tracking_uri", "storage_path", "address")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a search or a trial is asked to do, checked against the model's configuration."""

    model: ModelSpec
    layers: int
    task: TaskSpec
    space: "Space"
    space_name: str
    recipe: Recipe

    def trial(
        self, depth: Candidate = REFERENCE, learning_rate: float = 2e-5, seed: int = 1
    ) -> TrialSpec:
        """One trial of it; raises SpaceError for a depth that the model does not have."""
        return TrialSpec(
            model=self.model,
            task=self.task,
            recipe=self.recipe,
            depth=depth.check(self.layers),
            learning_rate=learning_rate,
            seed=seed,
        )


def read_inputs(
    model: str,
    task: str,
    *,
    space: str = DEFAULT_SPACE,
    overrides: Sequence[str] = (),
    data_dir: str | None = None,
    columns: Columns = GUESSED,
) -> Inputs:
    """Check what can be checked without data or weights; raises UsageErrors, cheapest first."""
    from elsa_tune.specs.space import load_space

    wanted = load_space(space, overrides)
    model_spec = resolve_model(model, wanted.revision)
    metric = wanted.metric.value if wanted.metric else None
    task_spec = resolve_task(task, data_dir, metric, columns)

    from elsa_tune.training.model.encoder import facts
    from elsa_tune.training.model.pooling import check_pooling
    from elsa_tune.training.model.refusals import check_complete

    known = facts(model_spec)
    check_complete(model_spec)
    recipe = wanted.recipe(default_epochs(known.model_type))
    check_pooling(recipe.pooling, known.model_type, model)
    positions = known.max_positions
    if positions is not None and recipe.max_length > positions:
        raise SpaceError(
            f"max_length is {recipe.max_length}, but {model} has {positions} positions; "
            f"it must be 8..{positions}"
        )
    return Inputs(
        model=model_spec,
        layers=known.layers,
        task=task_spec,
        space=wanted,
        space_name=space,
        recipe=recipe,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where data, records and Ray are, and what a trial takes, as typed."""

    data_dir: str | None = None
    tracking_uri: str | None = None
    storage_path: str | None = None
    address: str | None = None
    gpus_per_trial: float | None = None
    cpus_per_trial: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(Places):
    """A search's options as they are typed. task: of several, each is a search of its own. label,
    text: columns of a task that is a table. settings: fields of the space, as `epochs=6`.
    """

    model: str
    task: list[str]
    label: str | None = None
    text: list[str] | None = None
    space: str = DEFAULT_SPACE
    name: str | None = None
    trials: int | None = None
    seeds: int | None = None
    train_size: int | None = None
    max_time: str | None = None
    gpu_hours: float | None = None
    until: Literal["certified"] | None = None
    metric: str | None = None
    settings: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Inputs):
    """A search as it was asked for, each part checked by itself.

    trials: exploring trials in all, seeds: measuring trials per depth; None takes the space's.
    max_time: seconds. gpu_hours: hours of a GPU, in all. cpus_per_trial and gpus_per_trial: None
    lets the machine decide. whole_ladder: of a hunt, whose depths others are to have too. command:
    what is typed to ask the same again, "" where that is not known.
    """

    name: str
    storage: Path
    tracking_uri: str
    trials: int | None = None
    seeds: int | None = None
    max_time: float | None = None
    gpu_hours: float | None = None
    until_certified: bool = False
    address: str | None = None
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None
    whole_ladder: bool = False
    command: str = ""


def search_command(options: SearchOptions) -> str:
    """The command line that starts such a search, which is called by the time of its start.

    Left out is what only says where records and Ray are.
    """
    words = ["elsa-tune", "search"]
    inherited = {one.name for one in fields(Places)}
    for one in sorted(fields(SearchOptions), key=lambda one: one.name in inherited):
        value = getattr(options, one.name)
        if one.name in _NOT_REPEATED or value in (None, one.default):
            continue
        option = "--set" if one.name == "settings" else f"--{one.name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        for each in values:
            words += [option, f"{each:g}" if isinstance(each, float) else str(each)]
    return shlex.join(map(shown_uri, words))


def read_requests(options: SearchOptions) -> list[Request]:
    """A search for each task, in their order; of several each is called by the name and its task.

    Errors as in `read_inputs`; UsageError where two would share a name.
    """
    tasks = [name for given in options.task for name in _listed(given)]
    if len(tasks) == 1:
        return [read_request(options, tasks[0])]
    if (options.max_time, options.gpu_hours) != (None, None):
        raise UsageError(
            "`max_time` and `gpu_hours` limit one search; end several by `timeout 2h elsa-tune ...`"
        )
    found = [read_request(_options_of(task, options, tasks), task) for task in tasks]
    name = options.name or slug(f"{Path(found[0].model.name).name}-{time.strftime(_STAMP)}")
    names = [slug(f"{name}-{one.task.name}") for one in found]
    for one, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"{count} of the tasks would share the search name '{one}'")
    command = search_command(options)
    pairs = zip(found, names, strict=True)
    return [replace(one, name=name, whole_ladder=True, command=command) for one, name in pairs]


def _options_of(task: str, options: SearchOptions, tasks: Sequence[str]) -> SearchOptions:
    """Those for one of the tasks: a folder of GLUE tasks and a table's columns are not for tasks
    of other kinds that stand beside such ones.
    """
    if task not in GLUE_TASKS and GLUE_TASKS.keys() & set(tasks):
        options = replace(options, data_dir=None)
    if not has_columns(task) and any(map(has_columns, tasks)):
        options = replace(options, label=None, text=None)
    return options


def _listed(given: str) -> list[str]:
    """The tasks that a text file lists, one a line; any other name is one itself."""
    if not given.endswith(".txt"):
        return [given]
    try:
        lines = Path(given).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`task` {given} cannot be read as a list of tasks: {error}") from error
    if not (names := list(filter(None, map(str.strip, lines)))):
        raise UsageError(f"`task` {given} lists no task; write one on each line")
    return names


def read_request(options: SearchOptions, name: str) -> Request:
    """The search on the task of this name; errors as in `read_inputs`."""
    if name == "all":
        raise UsageError("`task` all: name each of the tasks")
    overrides = list(options.settings or ())
    if options.train_size is not None:
        overrides.append(f"train_size={options.train_size}")
    if options.metric is not None:
        overrides.append(f"metric={options.metric}")
    seconds = None if options.max_time is None else read_duration(options.max_time)
    places = StorePaths(Path.cwd())
    storage = places.storage_at(options.storage_path)
    uri = places.tracking_uri(options.tracking_uri)
    if options.name is not None:
        SearchPaths(storage, options.name)  # raises for a name that is no name
    inputs = read_inputs(
        options.model,
        name,
        space=options.space,
        overrides=overrides,
        data_dir=options.data_dir,
        columns=Columns(options.label, tuple(options.text or ())),
    )
    # Readable, sortable, and free unless two start in one second.
    default = f"{Path(inputs.model.name).name}-{inputs.task.name}"
    return Request(
        **{field.name: getattr(inputs, field.name) for field in fields(inputs)},
        name=options.name or slug(f"{default}-{time.strftime(_STAMP)}"),
        storage=storage,
        tracking_uri=uri,
        trials=options.trials,
        seeds=options.seeds,
        max_time=seconds,
        gpu_hours=options.gpu_hours,
        until_certified=read_until(options.until),
        address=options.address,
        cpus_per_trial=options.cpus_per_trial,
        gpus_per_trial=options.gpus_per_trial,
        command=search_command(options),
    )


def read_until(text: str | None) -> bool:
    """Whether a hunt is to take every look it planned: `certified`, the only word there is."""
    if text not in (None, "certified"):
        raise UsageError(f"`until` {text}: the only choice is certified")
    return text is not None


def read_duration(text: str) -> float:
    """`90`, `90s`, `30m`, `2h`, `1d` in seconds, above 0."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"`max_time` {text}: write a time above 0 such as 90s, 30m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]
