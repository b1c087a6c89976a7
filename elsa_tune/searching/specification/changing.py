"""What a later session may change of a recorded search: it does more, or saves otherwise."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Final

from elsa_tune.errors import SpaceError, UsageError
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.bounds import MOST
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import DataSetSource, FilesSource, GlueSource, TaskSource
from elsa_tune.tracking.artifacts.places import NONE

Change = Callable[[SearchSpec], SearchSpec]
# Fields of a SearchSpec on which no result depends, but for the last digits of sums that another
# number of threads, or another device, adds up in another order.
OF_A_SESSION: Final = (
    *("checkpoint", "artifacts"),
    *("gpu_hours", "max_workers", "hung_after", "max_failures"),
    *("cpus_per_trial", "gpus_per_trial"),
)
# Those of them that are amounts above 0.
_ABOVE_0: Final = ("gpu_hours", "max_workers", "cpus_per_trial")
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def with_seeds(spec: SearchSpec, seeds: int) -> SearchSpec:
    """Return the search with this number of measuring seeds, at least as many as now.

    Those beyond the planned ones count for the curve, not for the certificate. Raises SpaceError.
    """
    return strategy_of(spec).with_seeds(seeds)


def until_certain(spec: SearchSpec) -> SearchSpec:
    """Return the search that takes every look it planned. Raises SpaceError without any."""
    return strategy_of(spec).until_certain()


def more_of(
    seeds: int | None, until_certified: bool, settings: Mapping[str, Any] = NOTHING
) -> Change | None:
    """Return what `seeds`, `until` and settings ask of a recorded search; None for nothing.

    settings: fields of a SearchSpec by name, of those that any session may set; None leaves one as
    it is. `artifacts` is as `artifacts_url` returns it. Raises UsageError for `seeds` and `until`
    at once, and for a number that is none; SpaceError for more seeds than a search can have.
    """
    if seeds is not None and until_certified:
        raise UsageError("`seeds` and `until` exclude each other: a hunt chooses its own seeds")
    changes: list[Change] = []
    if seeds is not None:
        check_seeds(seeds)
        changes.append(functools.partial(with_seeds, seeds=seeds))
    if until_certified:
        changes.append(until_certain)
    given = {name: value for name, value in settings.items() if value is not None}
    check_amounts(given)
    if given.get("artifacts") == NONE:
        given["artifacts"] = None
    if given:
        changes.append(functools.partial(replace, **given))
    if not changes:
        return None
    if len(changes) == 1:
        return changes[0]
    return functools.partial(_changed, changes=changes)


def check_seeds(seeds: int) -> None:
    """Raise SpaceError for more measuring seeds than a search can have."""
    if seeds > MOST:
        raise SpaceError(f"`seeds` is {seeds:,}; it must be at most {MOST:,}")


def check_amounts(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a setting that is no amount of what it is to be; None is any."""
    for name, value in settings.items():
        if value is None:
            continue
        # Written so that nan, which compares to nothing, is refused too.
        if name in _ABOVE_0 and not 0 < value < math.inf:
            raise UsageError(f"`{name}` is {value:g}; it must be above 0")
        if name == "gpus_per_trial" and not 0 <= value < math.inf:
            raise UsageError(f"`{name}` is {value:g}; it must be 0 or more")


def _changed(spec: SearchSpec, changes: Sequence[Change]) -> SearchSpec:
    """Return the search after one change behind the other."""
    for change in changes:
        spec = change(spec)
    return spec


def asked_settings(asked: SearchSpec) -> dict[str, Any]:
    """Return the settings of a search that is asked for, as `more_of` takes them.

    Those that it leaves at their defaults stay as recorded.
    """
    settings = {}
    for field in fields(SearchSpec):
        value = getattr(asked, field.name)
        if field.name in OF_A_SESSION and value != field.default:
            settings[field.name] = value
    return settings


def where_asked(asked: SearchSpec, more: Change | None = None) -> Change:
    """Return what has a recorded search read its files where the one that is asked for has them.

    They may have been moved: a job's folder is another one each time. Whoever goes on compares
    their content. more: what else is to change.
    """

    def changed(recorded: SearchSpec) -> SearchSpec:
        moved = _with_files_of(recorded, asked)
        return moved if more is None else more(moved)

    return changed


def _with_files_of(recorded: SearchSpec, asked: SearchSpec) -> SearchSpec:
    model = recorded.model
    if {model.source, asked.model.source} == {ModelSource.DIRECTORY}:
        model = replace(model, location=asked.model.location)
    source = _moved(recorded.task.source, asked.task.source)
    return replace(recorded, model=model, task=replace(recorded.task, source=source))


def _moved(recorded: TaskSource, asked: TaskSource) -> TaskSource:
    """Return where rows come from, with the files of another one of its kind."""
    if isinstance(recorded, FilesSource) and isinstance(asked, FilesSource):
        return replace(recorded, train=asked.train, evaluation=asked.evaluation)
    if isinstance(recorded, GlueSource) and isinstance(asked, GlueSource):
        is_local = None not in (recorded.data_dir, asked.data_dir)
        return replace(recorded, data_dir=asked.data_dir) if is_local else recorded
    if isinstance(recorded, DataSetSource) and isinstance(asked, DataSetSource):
        is_local = {recorded.revision, asked.revision} == {None}
        return replace(recorded, location=asked.location) if is_local else recorded
    return recorded
