"""The linear probe of a search: beside its trials, or on a GPU a task for one of their workers."""

import dataclasses
import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elsa_tune.errors import RunError, first_line
from elsa_tune.searching.planning.known import lacks_probe
from elsa_tune.searching.process.interruption import Interruption
from elsa_tune.searching.record import SearchRecord, facts_of
from elsa_tune.searching.tune.trainable import NODE, device_of
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import (
    PROBE_EXAMPLES,
    PROBE_FEATURES,
    QUALITY,
    Phase,
    TrialSpec,
    TrialStatus,
)
from elsa_tune.tracking.journal_records import Report, TrialEnded, TrialStarted
from elsa_tune.tracking.uris import hidden
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.probe import ProbeFeatures, ProbeResult, fit_probe, linear_probe
from elsa_tune.words import duration

# How long the end of a search waits for the probe, on a GPU for the regression alone: it began
# early, so that mostly it is long done. At most, and at least where the session's time is over.
_PATIENCE = 600.0
_LITTLE_PATIENCE = 5.0
_FETCH_SECONDS = 30.0


class Probing:
    """A search's probe: begun once, collected whenever it is ready.

    On CPUs it is a task with a trial's share and a process of its own: what it leaves behind is no
    trial's memory. On a GPU, whose share Ray Tune's workers keep to the end, one of them computes
    the features and leaves them in the mailbox; the regression then keeps no GPU waiting. Nothing
    is recorded before there is a result, so that a search that is interrupted leaves no half of
    one, and probes again when it goes on.
    """

    def __init__(
        self, data: TaskData, record: SearchRecord, interruption: Interruption, mailbox: Any
    ) -> None:
        self._data = data
        self._record = record
        self._interruption = interruption
        self._mailbox = mailbox
        self._spec = record.spec
        self._task: Any = None
        self._error: BaseException | None = None  # of the worker that tried last
        self._key = f"{Phase.PROBE.value}-N{self._spec.layers}"
        # It has neither a rate nor a seed; those of this trial are not read.
        candidate = read_candidate(self._spec.layers)
        self._trial = self._spec.trial(Phase.PROBE, candidate, 1.0, 0)

    def start(self) -> None:
        """Begin, where trials train on CPUs."""
        if self._is_wanted and not self._spec.resources.gpus:
            task = ray.remote(_probe).options(num_cpus=self._spec.resources.cpus)
            self._task = task.remote(self._spec, self._data)

    @property
    def trial(self) -> TrialSpec | None:
        """The probe for a worker on a GPU, once a trial has ended; None where it has none to do."""
        if not self._is_wanted or not self._spec.resources.gpus:
            return None
        return self._trial

    @property
    def _is_wanted(self) -> bool:
        """Whether the search has a probe that is not recorded to its end yet."""
        return lacks_probe(self._spec, self._record.state())

    def worked(self) -> None:
        """Begin the regression: the worker has left the features in the mailbox."""
        self._error = None
        # Beside the driver, where all packages are; the core that it takes for seconds is none of
        # the trials' share.
        node = ray.get_runtime_context().get_node_id()
        beside_driver = NodeAffinitySchedulingStrategy(node, soft=True)
        fit = ray.remote(_fit).options(
            num_cpus=0,
            scheduling_strategy=beside_driver,
        )
        left = self._mailbox.held.remote(self._trial.key)
        self._mailbox.forget.remote(self._trial.key)  # done once it has answered
        self._task = fit.remote(self._spec.task, left)

    def failed(self, error: BaseException) -> None:
        """Keep a worker's error. Another may do it: the end of the trials shows what is lost."""
        self._error = error

    def _give_up(self, error: BaseException) -> None:
        """Warn that the search goes on without a probe."""
        kind = type(error).__name__
        said = hidden(first_line(error))[:300]
        warning = (
            f"no linear probe was made: {kind}: {said}; the search goes on without it, and "
            "`resume` tries again"
        )
        self._record.warn_once("probe", warning)

    def collect(self, seconds: float = 0.0) -> None:
        """Record the result if there is one within so many seconds, and before an interruption.

        Called once the trials have ended.
        """
        if self._error is not None and not self._interruption.requested:
            self._give_up(self._error)
        deadline = time.monotonic() + seconds
        while self._task is not None and not self._interruption.requested:
            left = max(0.0, deadline - time.monotonic())
            try:
                # In short steps: an interruption ends the wait.
                step = min(left, 1.0)
                ended, _ = ray.wait([self._task], timeout=step)
                if ended:
                    self._fetch()
            except Exception as error:  # whatever became of it
                self._task = None
                self._give_up(getattr(error, "cause", None) or error)
            if left == 0:
                return

    def finish(self, seconds_left: float) -> None:
        """Wait for the result at the session's end, and say so where it is not there in time.

        seconds_left: of the time that the session has, maybe infinite.
        """
        seconds = max(_LITTLE_PATIENCE, min(_PATIENCE, seconds_left))
        self.collect(seconds)
        if not self._is_wanted or self._interruption.requested:
            return
        why = "the session's time was over before it began"
        if self._task is not None:
            why = f"it was not ready {duration(seconds)} after the trials had ended"
        self._record.warn_once(
            "probe",
            f"no linear probe was made: {why}; this session ends without it, and `resume` tries "
            "again",
        )

    def _fetch(self) -> None:
        """Record the result of the task, which has ended. Raises what it raised."""
        answer = ray.get(self._task, timeout=_FETCH_SECONDS)
        if answer is None:
            raise RunError("what its worker found was lost")
        result, node = answer
        self._write(result, node)
        self._task = None

    def _write(self, result: ProbeResult, node: str) -> None:
        """Record a result as one more trial."""
        record = self._record
        examples = result.evaluation_examples
        is_complete = examples == len(self._data.evaluation)
        units = None
        if is_complete:
            units = self._spec.evaluation_units or None
        params = dataclasses.replace(
            facts_of(self._spec, self._trial),
            learning_rate=None,
            seed=None,
            evaluation_examples=examples,
            evaluation_units=units,
        )
        artifact = None
        if is_complete:
            labels = self._data.evaluation.labels
            artifact = record.keep_predictions(
                self._key,
                result.predictions,
                labels,
                self._data.units,
            )
        metrics = dict(result.metrics)
        metrics[QUALITY] = result.quality
        metrics[PROBE_EXAMPLES] = float(result.train_examples)
        before = record.trial(self._key)  # a driver that was killed left half of one
        attempt = 1 if before is None else before.start.attempt + 1
        start = TrialStarted(
            trial=self._key,
            attempt=attempt,
            params=params,
            tags=dict(self._spec.versions),
        )
        report = Report(
            trial=self._key,
            attempt=attempt,
            evaluation=1,
            step=0,
            metrics=metrics,
            notes=list(result.notes),
            tags={NODE: node, "features": PROBE_FEATURES},
        )
        end = TrialEnded(
            trial=self._key,
            attempt=attempt,
            status=TrialStatus.COMPLETED,
            metrics={QUALITY: result.quality, "train_seconds": result.seconds},
            artifact=artifact,
        )
        record.write(start)
        record.write(report)
        record.write(end)
        for note in result.notes:
            record.warn_once(note, f"note: {note}")


def _probe(spec: SearchSpec, data: TaskData) -> tuple[ProbeResult, str]:
    """Return a probe's result and the node that made it."""
    device = device_of(spec.resources)
    result = linear_probe(
        spec.model,
        spec.task,
        spec.recipe,
        data,
        device=device,
        candidates=spec.candidates,
    )
    return result, ray.get_runtime_context().get_node_id()[:8]


def _fit(task: TaskSpec, left: tuple[ProbeFeatures, str] | None) -> tuple[ProbeResult, str] | None:
    """Return the result and the worker's node; None where what the worker left was lost."""
    if left is None:
        return None
    features, node = left
    return fit_probe(task, features), node
