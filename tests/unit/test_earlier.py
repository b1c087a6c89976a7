"""Searches of one question know of each other, and what cannot be read costs a start nothing."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.errors import StorageError
from elsa_tune.searching.earlier import (
    RecordedSearch,
    StoreListing,
    in_folder,
    likely_in_folder,
    say_earlier,
    with_earlier,
)
from elsa_tune.searching.planning.plan import trials_in_all
from elsa_tune.searching.record import started
from elsa_tune.searching.specification import (
    check_same,
    load_specification,
    save_specification,
    with_seeds,
)
from elsa_tune.specs.bounds import MOST_SEED
from elsa_tune.specs.search import NONE_EARLIER, Earlier, SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Recipe
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import earlier_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore
from tests.unit.search_examples import make_spec, planned_request


def kept(storage: Path, name: str, **changes: Any) -> SearchSpec:
    """Record a search in a folder under a name, and return it."""
    spec = make_spec(name=name, search_id=f"id of {name}", **changes)
    paths = SearchPaths(storage, name)
    paths.check_writable()
    save_specification(spec, paths)
    return spec


def begun(storage: Path, *, seed_is_given: bool = False, **changes: Any) -> SearchSpec:
    """Return a search that begins now, after those of a folder."""
    spec = make_spec(**{"name": "new", "search_id": "new", **changes})
    return with_earlier(spec, in_folder(spec, storage), seed_is_given=seed_is_given)


def test_the_first_search_of_a_question_is_as_it_was_asked(tmp_path: Path) -> None:
    assert begun(tmp_path / "nothing").earlier == NONE_EARLIER
    assert begun(tmp_path).seed == 0


def test_a_later_search_begins_behind_the_seeds_of_every_earlier_one(tmp_path: Path) -> None:
    kept(tmp_path, "a", seeds=3)
    kept(tmp_path, "b", seed=40, seeds=2)
    later = begun(tmp_path, seeds=3)
    assert later.earlier == Earlier(names=("a", "b"), seeds_are_fresh=True)
    assert (later.seed, later.measuring_seeds) == (43, (44, 45, 46))


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprints": {"weights": "v" * 64, "data": "d" * 64}},
        {"fingerprints": {"weights": "w" * 64, "data": "e" * 64}},
        {"recipe": Recipe(epochs=3, train_size=100)},
    ],
)
def test_a_search_of_another_question_is_none_of_them(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    kept(tmp_path, "a", **changes)
    assert begun(tmp_path) == make_spec(name="new", search_id="new")


def test_other_depths_targets_and_strategies_are_the_same_question(tmp_path: Path) -> None:
    depths = make_spec().candidates
    kept(tmp_path, "a", target=0.95, candidates=depths[:2], explored=depths[:2])
    assert begun(tmp_path).earlier.names == ("a",)


def test_a_given_seed_stays_and_whether_it_is_fresh_is_said(tmp_path: Path) -> None:
    kept(tmp_path, "a", seeds=3)
    said: list[str] = []
    used = begun(tmp_path, seed_is_given=True, seed=2)
    assert used.seed == 2 and used.earlier == Earlier(names=("a",), seeds_are_fresh=False)
    say_earlier(used, said.append)
    assert said == [
        "search 'new' is the second of this question here, after a: each has its own error; its "
        "measuring seeds, 3 to 4, are not fresh: leave `seed` out for such that none of them had"
    ]
    fresh = begun(tmp_path, seed_is_given=True, seed=3)
    assert fresh.seed == 3 and fresh.earlier.seeds_are_fresh
    said.clear()
    say_earlier(fresh, said.append)
    assert said[0].endswith("its measuring seeds are 4 to 5, which none of them had")


def test_what_an_earlier_one_found_counts_though_it_was_deleted(tmp_path: Path) -> None:
    kept(tmp_path, "b", seed=5, earlier=Earlier(names=("deleted",)))
    assert begun(tmp_path).earlier.names == ("deleted", "b")


def test_no_seed_goes_beyond_the_last_one(tmp_path: Path) -> None:
    kept(tmp_path, "a", seed=MOST_SEED - 2)
    assert begun(tmp_path).seed == 0


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    kept(tmp_path, "a")
    for name, text in {"b": "{", "c": "[]", "d": '{"fingerprints": {}}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "search.json").write_text(text)
    newer = json.loads((tmp_path / "a" / "search.json").read_text())
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "search.json").write_text(json.dumps({**newer, "strategy": "of later"}))
    assert begun(tmp_path).earlier.names == ("a",)


# ---- what nothing here knows ----


@pytest.mark.parametrize(
    ("field", "value"),
    [("strategy", "of_another"), ("kind", "of_another"), ("metric", "of_another")],
)
def test_a_record_of_another_package_is_not_called_damaged(
    tmp_path: Path, field: str, value: str
) -> None:
    spec = kept(tmp_path, "a")
    paths = SearchPaths(tmp_path, "a")
    state = SearchState.replay([started(spec, 1)])
    assert trials_in_all(paths.folder, state)
    record = json.loads(paths.specification.read_text())
    holder = record if field == "strategy" else record["task"]
    holder[field] = value
    paths.specification.write_text(json.dumps(record))
    with pytest.raises(StorageError, match=r"'of_another'.*; install or import the package that"):
        load_specification(paths)
    assert trials_in_all(paths.folder, state) is None


# ---- what is recorded of it ----


def test_it_is_recorded_and_older_records_have_none(tmp_path: Path) -> None:
    earlier = Earlier(names=("a", "b"), seeds_are_fresh=False)
    kept(tmp_path, "c", earlier=earlier)
    paths = SearchPaths(tmp_path, "c")
    spec = load_specification(paths)
    assert spec.earlier == earlier
    state = SearchState.replay([started(spec, 1)])
    assert earlier_of(state) == earlier
    values = json.loads(paths.specification.read_text())
    del values["earlier"]
    paths.specification.write_text(json.dumps(values))
    assert load_specification(paths).earlier == NONE_EARLIER
    alone = started(dataclasses.replace(spec, earlier=NONE_EARLIER), 1)
    assert "earlier_searches" not in alone.tags
    assert earlier_of(SearchState.replay([alone])) == NONE_EARLIER


def test_the_same_command_goes_on_with_a_search_that_took_other_seeds(tmp_path: Path) -> None:
    space = load_space("joint", ["epochs=2"])
    asked = planned_request(tmp_path, space, "joint")
    assert not asked.seed_is_given
    begun = dataclasses.replace(asked.spec, seed=9, earlier=Earlier(names=("a",)))
    asked.paths.check_writable()
    save_specification(begun, asked.paths)
    again = planned_request(tmp_path, space, "joint")
    check_same(again.spec, again.paths)
    assert (again.spec.seed, again.spec.earlier.names) == (9, ("a",))
    given = planned_request(tmp_path, load_space("joint", ["epochs=2", "seed=0"]), "joint")
    assert given.seed_is_given and given.spec.seed == 0


def test_one_planned_seed_stays_one_whatever_is_added(tmp_path: Path) -> None:
    spec = planned_request(tmp_path, load_space("joint", ["seeds=1"]), "joint").spec
    assert (spec.seeds, spec.planned_seeds) == (1, 1)
    assert with_seeds(spec, 5).planned_seeds == 1
    # One that recorded no plan had planned what it has.
    unplanned = dataclasses.replace(spec, planned_seeds=None, seeds=3)
    assert with_seeds(unplanned, 5).planned_seeds == 3


# ---- before a search starts ----


def test_a_plan_names_those_that_ask_the_same_by_name_and_recipe(tmp_path: Path) -> None:
    planned = make_spec(name="new", search_id="new", fingerprints={})
    kept(tmp_path, "a")
    kept(tmp_path, "other", recipe=Recipe(epochs=3, train_size=100))
    found = likely_in_folder(planned, tmp_path)
    assert [search.name for search in found] == ["a"]


# ---- the store ----


class Listed:
    """A store that lists these searches, after a while or never."""

    def __init__(self, *states: SearchState, error: Exception | None = None) -> None:
        self.states = list(states)
        self.error = error
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0

    def overview(self) -> list[SearchState]:
        self.asked += 1
        self.answers.wait(200)
        if self.error is not None:
            raise self.error
        return self.states


def listing(store: Listed) -> StoreListing:
    as_store: Any = store
    asked: RecordStore = as_store
    return StoreListing(asked)


def test_searches_of_the_store_count_too_and_are_listed_once(tmp_path: Path) -> None:
    spec = kept(tmp_path, "a")
    elsewhere = make_spec(name="b", search_id="b", seed=7, seeds=4)
    store = Listed(SearchState.replay([started(spec, 1)]))
    store.states.append(SearchState.replay([started(elsewhere, 1)]))
    new = make_spec(name="new", search_id="new")
    recorded = in_folder(new, tmp_path) + listing(store).searches()
    later = with_earlier(new, recorded, seed_is_given=False)
    assert later.earlier.names == ("a", "b") and later.seed == 12
    assert store.asked == 1


def test_a_store_of_texts_says_the_same_and_an_early_one_how_many_seeds_at_most() -> None:
    spec = make_spec(name="b", search_id="b", seed=7, seeds=4)
    start = started(spec, 1)
    texts = {name: str(value) for name, value in start.params.items()}
    texts["comparison"] = str(spec.comparison)
    as_texts = SearchState.replay([dataclasses.replace(start, params=texts)])
    early = dict(texts)
    del early["seeds"]
    as_early = SearchState.replay([dataclasses.replace(start, params=early)])
    of_texts, of_early = listing(Listed(as_texts, as_early)).searches()
    assert of_texts == RecordedSearch(
        name="b", search_id="b", comparison=spec.comparison, seed=7, seeds=4
    )
    assert of_early.seeds == max(8, start.params["measuring_trials"])


def test_a_store_that_fails_or_is_damaged_costs_nothing() -> None:
    assert listing(Listed(error=OSError("gone"))).searches() == []
    spec = make_spec(name="b", search_id="b")
    damaged = SearchState.replay([dataclasses.replace(started(spec, 1), params={})])
    assert listing(Listed(damaged)).searches() == []


def test_a_store_that_does_not_answer_is_not_waited_for() -> None:
    store = Listed(SearchState.replay([started(make_spec(), 1)]))
    store.answers.clear()
    assert listing(store).searches(patience=0.1) == []
    store.answers.set()
