"""The linear probe of a search: a task for one of its workers, once its trials are under way."""

import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elsa_tune.errors import RunError, first_line
from elsa_tune.searching.record import SearchRecord, params_of
from elsa_tune.searching.tune.stopping import Interruption
from elsa_tune.searching.tune.trainable import NODE
from elsa_tune.specs.freeze import FreezeDepth
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
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.probe import ProbeFeatures, ProbeResult, fit_probe

# How long the end of a search waits for the regression: mostly it is long done.
PATIENCE = 600.0
LITTLE_PATIENCE = 5.0  # with --max-time
_FETCH_SECONDS = 30.0


class Probing:
    """A search's probe: handed to a worker once, collected whenever it is ready.

    The worker leaves the features in the mailbox, and the regression runs beside the trials, in a
    process of its own: it keeps no GPU waiting, and its libraries are in no trial's memory. Nothing
    is recorded before there is a result, so that a search that is interrupted leaves no half of
    one, and probes again when it goes on.
    """

    def __init__(
        self, data: TaskData, record: SearchRecord, interruption: Interruption, mailbox: Any
    ) -> None:
        self._data, self._record, self._interruption = data, record, interruption
        self._mailbox = mailbox
        self._spec = spec = record.spec
        self._task: Any = None
        self._key = f"{Phase.PROBE.value}-N{spec.layers}"
        # It has neither a rate nor a seed; those of this trial are not read.
        self._trial = spec.trial(Phase.PROBE, FreezeDepth.of(spec.layers), 1.0, 0)

    @property
    def trial(self) -> TrialSpec | None:
        """What a worker is to do; None where no probe is wanted, or one is recorded."""
        if not self._spec.linear_probe or self._key in self._record.state().trials:
            return None
        return self._trial

    def worked(self) -> None:
        """The worker has done its part."""
        # Beside the driver, where all packages are; the core that it takes for seconds is none of
        # the trials' share.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        fit = ray.remote(_fit).options(num_cpus=0, scheduling_strategy=here)
        self._task = fit.remote(self._spec.task, self._mailbox.take.remote(self._trial.key))

    def failed(self, error: BaseException) -> None:
        """The search goes on without it."""
        why = f"{type(error).__name__}: {first_line(error)[:300]}"
        goes_on = "the search goes on without it"
        self._record.warn_once("probe", f"no linear probe was made: {why}; {goes_on}")

    def collect(self, seconds: float = 0.0) -> None:
        """Record the result if there is one within so many seconds, and before an interruption."""
        deadline = time.monotonic() + seconds
        while self._task is not None and not self._interruption.requested:
            left = max(0.0, deadline - time.monotonic())
            try:
                # In short steps: an interruption ends the wait.
                if ray.wait([self._task], timeout=min(left, 1.0))[0]:
                    found = ray.get(self._task, timeout=_FETCH_SECONDS)
                    if found is None:
                        raise RunError("what its worker found was lost")
                    self._write(*found)
                    self._task = None
            except Exception as error:  # whatever became of it
                self._task = None
                self.failed(getattr(error, "cause", None) or error)
            if left == 0:
                return

    def _write(self, result: ProbeResult, node: str) -> None:
        spec, record = self._spec, self._record
        params = params_of(spec, self._trial)
        examples = result.evaluation_examples
        params |= {"learning_rate": None, "seed": None, "evaluation_examples": examples}
        artifact = None
        if examples == len(self._data.evaluation):
            labels = self._data.evaluation.labels
            artifact = record.keep_predictions(self._key, result.predictions, labels)
        found = {QUALITY: result.quality, PROBE_EXAMPLES: float(result.train_examples)}
        report = Report(
            trial=self._key,
            evaluation=1,
            step=0,
            metrics=result.metrics | found,
            notes=list(result.notes),
            tags={NODE: node, "features": PROBE_FEATURES},
        )
        end = TrialEnded(
            trial=self._key,
            status=TrialStatus.COMPLETED,
            metrics={QUALITY: result.quality, "train_seconds": result.seconds},
            artifact=artifact,
        )
        start = TrialStarted(trial=self._key, params=params, tags=dict(spec.versions))
        for one in (start, report, end):
            record.write(one)
        for note in result.notes:
            record.warn_once(note, f"note: {note}")


def _fit(task: TaskSpec, found: tuple[ProbeFeatures, str] | None) -> tuple[ProbeResult, str] | None:
    if found is None:
        return None
    features, node = found
    return fit_probe(task, features), node
