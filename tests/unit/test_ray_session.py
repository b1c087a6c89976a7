"""Ray as a search opens it: what it says where a cluster cannot be joined."""

from __future__ import annotations

import pytest
import ray

from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster import ray_session

# As ray._private.utils.check_version_info says it.
MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.59.0
    Python: 3.11.7
This process on node 10.0.0.2 was started with:
    Ray: 2.60.0
    Python: 3.12.1
"""


def test_a_cluster_of_another_version_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(address: str, **settings: object) -> None:
        raise RuntimeError(MISMATCH)

    monkeypatch.setattr(ray_session, "knock", lambda address: None)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UsageError) as refused:
        ray_session._start_ray("head:6379")
    assert str(refused.value) == (
        "the cluster at `address` head:6379 runs Ray 2.59.0 on Python 3.11.7, and this machine has "
        "Ray 2.60.0 on Python 3.12.1; install the same here or there"
    )
