"""A task of one's own, answered as a user would: which section is a Debian package in?

    python bench/own_data.py                       # the three searches, on a Debian machine
    python bench/own_data.py --only-data           # the task alone, to look at
    python bench/own_data.py --trials              # single trials instead of searches
    python bench/own_data.py --searches default --add quick '--space quick' --set epochs=6

The text is a package's short description, the label its section (1,500 rows to train, 500 to
evaluate, macro-F1). Rows are chosen by a hash of the package's name, one package of a source, so
that the same package lists always give the same files and no source is on both sides. Which
packages there are is Debian's affair, so numbers are compared within one run only; the files'
hashes stand beside them.

The searches differ in what learning rates they may try and in nothing else: `default` whatever the
space has, `wide` every depth up to 2e-3 and none stopped early, `narrow` the range of the
paper (1e-5 to 5e-5), with five tries and ASHA at every depth. Writes bench/results/own_data.json,
anew after each search, or own_data_trials.json.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine

# Comparable in size, near enough to one another to be confused. Of seven triples of admin, net,
# science, utils and x11, tried with one seed before any search, the bare head gained 4 to 15 points
# from 5e-5 to 1e-3; this triple (5 points) lies in the middle.
SECTIONS = ("net", "science", "utils")
TRAIN_ROWS, EVALUATION_ROWS = 1500, 500

# Passed to the search with --set.
PLANS: dict[str, tuple[str, ...]] = {
    "default": (),
    "wide": ("learning_rate=[5e-5,1e-4,2e-4,3e-4,5e-4,1e-3,2e-3]", "tries=7", "asha=null"),
    "narrow": (
        *("learning_rate={low: 1.0e-5, high: 5.0e-5, step: 1.0e-5}", "tries=5", "sampler=tpe"),
        *("asha={grace: 1, reduction_factor: 2}", "extend=false"),
    ),
}
COMMON = ("epochs=4", "depths=half")
TRIALS: dict[int, tuple[float, ...]] = {
    6: (2e-5, 5e-5, 1e-3, 5e-3),
    5: (2e-5, 5e-5, 3e-4, 1e-3),
    0: (5e-5, 1e-4),
}

ANSWER_FIELDS = (
    *("metric", "train_size", "chance", "full", "operating_point", "corrected_operating_point"),
    *("certified", "corrected_certified", "plausible_fine_tuned_layers", "reason", "warnings"),
)
CURVE_FIELDS = (
    *("frozen_layers", "learning_rate", "quality", "std", "ci_low", "ci_high", "seeds"),
    *("failed_seeds", "retention", "corrected_retention", "explored", "stopped_early"),
)


@dataclass(frozen=True)
class Package:
    """One package as the lists have it."""

    name: str
    source: str
    section: str
    text: str

    @property
    def rank(self) -> str:
        """Its place in an order that has to do with nothing."""
        return hashlib.sha256(self.name.encode()).hexdigest()


def available() -> list[Package]:
    """Every package that apt knows; ends the program with a sentence where it knows none."""
    if shutil.which("apt-cache") is None:
        sys.exit("own_data: needs a Debian machine: there is no apt-cache here")
    found = packages_of(
        subprocess.run(
            ("apt-cache", "dumpavail"), capture_output=True, text=True, check=True
        ).stdout
    )
    if not found:
        sys.exit("own_data: apt knows no packages here; run `apt-get update` first")
    return found


def packages_of(listing: str) -> list[Package]:
    """Return the packages of a list in Debian's format."""
    found = []
    for paragraph in listing.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", paragraph, re.MULTILINE))
        name, section = fields.get("Package"), fields.get("Section")
        text = fields.get("Description") or fields.get("Description-en")
        if name and section and text:
            # `Source: name (version)` where the version is another than the package's.
            source = fields.get("Source", name).split()[0]
            found.append(Package(name, source, section, text))
    return found


def distinct(packages: Iterable[Package]) -> list[Package]:
    """In the order of their ranks, one package of each source and none with another's text."""
    found: list[Package] = []
    sources, texts = set(), set()
    for package in sorted(packages, key=lambda one: one.rank):
        text = package.text.casefold()
        # A transitional package's text says nothing of what it is.
        if package.source in sources or text in texts or "transitional" in text:
            continue
        sources.add(package.source)
        texts.add(text)
        found.append(package)
    return found


def split_rows(packages: Iterable[Package], sections: Iterable[str]) -> dict[str, list[Package]]:
    """Return `evaluation` and `train`, every section with the same share but for rounding."""
    sections = sorted(sections)
    rows = distinct(package for package in packages if package.section in sections)
    found: dict[str, list[Package]] = {"evaluation": [], "train": []}
    for number, section in enumerate(sections):
        left = [package for package in rows if package.section == section]
        for split, size in (("evaluation", EVALUATION_ROWS), ("train", TRAIN_ROWS)):
            share = (size + number) // len(sections)
            if len(left) < share:
                sys.exit(f"own_data: too few packages in section {section}; name others")
            found[split] += left[:share]
            left = left[share:]
    return {split: sorted(chosen, key=lambda one: one.rank) for split, chosen in found.items()}


def write_task(folder: Path, splits: dict[str, list[Package]], sections: Iterable[str]) -> Path:
    """Write the CSV files and the YAML file that names them; return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "section"))
            writer.writerows((row.text, row.section) for row in rows)
    task = folder / "debian.yaml"
    task.write_text(
        "name: debian\n"
        "files: {train: train.csv, evaluation: evaluation.csv}\n"
        "text: text\n"
        "label: section\n"
        f"classes: [{', '.join(sorted(sections))}]\n"
        "metric: f1_macro\n",
        encoding="utf-8",
    )
    return task


def elsa_tune(*arguments: str) -> tuple[str, ...]:
    """Return the command line of this checkout."""
    return (sys.executable, "-m", "elsa_tune", *arguments)


def printed(command: Iterable[str], folder: Path) -> str:
    """Return what a command prints, as a user would type it in the folder."""
    typed = ["elsa-tune", *list(command)[3:]]
    return shlex.join(typed).replace(f"{folder}/", "")


def sets_of(settings: Iterable[str]) -> list[str]:
    """As options of the command; of two settings of one field the later one."""
    last = {text.partition("=")[0]: text for text in settings}
    return [part for text in last.values() for part in ("--set", text)]


def search(name: str, arguments: list[str], task: Path) -> dict[str, Any]:
    """Run one search; its command, minutes and answer."""
    store = ("--tracking-uri", f"sqlite:///{task.parent}/mlflow.db")
    place = ("--storage-path", str(task.parent / "searches"))
    run = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    command = elsa_tune(
        *("search", "--model", "minilm", "--task", str(task), "--name", run, *arguments)
    )
    started, load = time.perf_counter(), os.getloadavg()[0]
    # Stdout is for what is measured; what the search prints belongs to the progress.
    status = subprocess.run((*command, *store, *place), stdout=sys.stderr, check=False).returncode
    minutes = (time.perf_counter() - started) / 60
    if status not in (0, 3):  # 3: no answer, which is a result
        sys.exit(status)
    asked = elsa_tune("operating-point", "--search", run, "--format", "json", *place)
    [answer] = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=False).stdout)
    return {
        "search": name,
        "command": printed(command, task.parent),
        "minutes": round(minutes, 1),
        "load_at_start": round(load, 1),
        **{field: answer[field] for field in ANSWER_FIELDS},
        "curve": [{field: point[field] for field in CURVE_FIELDS} for point in answer["curve"]],
    }


def trial(depth: int, rate: float, seed: int, options: list[str], task: Path) -> dict[str, Any]:
    """Run one trial; its last evaluation."""
    command = elsa_tune(
        *("trial", "--model", "minilm", "--task", str(task), "--frozen-layers", str(depth)),
        *("--learning-rate", f"{rate:g}", "--seed", str(seed), "--format", "json", *options),
    )
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if out.returncode not in (0, 1):
        sys.exit(out.returncode)
    evaluations = [json.loads(line) for line in out.stdout.splitlines()]
    return {
        "frozen_layers": depth,
        "learning_rate": rate,
        "seed": seed,
        # None: it diverged.
        "quality": evaluations[-1]["quality"] if out.returncode == 0 else None,
        "command": printed(command, task.parent),
    }


def main() -> None:
    """Make the task, run what is asked for, and write it down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(tempfile.gettempdir()) / "elsa-tune-own-data"
    parser.add_argument("--folder", type=Path, default=default, help="of data and searches")
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--train-size", type=int, default=400)
    parser.add_argument("--space", help="of every search; else the command's own default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all")
    parser.add_argument("--searches", nargs="*", default=list(PLANS), choices=list(PLANS))
    parser.add_argument(
        "--add",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "OPTIONS"),
        help="one more search, with these options of `elsa-tune search`",
    )
    parser.add_argument("--trials", action="store_true", help="single trials, no searches")
    parser.add_argument("--trial-seeds", type=int, default=1)
    parser.add_argument("--only-data", action="store_true")
    options = parser.parse_args()
    folder = options.folder.resolve()
    task = write_task(folder, split_rows(available(), options.sections), options.sections)
    print(task, file=sys.stderr)
    if options.only_data:
        return
    data = {
        file: hashlib.sha256((folder / file).read_bytes()).hexdigest()
        for file in ("train.csv", "evaluation.csv")
    }
    size = ["--train-size", str(options.train_size)]
    what = f"MiniLM, sections {', '.join(options.sections)}, {options.train_size} of {TRAIN_ROWS}"

    def written(name: str, found: list[dict[str, Any]], note: str) -> Path:
        return machine.write(name, {"data_sha256": data, "runs": found}, note)

    found: list[dict[str, Any]] = []
    if options.trials:
        recipe = sets_of(text for text in (*COMMON, *options.set) if "depths=" not in text)
        for depth, rates in TRIALS.items():
            for rate in rates:
                for seed in range(1, options.trial_seeds + 1):
                    found.append(trial(depth, rate, seed, [*size, *recipe], task))
                    print(json.dumps(found[-1]), flush=True)
        note = f"single trials; {what} training rows; qualities are macro-F1 as fractions"
        print(written("own_data_trials", found, note))
        return
    plans = {name: (PLANS[name], []) for name in options.searches}
    plans |= {name: ((), shlex.split(text)) for name, text in options.add}
    space = ["--space", options.space] if options.space else []
    note = f"searches; {what} training rows; qualities are macro-F1 as fractions"
    for name, (plan, more) in plans.items():
        arguments = [*size, *space, *sets_of((*COMMON, *plan, *options.set)), *more]
        found.append(search(name, arguments, task))
        print(json.dumps(found[-1]), flush=True)
        path = written("own_data", found, note)
    if plans:
        print(path)


if __name__ == "__main__":
    main()
