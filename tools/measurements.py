"""Tables of the pages on measurements, made from the committed results of the benches."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest import mock

from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.rate_ratio import ratios_of_ways
from elsa_tune.analysis.comparing.ways import WayComparison
from elsa_tune.analysis.measured import CandidateRates
from elsa_tune.analysis.wording.fairness import times_text
from elsa_tune.cli.app import app
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.source import Question
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.state import read_state
from elsa_tune.words import rate_text

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
# Layers, examples, workers and metric of the studies in the table of strategies.
SHOWN = (12, 1000, 1, "accuracy")


def measured(name: str) -> dict[str, Any]:
    """Read a committed result of a bench."""
    text = (BENCH / "results" / name).read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


def program(file: str) -> ModuleType:
    """Load a program of bench as a module; the benches import one another as neighbours."""
    if str(BENCH) not in sys.path:
        sys.path.append(str(BENCH))
    spec = importlib.util.spec_from_file_location(Path(file).stem, BENCH / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for cells in rows:
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def demo() -> str:
    """Return the beginning of the answer of a recorded `make demo`."""
    return _printed("demo", "operating-point")


def ways_example() -> str:
    """Return the beginning of what a recorded search says of its ways."""
    return _printed("ways/minilm_sst2", "compare")


def _printed(recorded: str, command: str) -> str:
    """Return what a command prints of a recorded search, from its first line to its legend."""
    printed = io.StringIO()
    name = measured(f"{recorded}/search.json")["name"]
    with TemporaryDirectory() as place, contextlib.chdir(place), redirect_stdout(printed):
        folder = StorePaths(Path.cwd()).storage / name
        shutil.copytree(BENCH / "results" / recorded, folder)
        with mock.patch.dict("os.environ", {"COLUMNS": "200"}):
            app([command, "--search", name], standalone_mode=False)
    lines = printed.getvalue().splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("▶ "))
    return "```\n" + "\n".join(line.rstrip() for line in lines[1 : last + 1]) + "\n```\n"


def ways() -> str:
    """Return what searches over all ways found, as bench/ways.py ran them."""
    rows = []
    for found in measured("ways.json")["results"]:
        names = {"0": "full model", str(found["layers"]): "head alone"}
        minutes = sum(command["minutes"] for command in found["commands"])
        search = f"{found['model']}, {found['task']} ({minutes:.0f} min)"
        for way in found["ways"]:
            std = "" if way["std"] is None else f" ± {100 * way['std']:.1f}"
            certified = "yes" if way["certified"] else "-"
            if not way["certified"] and way["score_certified"]:
                certified = "score"
            label = way["label"]
            if label.isdigit():
                label = names.get(label, f"freeze {label}")
            seconds = way["train_seconds"]
            rows.append(
                [
                    search,
                    f"**{label}**" if way["recommended"] else label,
                    f"{100 * way['quality']:.1f}{std}",
                    f"{100 * way['kept']:.1f}",
                    f"{100 * way['gain_kept']:.1f}",
                    certified,
                    rate_text(way["learning_rate"]),
                    f"{way['trainable_parameters']:,}",
                    f"{seconds:.1f}" if seconds < 1 else f"{seconds:.0f}",
                    f"{way['peak_memory_mb']:,.0f}",
                    _milliseconds(way.get("latency_seconds")),
                    _milliseconds(way.get("bundle_seconds")),
                ]
            )
            search = ""
    header = ["search", "way", "quality × 100", "of the best, %", "of its gain, %", "certified"]
    header += ["rate", "trained parameters", "s a run", "MiB"]
    header += ["ms a text, alone", "ms a text, in a bundle"]
    return table(*_without_empty_columns(header, rows))


def _milliseconds(seconds: float | None) -> str:
    """Return a cell; "" for what was not measured."""
    return "" if seconds is None else f"{1000 * seconds:.1f}"


def _without_empty_columns(
    header: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Return a table's header and rows without columns in which no row has anything."""
    columns = [number for number in range(len(header)) if any(row[number] for row in rows)]
    shown = [[row[number] for number in columns] for row in rows]
    return [header[number] for number in columns], shown


def ways_rates() -> str:
    """Return the best rates of a study's ways in those of the full model, as recorded searches say.

    The full model's row has the rates that it tried itself. A rate in brackets is one whose
    exploring run was stopped early.
    """
    rows = []
    for folder in sorted((BENCH / "results" / "ways").iterdir()):
        if not read_state(folder / "journal.jsonl").is_complete:
            continue  # a study that is to be resumed
        comparison = _comparison(folder)
        curve = comparison.curve
        ratios = {ratio.way.candidate: ratio for ratio in ratios_of_ways(comparison)}
        search = f"{curve.model}, {curve.task}"
        for way in comparison.ways:
            ratio = ratios.get(way.candidate)
            times = interval = "-"
            if ratio is not None:
                times = times_text(ratio.factor)
            if ratio is not None and ratio.low is not None and ratio.high is not None:
                interval = f"{times_text(ratio.low)} to {times_text(ratio.high)}"
            name = way.candidate.name(curve.layers)
            rows.append([search, name, times, interval, _tried(way.point.known_rates)])
            search = ""
    return table(["search", "way", "times", "95 %", "rates tried"], rows)


def _comparison(folder: Path) -> WayComparison:
    """Return what a recorded search says of its ways."""
    source = Journals(folder / "journal.jsonl")
    question = Question()
    rows = source.ask(question, _say_nothing)
    [curve] = source.ways(question, rows)
    return compare_ways(curve)


def _say_nothing(line: str) -> None:
    """Drop what a source says beside its results."""


def _tried(rates: CandidateRates) -> str:
    """Return the rates that a way explored, those of a run that was stopped early in brackets."""
    texts = []
    for rate, _ in rates.explored:
        text = rate_text(rate)
        texts.append(f"({text})" if rate in rates.stopped else text)
    return ", ".join(texts)


def ways_step() -> str:
    """Return the CPU seconds of a training step by way, as bench/ways_step.py timed them."""
    names = {"minilm": "MiniLM", "mpnet": "MPNet", "sst2": "SST-2", "mrpc": "MRPC"}
    layers = {"MiniLM": "6", "MPNet": "12"}
    rows = []
    for setting, steps in measured("ways_step.json")["results"].items():
        model, task = (names[word] for word in setting.split())
        label = f"{model}, {task}"
        for way, step in steps.items():
            way_label = way
            if way.isdigit():
                way_label = "full model" if way == "0" else f"freeze {way}"
            if way == layers[model]:
                way_label = "head alone"
            computed = "–"
            if "without_trunk" in step:
                computed = f"{step['without_trunk']:.3f}"
            seconds = f"{step['seconds']:.3f} ({100 * step['share']:.0f} %)"
            rows.append([label, way_label, seconds, computed, f"{step['plain']:.3f}"])
            label = ""
    header = ["a step of", "way", "elsa-tune", "trunk computed", "transformers and peft"]
    return table(header, rows)


_TASKS = {
    "sst2": "SST-2",
    "cola": "CoLA",
    "mrpc": "MRPC",
    "rte": "RTE",
    "stsb": "STS-B",
    "stdlib": "embedded",
    "r8": "R8",
}
_MODELS = {"minilm": ("MiniLM", 6), "mpnet": ("MPNet", 12)}


def _hunts() -> list[dict[str, Any]]:
    """Return the hunts of bench/twelve_layers.py, by task, six layers before twelve."""
    found = measured("twelve_layers.json")["results"]
    hunts = [search for search in found if search["search"] in _TASKS]
    order = list(_TASKS)
    return sorted(hunts, key=lambda hunt: (order.index(hunt["search"]), _MODELS[hunt["model"]][1]))


def hunts() -> str:
    """Return what hunts answer and cost on six and on twelve layers."""

    def layers(point: dict[str, Any] | None) -> str:
        return "-" if point is None else str(point["fine_tuned_layers"])

    def spread(std: float | None) -> str:
        return "" if std is None else f" ± {100 * std:.1f}"

    rows = []
    for hunt in _hunts():
        model, count = _MODELS[hunt["model"]]
        full = hunt["full"]
        probe = hunt["linear_probe"]
        has_learnt = hunt["reason"] != "full_model_did_not_learn"
        commands = hunt["commands"]
        together = max(command["together_mib"] for command in commands) / 1024
        cells = [
            f"{_TASKS[hunt['search']]}, {model} ({count})",
            f"{100 * full['quality']:.1f}{spread(full['std'])}",
            layers(hunt["operating_point"]),
            layers(hunt["corrected_operating_point"]),
            layers(hunt["certified"]),
            layers(hunt["corrected_certified"]),
            ", ".join(map(str, hunt["plausible_fine_tuned_layers"] or ())) or "-",
            f"{100 * probe['corrected_retention']:.0f}" if probe and has_learnt else "-",
            f"{hunt['minutes']:.0f}",
            hunt["trials"],
            f"{hunt['cost_in_full_trials']:.1f}",
            f"{together:.1f}",
        ]
        rows.append(cells)
    header = ["hunt", "all layers × 100", "keep the score", "keep the gain", "certified: score"]
    header += ["gain", "plausible", "probe's gain, %", "minutes", "trials", "in full trials"]
    header += ["GiB together"]
    return table(header, rows)


def hunt_rates() -> str:
    """Return the learning rates at which the hunts measured each depth."""
    rows = []
    for hunt in _hunts():
        model, count = _MODELS[hunt["model"]]
        rates = []
        for point in hunt["curve"]:
            if not point["seeds"]:
                continue  # only explored
            tuned = count - point["frozen_layers"]
            rates.append(f"{tuned}: {rate_text(point['learning_rate'])}")
        rows.append([f"{_TASKS[hunt['search']]}, {model}", "; ".join(rates)])
    return table(["hunt", "layers fine-tuned: rate"], rows)


def faults() -> str:
    """Return faults at random moments, by kind, as bench/faults.py counted them."""
    kinds = {
        "driver": "the driver",
        "worker": "a trial's worker",
        "mailbox": "the process that holds predictions",
        "raylet": "Ray's raylet",
        "server": "the MLflow server",
        "paused": "Ray's raylet, stopped",
        "full": "the journal's room, to the end",
        "deleted": "the search's folder",
        "node": "a node of a cluster; another joins",
        "hung": "a trial's worker of a cluster, stopped",
        "head": "a cluster's head, the driver and its record",
        "job": "a process of a submitted job",
        "no_store": "driver and MLflow server, which is back after a `resume`",
    }
    header = ["killed or taken", "injected", "searches", "complete after `resume`", "lost"]
    header += ["doubled", "other quality", "other losses", "left RUNNING", "predictions lost"]
    rows = []
    for kind, result in measured("faults.json")["results"].items():
        count = result["counts"]
        cells = [
            kinds[kind],
            result["injected"],
            count["searches"],
            count["whole"],
            count["trials_lost"] + count["points_lost"],
            count["trials_doubled"] + count["points_doubled"],
            count["trials_of_another_quality"],
            _other_losses(count),
            count["left_running"],
            count["predictions_lost"],
        ]
        rows.append(cells)
    return table(header, rows)


def _other_losses(count: dict[str, int]) -> str:
    """Return how many losses differ, and of how many; `-` where none were compared."""
    compared = count.get("losses_compared", 0)
    return f"{count['losses_that_differ']:,} of {compared:,}" if compared else "-"


def fair_rates(file: str = "fair_rates.json") -> str:
    """Return what each rule for learning rates finds, as bench/lab measured it."""
    made: str = program("lab/rules.py").markdown(measured(file)["results"])
    return made + "\n"


def rows() -> str:
    """Return what is odd about the rows of GLUE, as bench/rows.py found it."""
    made: str = program("rows.py").table()
    return made + "\n"


def ways_error() -> str:
    """Return how often comparisons of ways were wrong, as bench/ways_error.py replayed them."""
    header = [
        *("studies", "examples", "seeds", "spread of seeds"),
        *("false", "found, score", "found, gain", "plain rule, false"),
    ]
    shown = ("false", "score_found", "claim_found", "uncorrected_false")
    rows = []
    for cell in measured("ways_error.json")["results"].values():
        shares = [f"{100 * cell[name]:.1f}" for name in shown]
        points = f"{100 * cell['spread']:g}"
        examples = f"{cell['examples']:,}"
        rows.append([cell["profile"], examples, cell["seeds"], points, *shares])
    return table(header, rows)


def strategy() -> str:
    """Return what hunts and even searches cost and claim, as bench/strategy.py simulated them."""
    plans = {
        "hunt": "hunt",
        "hunt, thorough": "thorough hunt",
        "even, 3 seeds": "three seeds",
        "even, 5 seeds": "five seeds",
    }
    by_family: dict[str, dict[str, dict[str, Any]]] = {}
    for study in measured("strategy.json")["results"]:
        if (study["layers"], study["examples"], study["workers"], study["metric"]) == SHOWN:
            by_family.setdefault(study["family"], {})[study["plan"]] = study
    rows = []
    for family, studies in by_family.items():
        cells = [_spoken(family)]
        for plan in plans:
            study = studies.get(plan)
            if study is None:
                cells.append("")
                continue
            near = "-" if study["near"] is None else f"{100 * study['near']:.0f}"
            cells.append(f"{study['cost']:.1f} / {near} / {100 * study['false']:.1f}")
        rows.append(cells)
    return table(["studies", *plans.values()], rows)


def calibration() -> str:
    """Return how often answers are wrong, as bench/calibration.py simulated it."""
    header = [
        *("studies", "measured answer false", "certified", "certified and false"),
        *("true k or one more certified", "plausible has the truth", "numbers plausible"),
    ]
    families = (
        *("smooth", "flat", "uneven", "near_chance", "boundary", "noisy_full", "noisy_depth"),
        *("plateau", "collapsing", "collapsing_alone"),
    )
    names = ("point_false", "certified", "any_certified_false", "near", "plausible_covers")
    shown: dict[str, list[str]] = {}
    for cell in measured("calibration.json")["results"]:
        setting = [cell[name] for name in ("known", "metric", "seeds", "examples")]
        if setting == ["predictions", "accuracy", 5, 1000]:
            shares = [_percent(cell[name]) for name in names]
            shown[cell["family"]] = [*shares, f"{cell['plausible_width']:.1f} of 8"]
    return table(header, [[_spoken(family), *shown[family]] for family in families])


def units() -> str:
    """Return how often rows that share units are certified falsely, as bench/units.py counted."""
    of_rows = {"repeated": "each text {} times", "documents": "{} of a document"}
    rows = []
    for cell in measured("units.json")["results"]["claims"]:
        count = cell["rows"]
        alike = of_rows.get(cell["kind"], "{} of a topic").format(cell["size"])
        if cell["kind"] == "independent":
            alike = "independent"
        shares = [
            _percent(cell.get(f"{judged}_any_certified_false")) for judged in ("rows", "units")
        ]
        rows.append([f"{count:,}, {alike}", f"{-(-count // cell['size']):,}", *shares])
    return table(["evaluation rows", "units", "by rows", "by units"], rows)


def _percent(share: float | None) -> str:
    """Return `2.8`; nothing where it was not simulated."""
    return "" if share is None else f"{100 * share:.1f}"


def _spoken(name: str) -> str:
    """Return a family's name with spaces."""
    return name.replace("_", " ")


def bundle(file: str = "bundle.json") -> str:
    """Return what T tasks cost alone and bundled, as bench/bundle.py measured it."""
    result = measured(file)
    by_setting: dict[tuple[int, int], dict[int, dict[str, float]]] = {}
    for row in result["results"]["rows"]:
        setting = (row["batch"], row["tasks"])
        by_setting.setdefault(setting, {})[row["frozen_layers"]] = row
    depths = sorted({row["frozen_layers"] for row in result["results"]["rows"]})
    header = ["texts at once", "T", "ms: transformers", "ms: packed"]
    header += [f"ms: bundled, N = {depth}" for depth in depths]
    header += ["MB: alone", *(f"MB: bundled, N = {depth}" for depth in depths)]
    rows = []
    for (batch, tasks), by_depth in sorted(by_setting.items()):
        first = by_depth[depths[0]]
        cells = [str(batch), str(tasks), f"{first['transformers']:.1f}", f"{first['alone']:.1f}"]
        cells += [f"{by_depth[depth]['bundled']:.1f}" for depth in depths]
        cells.append(f"{first['megabytes_alone']:.0f}")
        cells += [f"{by_depth[depth]['megabytes_bundled']:.0f}" for depth in depths]
        rows.append(cells)
    return f"{table(header, rows)}\n{result['note']}.\n"


def certified() -> str:
    """Return what it takes until an answer is certified, as bench/peer.py measured it."""
    searches = {
        "hunt": "elsa-tune, `--space hunt --until certified`",
        "even": "elsa-tune, five seeds at every depth",
        "peer": "the peer's grid",
    }
    results = measured("certified_sst2.json")["results"]
    rows = []
    for name, label in searches.items():
        result = results[name]
        cells = [label, result["minutes"], result["trials"], result["epochs"]]
        for layers in (result["operating_point"], result["certified"]):
            cells.append("-" if layers is None else f"{layers} of 6")
        rows.append(cells)
    return table(["searched by", "minutes", "trials", "epochs", "answer", "certified"], rows)
