"""How often the range that a search gives for its time left contains what it really took.

    python bench/time_left.py                  # the searches in bench/searches and bench/results
    python bench/time_left.py FOLDER ...       # and others, by the folders of their journals
    python bench/time_left.py --keep FOLDER    # put one into bench/searches

Replays each journal up to 10, 25, 50 and 75 % of the search's time and asks what the board would
have said there; and what `--dry-run` would have said at the search's own pace. Leaves out searches
that were resumed. Writes bench/results/time_left.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import machine

from elsa_tune.searching.eta import expected_trials, seconds_per_trial, time_range
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
    found = {}
    for folder in [*recorded(), *options.folders]:
        state = SearchState.replay(read_journal(folder / "journal.jsonl"))
        if state.search.attempt == 1:
            found[f"{folder.parent.name}/{folder.name}"] = replayed(folder)
    for name, one in found.items():
        print(f"{name} ({one['strategy']}): {one['seconds']} s, {one['trials']} trials")
        print(f"  a dry run says {one['dry_run_by_true']} times what its trials took")
        for at in one["at"]:
            told = "not known" if at["low"] is None else f"{at['low']} to {at['high']} s"
            print(f"  at {at['share']:.0%}: {told}, it took {at['true']} s")
    counts = inside(found)
    print(counts)
    note = (
        "seconds left: low and high as the board says them, and true; inside, by strategy: how "
        "often the true ones lie below, in and above that range, and the median of high by true; "
        "dry_run_by_true: the seconds of trials as --dry-run has them, at the pace of the search "
        "itself, by those that they took"
    )
    print(machine.write("time_left", {"inside": counts, "searches": found}, note))


def recorded() -> list[Path]:
    """Return the folders of the searches that are kept here."""
    journals = [*SEARCHES.rglob("journal.jsonl"), *machine.RESULTS.rglob("journal.jsonl")]
    return sorted(journal.parent for journal in journals)


def replayed(folder: Path) -> dict[str, Any]:
    """Return what was predicted at each share of a finished search's time, and what was true."""
    spec = load_specification(SearchPaths(folder.parent, folder.name))
    records = read_journal(folder / "journal.jsonl")
    whole = SearchState.replay(records)
    assert whole.end is not None, f"{folder.name} has not ended"
    took = whole.end.time - whole.started
    trials = [known_trial(spec, trial) for trial in whole.planned_trials]
    seconds = seconds_per_trial(spec, trials)
    forecast = sum(count * seconds[one] for one, count in expected_trials(spec).items())
    in_all = sum(trial.ended - trial.started for trial in trials if trial.ended)
    rows = []
    for share in SHARES:
        now = whole.started + share * took
        state = SearchState.replay(one for one in records if one.time <= now)
        known = [known_trial(spec, trial) for trial in state.planned_trials]
        low, high = time_range(spec, known, now) or (None, None)
        rows.append(
            {
                "share": share,
                "low": None if low is None else round(low),
                "high": None if high is None else round(high),
                "true": round(whole.end.time - now),
            }
        )
    return {
        "strategy": spec.strategy,
        "layers": spec.layers,
        "dry_run_by_true": round(forecast / in_all, 2),
        "seconds": round(took),
        "trials": len(whole.planned_trials),
        "at": rows,
    }


def inside(found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how often the truth lay in the range, by strategy."""
    counts: dict[str, dict[str, float]] = {}
    for strategy in sorted({one["strategy"] for one in found.values()}):
        rows = []
        for one in found.values():
            if one["strategy"] == strategy:
                rows += [at for at in one["at"] if at["low"] is not None]
        below = sum(at["true"] < at["low"] for at in rows)
        above = sum(at["true"] > at["high"] for at in rows)
        counts[strategy] = {
            "below": below,
            "inside": len(rows) - below - above,
            "above": above,
            "high_by_true": round(statistics.median(at["high"] / at["true"] for at in rows), 2),
        }
    return counts


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
