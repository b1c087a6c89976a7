"""How far off a search's estimate of its time left is, against what it really took.

    python bench/time_left.py                  # the searches in bench/searches
    python bench/time_left.py FOLDER ...       # and others, by the folders of their journals
    python bench/time_left.py --keep FOLDER    # put one into bench/searches

Replays each journal up to 10, 25, 50 and 75 % of the search's time and asks what the board would
have said there. Writes bench/results/time_left.json.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine

from elsa_tune.searching.eta import seconds_left
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.specs.task import FilesSource
from elsa_tune.specs.trial_facts import TrialFacts
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    TrialEnded,
    TrialStarted,
    encode,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState

SEARCHES = Path(__file__).resolve().parent / "searches"
SHARES = (0.1, 0.25, 0.5, 0.75)
PARAMS = ("phase", "candidate", "learning_rate", "seed")
METRICS = ("quality", "holdout_quality")


def main() -> None:
    """Replay, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if options.keep:
        for folder in options.folders:
            keep(folder)
        return
    folders = [*sorted(SEARCHES.iterdir()), *options.folders]
    found = {folder.name: replayed(folder) for folder in folders}
    for name, one in found.items():
        print(f"{name}: {one['seconds']} s, {one['trials']} trials")
        for at in one["at"]:
            told = "not known" if at["predicted"] is None else f"{at['predicted']} s"
            off = "" if at["off"] is None else f", {at['off']:+.0%}"
            print(f"  at {at['share']:.0%}: {told}, it took {at['true']} s{off}")
    note = "seconds left: predicted by the board, and true; off: the difference, by the true one"
    print(machine.write("time_left", found, note))


def replayed(folder: Path) -> dict[str, Any]:
    """Return what was predicted at each share of a finished search's time, and what was true."""
    spec = load_specification(SearchPaths(folder.parent, folder.name))
    records = read_journal(folder / "journal.jsonl")
    whole = SearchState.replay(records)
    assert whole.end is not None, f"{folder.name} has not ended"
    took = whole.end.time - whole.started
    rows = []
    for share in SHARES:
        now = whole.started + share * took
        state = SearchState.replay(one for one in records if one.time <= now)
        known = [known_trial(spec, trial) for trial in state.planned_trials]
        predicted, true = seconds_left(spec, known, now), whole.end.time - now
        rows.append(
            {
                "share": share,
                "predicted": None if predicted is None else round(predicted),
                "true": round(true),
                "off": None if predicted is None else round(predicted / true - 1, 2),
            }
        )
    return {"seconds": round(took), "trials": len(whole.planned_trials), "at": rows}


def keep(folder: Path) -> None:
    """Copy what a replay reads of a search: no paths of a machine, and no results but qualities."""
    spec = load_specification(SearchPaths(folder.parent, folder.name))
    source = spec.task.source
    if isinstance(source, FilesSource):
        files = {name: _names(getattr(source, name)) for name in ("train", "evaluation")}
        source = dataclasses.replace(source, **files)
    task = dataclasses.replace(spec.task, source=source)
    name = spec.name.rsplit("-", 2)[0]
    spec = dataclasses.replace(
        spec, name=name, task=task, tracking_uri="sqlite:///mlflow.db", versions={}
    )
    paths = SearchPaths(SEARCHES, name)
    paths.folder.mkdir(parents=True)
    save_specification(spec, paths)
    lines = [encode(slim) for one in read_journal(folder / "journal.jsonl") for slim in _slim(one)]
    paths.journal.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _names(files: Sequence[Path | str] | None) -> tuple[str, ...] | None:
    return None if files is None else tuple(Path(file).name for file in files)


def _slim(record: Record) -> list[Record]:
    match record:
        case SearchStarted():
            return [dataclasses.replace(record, params={}, tags={})]
        case TrialStarted():
            kept = {name: getattr(record.params, name) for name in PARAMS}
            return [dataclasses.replace(record, params=TrialFacts(**kept), tags={})]
        case Report():
            metrics = {name: record.metrics[name] for name in METRICS if name in record.metrics}
            return [dataclasses.replace(record, metrics=metrics, notes=[], tags={})]
        case TrialEnded():
            return [dataclasses.replace(record, metrics={}, artifact=None, tags={})]
        case SearchEnded():
            return [record]
    return []


if __name__ == "__main__":
    main()
