"""What logits are worth: a task's loss, predictions and scores.

Letters in shape comments: B batch, C outputs, E evaluation examples.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elsa_tune.errors import DivergedError
from elsa_tune.specs.task import TaskKind
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.metrics import score, task_scores
from elsa_tune.words import rate_text

EVALUATION = "evaluation"


class Objective:
    """A trial's loss and scores on its data. outputs: C, one for a regression. mean, std: what a
    logit of 0 and a step of 1 stand for on the scale of a regression's labels.
    """

    def __init__(self, trial: TrialSpec, data: TaskData, device: torch.device) -> None:
        self.is_regression = trial.task.kind is TaskKind.REGRESSION
        self.outputs = trial.task.outputs
        self._trial, self._data = trial, data
        # A fresh head gives about 0: in these units the mean, which need not be learnt any more.
        self.mean, self.std = 0.0, 1.0
        if self.is_regression and trial.recipe.standardize_targets:
            labels = data.train.labels.astype(np.float64)
            self.mean = float(labels.mean())
            self.std = float(labels.std()) if np.ptp(labels) > 0 else 1.0
        self._labels = {
            name: torch.from_numpy(rows.labels).to(device) for name, rows in data.splits().items()
        }

    def labels(self, split: str, rows: Tensor) -> Tensor:
        """Labels [B] of these rows of a split, both on the device."""
        return self._labels[split][rows]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Sum of the examples' losses, of logits [B, C]; labels [B] as the data have them."""
        if self.is_regression:
            targets = (labels.float() - self.mean) / self.std
            return F.mse_loss(logits.squeeze(-1), targets, reduction="sum")
        return F.cross_entropy(logits, labels, reduction="sum")

    def assess(
        self, step: int, logits: Mapping[str, Tensor]
    ) -> tuple[dict[str, float], float, np.ndarray]:
        """Judge logits [E, C] of every split that is not trained on. Raises DivergedError.

        Gives every metric of the task by its name, and the headline metric of other splits by
        theirs; the evaluation split's mean loss; its predictions [E], int64 ids or float32 values.
        """
        trial, data = self._trial, self._data
        main = logits[EVALUATION]
        loss = float(self.loss(main, self._labels[EVALUATION])) / len(main)
        # Before any metric: a NaN logit still has an argmax, and would score like an honest answer.
        if not math.isfinite(loss):
            raise DivergedError(
                f"{trial.key}: the evaluation loss became {loss} at step {step}; a learning rate "
                f"below {rate_text(trial.learning_rate)} may help"
            )
        predictions = self._predictions(main)
        values = task_scores(trial.task, predictions, data.evaluation.labels)
        metric = trial.task.metric
        others = {
            name: score(metric, self._predictions(logits[name]), rows.labels, self.outputs)
            for name, rows in data.splits().items()
            if name not in ("train", EVALUATION)
        }
        return {**values, **others}, loss, predictions

    def _predictions(self, logits: Tensor) -> np.ndarray:
        """Class ids [E], or values [E] on the scale of the data's labels."""
        if self.is_regression:
            chosen = logits.squeeze(-1) * self.std + self.mean
        else:
            chosen = logits.argmax(-1)
        return chosen.cpu().numpy()
