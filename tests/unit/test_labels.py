"""A label means one way, whichever methods a process has loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elsa_tune.errors import ExtensionError, SpaceError
from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import (
    check_told_apart,
    method_of_name,
    read_candidate,
    recorded_candidate,
    register,
)
from elsa_tune.specs.adapt.lora import Lora
from tests.registering import registered


@pytest.fixture
def biases() -> Iterator[type[Candidate]]:
    """Register a method whose label and name are `biases`."""
    with registered("tests.biases") as module:
        yield module.Biases


def of_label(biases: type[Candidate], label: str, example: str, name: str = "mine") -> type:
    """Return a method that reads this label alone."""
    members = {"__slots__": (), "method": name, "label": label, "example": example}
    return type("Mine", (biases,), members)


def test_a_method_that_ships_reads_its_labels_first(biases: type[Candidate]) -> None:
    # One of its labels is no example, so that nobody notices when it is registered.
    class Both(biases):  # type: ignore[misc, valid-type]  # a class that a fixture gives
        method = "both"
        example = "both"
        __slots__ = ()

        @classmethod
        def read(cls, text: str) -> Candidate | None:
            return cls() if text in ("both", "lora-query") else None

        @classmethod
        def of_record(cls, values: object) -> Candidate:
            return cls()

    before = read_candidate("lora-query")
    register(Both)
    assert read_candidate("lora-query") == before == Lora(target_modules=("query",))
    assert recorded_candidate(before.record()) == before
    assert isinstance(read_candidate("both"), Both)


@pytest.mark.parametrize("label", ["lora-fa", "lora-last", "bitfit-plus"])
def test_a_label_that_a_method_has_is_refused(biases: type[Candidate], label: str) -> None:
    with pytest.raises(ValueError, match=f"both read the label '{label}'; let yours read other"):
        register(of_label(biases, label, example=label))
    assert "mine" not in candidates._METHODS


def test_so_is_one_that_another_package_has(biases: type[Candidate]) -> None:
    again = of_label(biases, "biases", example="biases")
    with pytest.raises(ValueError, match="methods 'biases' and 'mine' both read"):
        register(again)
    # Its own file may be loaded again.
    assert register(biases) is biases


def test_two_packages_have_no_name_in_common(biases: type[Candidate]) -> None:
    namesake = of_label(biases, "another", example="another", name="biases")
    with pytest.raises(
        ValueError, match=r"'biases' is that of the method 'biases' in tests\.biases"
    ):
        register(namesake)
    with pytest.raises(SpaceError, match=r"name of two ways, which the modules tests\.biases and"):
        method_of_name("biases")


def test_two_packages_have_no_label_in_common(biases: type[Candidate]) -> None:
    with pytest.raises(ValueError, match="both read the label 'biases'"):
        register(of_label(biases, "biases", example="biases"))
    with pytest.raises(SpaceError, match="'biases' is the name of two ways"):
        read_candidate("biases")
    assert read_candidate("bitfit") == BitFit()


@pytest.mark.parametrize("label", ["Caps", "ok/way", "a,b", "a b", "7"])
def test_a_label_can_be_typed_and_read_back(biases: type[Candidate], label: str) -> None:
    with pytest.raises(ValueError, match="write small letters, digits"):
        register(of_label(biases, label, example=label))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "Bbiases"}, "the ways 'biases' and 'mine' have one key, 'Bbiases'"),
        ({"key": "a/b"}, "the way 'mine' has the key 'a/b'"),
        ({"key": "M", "label": "other"}, "the way 'other' is not what its label is read as"),
    ],
)
def test_ways_of_one_search_are_told_apart(
    biases: type[Candidate], fields: dict[str, str], message: str
) -> None:
    mine = register(of_label(biases, "mine", example="mine"))
    read = classmethod(lambda cls, text: cls() if text == "mine" else None)
    one = type("Mine", (mine,), {**fields, "read": read})()
    with pytest.raises(SpaceError, match=message):
        check_told_apart([biases(), one])


def test_a_broken_package_leaves_others_their_ways(
    biases: type[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        candidates.register(biases)
        raise ExtensionError("the package 'other' cannot be imported")

    del candidates._METHODS["biases"]  # `registered` puts all of them back
    monkeypatch.setattr(candidates, "load_extensions", load)
    assert isinstance(read_candidate("biases"), biases)
    with pytest.raises(ExtensionError, match="'other'"):
        read_candidate("nobody")


def test_a_method_shows_a_label_that_it_reads(biases: type[Candidate]) -> None:
    with pytest.raises(ValueError, match="does not read the label 'mine'; set its `example`"):
        register(of_label(biases, "lora-fa", example=""))


def test_no_method_takes_the_name_of_one_that_ships(biases: type[Candidate]) -> None:
    for name in ("lora", "lora_last", "head"):
        with pytest.raises(ValueError, match=f"the name '{name}' is that of the method"):
            register(of_label(biases, "mine", example="mine", name=name))
