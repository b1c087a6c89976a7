"""ASHA with rungs per depth: trials compete on learning rate with trials of the same depth, never
across.

In one common rung deep-frozen trials always lose to the full model and are gone before anyone knows
whether they would have reached 90 % of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from elsa_tune.search.tune.trainable import FROZEN_LAYERS, PHASE
from elsa_tune.specs.search import Asha
from elsa_tune.specs.trial import QUALITY, Phase

EVALUATION = "evaluation"


class PerDepthAsha(FIFOScheduler):
    """One AsyncHyperBandScheduler per depth; measuring trials are never stopped, and without `asha`
    nothing is.

    evaluations: planned per trial; the last one is never a reason to stop. A trial's depth is read
    from `trial.config["frozen_layers"]`, its age from the report's `evaluation`, its merit from
    its `metric`. exempt: labels of depths whose trials cost too little to be worth stopping.
    """

    def __init__(
        self,
        asha: Asha | None,
        evaluations: int,
        metric: str = QUALITY,
        exempt: Collection[str] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray ships no types here
        self._asha = asha
        self._evaluations = evaluations
        self._compared_by = metric
        self._exempt = frozenset(exempt)
        self._by_depth: dict[str, AsyncHyperBandScheduler] = {}
        self.stopped: set[str] = set()

    def replay(self, trial_id: str, depth_label: str, scores: Sequence[float]) -> None:
        """Put an earlier session's trial back into its rungs (Ray forgets them, ray#30838)."""
        trial: Any = SimpleNamespace(
            trial_id=trial_id, config={FROZEN_LAYERS: depth_label, PHASE: Phase.EXPLORE.value}
        )
        controller: Any = None
        self.on_trial_add(controller, trial)
        for evaluation, score in enumerate(scores, start=1):
            self._judge(controller, trial, {EVALUATION: evaluation, self._compared_by: score})

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Enter the trial into its depth's rungs."""
        if (rungs := self._rungs(trial)) is not None:
            rungs.on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Stop the trial if it is behind the others of its depth at this rung."""
        action = self._judge(tune_controller, trial, result)
        if action == TrialScheduler.STOP:
            self.stopped.add(trial.trial_id)
        return action

    def _judge(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        rungs = self._rungs(trial)
        if rungs is None or result[EVALUATION] >= self._evaluations:
            return str(TrialScheduler.CONTINUE)
        return str(rungs.on_trial_result(tune_controller, trial, result))

    def _rungs(self, trial: Trial) -> AsyncHyperBandScheduler | None:
        grace = self._evaluations if self._asha is None else self._asha.grace_of(self._evaluations)
        if self._asha is None or grace >= self._evaluations:
            return None
        label = str(trial.config[FROZEN_LAYERS])
        if label in self._exempt or trial.config[PHASE] != Phase.EXPLORE.value:
            return None
        if label not in self._by_depth:
            self._by_depth[label] = AsyncHyperBandScheduler(
                time_attr=EVALUATION,
                metric=self._compared_by,
                mode="max",
                max_t=self._evaluations,
                grace_period=grace,
                reduction_factor=self._asha.reduction_factor,
            )
        return self._by_depth[label]
