"""A published study as a plan of ordinary searches, carried out one after another.

It must not print or lay out anything. A search's name follows from study, model, task and training
size, so the same command finds what is there, goes on with it, and adds only what is missing.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.errors import ElsaTuneError, InterruptedSearchError, StorageError, UsageError
from elsa_tune.search.launch import resume, start
from elsa_tune.search.specification import Request, load_specification, specify
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import Space
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Phase, Recipe
from elsa_tune.studies.protocols import Study
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.lock import is_held
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One model on one task with one number of training examples: what one search answers."""

    study: Study
    model: ModelSpec
    layers: int
    task: TaskSpec
    space: Space
    space_name: str
    recipe: Recipe

    @property
    def name(self) -> str:
        """Its search's name: `elsa-minilm-rte`, and `elsa-minilm-rte-1000` for 1,000 examples."""
        parts = [self.study.value, Path(self.model.name).name, self.task.name]
        if self.recipe.train_size is not None:
            parts.append(str(self.recipe.train_size))
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)).strip("-._")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSearch:
    """A search of a plan: a part, with so many measuring seeds at each depth."""

    part: Part
    seeds: int

    @property
    def name(self) -> str:
        """The search's name."""
        return self.part.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where searches are kept and what their trials take; None lets the machine decide."""

    storage: Path
    tracking_uri: str
    address: str | None = None
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a planned search has come. status: None where it has not begun.

    left: trials to go, by depth. trials: of its whole plan. is_complete: nothing is left to do.
    """

    search: PlannedSearch
    status: SearchStatus | None
    trials: int
    left: Counter[FreezeDepth]
    is_complete: bool


# ---- the plan ----


def recorded_searches(storage: Path) -> dict[str, SearchSpec]:
    """The specifications of all searches in a storage folder that can be read, by name."""
    found = {}
    for name in search_names(storage):
        with contextlib.suppress(StorageError):
            found[name] = load_specification(SearchPaths(storage, name))
    return found


def plan(
    parts: Sequence[Part], seeds: int, recorded: Mapping[str, SearchSpec]
) -> tuple[PlannedSearch, ...]:
    """A search for each part with so many seeds, or as many as a recorded one has if that is more:
    what is measured stays.

    Raises UsageError where two parts would share a name, StorageError where a recorded search of a
    part's name was asked something else.
    """
    for name, count in Counter(part.name for part in parts).items():
        if count > 1:
            raise UsageError(
                f"{count} of the models and tasks would share the search name '{name}'; reproduce "
                "them one by one, in different folders"
            )
    planned = []
    for part in parts:
        spec = recorded.get(part.name)
        if spec is not None:
            _check_alike(part, spec)
        there = 0 if spec is None else spec.seeds
        planned.append(PlannedSearch(part=part, seeds=max(seeds, there)))
    return tuple(planned)


def _check_alike(part: Part, spec: SearchSpec) -> None:
    """Raise StorageError unless the recorded search was asked the same."""
    asked = {
        "model": part.model.location,
        "metric": part.task.metric,
        "depths": part.space.depths_for(part.layers),
        **part.recipe.comparable(),
    }
    came = {
        "model": spec.model.location,
        "metric": spec.task.metric,
        "depths": spec.depths,
        **spec.recipe.comparable(),
    }
    # `auto` is settled when a search starts.
    different = [name for name in asked if asked[name] != came.get(name) and name != "precision"]
    if different:
        raise StorageError(
            f"search '{spec.name}' is recorded with another {', '.join(different)} than this study "
            f"asks for; delete it by `elsa-tune searches --delete {spec.name}`, or name another "
            "place with --storage-path"
        )


def request_of(search: PlannedSearch, place: Place) -> Request:
    """The request that starts it."""
    part = search.part
    return Request(
        name=search.name,
        model=part.model,
        layers=part.layers,
        task=part.task,
        recipe=part.recipe,
        space=part.space,
        space_name=part.space_name,
        storage=place.storage,
        tracking_uri=place.tracking_uri,
        seeds=search.seeds,
        address=place.address,
        cpus_per_trial=place.cpus_per_trial,
        gpus_per_trial=place.gpus_per_trial,
    )


def standing(search: PlannedSearch, place: Place) -> Standing:
    """How far it has come, from its journal; raises StorageError where that cannot be read."""
    spec = specify(request_of(search, place))
    wanted = Counter({depth: spec.seeds for depth in spec.depths})
    wanted.update({depth: spec.tries for depth in spec.explored})
    state = recorded_state(SearchPaths(place.storage, search.name))
    final = [] if state is None else [row for row in rows_of(state) if row.status.is_final]
    rows = [row for row in final if row.phase is not Phase.PROBE]
    measured = sum(row.phase is Phase.MEASURE for row in rows)
    is_complete = state is not None and state.is_complete and measured >= spec.measuring_trials
    left: Counter[FreezeDepth] = Counter()
    if not is_complete:
        left = wanted - Counter(row.depth for row in rows)
    return Standing(
        search=search,
        status=None if state is None else state.status,
        trials=wanted.total(),
        left=left,
        is_complete=is_complete,
    )


def recorded_state(paths: SearchPaths) -> SearchState | None:
    """What its journal says; None for a search that has not begun.

    Raises StorageError where the journal cannot be read.
    """
    if not paths.journal.exists():
        return None
    return SearchState.replay(read_journal(paths.journal), alive=is_held(paths.lock))


# ---- carrying it out ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """How carrying out a plan ended. failed: searches that are not whole, with the reason."""

    interrupted: bool = False
    time_up: bool = False
    failed: tuple[tuple[str, str], ...] = ()


def carry_out(
    searches: Sequence[PlannedSearch], place: Place, say: Say, max_time: float | None = None
) -> Carried:
    """Start what has not begun and go on with what is not whole, in the plan's order.

    A search that fails, or whose journal cannot be read, does not keep the others from running.
    max_time: seconds in all; the search that is under way then is interrupted, and goes on when the
    plan is carried out again. Raises UsageErrors before the first search starts where weights or
    data of any are missing.
    """
    failed: list[tuple[str, str]] = []
    with _limited(max_time) as clock:
        try:
            _check_inputs([one for one in searches if not _is_complete(one, place)])
            for number, search in enumerate(searches, start=1):
                if _is_complete(search, place):
                    continue
                if clock.is_up:
                    return Carried(time_up=True, failed=tuple(failed))
                say(f"search {number} of {len(searches)}: {search.name}")
                status, message = _carry_out_one(search, place, say)
                if status is SearchStatus.INTERRUPTED:
                    return Carried(
                        interrupted=not clock.is_up, time_up=clock.is_up, failed=tuple(failed)
                    )
                if status is not SearchStatus.COMPLETED:
                    say(f"search '{search.name}' is not whole: {message}")
                    failed.append((search.name, message))
        except KeyboardInterrupt:
            # Between two searches, or before one of them takes signals itself.
            return Carried(interrupted=not clock.is_up, time_up=clock.is_up, failed=tuple(failed))
    return Carried(failed=tuple(failed))


def _is_complete(search: PlannedSearch, place: Place) -> bool:
    try:
        return standing(search, place).is_complete
    except ElsaTuneError:
        return False  # its turn says why


def _check_inputs(searches: Sequence[PlannedSearch]) -> None:
    """Each model's weights, each task's data tokenised for it, and every recipe against them: what
    the last search lacks should not be said hours after the first one began.
    """
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.model.encoder import pinned, weights_fingerprint
    from elsa_tune.training.schedule import evaluation_steps

    parts = [one.part for one in searches]
    for model in {part.model.location: part.model for part in parts}.values():
        weights_fingerprint(pinned(model))
    # A task's sizes are subsets of the same rows.
    for part in {(part.model.location, part.task.name): part for part in parts}.values():
        prepare(part.model, part.task, part.recipe)
    for part in parts:
        if part.recipe.train_size is not None:
            evaluation_steps(part.recipe, part.recipe.train_size)


def _carry_out_one(search: PlannedSearch, place: Place, say: Say) -> tuple[SearchStatus, str]:
    paths = SearchPaths(place.storage, search.name)
    try:
        if paths.exists:
            # A limit that the search was started with was that of another session.
            finished = resume(
                paths,
                say,
                seeds=search.seeds,
                max_time=math.inf,
                tracking_uri=place.tracking_uri,
                address=place.address,
            )
        else:
            finished = start(request_of(search, place), say)
    except InterruptedSearchError as error:
        return SearchStatus.INTERRUPTED, str(error)
    except ElsaTuneError as error:
        return SearchStatus.FAILED, str(error)
    if finished.unsent:
        say(f"{finished.unsent} records did not reach MLflow; `elsa-tune resume {search.name}`")
    return finished.status, finished.message


class _Clock:
    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def is_up(self) -> bool:
        return time.monotonic() >= self._end


@contextlib.contextmanager
def _limited(seconds: float | None) -> Iterator[_Clock]:
    """Interrupt this process after so many seconds, as Ctrl-C does.

    A search's own `max_time` would shorten the line search over learning rates and then measure at
    the rate found so far, which is another protocol; what Ctrl-C cuts off is run again.
    """
    clock = _Clock(seconds)
    if seconds is None:
        yield clock
        return
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    # A shell starts what runs in its background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        yield clock
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
