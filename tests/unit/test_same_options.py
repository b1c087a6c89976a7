"""Which settings make a search another one than the one that is recorded under its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from elsa_tune.searching.specification import differing_settings
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from tests.unit.search_examples import planned_request


def asked(folder: Path, *settings: str) -> SearchSpec:
    space = load_space("joint", settings)
    return planned_request(folder, space, "joint").spec


@pytest.mark.parametrize("settings", [(), ("strategy=hunt",)])
def test_the_same_options_are_the_same_search(tmp_path: Path, settings: tuple[str, ...]) -> None:
    assert differing_settings(asked(tmp_path, *settings), asked(tmp_path, *settings)) == []


def test_rates_for_every_depth_are_not_those_of_the_full_model_for_all(tmp_path: Path) -> None:
    everywhere = asked(tmp_path, "learning_rate=[2e-5,5e-5]")
    of_full_model = asked(
        tmp_path, "learning_rate=from_full_model", "full_model_learning_rate=[2e-5,5e-5]"
    )
    for wanted, recorded in ((everywhere, of_full_model), (of_full_model, everywhere)):
        (difference,) = differing_settings(wanted, recorded)
        assert difference.startswith("explored ")


def test_a_search_without_a_probe_is_not_one_with_it(tmp_path: Path) -> None:
    difference = differing_settings(asked(tmp_path, "linear_probe=false"), asked(tmp_path))
    assert difference == ["linear_probe False (recorded: True)"]
