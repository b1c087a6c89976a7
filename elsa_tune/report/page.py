"""A report: a folder with figures, tables, and one HTML page that needs nothing else and no script.

A content security policy forbids it the network. The same input gives the same bytes. Each file is
written aside and renamed, the page last: a reader never meets half of one.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from elsa_tune.analysis.answer import (
    ALL_TASKS,
    DEFAULT_TARGET,
    Action,
    Answer,
    Certified,
    FirstLines,
)
from elsa_tune.analysis.answer_json import answer_object, answers_csv, as_json, curves_csv
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.warning import DETAILS
from elsa_tune.analysis.wording.answer import probe_sentence, saves_sentence
from elsa_tune.analysis.wording.certainty import recorded_search
from elsa_tune.analysis.wording.tables import point_cells, tuned_cell
from elsa_tune.errors import StorageError, UsageError
from elsa_tune.files import write_aside
from elsa_tune.report.charts import Chart, all_charts
from elsa_tune.report.figures import draw, page_svgs
from elsa_tune.results.results_csv import write_results
from elsa_tune.specs.result_row import Origin, ResultRow
from elsa_tune.specs.trial import PROBE_FEATURES, Phase
from elsa_tune.visible import visible
from elsa_tune.words import listed, number_or_name, number_text, percent, points, target_text

PAGE = "index.html"
FIGURES = "figures"
OVERVIEW = "Every answer at a glance. k: fine-tuned layers; kept: share of the full model's."
# In the head of every page that was ever written here.
_GENERATOR = b'<meta name="generator" content="elsa-tune">'
# What an earlier report may have left among the figures: beside this page it would mislead.
_OUR_FIGURES = re.compile(r"(freeze_curve|learning_rates|early_stopping)\.(png|svg)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns by name, each row's cells in their order, and the number of the row to point out.

    links: for each row the key of the section it leads to, or "".
    """

    caption: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None = None
    links: tuple[str, ...] = ()

    @property
    def is_number(self) -> tuple[bool, ...]:
        """Of each column, whether it is set to the right."""
        columns = zip(*self.rows, strict=True)
        return tuple(any(cell[:1].isdigit() for cell in column) for column in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A figure of one answer, drawn."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One answer on the page.

    figures: its drawings by the key of their chart. remarks: the warnings that change no decision.
    """

    key: str
    name: str
    card: FirstLines
    figures: Mapping[str, Drawing]
    table: Table
    costs: Table
    in_full: str
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]


def check_folder(folder: Path) -> None:
    """Raise UsageError where a report would replace files that no report wrote."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    page = folder / PAGE
    if not page.is_file() or _GENERATOR not in page.read_bytes():
        raise UsageError(
            f"`out` is {folder}, which holds other files than an earlier report's; name a folder "
            "that is new or empty"
        )


def write_report(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    folder: Path,
    command: str = "",
    origins: Mapping[str, Origin] | None = None,
) -> list[Path]:
    """Write the report of these answers and the rows they came from; returns its files, page first.

    command, origins: as in `page_html`. Raises StorageError where the folder cannot be written.
    """
    rows = [row for row in rows if row.phase is not Phase.PROBE]  # the answers tell of it
    named = by_name(answers)
    charts = all_charts(named)
    written = {
        folder / FIGURES / f"{chart.key}.{kind}": drawn
        for chart in charts
        for kind, drawn in draw(chart).items()
    }
    texts = {
        "curve.csv": curves_csv(named.values()),
        "answers.csv": answers_csv(answers),
        "answers.json": as_json([answer_object(answer) for answer in answers]) + "\n",
        "trials.csv": write_results(rows),
        PAGE: page_html(answers, rows, charts, command, origins),
    }
    written |= {folder / name: text.encode() for name, text in texts.items()}
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        for target, content in written.items():
            write_aside(target, content)
        for old in list((folder / FIGURES).iterdir()):
            if _OUR_FIGURES.fullmatch(old.name) and old not in written:
                old.unlink()
    except OSError as error:
        raise StorageError(
            f"the report cannot be written to {folder}: {error.strerror or error}; "
            "name another folder with `out`"
        ) from error
    return list(written)[::-1]


def by_name(answers: Iterable[Answer]) -> dict[str, Answer]:
    """Answers of one task each: `minilm on rte`, with the training size where there are several."""
    single = [answer for answer in answers if answer.decided_by is None]
    sizes_differ = len({answer.train_size for answer in single}) > 1
    found = {}
    for answer in single:
        size = number_text(answer.train_size, " ({:,} examples)", " (all examples)")
        found[f"{answer.model} on {answer.task}{size if sizes_differ else ''}"] = answer
    return found


def page_html(
    answers: Sequence[Answer],
    rows: Sequence[ResultRow],
    charts: Sequence[Chart],
    command: str = "",
    origins: Mapping[str, Origin] | None = None,
) -> str:
    """The complete file. Every name in it is text: the template escapes all but our own drawings.

    rows: of the trials that the answers came from. command: what made this report, for the reader
    to repeat. origins: of each search by its name.
    """
    environment = Environment(
        loader=PackageLoader("elsa_tune.report", "assets"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    named = by_name(answers)
    target = answers[0].target if answers else DEFAULT_TARGET
    goal = target_text(target)
    figures = _figures(charts)
    of_searches = {} if origins is None else origins
    sections: list[Section] = []
    for number, (name, answer) in enumerate(named.items(), 1):
        sections.append(_section(f"answer-{number}", name, answer, figures.get(name, {})))
    return environment.get_template("page.html.jinja").render(
        heading=f"How many layers must be fine-tuned to keep {goal}: {_about(named)}",
        summary=summary(answers),
        facts=facts(rows, of_searches),
        overview=None if len(answers) == 1 else _overview(answers, named),
        sections=sections,
        joint=_joint(answers),
        target=goal,
        procedures=list(dict.fromkeys(a.certified.procedure for a in answers if a.certified)),
        probe_features=PROBE_FEATURES if any(answer.probe for answer in answers) else "",
        searches=list(dict.fromkeys(one.command for one in of_searches.values() if one.command)),
        exports=list(dict.fromkeys(filter(None, map(_export_command, named.values())))),
        command=command,
        again=f"elsa-tune report --from trials.csv --target {target:g} --out again",
    )


def _about(named: Mapping[str, Answer]) -> str:
    """Write what the answers are about: `bert_base on rte`, `2 models on 3 tasks`."""
    models = {answer.model for answer in named.values()}
    tasks = {answer.task for answer in named.values()}
    model = models.pop() if len(models) == 1 else f"{len(models)} models"
    task = tasks.pop() if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{model} on {task}"


def _section(key: str, name: str, answer: Answer, figures: Mapping[str, Drawing]) -> Section:
    return Section(
        key=key,
        name=name,
        card=answer.first_lines,
        figures=figures,
        table=curve_table(name, answer),
        costs=cost_table(name, answer),
        in_full=in_full(answer),
        warnings=tuple(each.text for each in answer.warnings if each.code not in DETAILS),
        remarks=tuple(each.text for each in answer.warnings if each.code in DETAILS),
    )


def _joint(answers: Sequence[Answer]) -> list[tuple[str, FirstLines, str]]:
    """Return title, first lines and full text of each answer for all tasks together."""
    joint: list[tuple[str, FirstLines, str]] = []
    for answer in answers:
        if answer.decided_by is not None:
            title = f"{answer.model}, all tasks together"
            joint.append((title, answer.first_lines, in_full(answer)))
    return joint


def _shown(value: object) -> object:
    """A value as the page has it, our own drawings as they are."""
    is_ours = hasattr(value, "__html__")
    return value if is_ours or not isinstance(value, str) else visible(value)


def _figures(charts: Sequence[Chart]) -> dict[str, dict[str, Drawing]]:
    """The drawings by the name of their answer and the key of their chart."""
    found: dict[str, dict[str, Drawing]] = {}
    for chart in charts:
        for panel, svg in zip(chart.panels, page_svgs(chart), strict=True):
            drawing = Drawing(title=chart.title, caption=chart.caption, svg=svg)
            found.setdefault(panel.title, {})[chart.key] = drawing
    return found


def summary(answers: Sequence[Answer]) -> str:
    """How many of several questions have an answer; "" for one, whose card says all."""
    named = by_name(answers)
    if len(named) == 1:
        return ""
    missing = [name for name, answer in named.items() if not answer.is_answered]
    told = f"{len(named) - len(missing)} of {len(named)} questions have an answer"
    if missing:
        names = listed(missing) if len(missing) <= 6 else f"{len(missing)} of them"
        told += f"; there is none for {names}, and the reason stands with each"
    return f"{told}."


def in_full(answer: Answer) -> str:
    """All that is said of an answer: raw, corrected, how sure, what it saves, and the floor."""
    saves = saves_sentence(answer.operating_point)
    floor = probe_sentence(answer.probe)
    return " ".join(filter(None, (answer.sentence, saves, answer.certainty, floor)))


def _export_command(answer: Answer) -> str:
    """The command that trains and saves the model of an answer from one recorded search."""
    name = recorded_search(answer)
    if name is None or not answer.is_answered:
        return ""
    return f"elsa-tune export {name} --out {shlex.quote(f'{answer.search}-model')}"


def facts(rows: Sequence[ResultRow], origins: Mapping[str, Origin]) -> dict[str, list[str]]:
    """Searches and data, as far as they are known."""
    searches = {row.search: origins.get(row.search, Origin()) for row in rows if row.search}
    named = [", ".join(filter(None, (name, one.place))) for name, one in searches.items()]
    found = {"Search": named, "Data": map(_data, rows)}
    told = {name: [text for text in dict.fromkeys(texts) if text] for name, texts in found.items()}
    return {name: texts for name, texts in told.items() if texts}


def _data(row: ResultRow) -> str:
    """A task's rows and their fingerprint, as far as they are known; "" where nothing is."""
    known = [
        number_text(row.train_size, "{:,} training rows"),
        number_text(row.examples, "{:,} evaluation rows"),
        "" if row.comparison.data is None else f"fingerprint {row.comparison.data}",
    ]
    return ", ".join([row.task, *filter(None, known)]) if any(known) else ""


def curve_table(name: str, answer: Answer) -> Table:
    """One row a depth, what it scores and how that was measured; the answer is pointed out."""
    cells = [_of_curve(point_cells(point)) for point in answer.points]
    caption = f"{name}: quality × 100 by fine-tuned layers, all of them first."
    return _table(caption, cells, _chosen(answer))


def cost_table(name: str, answer: Answer) -> Table:
    """One row a depth, what a trial costs and how many were run."""
    cells = [
        {
            "tuned": tuned_cell(point),
            "trained parameters": number_text(point.trainable_parameters, "{:,.0f}"),
            "seconds": number_text(point.train_seconds, "{:,.1f}"),
            "peak MiB": number_text(point.peak_memory_mb, "{:,.0f}"),
            "tries": str(point.explored or ""),
            "stopped": str(point.stopped_early or ""),
        }
        for point in answer.points
    ]
    caption = f"{name}: what a measuring trial took, and how many exploring trials were run."
    table = _table(caption, cells, _chosen(answer))
    return table if len(table.names) > 1 else replace(table, rows=())


# Of the curve's cells, those that say what was found; the rest says what it took.
_FOUND = (
    "tuned",
    "frozen",
    "quality",
    "95 %",
    "kept",
    "gain kept",
    "rate",
    "seeds",
    "failed",
)


def _of_curve(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: cells[name] for name in _FOUND}


def _chosen(answer: Answer) -> int | None:
    """The row of the depth to fine-tune; None where a linear model is enough."""
    advice = answer.recommendation
    depths = [one.depth for one in answer.points]
    if advice.point is None or advice.action is Action.LINEAR_MODEL:
        return None
    return depths.index(advice.point.depth)


def _overview(answers: Sequence[Answer], named: Mapping[str, Answer]) -> Table:
    """A row for each answer, which leads to its section; a joint one has none."""
    table = _table(OVERVIEW, map(_answer_cells, answers))
    keys = {id(answer): f"answer-{number}" for number, answer in enumerate(named.values(), 1)}
    return replace(table, links=tuple(keys.get(id(answer), "") for answer in answers))


def _answer_cells(answer: Answer) -> dict[str, str]:
    point = answer.operating_point
    corrected = answer.corrected_operating_point
    plausible = [number_or_name(depth, answer.layers) for depth in answer.plausible_depths or ()]
    return {
        "model": answer.model,
        "task": "all together" if answer.task == ALL_TASKS else answer.task,
        "examples": number_text(answer.train_size, "{:,}"),
        "layers": f"{answer.layers}",
        "k": _number(answer, point),
        "kept": percent(None if point is None else point.retention),
        "kept, corrected": percent(None if point is None else point.corrected_retention),
        "k, corrected": _number(answer, corrected),
        "k, certified": _number(answer, answer.certified),
        "k, plausible": ", ".join(plausible),
        "full model": points(None if answer.full is None else answer.full.quality),
        "constant answer": points(answer.chance),
        "remark": (answer.reason or "").replace("_", " "),
    }


def _number(answer: Answer, point: CurvePoint | Certified | None) -> str:
    """The number of fine-tuned layers, or the name of what is not told by one; "" for None."""
    return "" if point is None else number_or_name(point.depth, answer.layers)


def _table(caption: str, rows: Iterable[Mapping[str, str]], chosen: int | None = None) -> Table:
    """A column in which no cell holds anything is left out."""
    told = [{name: "" if cell == "-" else cell for name, cell in row.items()} for row in rows]
    kept = [name for name in (told[0] if told else ()) if any(row[name] for row in told)]
    cells = tuple(tuple(row[name] for name in kept) for row in told)
    return Table(caption=caption, names=tuple(kept), rows=cells, chosen=chosen)
