"""Tables of docs/concepts/what-90-percent-hides.md, computed from the shipped numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.results.published import published_rows
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import metric_text, rate_text

ROOT = Path(__file__).resolve().parents[1]
FAIR_RATES = ROOT / "bench" / "results" / "fair_rates.json"
TARGET = 0.9
NEAR = 0.02  # retentions this far from the target are listed with what rounding may have hidden
HALF_STEP = 5e-4  # both studies print three decimals of a fraction

PAPER = [row for row in published_rows() if row.train_size is None]
BLOG = [row for row in published_rows() if row.train_size is not None]


def paper_answers(rows: Sequence[ResultRow] = PAPER) -> list[Answer]:
    """Return the paper's answers, its joint ones without CoLA, as the paper has them."""
    return answer_curves(freeze_curves(rows), TARGET, exclude_tasks=["cola"])


def percent(value: float | None) -> str:
    """Return a fraction in percent, with one decimal."""
    assert value is not None
    return f"{100 * value:.1f}"


def share(value: float | None) -> str:
    """Return a fraction in percent; bold if it misses the target."""
    assert value is not None
    text = percent(value).replace("-0.0", "0.0")
    return text if value >= TARGET else f"**{text}**"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table, its first column to the left and the others to the right."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (header, rule, *rows))


def model_table(model: str) -> str:
    """Return what each depth of a model keeps in the paper, raw and above chance, by task."""
    answers = [a for a in paper_answers() if a.model == model and a.task != ALL_TASKS]
    header = ["task (metric)", "full", "constant", "keeps"]
    for point in answers[0].points[1:]:
        header += [f"N = {point.candidate.label}", "kept", "above chance"]
    rows = []
    for answer in answers:
        full, chance = answer.points[0].quality, answer.chance
        assert answer.metric is not None and full is not None and chance is not None
        metric = metric_text(answer.metric).removesuffix(" correlation")
        cells = [f"{answer.task} ({metric})"]
        cells += [percent(full), percent(chance), percent(chance / full)]
        for point in answer.points[1:]:
            cells.append(percent(point.quality))
            cells.append(share(point.retention))
            cells.append(share(point.corrected_retention))
        rows.append(cells)
    return table(header, rows)


def fewest(answer: Answer) -> tuple[str, str]:
    """Return how many layers to fine-tune at least, raw and corrected for chance."""
    raw, corrected = answer.operating_point, answer.corrected_operating_point
    return (
        "-" if raw is None else str(raw.fine_tuned_layers),
        "-" if corrected is None else str(corrected.fine_tuned_layers),
    )


def shifted(rows: Sequence[ResultRow], sign: int) -> list[ResultRow]:
    """Return the means as they may have been before printing; +1: frozen depths at their best."""
    unrounded = []
    for row in rows:
        shift = (-sign if row.candidate.is_reference else sign) * HALF_STEP
        unrounded.append(replace(row, quality=(row.quality or 0.0) + shift))
    return unrounded


def answers_table() -> str:
    """Return every answer of the paper, with those that rounding leaves possible."""
    best = paper_answers(shifted(PAPER, 1))
    worst = paper_answers(shifted(PAPER, -1))
    rows = []
    for answer, high, low in zip(paper_answers(), best, worst, strict=True):
        task = "all but CoLA" if answer.task == ALL_TASKS else answer.task
        cells = [answer.model, task, str(answer.layers)]
        for printed, highest, lowest in zip(fewest(answer), fewest(high), fewest(low), strict=True):
            cells.append(" or ".join(dict.fromkeys((printed, highest, lowest))))
        rows.append(cells)
    return table(["model", "task", "L", "k kept", "k above chance"], rows)


def rounding_table() -> str:
    """Return the retentions within two points of the target, with the range printing leaves."""
    return table(["", "N", "share", "%", "may have been", "can flip"], _rounding_rows())


def _rounding_rows() -> Iterator[list[str]]:
    for answer in paper_answers():
        full = answer.points[0].quality
        if answer.task == ALL_TASKS or full is None or answer.chance is None:
            continue
        for point in answer.points[1:]:
            for name, base in (("kept", 0.0), ("above chance", answer.chance)):
                low, value, high = retention_range(point, full, base)
                if abs(value - TARGET) > NEAR or (name != "kept" and base == 0):
                    continue
                yield [
                    f"{answer.model}, {answer.task}",
                    point.candidate.label,
                    name,
                    percent(value),
                    f"{percent(low)} .. {percent(high)}",
                    "yes" if low < TARGET <= high else "no",
                ]


def retention_range(point: CurvePoint, full: float, base: float) -> tuple[float, float, float]:
    """Return the least, the printed and the largest retention that fit the printed decimals."""
    assert point.quality is not None
    above, of = point.quality - base, full - base
    return (
        (above - HALF_STEP) / (of + HALF_STEP),
        above / of,
        (above + HALF_STEP) / (of - HALF_STEP),
    )


def blog_table(task: str) -> str:
    """Return what is kept by depth and training size, raw / above chance; last, by a constant."""
    answers = [a for a in answer_rows(BLOG, TARGET) if a.task == task]
    header = ["N", *(f"{answer.train_size:,} examples" for answer in answers)]
    rows = [["0 (quality)", *(percent(answer.points[0].quality) for answer in answers)]]
    for points in zip(*(answer.points[1:] for answer in answers), strict=True):
        cells = [points[0].candidate.label]
        cells += [f"{share(p.retention)} / {share(p.corrected_retention)}" for p in points]
        rows.append(cells)
    constants = [(a.chance or 0.0) / (a.points[0].quality or 1.0) for a in answers]
    rows.append(["constant answer", *(f"{share(kept)} / {share(0.0)}" for kept in constants)])
    for number, name in enumerate(("k kept", "k above chance")):
        layers = [fewest(answer)[number] for answer in answers]
        rows.append([name, *("did not learn" if k == "-" else k for k in layers)])
    return table(header, rows)


def counts() -> str:
    """Return how many of the paper's frozen depths reach the target, raw and corrected."""
    partly, heads, lost = [], [], []
    for answer in paper_answers():
        if answer.task == ALL_TASKS:
            continue
        for point in answer.points[1:]:
            if point.fine_tuned_layers == 0:
                heads.append(point)
                continue
            partly.append(point)
            if (point.retention or 0) >= TARGET > (point.corrected_retention or 0):
                shares = f"{share(point.retention)} to {percent(point.corrected_retention)}"
                lost.append(f"{answer.model} on {answer.task} ({shares})")
    return (
        f"- Partly frozen: {_passing(partly)} of {len(partly)} pairs of model and task "
        f"keep 90 %, and {_passing(partly, corrected=True)} of {len(partly)} do so above "
        f"chance. What is between: {', '.join(lost)}.\n"
        f"- All layers frozen: {_passing(heads)} of {len(heads)} keep 90 %, and "
        f"{_passing(heads, corrected=True)} do so above chance.\n"
    )


def _passing(points: list[CurvePoint], *, corrected: bool = False) -> int:
    values = [p.corrected_retention if corrected else p.retention for p in points]
    return sum((value or 0.0) >= TARGET for value in values)


def rates_table() -> str:
    """Return what MiniLM keeps with one and no fine-tuned layer under three rules for rates.

    The answers and what is certified stand beside it.
    """
    header = ["task", "learning rates", "k = 1 at", "kept", "above chance"]
    header += ["k = 0 at", "kept", "above chance", "k kept", "k above chance", "certified"]
    rules = {"paper": "full model's", "same_range": "own, to 5e-5", "fair": "own, any"}
    rows = []
    for task in json.loads(FAIR_RATES.read_text(encoding="utf-8"))["results"]:
        for rule, label in rules.items():
            result = task["rules"][rule]
            points = {point["frozen_layers"]: point for point in result["depths"]}
            full = points[0]["quality"]
            cells = [task["task"], label]
            for frozen in (5, 6):
                quality = points[frozen]["quality"]
                cells.append(rate_text(points[frozen]["learning_rate"]))
                cells.append(share(quality / full))
                cells.append(share((quality - task["chance"]) / (full - task["chance"])))
            for name in ("operating_point", "corrected_operating_point", "certified"):
                depth = result["answer"][name]
                cells.append("-" if depth is None else str(depth["fine_tuned_layers"]))
            rows.append(cells)
    return table(header, rows)


TABLES: dict[str, Callable[[], str]] = {
    "bert_base": partial(model_table, "bert_base"),
    "roberta_base": partial(model_table, "roberta_base"),
    "bert_large": partial(model_table, "bert_large"),
    "roberta_large": partial(model_table, "roberta_large"),
    "counts": counts,
    "answers": answers_table,
    "rounding": rounding_table,
    "rates": rates_table,
    "sst2 by size": partial(blog_table, "sst2"),
    "cola accuracy by size": partial(blog_table, "cola"),
}
