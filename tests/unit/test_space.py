"""Search spaces: shipped ones parse, and fields are checked.

An error says file, field, value and what is allowed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elsa_tune.errors import SpaceError, UnknownNameError
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.rate_space import RateList, RateRange
from elsa_tune.specs.space import load_space, shipped_spaces
from elsa_tune.specs.trial import Selection
from tests.registering import registered


@pytest.mark.parametrize("name", shipped_spaces())
def test_a_shipped_space_parses_by_name_and_by_path(name: str) -> None:
    assert load_space(name) == load_space(f"search_spaces/{name}.yaml")


def test_the_default_is_the_joint_search_of_the_design() -> None:
    space = load_space("joint")
    assert [depth.label for depth in space.candidates_for(12)] == ["0", *map(str, range(6, 13))]
    assert space.rates == RateRange(low=1e-5, high=5e-5, step=1e-5)
    assert space.rates.values == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    assert space.seeds == 3 and space.recipe(3).epochs == 3


def test_half_of_an_odd_number_of_layers_is_rounded_down() -> None:
    assert [d.label for d in load_space("joint").candidates_for(5)] == ["0", "2", "3", "4", "5"]


def test_the_low_resource_depths_scale_with_the_model() -> None:
    space = load_space("low_resource")
    labels = [depth.label for depth in space.candidates_for(12)]
    assert labels == ["0", "embeddings", "2", "4", "8", "10", "12"]
    assert [d.label for d in space.candidates_for(6)] == [
        "0",
        "embeddings",
        "1",
        "2",
        "4",
        "5",
        "6",
    ]
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
    assert load_space("joint", ["asha=null"]).asha is None
    graces = [space.asha.grace_of(evaluations) for evaluations in (1, 2, 3, 4, 6)]
    assert graces == [1, 1, 2, 2, 3]  # half of them
    hunt = load_space("hunt").asha
    assert hunt is not None and [hunt.grace_of(count) for count in (1, 2, 3, 4, 10)] == [
        1,
        1,
        1,
        2,
        4,
    ]
    count = load_space("hunt", ["asha.grace=2"]).asha
    assert count is not None and [count.grace_of(planned) for planned in (3, 10)] == [2, 2]
    assert load_space("joint", ["learning_rate=3e-5"]).rates == RateList(values=(3e-5,))


@pytest.mark.parametrize("depths", ["0,4,6", "0, 8/12,embeddings", "bitfit,0"])
def test_depths_need_no_brackets(depths: str) -> None:
    listed = load_space("quick", [f"depths=[{depths}]"])
    assert load_space("quick", [f"depths={depths}"]).depths == listed.depths


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("epoch=6", ["unknown field 'epoch'", "did you mean 'epochs'"]),
        ("lr=3e-5", ["unknown field 'lr': did you mean 'learning_rate'?"]),
        ("per_device_train_batch_size=8", ["did you mean 'batch_size'?"]),
        ("training={}", ["unknown field 'training'"]),
        ("paint=red", ["unknown field 'paint': known: asha, batch_size, depths"]),
        ("epochs=0", ["field 'epochs' must be 1 or more, not 0"]),
        ("epochs=many", ["field 'epochs' must be a whole number, not 'many'"]),
        ("batch_size=1.5", ["field 'batch_size' must be a whole number, not 1.5"]),
        ("extend=[1]", ["field 'extend' must be true or false, not [1]"]),
        ("asha=3", ["field 'asha' must be a table of `field: value`, not 3"]),
        ("learning_rate=0", ["field 'learning_rate'", "0", "above 0"]),
        ("learning_rate=2", ["field 'learning_rate'", "2", "up to 1"]),
        ("learning_rate=[1e-5, 0]", ["field 'learning_rate'", "above 0"]),
        ("learning_rate.low=6e-5", ["learning_rate", "must be below high"]),
        ("learning_rate={low: 1e-5, high: 1.0001e-5}", ["less than 1 % apart; write one rate"]),
        ("asha.reduction_factor=1", ["field 'asha.reduction_factor' must be above 1, not 1"]),
        ("asha.grac=1", ["unknown field 'asha.grac': did you mean 'asha.grace'?"]),
        ("learning_rate.lo=1", ["learning_rate", "unknown field 'lo': did you mean 'low'?"]),
        ("learning_rate=null", ["field 'learning_rate' must be a rate", "not None"]),
        ("depths=[]", ["field 'depths' must be half, all, or a list of depths", "not []"]),
        ("depths=0,,6", ["field 'depths'"]),
        ("depths=[1.5]", ["depths", "1.5"]),
        ("depths=[0, -2]", ["depths", "-2"]),
        ("depths=[0, 13/12]", ["depths", "13/12", "8/12"]),
        ("depths=[zero]", ["depths", "zero", "embeddings"]),
        ("learning_rate=from_full_model", ["full_model_learning_rate", "go together"]),
        ("precision=fp64", ["precision", "fp64", "bf16"]),
        ("metric=bleu", ["metric", "bleu", "accuracy"]),
        ("metric=macro_f1", ["not 'macro_f1': did you mean 'f1_macro'?"]),
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


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = ["epochs=0", "lr=1", "asha.grace=x", "depths=no", "precision=b16", "seeds=0"]
    with pytest.raises(SpaceError) as caught:
        load_space("joint", wrong)
    said = str(caught.value)
    assert "\n" not in said and len(said.split("; ")) == len(wrong)
    for name in ("epochs", "lr", "asha.grace", "depths", "precision", "seeds"):
        assert f"'{name}'" in said


def test_a_table_of_mistakes_is_counted() -> None:
    said = r"'zzz_0': known: asha, .*; unknown field 'zzz_1'; .*'zzz_9'; and 15 more$"
    with pytest.raises(SpaceError, match=said):
        load_space("joint", [f"zzz_{number}=1" for number in range(25)])


def test_a_depth_above_the_model_is_refused() -> None:
    with pytest.raises(SpaceError, match="frozen_layers is 11, but the model has 6 layers"):
        load_space("joint", ["depths=[0, 11]"]).candidates_for(6)


def test_a_way_of_another_package_is_named_as_a_method_or_in_depths() -> None:
    with registered("tests.low_rank") as low_rank:
        space = load_space("joint", ["methods=low_rank"])
        assert space.candidates_for(6) == (REFERENCE, low_rank.LowRank(8))
        with pytest.raises(SpaceError, match=r"low_rank, not 'low8', which .* depths=\[0,low8\]"):
            load_space("joint", ["methods=[freeze,low8]"])
    for name in ("low8", "low_rank"):
        with pytest.raises(SpaceError, match=rf"bitfit, not '{name}'"):
            load_space("joint", [f"methods=[freeze,{name}]"])


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
        with pytest.raises(SpaceError, match="field 'holdout' must be"):
            load_space("quick", ["selection=holdout", f"holdout={share}"])


def test_results_with_a_holdout_are_comparable_with_their_like_only() -> None:
    recipes = [
        load_space("quick", settings).recipe(3).comparable()
        for settings in ([], ["selection=holdout"], ["selection=holdout", "holdout=0.2"])
    ]
    assert recipes[0]["holdout"] is None
    assert [recipe["holdout"] for recipe in recipes[1:]] == [0.1, 0.2]
