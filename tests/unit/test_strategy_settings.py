"""A strategy of one's own has settings: a space gives them, and the search records them."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from elsa_tune.cli.app import main
from elsa_tune.errors import SpaceError, StorageError
from elsa_tune.searching.inputs import Inputs
from elsa_tune.searching.planning import strategies
from elsa_tune.searching.planning.strategy import (
    Findings,
    Outline,
    Step,
    Strategy,
    explored_of,
    left_to_measure,
)
from elsa_tune.searching.specification import (
    differing_settings,
    load_specification,
    save_specification,
)
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.bounds import FewCount
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.space import load_space
from elsa_tune.tracking.paths import SearchPaths
from tests.unit.search_examples import planned_request

DEPTHS = "depths=[0, 2, 4, 5, 6]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What `strategy_settings` of a space may say for `top_few`."""

    keep: FewCount = 2  # how many are measured beside the full model
    order: Literal["quality", "cost"] = "quality"  # which of them come first


class TopFew(Strategy):
    """Measures the full model, and of the others a few, by their exploring runs or their cost."""

    name = "top_few"
    settings_type = Settings
    settings: Settings

    @classmethod
    def outline(cls, inputs: Inputs, policy: Policy, *, seeds: int | None, joined: bool) -> Outline:
        space = inputs.space
        settings: Settings = cls.settings_of(space.strategy_settings)
        candidates = space.candidates_for(inputs.layers)
        if settings.keep >= len(candidates):
            raise SpaceError(f"strategy top_few keeps {settings.keep}; compare more than so many")
        return Outline(
            candidates=candidates,
            explored=explored_of(space, candidates),
            seeds=seeds or space.seeds,
        )

    @property
    def most_measured(self) -> int:
        return 1 + self.settings.keep

    def next(self, findings: Findings) -> Step:
        rates = findings.chosen_rates
        if len(rates) < len(self.spec.candidates):
            return Step(waits=True)
        others = [candidate for candidate in self.spec.candidates if candidate != REFERENCE]
        if self.settings.order == "quality":
            others.sort(key=findings.explored_quality, reverse=True)
        else:
            others.reverse()
        kept = [REFERENCE, *others[: self.settings.keep]]
        trials = left_to_measure(self.spec, {each: rates[each] for each in kept}, findings.known)
        return Step(trials=trials)


@pytest.fixture(autouse=True)
def top_few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(strategies, "_STRATEGIES", dict(strategies._STRATEGIES))
    strategies.register(TopFew)
    yield


def planned(folder: Path, *settings: str, strategy: str = "top_few") -> SearchSpec:
    space = load_space("demo", [f"strategy={strategy}", DEPTHS, *settings])
    return planned_request(folder, space, "demo").spec


def measured(spec: SearchSpec) -> list[str]:
    """Return what a search measures whose exploring is over."""
    rates = dict.fromkeys(spec.candidates, 2e-5)
    findings = Findings(known=[], chosen_rates=rates, curve=lambda: None)
    step = strategies.strategy_of(spec).next(findings)
    return list(dict.fromkeys(trial.candidate.label for trial in step.trials))


def test_a_space_gives_them_and_set_reaches_each(tmp_path: Path) -> None:
    file = tmp_path / "few.yaml"
    file.write_text(
        f"strategy: top_few\nstrategy_settings:\n  order: cost\n{DEPTHS.replace('=', ': ')}\n"
    )
    space = load_space(file, ["strategy_settings.keep=3"])
    spec = planned_request(tmp_path, space, "few").spec
    assert spec.strategy_settings == {"keep": 3, "order": "cost"}
    assert strategies.strategy_of(spec).most_measured == 4
    assert measured(spec) == ["0", "4", "5", "6"]


def test_what_is_left_out_is_recorded_too(tmp_path: Path) -> None:
    """A default that a later version of the package changes is not that of a recorded search."""
    spec = planned(tmp_path)
    assert spec.strategy_settings == {"keep": 2, "order": "quality"}
    assert measured(spec) == ["0", "2", "4"]


def test_what_a_search_recorded_is_what_it_goes_on_with(tmp_path: Path) -> None:
    spec = planned(tmp_path, "strategy_settings={keep: 1, order: cost}")
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    recorded = load_specification(paths)
    assert recorded.strategy_settings == spec.strategy_settings
    assert measured(recorded) == ["0", "6"]
    asked = planned(tmp_path, "strategy_settings.order=cost")
    assert differing_settings(spec, recorded) == []
    assert differing_settings(asked, recorded) == ["strategy_settings.keep 2 (recorded: 1)"]
    # Another version of its package may take others.
    written = json.loads(paths.specification.read_text())
    written["strategy_settings"]["kept"] = 1
    paths.specification.write_text(json.dumps(written))
    with pytest.raises(StorageError, match=r"field 'strategy_settings.kept': did you.*; install"):
        load_specification(paths)


def test_a_way_of_a_package_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    spec = planned(tmp_path)
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    written = json.loads(paths.specification.read_text())
    for field in ("depths", "explored"):
        written[field].append({"sidecar_width": 8})
    paths.specification.write_text(json.dumps(written))
    with pytest.raises(StorageError) as refused:
        load_specification(paths)
    said = "field 'depths' and field 'explored': the record {'sidecar_width': 8} names no candidate"
    assert said in str(refused.value) and str(refused.value).count("install or import") == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "strategy_settings.kep=3",
            "unknown field 'strategy_settings.kep': did you mean 'strategy_settings.keep'?",
        ),
        (
            "strategy_settings.keep=0",
            "field 'strategy_settings.keep' must be 1 or more, not 0",
        ),
        (
            "strategy_settings={keep: few, order: size}",
            "field 'strategy_settings.keep' must be a whole number, not 'few'; "
            "field 'strategy_settings.order' must be one of quality, cost, not 'size'",
        ),
    ],
)
def test_wrong_ones_are_one_sentence(settings: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError) as raised:
        planned(tmp_path, settings)
    assert str(raised.value) == f"strategy top_few: {message}"


def test_they_are_a_table(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="'strategy_settings' must be a table of `field: value`"):
        planned(tmp_path, "strategy_settings=3")


@pytest.mark.parametrize("strategy", ["even", "hunt"])
def test_what_ships_has_none(strategy: str, tmp_path: Path) -> None:
    assert planned(tmp_path, strategy=strategy).strategy_settings == {}
    with pytest.raises(SpaceError, match=f"^strategy {strategy} has no settings; leave strategy_s"):
        planned(tmp_path, "strategy_settings.keep=3", strategy=strategy)


def test_the_command_refuses_them_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = "search --model minilm --task stdlib --set strategy=top_few --dry-run"
    settings = ["--set", "strategy_settings.kept=3"]
    monkeypatch.setattr(sys, "argv", ["elsa-tune", *command.split(), *settings])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed, said = capsys.readouterr()
    assert not printed
    *_, last = said.splitlines()
    assert last.startswith("elsa-tune: strategy top_few: unknown field 'strategy_settings.kept'")
