"""The tables of a report's page: a row a depth, a row a way, and a row an answer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import ALL_TASKS, Action, Answer, Certified
from elsa_tune.analysis.comparing.ways import Way, WayComparison
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve, LinearProbe
from elsa_tune.analysis.wording.comparison_tables import way_cells
from elsa_tune.analysis.wording.tables import answer_cells, tuned_cell
from elsa_tune.specs.border import Border
from elsa_tune.specs.task import guess_words
from elsa_tune.words import (
    CHOSEN,
    CHOSEN_MARK,
    border_legend,
    number_or_name,
    number_text,
    percent,
    points,
)

OVERVIEW = (
    "Every answer at a glance, by the number of fine-tuned layers; kept: share of the full model's "
    "score that the recommended number keeps; gain kept: of its gain over {guesses}."
)
# The columns of what was decided: what is recommended, what that keeps, and what it rests on.
_DECIDED = (
    *("recommended", "kept", "gain kept"),
    *("operating point", "corrected for chance", "certified", "plausible"),
)

# Of the curve's cells, those that say what was found; the rest says what it took.
_FOUND = ("tuned", "frozen", "quality", "95 %", "kept", "gain kept", "rate", "seeds", "failed")

# Of the cells of a way, those that the page leaves to `ways.csv`.
_WAY_DETAILS = ("p", "p of score", "tries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the page."""

    caption: str
    names: tuple[str, ...]  # of its columns
    rows: tuple[tuple[str, ...], ...]  # cells in the order of the columns
    chosen: int | None = None  # the number of the row to point out
    links: tuple[str, ...] = ()  # for each row the key of the section it leads to, or ""
    arrows: tuple[str, ...] = ()  # what those beside learning rates mean

    @property
    def legend(self) -> str:
        """What its signs mean; "" without any."""
        signs = list(self.arrows)
        if self.chosen is not None:
            signs.insert(0, f"{CHOSEN_MARK} {CHOSEN}")
        return "; ".join(signs)

    @property
    def is_number(self) -> tuple[bool, ...]:
        """Whether each column is set to the right."""
        are_numbers = []
        for column in zip(*self.rows, strict=True):
            has_number = any(cell[:1].isdigit() for cell in column)
            are_numbers.append(has_number)
        return tuple(are_numbers)


NO_TABLE = Table(caption="", names=(), rows=())


def curve_table(name: str, answer: Answer) -> Table:
    """Return a row a depth, what it scores and how that was measured; the answer is pointed out."""
    rows = []
    for point in answer.points:
        cells = answer_cells(answer, point)
        rows.append({name: cells[name] for name in _FOUND})
    caption = f"{name}: quality × 100 by fine-tuned layers, all of them first."
    borders = {point.known_rates.at_border for point in answer.points}
    return _table(caption, rows, _chosen(answer), borders)


def cost_table(name: str, answer: Answer) -> Table:
    """Return a row a depth, what a trial costs and how many were run."""
    rows = [_cost_cells(point) for point in answer.points]
    caption = f"{name}: what a measuring trial took, and how many exploring trials were run."
    table = _table(caption, rows, _chosen(answer))
    has_depths_alone = len(table.names) < 2
    if has_depths_alone:
        return replace(table, rows=())
    return table


def _cost_cells(point: CurvePoint) -> dict[str, str]:
    return {
        "tuned": tuned_cell(point),
        "trained parameters": number_text(point.trainable_parameters, "{:,.0f}"),
        "seconds": number_text(point.train_seconds, "{:,.1f}"),
        "peak MiB": number_text(point.peak_memory_mb, "{:,.0f}"),
        "tries": str(point.exploring_trials or ""),
        "stopped": str(point.stopped_early or ""),
    }


def ways_table(name: str, comparison: WayComparison) -> Table:
    """Return a row a way, the cheapest first; the recommended one is pointed out."""
    rows = []
    for way in comparison.ways:
        cells = way_cells(comparison, way)
        shown = {name: cell for name, cell in cells.items() if name not in _WAY_DETAILS}
        rows.append({**shown, "certified": _certified_cell(way)})
    chosen = None
    if comparison.recommended is not None:
        candidates = [way.candidate for way in comparison.ways]
        chosen = candidates.index(comparison.recommended.candidate)
    caption = f"{name}: quality × 100 of each way; kept: share of the best way's."
    return _table(caption, rows, chosen, {way.border for way in comparison.ways})


def _certified_cell(way: Way) -> str:
    """Say of what a way is certified to keep the target; "" for nothing."""
    if way.certified:
        return "yes"
    return "the score alone" if way.score_certified else ""


def overview(
    answers: Sequence[tuple[Answer, str]],
    comparisons: Sequence[tuple[WayComparison, str]] = (),
    beside: Mapping[str, WayComparison] | None = None,
) -> Table:
    """Return a row for each, which comes with the key of the section that its row leads to.

    comparisons: of ways on tasks that have no freeze curve, and so no answer. beside: those that
    stand with an answer, by the key of its section.
    """
    beside = beside or {}
    curves: list[FreezeCurve] = [answer for answer, _ in answers]
    curves += [comparison.curve for comparison, _ in comparisons]
    guesses = kinds_of_guess(curves)
    of_chance = " or ".join(guesses)
    rows = []
    links = []
    for answer, key in answers:
        rows.append(_overview_cells(answer, of_chance, beside.get(key)))
        links.append(key)
    for comparison, key in comparisons:
        rows.append(_overview_cells_of_ways(comparison, of_chance))
        links.append(key)
    table = _table(OVERVIEW.format(guesses=with_articles(guesses)), rows)
    return replace(table, links=tuple(links))


def kinds_of_guess(curves: Iterable[FreezeCurve]) -> list[str]:
    """Return what has the quality of chance by the curves' metrics: `constant answer`."""
    kinds = {guess_words(curve.metric): None for curve in curves if curve.chance is not None}
    return list(kinds) or [guess_words(None)]


def with_articles(guesses: Iterable[str]) -> str:
    """Return kinds of guess for a sentence: `a constant answer or a blind answer`."""
    return " or ".join(f"a {guess}" for guess in guesses)


def _overview_cells(
    answer: Answer, of_chance: str, comparison: WayComparison | None
) -> dict[str, str]:
    """Return the cells of an answer. of_chance: the name of the column of chance.

    comparison: of ways on the same task. Where depths have no answer, the remark says its way.
    """
    task = answer.task
    if task == ALL_TASKS:
        task = "all together"
    plausible = []
    for candidate in answer.plausible_candidates or ():
        plausible.append(number_or_name(candidate, answer.layers))
    remarks = []
    if answer.reason is not None:
        remarks.append(answer.reason.value.replace("_", " "))
    if comparison is not None and comparison.recommended is not None and not answer.is_answered:
        way = comparison.recommended.candidate.name(answer.layers)
        remarks.append(f"ways compared: {way}")
    return {
        **_overview_heading(answer, task),
        **_recommended_cells(answer),
        "operating point": _number(answer, answer.operating_point),
        "corrected for chance": _number(answer, answer.corrected_operating_point),
        "certified": _number(answer, answer.certified_depth),
        "plausible": ", ".join(plausible),
        **_overview_end(answer, of_chance, "; ".join(remarks)),
    }


def _recommended_cells(answer: Answer) -> dict[str, str]:
    """Return the cells of what an answer recommends; empty ones where it recommends to wait."""
    advice = answer.recommendation
    keeps: CurvePoint | LinearProbe | None = advice.point
    what = _number(answer, advice.point)
    if advice.action is Action.LINEAR_MODEL:
        keeps = answer.probe
        what = "linear model"
    if keeps is None:
        return {"recommended": "", "kept": "", "gain kept": ""}
    return {
        "recommended": what,
        "kept": percent(keeps.retention),
        "gain kept": percent(keeps.corrected_retention),
    }


def _overview_heading(curve: FreezeCurve, task: str) -> dict[str, str]:
    """Return the cells that say what was asked about."""
    return {
        "model": curve.model,
        "task": task,
        "examples": number_text(curve.train_size, "{:,}"),
        "layers": str(curve.layers or ""),
    }


def _overview_end(curve: FreezeCurve, of_chance: str, remark: str) -> dict[str, str]:
    """Return the cells with which a depth's quality is compared, and the remark."""
    full_quality = None
    if curve.full is not None:
        full_quality = curve.full.quality
    return {
        "full model": points(full_quality),
        of_chance: points(curve.chance),
        "remark": remark,
    }


def _overview_cells_of_ways(comparison: WayComparison, of_chance: str) -> dict[str, str]:
    """Return the cells of a comparison: the recommended way, and nothing of depths.

    of_chance: as of `_overview_cells`.
    """
    curve = comparison.curve
    remark = "ways compared, no freeze curve"
    if not comparison.is_answered and comparison.reason is not None:
        remark = comparison.reason.value.replace("_", " ")
    decided = dict.fromkeys(_DECIDED, "")
    if comparison.recommended is not None:
        decided["recommended"] = comparison.recommended.candidate.name(curve.layers)
    return {
        **_overview_heading(curve, curve.task),
        **decided,
        **_overview_end(curve, of_chance, remark),
    }


def _number(answer: Answer, point: CurvePoint | Certified | None) -> str:
    """Return the number of fine-tuned layers, or the name of what has none; "" for None."""
    if point is None:
        return ""
    return number_or_name(point.candidate, answer.layers)


def _chosen(answer: Answer) -> int | None:
    """Return the row of the depth to fine-tune; None where a linear model is enough."""
    advice = answer.recommendation
    if advice.point is None or advice.action is Action.LINEAR_MODEL:
        return None
    candidates = [point.candidate for point in answer.points]
    return candidates.index(advice.point.candidate)


def _table(
    caption: str,
    rows: Sequence[Mapping[str, str]],
    chosen: int | None = None,
    borders: Collection[Border | None] = (),
) -> Table:
    """Make a table without the columns in which no cell holds anything."""
    filled_names = set()
    for row in rows:
        for name, cell in row.items():
            if cell not in ("", "-"):
                filled_names.add(name)
    names = []
    if rows:
        names = [name for name in rows[0] if name in filled_names]
    lines = []
    for row in rows:
        cells = []
        for name in names:
            cell = row[name]
            cells.append("" if cell == "-" else cell)
        lines.append(tuple(cells))
    return Table(
        caption=caption,
        names=tuple(names),
        rows=tuple(lines),
        chosen=chosen,
        arrows=tuple(border_legend(borders)),
    )
