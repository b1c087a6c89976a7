"""Write every answer that this checkout's recorded tables and journals give into a folder.

    python tools/answers.py OUT                  # JSON, CSV and text, one file for each question
    python tools/answers.py OUT --tree CHECKOUT  # another checkout's code on its own tables
    python tools/answers.py OUT --data           # JSON and CSV alone
    python tools/answers.py OUT --reports        # reports of all but the made-up tables, too
    diff -r BEFORE AFTER
    python tools/answers.py tests/published/answers.tar.xz --data   # what the tests compare with

Two checkouts give the same answers where `diff` is silent. Only the command line is asked, in this
process, so that the program runs on a checkout whose modules have other names.

Each file holds what is printed on stdout; `statuses.txt` has the exit statuses, `said.txt` what is
said on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import runpy
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]

# Made-up studies reach what the recorded ones do not: depths without results, diverged runs, ties.
MADE_UP_TABLES = 60
RATES = ("1e-05", "2e-05", "5e-05", "0.0001")
LABORATORY = ("cola", "mrpc", "sst2", "stsb", "stdlib")


@dataclass(frozen=True)
class Question:
    """Some results, and what is asked about them."""

    name: str  # of its files, without the suffix
    source: tuple[str, ...]  # the arguments that say which results are meant
    more: tuple[str, ...] = ()  # arguments of `answer` alone: a target, tasks to leave out
    is_made_up: bool = False  # nobody recorded these results


@dataclass(frozen=True)
class Asked:
    """What the command line did."""

    status: int  # its exit status
    printed: str  # on stdout
    said: str  # on stderr


def questions(folder: Path) -> Iterator[Question]:
    """Yield a question for each recorded table and journal of the working directory's checkout.

    folder: receives the tables that are made up here, or drawn from the laboratory.
    """
    results = Path("bench/results")
    for table in sorted(results.glob("*.csv")):
        yield Question(table.stem, ("--from", str(table)))
    for table in sorted(results.glob("*/trials.csv")):
        yield Question(table.parent.name, ("--from", str(table)))
    for target in ("0.8", "0.95", "0.99"):
        yield Question(
            f"sst2-target-{target}", ("--from", str(results / "sst2.csv")), ("--target", target)
        )
    study = ("--from", str(results / "elsa_minilm" / "trials.csv"))
    yield Question("elsa_minilm-without-mrpc", study, ("--exclude-task", "mrpc"))
    blog = ("--from", str(results / "low_resource_minilm" / "trials.csv"))
    yield Question("low_resource_minilm-100", (*blog, "--train-size", "100"))

    journal = ("--from", str(results / "demo" / "journal.jsonl"))
    yield Question("demo-journal", journal)
    yield Question("demo-journal-target-0.99", journal, ("--target", "0.99"))
    yield Question("demo-search", ("demo", "--storage-path", str(results)))

    yield Question("published", ("--published",))
    yield Question("published-without-cola", ("--published",), ("--exclude-task", "cola"))
    some = ("--published", "--model", "bert_base", "--task", "mrpc", "--task", "rte")
    yield Question("published-two-tasks", some)
    yield Question("ray-tune", ("--from", "tests/unit/exports/ray_tune.csv", "--map", "layers==6"))

    for name in LABORATORY:
        yield Question(f"lab-{name}", ("--from", str(laboratory_table(name, folder))))
    for number in range(MADE_UP_TABLES):
        table = made_up_table(number, folder)
        yield Question(f"made-up-{number:02}", ("--from", str(table)), is_made_up=True)


def laboratory_table(name: str, folder: Path) -> Path:
    """Write the last evaluations of a laboratory's trials as a table; return its path."""
    import pandas

    recorded = pandas.read_parquet(Path("bench/lab") / f"{name}.parquet")
    trial = ["frozen_layers", "learning_rate", "seed"]
    last = recorded.sort_values("evaluation", kind="stable").groupby(trial, as_index=False).last()
    last = last[last["status"] == "completed"]
    columns = ["task", *trial, "quality", "chance", "train_seconds"]
    table = last[columns].assign(model="minilm", layers=6)
    target = folder / f"lab-{name}.csv"
    table.to_csv(target, index=False)
    return target


def made_up_table(number: int, folder: Path) -> Path:
    """Write a table of a made-up study, always the same for a number; return its path."""
    draw = random.Random(number)
    layers = draw.choice((6, 12, 24))
    rows: list[dict[str, object]] = []
    for task in draw.sample(("rte", "mrpc", "sst2", "mood"), draw.choice((1, 1, 2, 3))):
        rows += made_up_rows(draw, task, layers)
    target = folder / f"made-up-{number:02}.csv"
    names = list(dict.fromkeys(name for row in rows for name in row))
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return target


def made_up_rows(draw: random.Random, task: str, layers: int) -> list[dict[str, object]]:
    """Return the rows of one task: exploring runs, measuring runs, and some that diverged."""
    chance = draw.choice((0.5, 0.5, 0.66, 0.0))
    full = draw.uniform(max(chance, 0.3), 0.95)
    steepness = draw.choice((1.0, 2.0, 6.0))
    seeds = draw.randint(1, 6)
    spread = draw.choice((0.001, 0.01, 0.04))
    has_exploring = draw.random() < 0.6
    common = {"model": "made-up", "task": task, "layers": layers, **made_up_columns(draw, chance)}
    rows: list[dict[str, object]] = []
    for name, share in made_up_depths(draw, layers, steepness):
        mean = full - (full - chance) * draw.uniform(0.2, 1.0) * share
        depth = {**common, "frozen_layers": name}
        if has_exploring:
            rows += exploring_rows(draw, depth, mean)
        rate = draw.choice(RATES)
        for seed in range(1, seeds + 1):
            run = {**depth, "learning_rate": rate, "seed": seed, "phase": "measure"}
            rows.append({**run, **made_up_result(draw, mean, spread, share)})
    return rows


def made_up_columns(draw: random.Random, chance: float) -> dict[str, object]:
    """Return the columns that a table may lack, as far as this one has them."""
    columns: dict[str, object] = {}
    if draw.random() < 0.7:
        columns["metric"] = draw.choice(("accuracy", "f1", "matthews"))
    if draw.random() < 0.8:
        columns["chance"] = chance
    if draw.random() < 0.5:
        columns["examples"] = draw.choice((277, 872, 5463))
    return columns


def made_up_depths(
    draw: random.Random, layers: int, steepness: float
) -> Iterator[tuple[object, float]]:
    """Yield each depth's name, and the share of the largest possible loss that it may have."""
    depths = sorted({0, layers, *draw.sample(range(1, layers), draw.randint(2, 5))})
    if draw.random() < 0.15:
        depths.remove(0)  # nobody measured the full model
    for depth in depths:
        yield depth, (depth / layers) ** steepness
    if draw.random() < 0.2:
        yield "embeddings", 0.01


def exploring_rows(
    draw: random.Random, depth: dict[str, object], mean: float
) -> Iterator[dict[str, object]]:
    """Yield one run for each of a depth's first learning rates."""
    for rate in RATES[: draw.randint(1, len(RATES))]:
        run = {**depth, "learning_rate": rate, "seed": 0, "phase": "explore", "train_seconds": 12.5}
        status = draw.choice(("completed", "completed", "stopped_early"))
        yield {**run, "status": status, "quality": round(mean - draw.uniform(0, 0.1), 4)}


def made_up_result(
    draw: random.Random, mean: float, spread: float, share: float
) -> dict[str, object]:
    """Return what a measuring run ended with."""
    if draw.random() < 0.05:
        return {"status": "diverged", "quality": "", "train_seconds": 3.5}
    quality = round(min(1.0, draw.gauss(mean, spread)), 4)
    return {
        "status": "completed",
        "quality": quality,
        "train_seconds": round(100 - 50 * share, 2),
    }


def asked(arguments: Sequence[str], places: Mapping[str, Path]) -> Asked:
    """Run the command line in this process. places: folders, by the words to write for them."""
    sys.argv = ["elsa-tune", *arguments]
    # The file descriptors themselves are led aside, since a command may wrap the streams.
    with led_aside(1) as printed, led_aside(2) as complaints:
        try:
            runpy.run_module("elsa_tune", run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
        texts = []
        for file in (printed, complaints):
            file.seek(0)
            text = file.read().decode("utf-8")
            for word, place in places.items():
                text = text.replace(str(place), word)
            texts.append(text)
    return Asked(status=status, printed=texts[0], said=texts[1])


@contextlib.contextmanager
def led_aside(descriptor: int) -> Iterator[IO[bytes]]:
    """While inside, what is written to a file descriptor goes into the file that this gives."""
    kept = os.dup(descriptor)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield file
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)


def forms(question: Question, data_alone: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield each file's name, and the arguments whose stdout it has."""
    answer = ["operating-point", *question.source, *question.more]
    curve = ["curve", *question.source]
    yield f"{question.name}.json", [*answer, "--format", "json"]
    if question.is_made_up and data_alone:
        return
    yield f"{question.name}.csv", [*answer, "--format", "csv"]
    if not question.more:
        yield f"{question.name}-curve.json", [*curve, "--format", "json"]
        yield f"{question.name}-curve.csv", [*curve, "--format", "csv"]
    if data_alone:
        return
    yield f"{question.name}.txt", answer
    yield f"{question.name}-details.txt", [*answer, "--details"]
    if not question.more:
        yield f"{question.name}-curve.txt", curve


def write_answers(
    out: Path, *, data_alone: bool = False, reports: bool = False, only: str = ""
) -> None:
    """Write the answers of the checkout in the working directory.

    data_alone, reports, only: as the program's options.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables = Path("build/answers")
    shutil.rmtree(tables, ignore_errors=True)
    tables.mkdir(parents=True)
    places = {"OUT": out, "TREE": Path.cwd()}
    statuses = []
    said = []
    for question in questions(tables):
        if only not in question.name:
            continue
        for name, arguments in forms(question, data_alone):
            result = asked(arguments, places)
            (out / name).write_text(result.printed, encoding="utf-8")
            statuses.append(f"{name}: {result.status}\n")
            said.append(f"{name}:\n{result.said}" if result.said else "")
        if reports and not question.is_made_up:
            folder = out / f"{question.name}-report"
            result = asked(["report", "--out", str(folder), *question.source], places)
            page = folder / "index.html"
            if page.exists():
                page.write_text(page.read_text("utf-8").replace(str(out), "OUT"), "utf-8")
            statuses.append(f"{folder.name}: {result.status}\n")
    (out / "statuses.txt").write_text("".join(statuses), encoding="utf-8")
    if not data_alone:
        (out / "said.txt").write_text("".join(said), encoding="utf-8")


def pack(folder: Path, archive: Path) -> None:
    """Write the folder's files into an archive; the same files give the same bytes."""
    with tarfile.open(archive, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as packed:
        for file in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(file.name)
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                packed.addfile(entry, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the folder to write, or its .tar.xz")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to ask")
    parser.add_argument("--data", action="store_true", help="JSON and CSV alone")
    parser.add_argument("--reports", action="store_true", help="reports, too")
    parser.add_argument("--only", default="", help="questions with this in their name")
    options = parser.parse_args()
    out, tree = options.out.absolute(), options.tree.resolve()
    sys.path.insert(0, str(tree))
    os.chdir(tree)
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    what = {"data_alone": options.data, "reports": options.reports, "only": options.only}
    if out.suffix != ".xz":
        write_answers(out, **what)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_answers(Path(folder), **what)
        pack(Path(folder), out)


if __name__ == "__main__":
    main()
