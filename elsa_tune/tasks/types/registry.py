"""The types of tasks and the metrics that there are, found by their names."""

from dataclasses import replace

from elsa_tune.errors import DataError, ModelError, ResultsError, UnknownNameError
from elsa_tune.extensions import check_home, load_extensions
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec

# Each registers itself; a new one needs its name here.
from elsa_tune.tasks.types import classification, regression  # noqa: F401
from elsa_tune.tasks.types.base import _FURTHER_KINDS, _KERNELS, _TYPES, Kernel, TaskType


def type_of(kind: TaskKind) -> TaskType:
    """Return the type of tasks of this kind."""
    return _TYPES[kind]


def is_known(kind: str) -> bool:
    """Return whether this kind of label, as an export recorded it, has a type here."""
    try:
        return TaskKind(kind) in _TYPES  # it loads what brings the kind
    except ValueError:
        return False


def type_of_export(kind: str | None, problem_type: str | None) -> TaskType:
    """Return the type of an exported model. Raises ModelError where none is known.

    kind: as the export recorded it; None for early exports. problem_type: as its configuration has
    it, which counts where the kind is not known. Without either it is a classification.
    """
    if kind is None and problem_type is None:
        problem_type = "single_label_classification"
    if kind is not None and is_known(kind):
        return type_of(TaskKind(kind))
    of_problem: TaskType | None = None
    for task_type in _TYPES.values():
        if of_problem is None and task_type.problem_type == problem_type:
            of_problem = task_type
    if of_problem is None:
        raise ModelError(
            f"its answers are of kind '{kind or problem_type}', which nothing here knows; install "
            "or import the package that brings it"
        )
    return of_problem


def check_importable(task: TaskSpec) -> None:
    """Raise ExtensionError for a kind of label or a metric that workers cannot import."""
    check_home(f"the kind of label '{task.kind}'", task.kind.home)
    for metric in (task.metric, *task.companions):
        check_home(f"the metric '{metric}'", metric.home)


def loaded_metrics() -> list[Metric]:
    """Return the metrics that can be computed, those of extensions if these are loaded."""
    return list(_KERNELS)


def kernel_of(metric: str) -> Kernel:
    """Return what computes a metric, by its name. Raises ResultsError for an unknown one."""
    if metric not in _KERNELS:
        load_extensions()
    if metric not in _KERNELS:
        raise ResultsError(f"no resampling is known for the metric '{metric}'")
    return _KERNELS[Metric(metric)]


def with_metric(task: TaskSpec, metric: str | Metric) -> TaskSpec:
    """Return the task under another headline metric; the replaced one becomes a companion.

    Raises UnknownNameError for no metric of ours, DataError for one that cannot score the task.
    """
    wanted = Metric.named(metric)
    if wanted is None:
        names = list(Metric.known)
        raise UnknownNameError.among("metric", str(metric), names)
    task_type = type_of(task.kind)
    further = _further_metrics(task.kind)
    allowed = list(dict.fromkeys((*task_type.allowed_metrics(task), *further)))
    if wanted not in allowed:
        of_numbers = TaskKind.REGRESSION
        hint = ""
        if wanted in (*type_of(of_numbers).metrics, *_further_metrics(of_numbers)):
            hint = " (a task of numbers has `regression: true`)"
        raise DataError(
            f"metric '{wanted}' cannot score task '{task.name}', which is "
            f"{task_type.describe(task)}; allowed: {', '.join(allowed)}{hint}"
        )
    metrics = dict.fromkeys((task.metric, *task.companions))
    companions = [other for other in metrics if other is not wanted]
    return replace(task, metric=wanted, companions=tuple(companions))


def _further_metrics(kind: TaskKind) -> list[Metric]:
    """Return the metrics that score a kind whose type does not name them."""
    return [metric for metric, kinds in _FURTHER_KINDS.items() if kind in kinds]
