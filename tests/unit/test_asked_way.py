"""What a user may type to name a measured way."""

from __future__ import annotations

import pytest

from elsa_tune.errors import UsageError
from elsa_tune.exporting.asked_way import asked_way
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.space import load_space
from tests.registering import registered

FULL = FreezeDepth(0, False)
LAST_TWO = FreezeDepth(4, True)
LAST_THREE = FreezeDepth(3, True)
HEAD = FreezeDepth(6, True)
WAYS: list[Candidate] = [FULL, LAST_THREE, LAST_TWO, HEAD, BitFit(), Lora(), Lora(last=3)]


@pytest.mark.parametrize(
    ("text", "way"),
    [
        # As everywhere, a number counts frozen layers.
        ("4", LAST_TWO),
        ("0", FULL),
        ("full", FULL),
        ("the full model", FULL),
        ("Full Model", FULL),
        ("6", HEAD),
        ("head", HEAD),
        ("the head alone", HEAD),
        ("the last 2 layers", LAST_TWO),
        ("bitfit", BitFit()),
        ("BitFit", BitFit()),
        ("the biases", BitFit()),
        ("lora", Lora()),
        ("LoRA of rank 8 on the last 3 layers", Lora(last=3)),
        ("lora-last3", Lora(last=3)),
        ("lora-r8-last3", Lora(last=3)),
        ("lora_last", Lora(last=3)),
        (" lora-last ", Lora(last=3)),
    ],
)
def test_names_that_a_user_reads_name_a_way(text: str, way: Candidate) -> None:
    assert asked_way(text, WAYS, 6) == way


@pytest.mark.parametrize("method", ["freeze", "head", "lora", "lora_last", "bitfit"])
def test_what_a_space_calls_a_method_names_its_ways(method: str) -> None:
    space = load_space("joint", [f"methods={method}", "depths=[4]"])
    [way] = [way for way in space.candidates_for(6) if not way.is_reference]
    assert way.method_names(6) == (method,)


def test_a_method_that_has_one_way_names_it() -> None:
    wide = Lora(r=16)
    assert asked_way("lora", [FULL, LAST_TWO, wide], 6) == wide
    assert asked_way("freeze", [FULL, LAST_TWO, wide], 6) == LAST_TWO
    with registered("tests.low_rank") as low_rank:
        of_package = low_rank.LowRank(8)
        assert asked_way("low_rank", [FULL, LAST_TWO, wide, of_package], 6) == of_package


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "freeze",
            "`way` is 'freeze', which names several ways; name one: "
            "3 (3 frozen layers, 3 fine-tuned), 4 (4 frozen layers, 2 fine-tuned)",
        ),
        ("lora_last", "names several ways; name one: lora-last3, lora-last2"),
        ("5", "`way` is 5 (5 frozen layers, 1 fine-tuned), which was not measured, so that its"),
        ("7", "`way` is 7, which was not measured, so that its learning rate is not known; meas"),
        ("adapters", "`way` is 'adapters', which was not measured"),
        ("lora-r4", "`way` is lora-r4, which was not measured"),
        ("-1", "`way` is '-1', which was not measured"),
        ("", "`way` is '', which was not measured"),
        (
            "",
            "measured: 0 (the full model), 3 (3 frozen layers, 3 fine-tuned), 4 (4 frozen layers,",
        ),
        ("", "6 (the head alone), bitfit, lora, lora-last3, lora-last2"),
    ],
)
def test_what_names_none_or_several_is_refused_with_the_choices(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked_way(text, [*WAYS, Lora(last=2)], 6)
    assert message in str(refused.value)
