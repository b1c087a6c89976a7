"""`elsa-tune predict` as a process in a pipe."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.exporting import exported_model
from tests.searching import make_bench
from tests.unit.test_saved import task_of

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def test_a_reader_who_has_seen_enough_ends_it_and_a_full_disk_is_one_sentence(
    tmp_path: Path,
) -> None:
    bench = make_bench(tmp_path)
    exported_model(tmp_path / "mood", tmp_path / "model", task_of(tmp_path / "task"), 1)
    rows = "a good film\n" * 200_000
    (tmp_path / "rows.csv").write_text("text\n" + rows)
    process = bench.start("predict", "mood", "rows.csv")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "text,prediction,confidence\n"
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert "Traceback" not in said and "BrokenPipe" not in said
    assert "200,000 rows" not in said

    with open("/dev/full", "w") as full:
        done = subprocess.run(
            process.args, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    [line] = [one for one in done.stderr.splitlines() if one.startswith("elsa-tune: ")]
    assert line == "elsa-tune: the rows cannot be written to stdout: No space left on device"
    assert "Traceback" not in done.stderr
