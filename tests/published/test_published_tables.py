"""The numbers of docs/tables are what bench/published_tables.py makes of the published ones.

The pages' tables are compared in tests/repo/test_reference.py.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.adapt.named_way import NamedWay
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from tools.measurements import ROOT, measured, program

FOUND = measured("published_tables.json")["results"]
PEFT: dict[str, Any] = FOUND["peft"]
GLUE: dict[str, Any] = FOUND["glue"]
BLANKS = re.compile(r"\s+")


@pytest.fixture(scope="module")
def bench() -> Any:
    return program("published_tables.py")


def page(name: str) -> str:
    """Return a page's text with single blanks, for sentences run over lines."""
    text = (ROOT / "docs" / "tables" / name).read_text(encoding="utf-8")
    return BLANKS.sub(" ", text)


def alike(first: Any, second: Any) -> bool:
    """Whether two results agree to the digits that are written."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(alike(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, float) and isinstance(second, float | int):
        return math.isclose(first, second, rel_tol=1e-3, abs_tol=2e-5)
    return bool(first == second)


def test_the_glue_table_is_read_as_it_was(bench: Any) -> None:
    assert alike(bench.finite(bench.glue()), GLUE)


def test_the_reruns_give_the_spread(bench: Any) -> None:
    assert alike(bench.finite(bench.spread_of(PEFT["reruns"])), PEFT["spread"])


def test_what_a_rerun_needs_follows_from_the_spread(bench: Any) -> None:
    of_a_run = PEFT["spread"]["last_step"]["of_a_run"]
    needs = bench.finite(bench.needs(PEFT["examples"], of_a_run))
    for again, recorded in zip(needs["by_difference"], PEFT["needs"]["by_difference"], strict=True):
        for name, value in recorded.items():
            assert again[name] == (value if value is None else pytest.approx(value, rel=2e-3))


def peft_rows() -> list[ResultRow]:
    """Return the leaderboard's rows, of what is committed of them."""
    several = {way["way"]: way["means"] for way in PEFT["several_rates"]}
    rows: list[ResultRow] = []
    for way in PEFT["listed"]:
        is_full = way["method"] == "full-finetuning"
        means = several.get(way["way"], [[way["learning_rate"], way["quality"]]])
        for rate, quality in means:
            row = ResultRow(
                model=PEFT["model"],
                task=PEFT["task"],
                layers=None,
                candidate=REFERENCE if is_full else NamedWay(way["way"]),
                quality=quality,
                status=TrialStatus.COMPLETED,
                phase=Phase.MEASURE,
                learning_rate=rate,
                seed=0,
                examples=PEFT["examples"],
            )
            rows.append(row)
    return rows


def test_the_leaderboard_is_read_as_it_was(bench: Any) -> None:
    rows = peft_rows()
    assert len(rows) == PEFT["runs"]
    read = bench.finite(bench.leaderboard(rows, PEFT["spread"]["last_step"]["of_a_run"]))
    for name in ("ways", "methods", "methods_at_one_rate", "ways_at_one_rate", "seeds"):
        assert read[name] == PEFT[name], name
    for name in ("not_below_best_by_rows", "not_below_best_at_least", "not_below_best"):
        assert read[name] == PEFT[name], name
    assert (read["above_full"], read["below_full"]) == (PEFT["above_full"], PEFT["below_full"])
    facts = program("way_facts.py")
    assert facts.left_open(facts.way_facts(rows)) == PEFT["left_open"]
    assert [way["way"] for way in read["listed"]][:9] == [way["way"] for way in PEFT["listed"]][:9]


def test_the_sentences_on_the_leaderboard() -> None:
    text = page("peft-leaderboard.md")
    ways = PEFT["ways"]
    spread = PEFT["spread"]
    step = spread["last_step"]
    listed = PEFT["listed"]
    [at_two_rates] = PEFT["several_rates"]
    percents = {way["way"]: f"{100 * way['quality']:.1f}" for way in listed}
    ia3 = [percents[f"ia3/llama-3.2-3B-{name}"] for name in ("default", "lr_0.001")]
    prompts = [percents[f"prompt_tuning/llama-3.2-3B-{name}"] for name in ("default", "lr_0.001")]
    twenty_apart = 100 * (listed[0]["quality"] - listed[19]["quality"])
    rates_by_method: dict[str, set[float]] = {}
    for way in listed:
        rates_by_method.setdefault(way["method"], set()).add(way["learning_rate"])
    default_alone = sum(rates == {1e-4} for rates in rates_by_method.values())
    assert PEFT["above_full"] == 0 and PEFT["seeds"] == [0]
    possible = PEFT["not_below_best"]
    for sentence in (
        f"Of the {ways - 1} ways behind the best on peft's leaderboard, {PEFT['not_below_best']} "
        "cannot be told from it.",
        f"none lies above it by more than the test's questions and reruns explain, and "
        f"{PEFT['below_full']} lie below it by more",
        f"commit {PEFT['commit'][:8]}",
        f"{PEFT['examples']:,} questions",
        f"{PEFT['runs']} runs of {ways} ways (a way is a method with its configuration and all "
        f"that its training was told but the learning rate) by {PEFT['methods']} methods, all with "
        f"seed 0. {PEFT['ways_at_one_rate']} of the {ways} "
        f"ways, and {PEFT['methods_at_one_rate']} of the {PEFT['methods']} methods",
        f"The twenty best of {ways}:",
        f"The {possible} that cannot be told from the best are counted with Bonferroni's "
        f"correction for {ways - 1} comparisons",
        f"one of the {possible + 1} is the truly best with 95 % confidence",
        f"even then {PEFT['not_below_best_at_least']} ways lie within the interval",
        f"By the questions alone and without correction it is {PEFT['not_below_best_by_rows']}.",
        f"{spread['configurations']} configurations that learn the task",
        f"spread by {100 * spread['pooled']:.1f} points",
        f"between torch {step['torch'][0].removesuffix('.0')} and "
        f"{step['torch'][1].removesuffix('.0')}, {step['fell']} of {step['configurations']} "
        f"configurations fell, on average by {-100 * step['mean']:.1f} points",
        f"What is left is {100 * step['of_a_run']:.1f}".replace("0.", ".") + " points a run",
        f"moved it by {100 * at_two_rates['spread']:.0f} points. The first twenty places are "
        f"{twenty_apart:.1f} apart.",
        f"What the other {PEFT['ways_at_one_rate']} ways would give at another rate",
        f"IA3's default scores {ia3[0]} at 1e-4 and {ia3[1]} at 1e-3, prompt tuning's {prompts[0]} "
        f"at 1e-4 and {prompts[1]} at 1e-3",
        f"no number of seeds finds less than {100 * PEFT['needs']['least_any_seeds']:.1f} points",
        f"{PEFT['images']['runs']} runs with seed 0, judged on {PEFT['images']['examples']} test",
        f"is the only one for {default_alone} of {PEFT['methods']} methods",
    ):
        assert sentence in text, sentence


def test_the_order_that_changed() -> None:
    runs = {each["experiment"]: each["runs"] for each in PEFT["reruns"]}
    full = runs["full-finetuning/llama-3.2-3B-lr_0.00001"]
    lora = runs["lora/llama-3.2-3B-rank32"]
    text = page("peft-leaderboard.md")
    in_2025 = f"{100 * full[0]['quality']:.1f} against {100 * lora[0]['quality']:.1f}"
    in_2026 = f"{100 * full[-1]['quality']:.1f} against {100 * lora[-1]['quality']:.1f}"
    assert f"{in_2025} in June 2025, {in_2026} in July 2026" in text
    assert full[0]["quality"] > lora[0]["quality"]
    assert full[-1]["quality"] < lora[-1]["quality"]


def test_the_sentences_on_glue() -> None:
    text = page("lora-glue.md")
    tasks = GLUE["tasks"]
    averages = GLUE["averages"]
    significant = [name for name, task in tasks.items() if task["p_holm"] <= 0.05]
    kept = [name for name, task in tasks.items() if task["p_kept_holm"] <= 0.05]
    too_few = [name for name, task in tasks.items() if task["rows_needed"] > task["rows"]]
    fifty = [name for name in too_few if tasks[name]["rows_needed"] >= 50 * tasks[name]["rows"]]
    beyond_least = [
        name
        for name, task in tasks.items()
        if task["half_at_least"] is not None and abs(task["difference"]) > task["half_at_least"]
    ]
    beyond = [name for name, task in tasks.items() if abs(task["difference"]) > task["half"]]
    assert significant == ["QQP"] and "explain, once corrected for eight comparisons: QQP" in text
    assert tasks["QQP"]["difference"] == pytest.approx(-0.011)
    assert len(kept) == 6 and "On six of eight tasks" in text
    assert len([name for name in kept if not tasks[name]["from_mnli"]]) == 4
    assert set(tasks) - set(kept) == {"CoLA", "MRPC"}
    assert len(too_few) == 7 and "On seven of the eight tasks that is more" in text
    assert len(fifty) == 4 and "on four of them fifty times as many and more" in text
    assert set(beyond_least) - set(beyond) == {"QNLI"} and "By it QNLI's +0.5 is beyond" in text
    assert averages["all eight"]["difference"] == pytest.approx(0.0089, abs=5e-5)
    assert averages["without RTE"]["difference"] == pytest.approx(-0.0011, abs=5e-5)
    assert ".89 points ahead" in text and "it is .11 behind" in text
    for each in averages.values():
        assert abs(each["difference"]) < each["half"]
    of_rte = tasks["RTE"]["difference"] / 8
    of_others = averages["all eight"]["difference"] - of_rte
    assert f"RTE alone adds {100 * of_rte:.2f}".replace("0.", ".") + " points" in text
    assert f"together take {-100 * of_others:.2f}".replace("0.", ".") + " away" in text
    assert round(100 * tasks["CoLA"]["half"]) == 7 and "the interval is 7 points wide" in text


@pytest.mark.parametrize("phi", [0.2, 0.636])
def test_the_variance_of_a_matthews_correlation(bench: Any, phi: float) -> None:
    share = bench.COLA_ACCEPTABLE
    rows = 1043
    together = phi * share * (1 - share)
    cells = [
        share**2 + together,
        share * (1 - share) - together,
        share * (1 - share) - together,
        (1 - share) ** 2 + together,
    ]
    counts = np.random.default_rng(0).multinomial(rows, cells, size=50_000).astype(float)
    both, first, second, neither = counts.T
    spread = (both + first) * (second + neither) * (both + second) * (first + neither)
    drawn = (both * neither - first * second) / np.sqrt(spread)
    assert rows * drawn.var() == pytest.approx(bench.phi_variance(phi, share), rel=0.03)


def test_the_rows_of_glue_are_those_of_the_data(bench: Any, shared: Path) -> None:
    dev = (shared / "glue" / "CoLA" / "dev.tsv").read_text(encoding="utf-8").splitlines()
    acceptable = [line for line in dev if line.split("\t")[1] == "1"]
    assert len(dev) == bench.GLUE["CoLA"][1]
    assert len(acceptable) / len(dev) == bench.COLA_ACCEPTABLE
