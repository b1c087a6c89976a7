"""Turns a user's words into checked values; heavy imports come after the cheap checks."""

import contextlib
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Literal

from elsa_tune.errors import SpaceError, UsageError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.model import ModelSpec, default_epochs, resolve_model
from elsa_tune.specs.search import CheckpointEvery, HungAfter
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Recipe, TrialSpec
from elsa_tune.tasks.draft import GUESSED, Columns
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.uris import shown_uri

if TYPE_CHECKING:
    from elsa_tune.specs.space import Space

DEFAULT_SPACE = "joint"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_STAMP = "%Y%m%d-%H%M%S"
# Another search may have them otherwise, and finds the same.
_OF_PLACES = ("name", "tracking_uri", "storage_path", "address", "artifacts")
_OF_MACHINES = ("max_workers", "hung_after", "max_failures", "checkpoint")
_NOT_REPEATED = (*_OF_PLACES, *_OF_MACHINES)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a search or a trial is asked to do, checked against the model's configuration."""

    model: ModelSpec  # which one, and where it comes from
    layers: int  # L of the model
    task: TaskSpec  # what is learnt, with the metric that was asked for
    space: "Space"  # with what overrides changed
    space_name: str  # as it was asked for: a name, or a file's path
    recipe: Recipe  # how every trial trains, as the space says

    def check(self, candidates: Iterable[Candidate]) -> None:
        """Raise SpaceError for a candidate that the model cannot be adapted to.

        Raises ExtensionError for a method or a kind of label that workers cannot import.
        """
        from elsa_tune.tasks.types.registry import check_importable
        from elsa_tune.training.adapt import methods
        from elsa_tune.training.model.encoder import skeleton

        check_importable(self.task)
        methods.check(candidates, partial(skeleton, self.model))

    def trial(
        self, candidate: Candidate = REFERENCE, learning_rate: float = 2e-5, seed: int = 1
    ) -> TrialSpec:
        """Return one trial of it. Raises SpaceError for a candidate that the model has not."""
        candidate.check(self.layers)
        self.check([candidate])
        return TrialSpec(
            model=self.model,
            task=self.task,
            recipe=self.recipe,
            candidate=candidate,
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

    from elsa_tune.training.model.encoder import check_complete, facts
    from elsa_tune.training.model.pooling import check_pooling

    model_facts = facts(model_spec)
    check_complete(model_spec)
    recipe = wanted.recipe(default_epochs(model_facts.model_type))
    check_pooling(recipe.pooling, model_facts.model_type, model)
    positions = model_facts.max_positions
    if positions is not None and recipe.max_length > positions:
        raise SpaceError(
            f"max_length is {recipe.max_length}, but {model} has {positions} positions; "
            f"it must be 8..{positions}"
        )
    return Inputs(
        model=model_spec,
        layers=model_facts.layers,
        task=task_spec,
        space=wanted,
        space_name=space,
        recipe=recipe,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The places of data, records and Ray, and what a trial takes, as typed."""

    data_dir: str | None = None  # of GLUE's tasks; None takes them from the hub
    tracking_uri: str | None = None  # of the MLflow store
    storage_path: str | None = None  # the folder that holds the searches
    address: str | None = None  # of a running Ray cluster; None, or `none`, for this machine
    gpus_per_trial: float | None = None  # None lets the machine decide
    cpus_per_trial: float | None = None  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(Places):
    """A search's options as they are typed."""

    model: str
    task: list[str]  # of several, each is a search of its own
    label: str | None = None  # the column with the labels, where the task is a table
    text: list[str] | None = None  # likewise the columns with the texts
    group: str | None = None  # likewise the column whose equal cells make rows one unit
    space: str = DEFAULT_SPACE
    methods: str | None = None  # of the space, with commas
    name: str | None = None  # of the search; None makes one
    trials: int | None = None  # most exploring trials
    seeds: int | None = None  # measuring seeds; None takes the space's
    train_size: int | None = None  # labelled examples in use; None for all
    max_time: str | None = None  # as `read_duration` takes it
    gpu_hours: float | None = None  # most hours of a GPU, in all
    max_workers: int | None = None  # most trials at once
    until: Literal["certified"] | None = None  # whether a hunt takes every look it planned
    checkpoint: str = "auto"  # as `read_checkpoint` takes it
    artifacts: str | None = None  # where the record is copied to, as `artifacts_url` takes it
    hung_after: str = "auto"  # as `read_hung_after` takes it
    max_failures: int | None = None  # trials that may fail in a session
    metric: str | None = None  # the headline metric; None takes the task's
    settings: list[str] | None = None  # fields of the space, as `epochs=6`


def search_command(options: SearchOptions) -> str:
    """Return the command line that starts such a search, which is called by the time of its start.

    Left out is what only says where records and Ray are.
    """
    words = ["elsa-tune", "search", *option_words(options, left_out=_NOT_REPEATED)]
    return shlex.join(map(shown_uri, words))


def option_words(options: SearchOptions, left_out: Sequence[str] = ()) -> list[str]:
    """Return the options that differ from their defaults as they are typed, word by word.

    left_out: fields that are not written.
    """
    words = []
    places = {field.name for field in fields(Places)}
    search_first = sorted(fields(SearchOptions), key=lambda field: field.name in places)
    for field in search_first:
        given = getattr(options, field.name)
        if field.name in left_out or given in (None, field.default):
            continue
        option = field.name.replace("_", "-")
        if field.name == "settings":
            option = "set"
        values = given if isinstance(given, list) else [given]
        for value in values:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            words.append(f"--{option}")
            words.append(text)
    return words


def asked_inputs(options: SearchOptions, task: str) -> Inputs:
    """Return what the options ask for on one task; errors as in `read_inputs`."""
    overrides = list(options.settings or ())
    if options.methods is not None:
        overrides.append(f"methods={options.methods}")
    if options.train_size is not None:
        overrides.append(f"train_size={options.train_size}")
    if options.metric is not None:
        overrides.append(f"metric={options.metric}")
    return read_inputs(
        options.model,
        task,
        space=options.space,
        overrides=overrides,
        data_dir=options.data_dir,
        columns=Columns(options.label, tuple(options.text or ()), options.group),
    )


def read_until(text: str | None) -> bool:
    """Return whether a hunt is to take every look it planned: `certified`, the only word."""
    if text not in (None, "certified"):
        raise UsageError(f"`until` {text}: the only choice is certified")
    return text is not None


def read_checkpoint(text: str) -> CheckpointEvery:
    """Return how often a running trial's state is saved: `auto`, `never` or a time."""
    return _auto_never_or_time(text, "checkpoint")


def read_hung_after(text: str) -> HungAfter:
    """Return when a trial without news counts as hung: `auto`, `never` or a time."""
    return _auto_never_or_time(text, "hung_after")


def _auto_never_or_time(text: str, setting: str) -> Literal["auto", "never"] | float:
    word = text.strip().lower()
    if word == "auto":
        return "auto"
    if word == "never":
        return "never"
    return read_duration(text, setting, "auto, never, or a time above 0")


def check_max_failures(count: int | None) -> None:
    """Raise UsageError for a number of trials that cannot fail."""
    if count is not None and count < 0:
        raise UsageError(f"`max_failures` is {count}; it must be 0 or more")


def read_gpu_share(text: str) -> float | None:
    """Return the part of a GPU that a trial takes; None for `auto`, which leaves it to the search.

    Raises UsageError for what is no number.
    """
    if text.strip().lower() == "auto":
        return None
    with contextlib.suppress(ValueError):
        return float(text)
    raise UsageError(f"`gpus_per_trial` {text}: write auto, 1, a share such as 0.5, or 0")


def read_share_again(text: str) -> float:
    """Return the part of a GPU that a trial of a recorded search is to take from now on.

    Raises UsageError for what is no number; `auto` is only for a search that begins.
    """
    with contextlib.suppress(ValueError):
        return float(text)
    raise UsageError(
        f"`gpus_per_trial` {text}: write 1, a share such as 0.5, or 0; without it the search goes "
        "on with the share that it had"
    )


def read_duration(text: str, setting: str = "max_time", allowed: str = "a time above 0") -> float:
    """Return a time such as `90`, `90s`, `30m`, `2h` or `1d` in seconds, above 0.

    setting, allowed: what an error calls it, and says that it may be.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is not None:
        number, unit = match.groups()
        seconds = float(number) * _SECONDS[unit]
        if seconds > 0:
            return seconds
    raise UsageError(f"`{setting}` {text}: write {allowed} such as 90s, 30m, 2h or 1d")
