"""Whether a search that is asked for is the one that is recorded under its name."""

import dataclasses

from elsa_tune.errors import shortlist
from elsa_tune.searching.specification.keeping import load_specification, taken
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.rate_space import RateList, RateRange
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Precision
from elsa_tune.tracking.paths import SearchPaths


def check_same(asked: SearchSpec, paths: SearchPaths) -> None:
    """Raise StorageError where a search of this name is recorded with other settings."""
    if paths.exists and (why := differences(asked, load_specification(paths))):
        raise taken(paths, why)


def differences(asked: SearchSpec, recorded: SearchSpec) -> list[str]:
    """Return which settings a recorded search has otherwise, in words.

    Left out is what a later session may change: fewer seeds than it has, its time, its store, its
    share of the machine.
    """
    wanted = _decided(asked)
    kept = _decided(recorded)
    found = []
    for name, value in wanted.items():
        # `auto` is settled when a search starts.
        is_settled_later = name == "precision" and value is Precision.AUTO
        if value != kept.get(name) and not is_settled_later:
            found.append(f"{name} {_shown(value)} (recorded: {_shown(kept.get(name))})")
    if asked.seeds > recorded.seeds:
        found.append(f"seeds {asked.seeds} (recorded: {recorded.seeds})")
    return found


def _decided(spec: SearchSpec) -> dict[str, object]:
    """Return by name what decides which trials a search runs, and how they train."""
    names = ("rates", "tries", "exploring_limit", "strategy", "sampler", "asha", "extend")
    return {
        "model": spec.model.location,
        "task": spec.task.name,
        "text": spec.task.text_columns,
        "label": spec.task.label_column,
        "metric": spec.task.metric,
        **dataclasses.asdict(spec.task.cleaning),
        "depths": spec.candidates,
        **{name: getattr(spec, name) for name in (*names, "target", "thorough", "seed")},
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
    return f"{value:g}" if isinstance(value, float) else str(value)
