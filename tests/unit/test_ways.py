"""What a space's `methods` compare: which ways, on models of any depth, and what is refused."""

from __future__ import annotations

import pytest

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.space import load_space


def labels(*overrides: str, space: str = "ways", layers: int = 12) -> list[str]:
    candidates = load_space(space, overrides).candidates_for(layers)
    return [candidate.label for candidate in candidates]


def test_a_space_compares_depths_alone_unless_told_otherwise() -> None:
    assert labels(space="quick", layers=4) == ["0", "2", "3", "4"]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (12, ["0", "6", "9", "12", "bitfit", "lora", "lora-last6"]),
        (6, ["0", "3", "4", "6", "bitfit", "lora", "lora-last3"]),
        (5, ["0", "2", "3", "5", "bitfit", "lora", "lora-last3"]),
        (1, ["0", "1", "bitfit", "lora"]),
    ],
)
def test_the_shipped_space_has_every_way(layers: int, expected: list[str]) -> None:
    assert labels(layers=layers) == expected


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ("lora", ["0", "lora"]),  # the full model is what everything is compared with
        ("freeze, head", ["0", "6", "9", "12"]),
        ("[head, bitfit]", ["0", "12", "bitfit"]),
        ("freeze", ["0", "6", "9"]),
    ],
)
def test_methods_choose(methods: str, expected: list[str]) -> None:
    assert labels(f"methods={methods}") == expected


def test_a_space_of_ones_own_depths_may_name_ways_beside_them() -> None:
    assert labels("methods=freeze,lora", "depths=[3, lora-r4]") == ["3", "lora", "lora-r4"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("last=3", Lora(last=3)),
        ("last='3'", Lora(last=3)),
        ("last=1/3", Lora(last=4)),
        ("last=0.25", Lora(last=3)),
        ("last=2/5", Lora(last=5)),  # of 12 layers 4.8: rounded up, so that no more is frozen
        ("r=16", Lora(r=16, last=6)),
        ("lora_alpha=32", Lora(lora_alpha=32, last=6)),
        ("target_modules=[value, query]", Lora(target_modules=("query", "value"), last=6)),
    ],
)
def test_lora_is_set_by_pefts_names(setting: str, expected: Lora) -> None:
    space = load_space("ways", ["methods=lora_last", f"lora.{setting}"])
    assert expected in space.candidates_for(12)


def test_the_last_of_a_single_layer_is_all_of_them() -> None:
    assert labels("methods=lora_last", layers=1) == ["0", "lora"]
    with pytest.raises(SpaceError, match=r"lora\.last is 2, but this model has 1"):
        labels("methods=lora_last", "lora.last=2", layers=1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("methods=loro", "did you mean 'lora'?"),
        ("methods=[loro, loro]", "lora_last, bitfit, not 'loro'"),
        ("lora.target_modules=[1, 1]", "must be a text, not 1"),
        ("methods=[]", "must name at least one method"),
        ("methods=", "must name at least one method"),
        ("lora.r=0", "field 'lora.r' must be 1 or more, not 0"),
        ("lora.last=0", "lora.last is 0; it must be a number of layers, or a share"),
        ("lora.last=-1/2", "lora.last is '-1/2'"),
        ("lora.last=half", "lora.last is 'half'"),
        ("lora.last=2.0", "lora.last is 2.0; it must be a number of layers, or a share"),
        ("lora.last=[1]", "lora.last' must be a whole number or a number or a text, not [1]"),
        ("lora.target_modules=5", "lora.target_modules' must be a text or a list, not 5"),
        ("lora.last=1/0", "lora.last is '1/0'"),
        ("lora.last=13", "lora.last is 13, but this model has 12; set a number below that"),
        (
            "lora.last=12",
            "lora.last is 12, which is every layer of this model (it has 12); set fewer",
        ),
        (
            "lora.last=12",
            "or name the method lora, which is LoRA on all layers, instead of lora_last",
        ),
        ("lora.last=12/12", "lora.last is '12/12', which is every layer"),
        ("lora.last=19/20", "lora.last is '19/20', which is every layer"),
        ("lora.last=13/12", "lora.last is '13/12'; it must be a number of layers, or a share"),
        ("lora.last=1.0", "lora.last is 1.0, which is every layer"),
        ("lora.last='1.0'", "lora.last is '1.0', which is every layer"),
        ("lora.rank=4", "lora.rank"),
        ("lora.target_modules=[]", "target_modules is empty"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, message: str) -> None:
    with pytest.raises(SpaceError) as refused:
        labels(setting)
    assert message in str(refused.value)
