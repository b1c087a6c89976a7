"""Versions of a cluster's nodes: asked without our package, compared, and told in a table."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ray import cloudpickle

import elsa_tune
from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster.node_versions import (
    MISSING,
    Versions,
    check_versions,
    differing_versions,
    question,
)
from elsa_tune.searching.cluster.nodes import check_nodes

HERE = {
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "transformers": "5.23.0",
    "ray": "2.60.0",
    "peft": "0.21.2",
    "elsa-tune": "0.1.0",
}


def test_this_machine_answers_with_what_is_installed() -> None:
    answered = question()()
    assert list(answered) == list(HERE)
    assert MISSING not in answered.values()
    assert answered["elsa-tune"] == elsa_tune.__version__
    check_versions(answered, {"node": answered})


def test_a_node_without_elsa_tune_can_be_asked() -> None:
    """The question travels by value: it runs where the package cannot be imported."""
    code = cloudpickle.dumps(question())
    program = (
        "import pickle, sys\n"
        "sys.modules['elsa_tune'] = None\n"
        "print(pickle.loads(sys.stdin.buffer.read())()['elsa-tune'])\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=code, capture_output=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == MISSING


@pytest.mark.parametrize(
    "other",
    [{"torch": "2.13.0+cu130"}, {"python": "3.11.9"}, {}],
    ids=["a build of torch for GPUs", "Python's third number", "nothing else"],
)
def test_what_may_differ(other: Versions) -> None:
    check_versions(HERE, {"a": HERE, "b": HERE | other})


@pytest.mark.parametrize("there", [MISSING, "0.21.2"])
def test_a_driver_without_peft_needs_none_of_it_elsewhere(there: str) -> None:
    """It trains no LoRA: a search that would is refused on this machine."""
    check_versions(HERE | {"peft": MISSING}, {"a": HERE | {"peft": there}})


@pytest.mark.parametrize(
    "other",
    [
        {"torch": "2.12.1"},
        {"python": "3.12.7"},
        {"transformers": "5.22.0"},
        {"ray": "2.59.0"},
        {"elsa-tune": MISSING},
        {"peft": MISSING},
        {"peft": "0.19.1"},
    ],
)
def test_what_may_not(other: Versions) -> None:
    with pytest.raises(UsageError) as raised:
        check_versions(HERE, {"0123456789": HERE, "abcdef012345": HERE | other})
    first, header, here, there = str(raised.value).splitlines()
    assert first.startswith("a node of the cluster has other versions than this machine; install")
    assert header.split() == ["node", *HERE]
    assert here.split() == ["this", "one", *HERE.values()]
    assert there.split() == ["abcdef01", *(HERE | other).values()]
    assert raised.value.exit_status == 2


def test_what_differs_is_written_with_both_versions() -> None:
    here = {"python": "3.11.7", "torch": "2.13.0+cpu", "elsa-tune": "0.1.0", "peft": MISSING}
    alike = {**here, "python": "3.11.9", "torch": "2.13.0", "peft": "0.21.2"}
    assert differing_versions(alike, here) == []
    other = {"python": "3.12.1", "torch": "2.11.0", "elsa-tune": MISSING}
    assert differing_versions(other, here) == [
        "python 3.12.1 (here 3.11.7)",
        "torch 2.11.0 (here 2.13.0+cpu)",
        "elsa-tune missing (here 0.1.0)",
    ]


def test_of_a_thousand_nodes_the_first_are_listed() -> None:
    nodes = {f"node{number:04}": HERE | {"ray": "2.59.0"} for number in range(1000)}
    with pytest.raises(UsageError) as raised:
        check_versions(HERE, nodes)
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("1000 nodes of the cluster have other versions")
    assert len(lines) < 15 and lines[-1].strip() == "and 992 more"


def test_a_cluster_without_cpus_is_told() -> None:
    """Its head alone has joined; nobody is asked, and nobody is waited for."""
    with pytest.raises(UsageError, match=r"the cluster has no node with CPUs, so nothing can"):
        check_nodes([])
