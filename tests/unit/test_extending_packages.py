"""Which packages brought what a search uses: recorded, compared between nodes, and taken there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elsa_tune.extensions import packages_that_bring
from elsa_tune.searching.cluster.node_versions import question
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.startup.versions import versions_here, with_versions
from elsa_tune.searching.tune.checkpoints import DriversFolder, checkpoint_of
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase
from tests.registering import registered
from tests.unit.search_examples import make_spec

PACKAGES = {"elsa-biases": ("0.3.0", "tests.biases"), "elsa-other": ("2.0", "other.method")}


@pytest.fixture
def biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Candidate]:
    """Return a candidate of a package that is installed, beside another package."""
    for name, (version, module) in PACKAGES.items():
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(about)
        (folder / "entry_points.txt").write_text(f"[elsa_tune.extensions]\nit = {module}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with registered("tests.biases") as module:
        yield module.Biases()


@pytest.fixture
def spec(biases: Candidate) -> SearchSpec:
    return make_spec(candidates=(FULL_MODEL, biases))


def test_a_search_names_the_packages_that_it_uses_and_no_others(spec: SearchSpec) -> None:
    assert packages_of_search(spec) == ["elsa-biases"]
    assert packages_of_search(replace(spec, candidates=(FULL_MODEL,))) == []
    assert packages_that_bring(["other.store", "elsa_tune.tracking"]) == ["elsa-other"]


def test_their_versions_are_recorded_and_asked_of_nodes(spec: SearchSpec) -> None:
    packages = packages_of_search(spec)
    assert versions_here(packages)["version.elsa-biases"] == "0.3.0"
    assert question(packages)()["elsa-biases"] == "0.3.0"
    assert "version.elsa-biases" not in versions_here() and "elsa-biases" not in question()()


def test_another_version_is_said_where_a_search_goes_on(spec: SearchSpec) -> None:
    before = {**versions_here(packages_of_search(spec)), "version.elsa-biases": "0.2.0"}
    said: list[str] = []
    after = with_versions(replace(spec, versions=before), said.append)
    [line] = said
    assert "was started with elsa-biases 0.2.0; this session trains with elsa-biases 0.3.0" in line
    assert after.versions["version.elsa-biases"] == "0.3.0"


def test_a_trial_does_not_go_on_with_another_version(
    spec: SearchSpec, biases: Candidate, tmp_path: Path
) -> None:
    kept = DriversFolder(folder=tmp_path, node="a", mailbox=None)
    spec = replace(spec, versions={"version.elsa-tune": "1", "version.elsa-biases": "0.3.0"})
    versions = {}
    for candidate in (FULL_MODEL, biases):
        trial = spec.trial(Phase.MEASURE, candidate, 2e-5, 1)
        checkpoint = checkpoint_of(trial, spec, kept)
        assert checkpoint is not None
        versions[candidate.label] = checkpoint.version
    assert versions == {"0": "1 unknown", "biases": "1 unknown 0.3.0"}
