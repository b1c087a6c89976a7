"""The linear probe of a search: one task beside its trials, for which none of them waits."""

import time
from typing import Any

import ray

from elsa_tune.errors import first_line
from elsa_tune.searching.record import SearchRecord, params_of
from elsa_tune.searching.tune.stopping import Interruption
from elsa_tune.searching.tune.trainable import NODE, device_of
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import PROBE_EXAMPLES, PROBE_FEATURES, QUALITY, Phase, TrialStatus
from elsa_tune.tracking.journal_records import Report, TrialEnded, TrialStarted
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.probe import ProbeResult, linear_probe

# How long the end of a search waits for it: it began first, so that mostly it is long done.
PATIENCE = 600.0
LITTLE_PATIENCE = 5.0  # with --max-time
_FETCH_SECONDS = 30.0


class Probing:
    """A search's probe: started once, collected whenever it is ready.

    Nothing is recorded before it has a result, so that a search that is interrupted leaves no half
    of one, and probes again when it goes on.
    """

    def __init__(self, data: TaskData, record: SearchRecord, interruption: Interruption) -> None:
        self._data, self._record, self._interruption = data, record, interruption
        self._spec = record.spec
        self._task: Any = None
        self._key = f"{Phase.PROBE.value}-N{self._spec.layers}"

    def start(self) -> None:
        """Begin, on one trial's share of the machine, where one is wanted and none recorded."""
        if not self._spec.linear_probe or self._key in self._record.state().trials:
            return
        share = self._spec.resources
        task = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus)(_run_probe)
        self._task = task.remote(self._spec, self._data)

    def collect(self, seconds: float = 0.0) -> None:
        """Record the result if there is one within so many seconds, and before an interruption."""
        deadline = time.monotonic() + seconds
        while self._task is not None and not self._interruption.requested:
            left = max(0.0, deadline - time.monotonic())
            try:
                # In short steps: an interruption ends the wait.
                if ray.wait([self._task], timeout=min(left, 1.0))[0]:
                    self._write(*ray.get(self._task, timeout=_FETCH_SECONDS))
                    self._task = None
            except Exception as error:  # whatever became of it, the search goes on
                self._task = None
                cause = getattr(error, "cause", None) or error
                why = f"{type(cause).__name__}: {first_line(cause)[:300]}"
                goes_on = "the search goes on without it"
                self._record.warn_once("probe", f"no linear probe was made: {why}; {goes_on}")
            if left == 0:
                return

    def _write(self, result: ProbeResult, node: str) -> None:
        spec, record = self._spec, self._record
        depth = FreezeDepth.of(spec.layers)
        # It has neither a rate nor a seed; those of this trial are not read.
        params = params_of(spec, spec.trial(Phase.PROBE, depth, 1.0, 0))
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


def _run_probe(spec: SearchSpec, data: TaskData) -> tuple[ProbeResult, str]:
    device = device_of(spec.resources)
    result = linear_probe(spec.model, spec.task, spec.recipe, data, device=device)
    return result, ray.get_runtime_context().get_node_id()[:8]
