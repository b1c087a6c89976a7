"""The types of tasks and the metrics that there are, found by their names."""

from collections.abc import Mapping
from dataclasses import replace

from elsa_tune.errors import DataError, ResultsError, UnknownNameError
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.tasks.types.base import Kernel, TaskType
from elsa_tune.tasks.types.classification import F1, Accuracy, Classification, MacroF1, Matthews
from elsa_tune.tasks.types.regression import Pearson, Regression, Spearman

_TYPES: dict[TaskKind, TaskType] = {}
_KERNELS: dict[Metric, Kernel] = {}


def register(task_type: TaskType, kernels: Mapping[Metric, Kernel]) -> None:
    """Let tasks be of this type, and be scored by these metrics; the last registered counts.

    A worker that is given a task imports the `home` of its kind: the module that calls this.
    """
    _TYPES[task_type.kind] = task_type
    _KERNELS.update(kernels)


register(
    Classification(),
    {
        Metric.ACCURACY: Accuracy(),
        Metric.F1: F1(),
        Metric.F1_MACRO: MacroF1(),
        Metric.MATTHEWS: Matthews(),
    },
)
register(Regression(), {Metric.PEARSON: Pearson(), Metric.SPEARMAN: Spearman()})


def type_of(kind: TaskKind) -> TaskType:
    """Return the type of tasks of this kind."""
    return _TYPES[kind]


def kernel_of(metric: str) -> Kernel:
    """Return what computes a metric, by its name. Raises ResultsError for an unknown one."""
    if metric not in _KERNELS:
        raise ResultsError(f"no resampling is known for the metric '{metric}'")
    return _KERNELS[Metric(metric)]


def with_metric(task: TaskSpec, metric: str | Metric) -> TaskSpec:
    """Return the task under another headline metric; the replaced one becomes a companion.

    Raises UnknownNameError for no metric of ours, DataError for one that cannot score the task.
    """
    if metric not in Metric.known:
        raise UnknownNameError.among("metric", str(metric), list(Metric.known))
    wanted = Metric(metric)
    task_type = type_of(task.kind)
    allowed = task_type.allowed_metrics(task)
    if wanted not in allowed:
        is_of_numbers = wanted in type_of(TaskKind.REGRESSION).metrics
        hint = " (a task of numbers has `regression: true`)" if is_of_numbers else ""
        raise DataError(
            f"metric '{wanted}' cannot score task '{task.name}', which is "
            f"{task_type.describe(task)}; allowed: {', '.join(allowed)}{hint}"
        )
    others = (task.metric, *task.companions)
    companions = tuple(other for other in dict.fromkeys(others) if other is not wanted)
    return replace(task, metric=wanted, companions=companions)
