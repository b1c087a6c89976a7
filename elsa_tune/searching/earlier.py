"""The searches that asked the same before: on equal weights and data, by an equal recipe.

Whoever asks again may have seen what they gave, so that a later search begins behind their seeds,
and its answer says how many there were. They are looked for in the folder of the searches and in
the store, once, beside what else a start does. What cannot be read is passed over: it may cost a
search neither its start nor time.
"""

import contextlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elsa_tune.searching.output import Say
from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.bounds import MOST_SEED
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.search import Earlier, SearchSpec
from elsa_tune.tracking import waiting
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.record_names import SEEDS
from elsa_tune.tracking.rows import earlier_of, policy_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore
from elsa_tune.words import listed, ordinal

# How long a start waits for the store's list once all else is ready, in seconds.
PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSearch:
    """What a search that begins must know of a recorded one."""

    name: str
    search_id: str
    comparison: Comparison
    seed: int  # of its exploring trials; measuring ones have those that follow
    seeds: int  # how many of these, at most
    before: tuple[str, ...] = ()  # the searches that it found itself, as it began

    @property
    def measuring_seeds(self) -> range:
        """The seeds that it measures with."""
        return range(self.seed + 1, self.seed + 1 + self.seeds)


class StoreListing:
    """The list of a store's searches, read by a thread of its own."""

    def __init__(self, store: RecordStore) -> None:
        self._states: list[SearchState] = []
        self._thread = threading.Thread(
            target=self._read, args=(store,), name="earlier searches", daemon=True
        )
        self._thread.start()

    def _read(self, store: RecordStore) -> None:
        with contextlib.suppress(Exception):  # the store's, the server's and the network's
            self._states = store.overview()

    def searches(self, patience: float = PATIENCE_S) -> list[RecordedSearch]:
        """Return the searches of the store; none where it has not answered by then."""
        waiting.join(self._thread, patience)
        searches = []
        for state in self._states:
            with contextlib.suppress(Exception):  # whatever an older or a newer version recorded
                searches.append(_of_state(state))
        return searches


def _of_state(state: SearchState) -> RecordedSearch:
    """Return a search as a store has it. Raises for one that does not say enough."""
    params = state.search.params
    comparison = params["comparison"]
    if isinstance(comparison, str):
        comparison = Comparison.read(comparison)
    else:
        comparison = Comparison.of(comparison)
    seeds = params.get(SEEDS)
    if seeds is None:
        # Early searches did not record it. Not more than all trials up to the first looks, or than
        # a depth has at its last one.
        last_look = policy_of(state).looks[-1]
        seeds = max(int(params["measuring_trials"]), last_look[0])
    return RecordedSearch(
        name=state.search.name,
        search_id=state.search.search_id,
        comparison=comparison,
        seed=int(params["seed"]),
        seeds=int(seeds),
        before=earlier_of(state).names,
    )


def in_folder(spec: SearchSpec, storage: Path) -> list[RecordedSearch]:
    """Return the searches of a folder that have this search's weights and data."""
    of_these = _specifications(storage, weights_and_data=_weights_and_data(spec.fingerprints))
    return [_of_specification(recorded) for recorded in of_these]


def likely_in_folder(spec: SearchSpec, storage: Path) -> list[RecordedSearch]:
    """Return the searches of a folder that ask what a planned one does, by names and recipe.

    What its weights and data are is known only when it starts.
    """
    alike = []
    for recorded in _specifications(storage):
        if _kind(recorded) == _kind(spec):
            alike.append(_of_specification(recorded))
    return alike


def _specifications(
    storage: Path, weights_and_data: tuple[str, str] | None = None
) -> list[SearchSpec]:
    """Return the specifications in a folder; what cannot be read is left out.

    weights_and_data: fingerprints, without which a specification is not read as one: that takes
    ten times as long.
    """
    specs: list[SearchSpec] = []
    with contextlib.suppress(OSError):
        for name in search_names(storage):
            paths = SearchPaths(storage, name)
            with contextlib.suppress(Exception):  # damaged, unfinished, or of a newer version
                values = json.loads(paths.specification.read_bytes())
                recorded = _weights_and_data(values["fingerprints"])
                if weights_and_data in (None, recorded):
                    specs.append(load_specification(paths))
    return specs


def _weights_and_data(fingerprints: Mapping[str, str]) -> tuple[str, str]:
    return fingerprints["weights"], fingerprints["data"]


def _kind(spec: SearchSpec) -> tuple[object, ...]:
    """Return what searches of one question share; a recorded precision is what `auto` became."""
    recipe = {**spec.recipe.comparable(), "precision": None}
    task = spec.task
    return spec.model.location, task.name, task.kind, task.metric, recipe


def _of_specification(spec: SearchSpec) -> RecordedSearch:
    return RecordedSearch(
        name=spec.name,
        search_id=spec.search_id,
        comparison=spec.comparison,
        seed=spec.seed,
        seeds=spec.seeds,
        before=spec.earlier.names,
    )


def with_earlier(
    spec: SearchSpec, recorded: Iterable[RecordedSearch], *, seed_is_given: bool
) -> SearchSpec:
    """Return a search that begins, with what asked the same before, and seeds behind theirs.

    recorded: any searches; what was found twice counts once. seed_is_given: somebody chose the
    seed, which stays.
    """
    by_id: dict[str, RecordedSearch] = {}
    for search in recorded:
        if search.comparison == spec.comparison and search.search_id != spec.search_id:
            by_id.setdefault(search.search_id, search)
    if not by_id:
        return spec
    return behind(spec, list(by_id.values()), seed_is_given=seed_is_given)


def behind(
    spec: SearchSpec, earlier: Sequence[RecordedSearch], *, seed_is_given: bool
) -> SearchSpec:
    """Return a search that begins behind these, which asked the same."""
    in_order = sorted(earlier, key=lambda search: (search.seed, search.name))
    names: list[str] = []
    used: set[int] = set()
    for search in in_order:
        names += [*search.before, search.name]
        used.update(search.measuring_seeds)
    first_free = max(used) + 1
    # So that exploring has a seed of its own, too.
    if not seed_is_given and first_free + spec.seeds <= MOST_SEED:
        spec = replace(spec, seed=first_free)
    are_fresh = used.isdisjoint(spec.measuring_seeds)
    found = Earlier(names=tuple(dict.fromkeys(names)), seeds_are_fresh=are_fresh)
    return replace(spec, earlier=found)


def say_earlier(spec: SearchSpec, say: Say) -> None:
    """Say that the question was asked before, if it was, and which seeds that leaves."""
    names = spec.earlier.names
    if not names:
        return
    place = ordinal(len(names) + 1)
    seeds = spec.measuring_seeds
    text = (
        f"search '{spec.name}' is the {place} of this question here, after {listed(names)}: each "
        "has its own error"
    )
    if spec.earlier.seeds_are_fresh:
        say(f"{text}; its measuring seeds are {seeds[0]} to {seeds[-1]}, which none of them had")
    else:
        say(
            f"{text}; its measuring seeds, {seeds[0]} to {seeds[-1]}, are not fresh: leave `seed` "
            "out for such that none of them had"
        )
