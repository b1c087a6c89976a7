"""Every table of docs/concepts/what-90-percent-hides.md is computed from the shipped numbers.

Run as a program it writes the tables into the page anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.results.results_csv import published_rows
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import METRIC_WORDS, rate_text

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "what-90-percent-hides.md"
FAIR_RATES = ROOT / "bench" / "results" / "fair_rates.json"
TARGET = 0.9
HALF_STEP = 5e-4  # both studies print three decimals of a fraction
BLOCK = re.compile(r"(<!-- computed: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

PAPER = [row for row in published_rows() if row.train_size is None]
BLOG = [row for row in published_rows() if row.train_size is not None]


def paper_answers(rows: list[ResultRow] = PAPER) -> list[Answer]:
    """The paper's answers, its joint ones without CoLA, as the paper has them."""
    return answer_curves(freeze_curves(rows), TARGET, exclude_tasks=["cola"])


def share(value: float | None) -> str:
    """In percent; bold where it misses the target."""
    assert value is not None
    text = f"{100 * value:.1f}".replace("-0.0", "0.0")
    return text if value >= TARGET else f"**{text}**"


def quality(value: float | None) -> str:
    assert value is not None
    return f"{100 * value:.1f}"


def lines(header: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    """A Markdown table, its first column to the left."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (header, rule, *rows))


def model_table(model: str) -> str:
    answers = [a for a in paper_answers() if a.model == model and a.task != ALL_TASKS]
    depths = [point.depth for point in answers[0].points[1:]]
    header = ["task (metric)", "full", "constant", "keeps"]
    for depth in depths:
        header += [f"N = {depth.frozen_layers}", "kept", "above chance"]

    def rows() -> Iterator[list[str]]:
        for answer in answers:
            full, chance = answer.points[0].quality, answer.chance
            assert answer.metric is not None and full is not None and chance is not None
            cells = [f"{answer.task} ({METRIC_WORDS[answer.metric].removesuffix(' correlation')})"]
            cells += [quality(full), quality(chance), quality(chance / full)]
            for point in answer.points[1:]:
                cells += [
                    quality(point.quality),
                    share(point.retention),
                    share(point.corrected_retention),
                ]
            yield cells

    return lines(header, rows())


def fewest(answer: Answer) -> tuple[str, str]:
    """The answer, raw and corrected: fine-tuned layers."""
    raw, corrected = answer.operating_point, answer.corrected_operating_point
    return (
        "-" if raw is None else str(raw.fine_tuned_layers),
        "-" if corrected is None else str(corrected.fine_tuned_layers),
    )


def shifted(rows: list[ResultRow], sign: int) -> list[ResultRow]:
    """The means as they may have been before printing; +1: frozen depths as good as possible."""
    return [
        replace(
            row,
            quality=(row.quality or 0.0) + (-sign if row.depth.is_full_model else sign) * HALF_STEP,
        )
        for row in rows
    ]


def answers_table() -> str:
    best, worst = paper_answers(shifted(PAPER, 1)), paper_answers(shifted(PAPER, -1))

    def rows() -> Iterator[list[str]]:
        for answer, high, low in zip(paper_answers(), best, worst, strict=True):
            task = "all but CoLA" if answer.task == ALL_TASKS else answer.task
            cells = [answer.model, task, str(answer.layers)]
            for number, found in enumerate(fewest(answer)):
                allowed = dict.fromkeys((found, fewest(high)[number], fewest(low)[number]))
                cells.append(" or ".join(allowed))
            yield cells

    return lines(["model", "task", "L", "k kept", "k above chance"], rows())


def rounding_table() -> str:
    """The retentions within two points of the target, with the range that printing leaves."""

    def rows() -> Iterator[list[str]]:
        for answer in paper_answers():
            full = answer.points[0].quality
            if answer.task == ALL_TASKS or full is None or answer.chance is None:
                continue
            for point in answer.points[1:]:
                for name, base in (("kept", 0.0), ("above chance", answer.chance)):
                    low, value, high = retention_range(point, full, base)
                    if abs(value - TARGET) > 0.02 or (name != "kept" and base == 0):
                        continue
                    yield [
                        f"{answer.model}, {answer.task}",
                        str(point.depth.frozen_layers),
                        name,
                        f"{100 * value:.1f}",
                        f"{100 * low:.1f} .. {100 * high:.1f}",
                        "yes" if low < TARGET <= high else "no",
                    ]

    return lines(["", "N", "share", "%", "may have been", "can flip"], rows())


def retention_range(point: CurvePoint, full: float, base: float) -> tuple[float, float, float]:
    """Least, printed and largest retention that fit the printed decimals."""
    assert point.quality is not None
    above, of = point.quality - base, full - base
    return (
        (above - HALF_STEP) / (of + HALF_STEP),
        above / of,
        (above + HALF_STEP) / (of - HALF_STEP),
    )


def blog_table(task: str) -> str:
    """By depth and training size: kept raw / above chance; the last line is the constant's."""
    answers = [a for a in answer_rows(BLOG, TARGET) if a.task == task]
    header = ["N", *(f"{answer.train_size:,} examples" for answer in answers)]
    rows = [["0 (quality)", *(quality(answer.points[0].quality) for answer in answers)]]
    for points in zip(*(answer.points[1:] for answer in answers), strict=True):
        cells = [points[0].depth.label]
        cells += [f"{share(p.retention)} / {share(p.corrected_retention)}" for p in points]
        rows.append(cells)
    constants = [(a.chance or 0.0) / (a.points[0].quality or 1.0) for a in answers]
    rows.append(["constant answer", *(f"{share(kept)} / {share(0.0)}" for kept in constants)])
    for number, name in enumerate(("k kept", "k above chance")):
        found = [fewest(answer)[number] for answer in answers]
        rows.append([name, *("did not learn" if k == "-" else k for k in found)])
    return lines(header, rows)


def counts() -> str:
    """How many of the paper's partly frozen depths reach the target, raw and corrected."""
    partly = [
        (answer, point)
        for answer in paper_answers()
        if answer.task != ALL_TASKS
        for point in answer.points[1:]
        if point.fine_tuned_layers > 0
    ]
    heads = [
        point
        for answer in paper_answers()
        if answer.task != ALL_TASKS
        for point in answer.points[1:]
        if point.fine_tuned_layers == 0
    ]

    def passing(points: list[CurvePoint], corrected: bool) -> int:
        values = [p.corrected_retention if corrected else p.retention for p in points]
        return sum((value or 0.0) >= TARGET for value in values)

    several = [point for _, point in partly]
    lost = [
        f"{answer.model} on {answer.task} ({share(point.retention)} to "
        f"{quality(point.corrected_retention)})"
        for answer, point in partly
        if (point.retention or 0) >= TARGET > (point.corrected_retention or 0)
    ]
    return (
        f"- Partly frozen: {passing(several, False)} of {len(several)} pairs of model and task "
        f"keep 90 %, and {passing(several, True)} of {len(several)} do so above "
        f"chance. What is between: {', '.join(lost)}.\n"
        f"- All layers frozen: {passing(heads, False)} of {len(heads)} keep 90 %, and "
        f"{passing(heads, True)} do so above chance.\n"
    )


def rates_table() -> str:
    """MiniLM under three rules for learning rates: what one and no fine-tuned layer keep, the
    answers, and what is certified.
    """
    header = ["task", "learning rates", "k = 1 at", "kept", "above chance"]
    header += ["k = 0 at", "kept", "above chance", "k kept", "k above chance", "certified"]
    rules = {"paper": "full model's", "same_range": "own, to 5e-5", "fair": "own, any"}
    rows = []
    for task in json.loads(FAIR_RATES.read_text(encoding="utf-8"))["results"]:
        for rule, words in rules.items():
            of = task["rules"][rule]
            points = {point["frozen_layers"]: point for point in of["depths"]}
            cells = [task["task"], words]
            for frozen in (5, 6):
                here, full = (points[n]["quality"] for n in (frozen, 0))
                above = (here - task["chance"]) / (full - task["chance"])
                cells += [
                    rate_text(points[frozen]["learning_rate"]),
                    share(here / full),
                    share(above),
                ]
            for name in ("operating_point", "corrected_operating_point", "certified"):
                found = of["answer"][name]
                cells.append("-" if found is None else str(found["fine_tuned_layers"]))
            rows.append(cells)
    return lines(header, rows)


COMPUTED: dict[str, Callable[[], str]] = {
    **{
        model: partial(model_table, model)
        for model in ("bert_base", "roberta_base", "bert_large", "roberta_large")
    },
    "counts": counts,
    "answers": answers_table,
    "rounding": rounding_table,
    "rates": rates_table,
    "sst2 by size": partial(blog_table, "sst2"),
    "cola accuracy by size": partial(blog_table, "cola"),
}


def test_the_page_has_every_table_once() -> None:
    names = [found[1] for found in BLOCK.findall(PAGE.read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(COMPUTED)


@pytest.mark.parametrize("name", COMPUTED)
def test_the_page_says_what_is_computed(name: str) -> None:
    (text,) = [found[2] for found in BLOCK.findall(PAGE.read_text("utf-8")) if found[1] == name]
    assert text == COMPUTED[name]()


@pytest.mark.parametrize(
    ("model", "task", "frozen_layers", "raw", "corrected"),
    [("bert_base", "mrpc", 9, "94.6 %", "46.0 %"), ("bert_base", "rte", 9, "92.2 %", "64.4 %")],
)
def test_the_numbers_in_its_sentences(
    model: str, task: str, frozen_layers: int, raw: str, corrected: str
) -> None:
    (answer,) = [a for a in paper_answers() if (a.model, a.task) == (model, task)]
    (point,) = [p for p in answer.points if p.depth.frozen_layers == frozen_layers]
    assert f"{quality(point.retention)} %" == raw
    assert f"{quality(point.corrected_retention)} %" == corrected
    text = PAGE.read_text(encoding="utf-8")
    assert raw in text and corrected in text


def test_what_a_constant_answer_keeps() -> None:
    (mrpc,) = [a for a in paper_answers() if (a.model, a.task) == ("bert_base", "mrpc")]
    assert mrpc.chance is not None and mrpc.full is not None and mrpc.full.quality is not None
    assert f"{quality(mrpc.chance / mrpc.full.quality)} %" == "89.9 %"
    assert "89.9 %" in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    PAGE.write_text(
        BLOCK.sub(
            lambda found: found[1] + COMPUTED[found[2]]() + found[4], PAGE.read_text("utf-8")
        ),
        encoding="utf-8",
    )
