"""From a user's words to checked values; heavy imports come after the cheap checks."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Literal

from elsa_tune.errors import SpaceError, UsageError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.model import ModelSpec, default_epochs, resolve_model
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

    def check(self, candidates: Iterable[Candidate]) -> None:
        """Raise SpaceError for a candidate that the model cannot be adapted to."""
        from elsa_tune.training.adapt import methods
        from elsa_tune.training.model.encoder import skeleton

        methods.check(candidates, partial(skeleton, self.model))

    def trial(
        self, candidate: Candidate = REFERENCE, learning_rate: float = 2e-5, seed: int = 1
    ) -> TrialSpec:
        """One trial of it; raises SpaceError for a candidate that the model does not have."""
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
    """A search's options as they are typed.

    task: of several, each is a search of its own. label, text: columns of a task that is a
    table. settings: fields of the space, as `epochs=6`.
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


def search_command(options: SearchOptions) -> str:
    """Return the command line that starts such a search, which is called by the time of its start.

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


def asked_inputs(options: SearchOptions, task: str) -> Inputs:
    """Return what the options ask for on one task; errors as in `read_inputs`."""
    overrides = list(options.settings or ())
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
        columns=Columns(options.label, tuple(options.text or ())),
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
