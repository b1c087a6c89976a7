"""The first figure of README.md: one task's freeze curve, from the recorded trials.

    python bench/first_figure.py

MiniLM on SST-2 with 1,000 examples, each depth at its own learning rate (bench/results/
fair_rates.json), drawn as `elsa-tune report` draws it. Writes docs/figures/first.{png,svg}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.report.charts import freeze_curve
from elsa_tune.report.figures import draw
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "fair_rates.json"
TASK, LAYERS = "sst2", 6


def measured() -> Iterator[ResultRow]:
    """Yield the measuring trials of every depth at its best rate of all that were tried."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    task = next(one for one in results if one["task"] == TASK)
    for depth in task["rules"]["fair"]["depths"]:
        for seed, quality in zip(depth["seeds"], depth["qualities"], strict=True):
            yield ResultRow(
                model="MiniLM",
                task="SST-2",
                layers=LAYERS,
                candidate=FreezeDepth.of(depth["frozen_layers"]),
                phase=Phase.MEASURE,
                status=TrialStatus.COMPLETED,
                learning_rate=depth["learning_rate"],
                seed=seed,
                quality=quality,
                metric=task["metric"],
                chance=task["chance"],
                examples=task["examples"],
            )


def main() -> None:
    """Draw it."""
    [answer] = answer_rows(list(measured()))
    drawn = draw(replace(freeze_curve({"MiniLM on SST-2, 1,000 examples": answer}), key="first"))
    for kind, content in drawn.items():
        file = ROOT / "docs" / "figures" / f"first.{kind}"
        file.write_bytes(content)
        print(file)


if __name__ == "__main__":
    main()
