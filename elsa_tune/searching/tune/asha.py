"""Why a trial ends before its last epoch: ASHA, with rungs per depth."""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from elsa_tune.searching.tune.trainable import DIVERGED, TRIAL
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.search import Asha
from elsa_tune.specs.trial import QUALITY, Phase, TrialSpec

EVALUATION = "evaluation"


class PerCandidateAsha(FIFOScheduler):
    """One AsyncHyperBandScheduler per depth: in common rungs deep-frozen trials always lose.

    Measuring trials are never stopped, and without `asha` nothing is. evaluations: planned per
    trial; the last one is never a reason to stop. A trial's depth is read from
    `trial.config["trial"]`, its age from the report's `evaluation`, its merit from its `metric`.
    exempt: depths whose trials cost too little to be worth stopping. keeps_workers: Ray keeps every
    worker for later trials; else one, and each further one loads its libraries anew.
    """

    def __init__(
        self,
        asha: Asha | None,
        evaluations: int,
        metric: str = QUALITY,
        exempt: Collection[Candidate] = (),
        keeps_workers: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray ships no types here
        self._asha = asha
        self._evaluations = evaluations
        self._compared_by = metric
        self._exempt = frozenset(exempt)
        self._keeps_workers = keeps_workers
        self._by_candidate: dict[Candidate, AsyncHyperBandScheduler] = {}
        self._best: dict[tuple[Candidate, int], float] = {}
        self._controller: Any = None  # Ray Tune's
        self.stopped: set[str] = set()

    def has_workers(self) -> bool:
        """Return whether Ray has given the search room for a worker, which may not have begun."""
        # Ray has no question for it; without these attributes it seems to have none.
        actors = getattr(self._controller, "_actor_manager", None)
        return bool(getattr(actors, "num_live_actors", 0))

    def release_idle(self) -> None:
        """Let go of the workers that wait for a trial; Ray Tune keeps one of them otherwise."""
        # Ray has no call for it; without this one the search keeps that worker.
        release = getattr(self._controller, "_cleanup_cached_actors", None)
        if release is not None:
            release(force_all=True)

    def replay(self, earlier: TrialSpec, scores: Sequence[float]) -> None:
        """Put an earlier session's trial back into its rungs (Ray forgets them, ray#30838)."""
        trial: Any = _in_rungs(earlier)
        controller: Any = None
        self.on_trial_add(controller, trial)
        for evaluation, score in enumerate(scores, start=1):
            reported = {
                EVALUATION: evaluation,
                self._compared_by: score,
            }
            self.on_trial_result(controller, trial, reported)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        # Ray has no setting for it; without this attribute, trials only begin later.
        self._controller = tune_controller or self._controller
        idle = getattr(tune_controller, "_actor_cache", None)
        if self._keeps_workers and idle is not None:
            idle.increase_max(trial.placement_group_factory)
        rungs = self._rungs(trial)
        if rungs is not None:
            rungs.on_trial_add(tune_controller, _in_rungs(trial.config[TRIAL]))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        rungs = self._rungs(trial)
        if rungs is None or DIVERGED in result:
            return str(TrialScheduler.CONTINUE)
        evaluation = result[EVALUATION]
        if evaluation >= self._evaluations:
            return str(TrialScheduler.CONTINUE)
        in_rungs = _in_rungs(trial.config[TRIAL])
        action = str(rungs.on_trial_result(tune_controller, in_rungs, result))
        candidate = trial.config[TRIAL].candidate
        rung = (candidate, evaluation)
        score = result[self._compared_by]
        best_before = self._best.get(rung, score)
        best = max(score, best_before)
        self._best[rung] = best
        assert self._asha is not None  # or there were no rungs
        is_clearly_worse = score < best - self._asha.margin
        if action == TrialScheduler.STOP and is_clearly_worse:
            self.stopped.add(trial.trial_id)
            return action
        return str(TrialScheduler.CONTINUE)

    def _rungs(self, trial: Trial) -> AsyncHyperBandScheduler | None:
        """Return the rungs of a trial's depth; None where it is never stopped."""
        if self._asha is None:
            return None
        grace = self._asha.grace_of(self._evaluations)
        if grace >= self._evaluations:
            return None
        spec: TrialSpec = trial.config[TRIAL]
        candidate = spec.candidate
        if candidate in self._exempt or spec.phase is not Phase.EXPLORE:
            return None
        if candidate not in self._by_candidate:
            self._by_candidate[candidate] = AsyncHyperBandScheduler(
                time_attr=EVALUATION,
                metric=self._compared_by,
                mode="max",
                max_t=self._evaluations,
                grace_period=grace,
                reduction_factor=self._asha.reduction_factor,
            )
        return self._by_candidate[candidate]


def _in_rungs(spec: TrialSpec) -> Any:
    """Return a trial as rungs know it: by the plan's key, so that one that is repeated counts once.

    Ray Tune's own ids are new with each try.
    """
    return SimpleNamespace(
        trial_id=spec.key,
        config={TRIAL: spec},
    )
