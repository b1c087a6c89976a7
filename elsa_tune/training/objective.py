"""What logits are worth: a task's loss, predictions and scores.

Letters in shape comments: B batch, C outputs, E evaluation examples.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from elsa_tune.errors import DivergedError
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.tasks.types.base import Unit
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.tasks.types.scores import score, task_scores
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.words import rate_text

EVALUATION = "evaluation"


class Objective:
    """A trial's loss and scores on its data."""

    def __init__(self, trial: TrialSpec, data: TaskData, device: torch.device) -> None:
        self._trial = trial
        self._data = data
        self._type = type_of(trial.task.kind)
        self.outputs = trial.task.outputs  # C, the width of the head
        # A fresh head gives about 0: in these units the mean, which need not be learnt any more.
        self.unit = Unit()
        if trial.recipe.standardize_targets:
            self.unit = self._type.unit(data.train.labels)
        self._labels: dict[str, Tensor] = {}
        for name, rows in data.splits().items():
            labels = torch.from_numpy(rows.labels)
            self._labels[name] = labels.to(device)

    def labels(self, split: str, rows: Tensor) -> Tensor:
        """Return labels [B, ...] of these rows of a split, both on the device."""
        return self._labels[split][rows]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the sum of the examples' losses, of logits [B, C] and labels of the data."""
        return self._type.loss(logits, labels, self.unit)

    def assess(
        self,
        step: int,
        logits: Mapping[str, Tensor],
    ) -> tuple[dict[str, float], float, np.ndarray]:
        """Judge logits [E, C] of every split that is not trained on. Raises DivergedError.

        Returns every metric of the task by its name, and the headline metric of other splits by
        theirs; the evaluation split's mean loss; its predictions [E, ...] as the labels are.
        """
        trial = self._trial
        data = self._data
        main = logits[EVALUATION]
        loss_sum = float(self.loss(main, self._labels[EVALUATION]))
        loss = loss_sum / len(main)
        # Before any metric: a NaN logit still has an argmax, and would score like an honest answer.
        if not math.isfinite(loss):
            raise DivergedError(
                f"{trial.key}: the evaluation loss became {loss} at step {step}; a learning rate "
                f"below {rate_text(trial.learning_rate)} may help"
            )
        task = trial.task
        predictions = self._predictions(main)
        metrics = task_scores(task, predictions, data.evaluation.labels)
        for name, rows in data.splits().items():
            if name in ("train", EVALUATION):
                continue
            answers = self._predictions(logits[name])
            metrics[name] = score(task.metric, answers, rows.labels, task.class_count)
        return metrics, loss, predictions

    def _predictions(self, logits: Tensor) -> np.ndarray:
        """Return predictions [E, ...] on the scale of the data's labels."""
        predictions = self._type.predictions(logits, self.unit)
        return predictions.cpu().numpy()
