"""Whether a search that is asked for is the one that is recorded under its name."""

import dataclasses

from elsa_tune.errors import shortlist
from elsa_tune.searching.specification.keeping import load_specification, taken
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.rate_space import RateList, RateRange
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Precision
from elsa_tune.tracking.paths import SearchPaths


def check_same(asked: SearchSpec, paths: SearchPaths) -> None:
    """Raise StorageError where a search of this name is recorded with other settings."""
    if not paths.exists:
        return
    differing = differing_settings(asked, load_specification(paths))
    if differing:
        raise taken(paths, differing)


def differing_settings(asked: SearchSpec, recorded: SearchSpec) -> list[str]:
    """Return which settings a recorded search has otherwise, in words.

    Left out is what a later session may change: fewer seeds than it has, its time, its store, its
    share of the machine.
    """
    asked_settings = _decided(asked)
    recorded_settings = _decided(recorded)
    differing = []
    for name, value in asked_settings.items():
        # `auto` is settled when a search starts.
        is_settled_later = name == "precision" and value is Precision.AUTO
        before = recorded_settings.get(name)
        if value == before or is_settled_later:
            continue
        if name != "model" or not _is_moved(asked, recorded):
            differing.append(f"{name} {_shown(value)} (recorded: {_shown(before)})")
    if asked.seeds > recorded.seeds:
        differing.append(f"seeds {asked.seeds} (recorded: {recorded.seeds})")
    return differing


def _is_moved(asked: SearchSpec, recorded: SearchSpec) -> bool:
    """Return whether a model's folder has the recorded weights elsewhere, under any name.

    Where a project was copied, a folder's path is another one, and so may be its name as typed.
    """
    from elsa_tune.training.model.model_files import same_weights, weights_fingerprint

    if {asked.model.source, recorded.model.source} != {ModelSource.DIRECTORY}:
        return False
    found = weights_fingerprint(asked.model)
    return same_weights(asked.model.source, found, recorded.fingerprints.get("weights", ""))


def _decided(spec: SearchSpec) -> dict[str, object]:
    """Return by name what decides which trials a search runs, and how they train."""
    strategy_settings = {
        f"strategy_settings.{name}": value for name, value in spec.strategy_settings.items()
    }
    return {
        "model": spec.model.location,
        "task": spec.task.name,
        "kind": spec.task.kind,
        "text": spec.task.text_columns,
        "label": spec.task.label_column,
        "group": spec.task.group_column,
        "metric": spec.task.metric,
        **dataclasses.asdict(spec.task.cleaning),
        "depths": spec.candidates,
        "explored": spec.explored,
        "rates": spec.rates,
        "tries": spec.tries,
        "exploring_limit": spec.exploring_limit,
        "strategy": spec.strategy,
        **strategy_settings,
        "sampler": spec.sampler,
        "asha": spec.asha,
        "extend": spec.extend,
        "target": spec.target,
        "thorough": spec.thorough,
        "seed": spec.seed,
        "linear_probe": spec.linear_probe,
        **spec.recipe.comparable(),
    }


def _shown(value: object) -> str:
    if isinstance(value, RateList):
        return _shown(value.values)
    if isinstance(value, RateRange):
        return f"{value.low:g}..{value.high:g}"
    if isinstance(value, tuple):
        return shortlist(map(_shown, value))
    if isinstance(value, Candidate):
        return value.label
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
