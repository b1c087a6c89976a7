"""The tasks that have names: GLUE's, the embedded default and its control."""

from __future__ import annotations

from elsa_tune.specs.glue import GLUE_TASKS
from elsa_tune.specs.task import EmbeddedSource, Metric, TaskKind, TaskSpec

RESERVED_NAMES = ("all",)  # `--task all` asks for every task at once


def _embedded(name: str, shuffled: bool) -> TaskSpec:
    return TaskSpec(
        name=name,
        kind=TaskKind.CLASSIFICATION,
        text_columns=("name", "sentence"),
        label_column="label",
        classes=("other", "own"),
        metric=Metric.ACCURACY,
        source=EmbeddedSource(shuffled_labels=shuffled),
        published_chance={"accuracy": 0.5},
    )


STDLIB = _embedded("stdlib", shuffled=False)
STDLIB_SHUFFLED = _embedded("stdlib_shuffled", shuffled=True)

KNOWN_TASKS: dict[str, TaskSpec] = {
    **GLUE_TASKS,
    STDLIB.name: STDLIB,
    STDLIB_SHUFFLED.name: STDLIB_SHUFFLED,
}
