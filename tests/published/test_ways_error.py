"""Comparisons of ways err in at most 5 % of the replayed studies, and the documents' numbers of it.

The table of docs/concepts/comparing-ways.md is compared in tests/repo/test_reference.py.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.specs.policy import Policy
from tools.measurements import measured

CELLS: dict[str, dict[str, Any]] = measured("ways_error.json")["results"]
# Every certificate counts: of what is claimed, of the score itself, or of either.
FALSE = ("claim_false", "score_false", "false")
# In which profiles something can be certified falsely at all.
CAN_ERR = ("gain_boundary", "score_boundary", "two_best", "null")


@pytest.fixture
def page(root: Path) -> str:
    text = (root / "docs/concepts/comparing-ways.md").read_text(encoding="utf-8")
    return " ".join(text.split())  # wherever its lines end


@pytest.mark.parametrize("name", CELLS)
def test_at_most_one_comparison_in_twenty_certifies_falsely(name: str) -> None:
    cell = CELLS[name]
    error = Policy().error
    of_the_replay = math.sqrt(error * (1 - error) / cell["studies"])
    for rule in FALSE:
        assert cell[rule] <= error + 2 * of_the_replay, rule
    # One that errs in 5 % is told from one that errs in 7 %.
    assert 2 * of_the_replay < 0.02


def test_each_kind_of_study_in_which_something_can_be_false_was_replayed() -> None:
    replayed = {cell["profile"] for cell in CELLS.values()}
    assert replayed >= {*CAN_ERR, "power"}
    # A rule that errs more often is found out by the same studies.
    plain = max(cell["uncorrected_false"] for cell in CELLS.values())
    assert plain > 0.1


def test_the_numbers_in_the_sentences(page: str, root: Path) -> None:
    most = max(cell["false"] for cell in CELLS.values())
    assert f"a share of {percent(most)} %" in page
    [worst] = [cell for cell in CELLS.values() if cell["false"] == most]
    assert f"a standard error of {points(worst['standard_error'])})" in page

    equal = CELLS["power-277-5-0.01"]
    assert f"the score in {equal['score_found']:.0%}".replace("%", " %") in page
    assert equal["claim_found"] < 0.01
    three_seeds = [
        cell["claim_found"]
        for cell in CELLS.values()
        if cell["seeds"] == 3 and cell["spread"] == 0.01
    ]
    assert f"the gain is certified in at most {max(three_seeds):.0%}".replace("%", " %") in page

    decisions = (root / "docs/decisions.md").read_text(encoding="utf-8")
    assert f"the comparison as it is in up to {percent(most)}." in decisions
    more_rows = CELLS["power-2000-5-0.01"]
    gain = f"{more_rows['claim_found']:.0%}".replace("%", " %")
    score = f"{100 * more_rows['score_found']:.0f}"
    assert f"certified of it in {gain} of studies, of the score in {score}." in " ".join(
        decisions.split()
    )


def test_what_is_said_of_few_rows(page: str) -> None:
    shared = [
        claim["units_any_certified_false"]
        for claim in measured("units.json")["results"]["claims"]
        if claim["rows"] / claim["size"] < Policy().fewest_units
    ]
    assert f"{percent(max(shared))} % of simulated studies" in " ".join(page.split())

    few = {cell["profile"]: cell for cell in CELLS.values() if cell["examples"] == 60}
    most = max(cell["false"] for cell in few.values())
    score = few["score_boundary"]["score_any"]
    gain = few["score_boundary"]["claim_any"]
    assert f"wrong in {points(most)} % of the replays" in page
    assert f"the score in {score:.0%}".replace("%", " %") in page
    assert f"the gain in {gain:.0%}".replace("%", " %") in page


def percent(share: float) -> str:
    """Return `2.8`."""
    return f"{100 * share:.1f}"


def points(share: float) -> str:
    """Return `.4`."""
    return percent(share).lstrip("0")
