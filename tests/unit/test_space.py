"""Search spaces: shipped ones parse, fields are checked, and an error says file, field, value and
what is allowed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elsa_tune.errors import SpaceError, UnknownNameError
from elsa_tune.specs.search import RateList, RateRange
from elsa_tune.specs.shipped import search_space_folder
from elsa_tune.specs.space import load_space
from elsa_tune.specs.trial import Selection


@pytest.mark.parametrize(
    "name", [file.stem for file in sorted(search_space_folder().glob("*.yaml"))]
)
def test_a_shipped_space_parses_by_name_and_by_path(name: str) -> None:
    assert load_space(name) == load_space(f"search_spaces/{name}.yaml")


def test_the_default_is_the_joint_search_of_the_design() -> None:
    space = load_space("joint")
    assert [depth.label for depth in space.depths_for(12)] == ["0", *map(str, range(6, 13))]
    assert space.rates == RateRange(low=1e-5, high=5e-5, step=1e-5)
    assert space.rates.values == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    assert space.seeds == 3 and space.recipe(3).epochs == 3


def test_half_of_an_odd_number_of_layers_is_rounded_down() -> None:
    assert [d.label for d in load_space("joint").depths_for(5)] == ["0", "2", "3", "4", "5"]


def test_the_low_resource_depths_scale_with_the_model() -> None:
    space = load_space("low_resource")
    labels = [depth.label for depth in space.depths_for(12)]
    assert labels == ["0", "embeddings", "2", "4", "8", "10", "12"]
    assert [d.label for d in space.depths_for(6)] == ["0", "embeddings", "1", "2", "4", "5", "6"]
    recipe = space.recipe(default_epochs=3)
    assert (recipe.epochs, recipe.evaluations) == (10, 20)
    assert recipe.selection is Selection.BEST_EPOCH


def test_the_paper_explores_the_full_model_alone() -> None:
    space = load_space("paper")
    assert space.follows_full_model and space.rates.values is not None
    assert len(space.rates.values) == 5


def test_set_overrides_fields_deep_ones_too() -> None:
    space = load_space(
        "joint",
        ["epochs=6", "learning_rate=[5e-5, 2e-5]", "asha.reduction_factor=3", "depths=[0, 11]"],
    )
    assert space.epochs == 6 and space.rates == RateList(values=(2e-5, 5e-5))
    assert space.asha is not None and space.asha.reduction_factor == 3
    assert load_space("joint", ["asha=null"]).asha_setting(4) is None
    asked = [space.asha_setting(evaluations) for evaluations in (1, 2, 3, 4, 6)]
    assert [asha and asha.grace for asha in asked] == [1, 1, 2, 2, 3]  # half of them
    assert load_space("joint", ["learning_rate=3e-5"]).rates == RateList(values=(3e-5,))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("epoch=6", ["unknown field 'epoch'", "did you mean 'epochs'"]),
        ("epochs=0", ["field 'epochs'", "0", "greater than or equal to 1"]),
        ("learning_rate=0", ["field 'learning_rate'", "0", "above 0"]),
        ("learning_rate=2", ["field 'learning_rate'", "2", "up to 1"]),
        ("learning_rate=[1e-5, 0]", ["field 'learning_rate'", "above 0"]),
        ("learning_rate.low=6e-5", ["learning_rate", "must be below high"]),
        ("asha.reduction_factor=1", ["asha", "greater than 1"]),
        ("asha.grac=1", ["asha.grac"]),
        ("depths=[]", ["depths", "empty"]),
        ("depths=[0, -2]", ["depths", "-2"]),
        ("depths=[0, 13/12]", ["depths", "13/12", "8/12"]),
        ("depths=[zero]", ["depths", "zero", "embeddings"]),
        ("learning_rate=from_full_model", ["full_model_learning_rate", "go together"]),
        ("precision=fp64", ["precision", "fp64", "bf16"]),
        ("metric=bleu", ["metric", "bleu", "accuracy"]),
        ("epochs", ["key=value"]),
        ("=3", ["key=value"]),
    ],
)
def test_a_wrong_value_gets_one_clear_sentence(override: str, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        load_space("joint", [override])
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_depth_above_the_model_is_refused() -> None:
    with pytest.raises(SpaceError, match="frozen_layers is 11, but the model has 6 layers"):
        load_space("joint", ["depths=[0, 11]"]).depths_for(6)


def test_an_unknown_space_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'quick'"):
        load_space("quik")


def test_a_broken_file_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "mine.yaml"
    broken.write_text("depths: [0, 1")
    with pytest.raises(SpaceError, match=r"mine\.yaml cannot be read"):
        load_space(broken)
    broken.write_text("- a list")
    with pytest.raises(SpaceError, match="must be a table"):
        load_space(broken)


def test_numbers_that_yaml_takes_for_text_are_read() -> None:
    """YAML 1.1 reads 1e-5 (without a dot) as a string."""
    space = load_space("joint", ["learning_rate={low: 1e-5, high: 3e-5}"])
    assert space.rates == RateRange(low=1e-5, high=3e-5, step=None)


def test_a_holdout_belongs_to_its_selection() -> None:
    recipe = load_space("quick", ["selection=holdout"]).recipe(3)
    assert (recipe.selection, recipe.holdout) == (Selection.HOLDOUT, 0.1)
    assert load_space("quick", ["selection=holdout", "holdout=0.3"]).recipe(3).holdout == 0.3
    with pytest.raises(SpaceError, match=r"holdout is 0.3, but selection is last; set selection"):
        load_space("quick", ["holdout=0.3"]).recipe(3)
    for share in ("0", "0.6"):
        with pytest.raises(SpaceError, match="'holdout' came as"):
            load_space("quick", ["selection=holdout", f"holdout={share}"])


def test_results_with_a_holdout_are_comparable_with_their_like_only() -> None:
    recipes = [
        load_space("quick", settings).recipe(3).comparable()
        for settings in ([], ["selection=holdout"], ["selection=holdout", "holdout=0.2"])
    ]
    assert recipes[0]["holdout"] is None
    assert [recipe["holdout"] for recipe in recipes[1:]] == [0.1, 0.2]
