"""What `elsa-tune searches` costs on an MLflow store with many runs: CPU seconds and memory.

    python bench/many_runs.py FOLDER                  # 200 searches of 49 trials: 10,000 runs
    python bench/many_runs.py FOLDER --label before   # another version's code, on the same store

The store is made once in FOLDER: one search is recorded as a driver does it, and its runs are
copied within the database under other names. Writes what was measured under the label into
bench/results/many_runs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import machine

ROOT = Path(__file__).resolve().parent.parent
TIMES = 3
# Tables with a row or more for each run, and the column that names the run.
TABLES = ("params", "tags", "metrics", "latest_metrics")


def make_store(folder: Path, searches: int, trials: int) -> Path:
    """Return the store's file; make it where it is not there."""
    sys.path.insert(0, str(ROOT))
    from elsa_tune.tracking.mlflow.store import MlflowStore
    from elsa_tune.tracking.paths import SearchPaths
    from elsa_tune.tracking.places import StorePaths
    from tests.recorded_search import record, whole_search

    places = StorePaths(folder / "made")
    if not places.database.exists():
        store = MlflowStore(places.tracking_uri())
        store.initialise()
        assert record(SearchPaths(places.storage, "s0"), whole_search("s0", trials), store) == 0
        with closing(sqlite3.connect(places.database)) as database, database:
            for number in range(1, searches):
                _copy(database, f"s{number}")
    return places.database


def _copy(database: sqlite3.Connection, name: str) -> None:
    """Copy the runs of s0 under another name."""
    first = "SELECT run_uuid FROM tags WHERE key = 'elsa_tune.searching' AND value = 's0'"
    search_id = uuid.uuid4().hex
    for (run,) in database.execute(first).fetchall():
        new = uuid.uuid4().hex
        for table in ("runs", *TABLES):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            values = ["?" if column == "run_uuid" else f'"{column}"' for column in columns]
            database.execute(
                f"INSERT INTO {table} SELECT {', '.join(values)} FROM {table} WHERE run_uuid = ?",
                (new, run),
            )
        for key, value in (("elsa_tune.searching", name), ("elsa_tune.search_id", search_id)):
            database.execute(
                "UPDATE tags SET value = ? WHERE run_uuid = ? AND key = ?", (value, new, key)
            )


def listed(database: Path, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the best of several calls, and what it printed."""
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    program = "import sys; from elsa_tune.cli.app import main; main()"
    command = [sys.executable, "-c", program, "searches", "--format", "json"]
    command += ["--tracking-uri", f"sqlite:///{database}"]
    found = []
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        printed = subprocess.run(
            ["/usr/bin/env", *command], cwd=empty, env=os.environ, capture_output=True, check=True
        ).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        # The largest child so far: making the store was this process's own work.
        found.append({"cpu_seconds": round(spent, 1), "peak_mb": after.ru_maxrss // 1024})
    return min(found, key=lambda one: one["cpu_seconds"]), json.loads(printed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--label", default="after")
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--trials", type=int, default=49)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    database = make_store(given.folder.absolute(), given.searches, given.trials)
    cost, rows = listed(database, given.folder.absolute())
    assert len(rows) == given.searches
    rows = [one | {"started": None} for one in rows]
    file = machine.RESULTS / "many_runs.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    results |= {"runs": given.searches * (given.trials + 1), given.label: cost}
    printed = given.folder / "printed.json"
    if printed.exists():
        results["same_output"] = json.loads(printed.read_text()) == rows
    printed.write_text(json.dumps(rows))
    print(machine.write("many_runs", results, "elsa-tune searches on an SQLite store; best of 3"))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
