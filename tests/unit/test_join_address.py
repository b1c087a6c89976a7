"""The address by which a search joins a cluster: read, or refused before anything begins."""

from __future__ import annotations

import pytest
from ray._common.network_utils import parse_address

from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster.join_address import (
    asked_address,
    check_join_address,
    join_place,
    rays_address,
)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("10.0.0.1:6380", ("10.0.0.1", 6380)),
        ("head", ("head", 6379)),
        ("[::1]:7000", ("::1", 7000)),
    ],
)
def test_a_host_and_a_port(address: str, place: tuple[str, int]) -> None:
    assert join_place(address) == place


@pytest.mark.parametrize(
    ("address", "rays"),
    [
        ("auto", "auto"),
        ("head", "head:6379"),
        ("head:6380", "head:6380"),
        ("[::1]", "[::1]:6379"),
        ("[::1]:7000", "[::1]:7000"),
    ],
)
def test_ray_is_given_a_port(address: str, rays: str) -> None:
    """It refuses a host alone."""
    assert rays_address(address) == rays
    assert rays == "auto" or parse_address(rays) is not None


@pytest.mark.parametrize("address", [None, "auto", "head:6379"])
def test_what_is_one(address: str | None) -> None:
    check_join_address(address)
    assert asked_address(address) == address


def test_none_is_this_machine_and_no_host() -> None:
    assert asked_address("none") is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://head:8265", "is a dashboard's, which takes what `submit` sends, and a search"),
        ("https://me:secret@head:8265", "is a dashboard's"),
        ("ray://head:10001", "is that of Ray's client"),
        ("head:8265", "is a port of its dashboard, and a search .*, by default head:6379; "),
        ("head:10001", "is a port of Ray's client"),
        ("head:99999", "cannot be read: Port out of range 0-65535"),
        ("head:port", "cannot be read"),
        ("", r"`address` \(empty\) is none of a cluster"),
        (":6379", "is none of a cluster"),
        ("tcp://head:6379", "is none of a cluster"),
        ("head/6379", "is none of a cluster"),
    ],
)
def test_what_is_none_is_told_what_it_is(address: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        check_join_address(address)
    assert "give HOST:PORT, as `ray start --head` prints it, auto, or none for" in str(
        refused.value
    )
    assert "secret" not in str(refused.value)
