"""The laboratory's rules for learning rates, and the rows of the own-data example."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
LABELS = np.arange(400) % 2


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script(BENCH / "lab" / "curves.py", monkeypatch)


@pytest.fixture
def own_data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script(BENCH / "own_data.py", monkeypatch)


def _script(file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a script as a module, with what lies beside it, until the test ends."""
    monkeypatch.syspath_prepend(file.parent)
    for beside in file.parent.glob("*.py"):
        # Set first, so that what the import puts there is taken away again.
        monkeypatch.setitem(sys.modules, beside.stem, ModuleType(beside.stem))
        del sys.modules[beside.stem]
    return importlib.import_module(file.stem)


def table(*trials: tuple[int, float, int, float | None]) -> pd.DataFrame:
    """Two evaluations a trial: depth, rate, seed, share of right answers (None: it diverged)."""
    rows = []
    for depth, rate, seed, share in trials:
        # Another seed errs elsewhere.
        right = np.roll(np.arange(400) < 400 * (share or 0.5), 37 * seed)
        rows += [
            {
                "frozen_layers": depth,
                "learning_rate": rate,
                "seed": seed,
                "evaluation": evaluation,
                "evaluations": 2,
                "quality": float(right.mean()),
                "holdout_quality": 1 - float(right.mean()),
                "predictions": np.packbits(np.where(right, LABELS, 1 - LABELS).astype(bool)),
                "status": "completed" if share is not None else "diverged",
            }
            for evaluation in ((1, 2) if share is not None else (1,))
        ]
    frame = pd.DataFrame(rows)
    frame["predictions"] = frame["predictions"].map(lambda bits: bits.tobytes())
    return frame


def test_a_rate_is_chosen_by_one_seed_and_measured_by_the_others(curves: ModuleType) -> None:
    trials = curves.trials_of(
        table(
            *((0, 2e-5, seed, 0.9) for seed in (0, 1, 2, 3)),
            (0, 5e-5, 0, 0.8),
            (6, 2e-5, 0, 0.6),
            *((6, 2e-5, seed, 0.6 + seed / 100) for seed in (1, 2, 3)),
            (6, 5e-5, 0, 0.7),
            (6, 1e-3, 0, 0.88),
            *((6, 1e-3, seed, 0.85 + seed / 100) for seed in (1, 2)),
            (6, 1e-3, 3, None),
            (6, 2e-3, 0, None),
        ),
        "minilm",
    )
    chosen = {rule: curves.choices(trials, rule, "quality") for rule in curves.RULES}
    rates = {rule: {n: one.learning_rate for n, one in of.items()} for rule, of in chosen.items()}
    assert rates == {
        "paper": {0: 2e-5, 6: 2e-5},
        "same_range": {0: 2e-5, 6: 5e-5},
        "fair": {0: 2e-5, 6: 1e-3},
    }
    assert chosen["same_range"][6].border == "upper"
    assert chosen["fair"][6].border is None  # the higher one diverged
    # The held-out examples rank them the other way round here.
    assert curves.choices(trials, "fair", "holdout_quality")[0].learning_rate == 5e-5

    task = curves.Task("minilm", "t", "accuracy", 0.5, 2, LABELS, trials)
    found = curves.task_results(task, "quality")
    rules = found["rules"]
    paper, fair = (rules[rule]["depths"][1] for rule in ("paper", "fair"))
    assert paper["seeds"] == fair["seeds"] == [1, 2, 3]
    assert paper["quality"] == pytest.approx(0.62)
    assert fair["qualities"] == pytest.approx([0.86, 0.87, 0.5])  # chance stands for the third
    assert rules["same_range"]["missing"] == ["N = 6: no seed but the choosing one at 5e-05"]
    assert rules["paper"]["answer"]["operating_point"]["frozen_layers"] == 0
    # The answers are from the predictions, or a warning would say that they were not used.
    assert "predictions_not_used" not in str(rules["paper"]["answer"]["warnings"])
    [moved] = found["fair_minus_paper"]
    assert moved["raw"]["value"] == pytest.approx((fair["quality"] - 0.62) / 0.9)
    assert moved["raw"]["low"] < moved["raw"]["value"] < moved["raw"]["high"]
    assert [one["learning_rate"] for one in found["lacking"]] == [5e-5]
    assert "| 1e-3 | 74.3 ± 21.1 (3) |" in curves.markdown([found])


def test_a_table_that_has_only_begun_is_no_error(curves: ModuleType) -> None:
    trials = curves.trials_of(table((6, 1e-3, 0, 0.7)), "minilm")
    task = curves.Task("minilm", "t", "accuracy", 0.5, 2, LABELS, trials)
    found = curves.task_results(task, "quality")
    assert [of["depths"] for of in found["rules"].values()] == [[], [], []]
    assert curves.chart([found], list(curves.RULES)).panels == ()
    assert "| t |" in curves.markdown([found])


def test_own_data_takes_one_package_of_a_source_and_no_text_twice(own_data: ModuleType) -> None:
    listing = "\n\n".join(
        f"Package: {name}\nSource: {source}\nSection: net\nDescription: {text}\n more of it"
        for name, source, text in (
            ("a", "one", "A server"),
            ("b", "one (1.2)", "A client"),
            ("c", "two", "a Server"),
            ("d", "three", "A transitional package"),
            ("e", "four", "A proxy"),
        )
    )
    packages = own_data.packages_of(listing + "\n\nPackage: no-section\nDescription: nothing")
    assert [package.source for package in packages] == ["one", "one", "two", "three", "four"]
    kept = own_data.distinct(packages)
    assert len({package.source for package in kept}) == len(kept)
    assert len({package.text.casefold() for package in kept}) == len(kept)
    assert "d" not in {package.name for package in kept}
    assert own_data.distinct(reversed(packages)) == kept  # whatever the order of the list
