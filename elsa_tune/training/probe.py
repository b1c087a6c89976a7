"""A linear probe: how good a linear model is on what the encoder gives with nothing trained.

A floor for every depth, in seconds. Letters in shape comments: E rows of a split, H hidden size.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.errors import DivergedError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.task import Metric, TaskSpec
from elsa_tune.specs.trial import Pooling, PrefixCache, Recipe
from elsa_tune.tasks.types.base import LinearModel
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.tasks.types.scores import score, task_scores
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import train_only
from elsa_tune.training.data.subsets import stratified_order
from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows
from elsa_tune.training.forward.equality import Setting, packed_doubt
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.prefix_store import NotKeptError, Reading
from elsa_tune.training.forward.runner import Prefix, passes, rows_behind, taken_apart
from elsa_tune.training.machine import (
    release,
    reproducible,
    resolve_precision,
    torch_device,
)
from elsa_tune.training.model.encoder import load_classifier
from elsa_tune.training.model.parts import divide, layer_list

# More rows would cost minutes and hardly move a linear model of a thousand features.
MOST_TRAIN_ROWS = 5_000
MOST_EVALUATION_ROWS = 10_000

_FOLDS = 3
# Inverse strengths of the L2 penalty on standardised features, the strongest first; and the one
# taken where there are too few rows of some class to choose by.
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_FIXED_STRENGTH = 1e-2
_RIDGE_PENALTIES = tuple(float(alpha) for alpha in np.logspace(0, 5, 11))
_FEWEST_FOR_RIDGE = 3
# Far from converged the penalty's best strength is as good as chosen, and so are the answers.
_ITERATIONS = 200

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What the probe found."""

    quality: float  # the task's headline metric, in [-1, 1]
    # Of the evaluated rows in the split's order, [E, ...] as labels are: class ids, a 0 or 1 of
    # each class, or values (float32).
    predictions: NDArray[Any] = field(repr=False)
    metrics: dict[str, float]  # every metric of the task by its own name
    train_examples: int  # the rows it learnt from
    evaluation_examples: int  # the rows that it is judged by
    seconds: float  # all of it
    notes: tuple[str, ...] = ()  # what a reader of the result should know


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFeatures:
    """What the frozen model makes of the rows, and their labels: all that the regression reads."""

    train: Floats = field(repr=False)  # [E, 2H]
    evaluation: Floats = field(repr=False)  # [E, 2H]
    train_labels: NDArray[Any] = field(repr=False)  # [E, ...], as the data have them
    evaluation_labels: NDArray[Any] = field(repr=False)  # [E, ...]
    seconds: float  # what computing them took
    notes: tuple[str, ...] = ()  # what a reader of the result should know


def linear_probe(
    model: ModelSpec,
    task: TaskSpec,
    recipe: Recipe,
    data: TaskData,
    *,
    device: str = "cpu",
    candidates: Sequence[Candidate] = (),
) -> ProbeResult:
    """Fit logistic or ridge regression to the frozen model's output.

    Its penalty is chosen by cross-validation on training rows alone. candidates: all of the search,
    whose frozen prefixes are kept in the same pass over the model where one of them freezes it all.

    At most MOST_TRAIN_ROWS and MOST_EVALUATION_ROWS rows, stratified, the same every time. Of the
    recipe only precision and subset_seed count. Raises ModelError for a model that cannot be
    loaded, DivergedError where its output is not finite.
    """
    features = probe_features(model, task, recipe, data, device=device, candidates=candidates)
    return fit_probe(task, features)


def probe_features(
    model: ModelSpec,
    task: TaskSpec,
    recipe: Recipe,
    data: TaskData,
    *,
    device: str = "cpu",
    candidates: Sequence[Candidate] = (),
) -> ProbeFeatures:
    """Do the part of `linear_probe` that needs the model, and a GPU where there is one."""
    started = time.perf_counter()
    where = torch_device(device)
    notes = []
    seed = recipe.subset_seed
    strata = type_of(task.kind).strata
    train = _few(data.train, MOST_TRAIN_ROWS, strata, seed)
    evaluation = _few(data.evaluation, MOST_EVALUATION_ROWS, strata, seed)
    subsets = {"train": train, "evaluation": evaluation}
    for split, few in subsets.items():
        rows = data.splits()[split]
        if len(few) < len(rows):
            what = "training" if split == "train" else split
            notes.append(
                f"the linear probe took {len(few):,} of {len(rows):,} {what} rows, stratified"
            )
    with reproducible(0, where, recipe.precision):
        x, x_evaluation = _features(*_frozen(model, task, recipe, where, candidates), data, subsets)
    return ProbeFeatures(
        train=x,
        evaluation=x_evaluation,
        train_labels=train.labels,
        evaluation_labels=evaluation.labels,
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
    )


def fit_probe(task: TaskSpec, features: ProbeFeatures) -> ProbeResult:
    """Do the part of `linear_probe` that takes the CPU alone, a single thread of it.

    Raises DivergedError where the features are not finite.
    """
    from threadpoolctl import threadpool_limits  # a part of scikit-learn's own installation

    started = time.perf_counter()
    for values in (features.train, features.evaluation):
        if not np.isfinite(values).all():
            raise DivergedError("the frozen model's output is not finite")
    # By the training rows' mean and standard deviation; a constant feature becomes 0.
    mean = features.train.mean(axis=0)
    std = features.train.std(axis=0)
    scale = np.where(std > 1e-6, std, np.inf).astype(np.float32)
    x = (features.train - mean) / scale
    x_evaluation = (features.evaluation - mean) / scale
    labels = features.train_labels
    # Products this small only wait for one another on more threads: on two busy cores 1,000 rows
    # took 30 s instead of 0.3. The warnings are of convergence (see _ITERATIONS).
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        match type_of(task.kind).linear_model:
            case LinearModel.RIDGE:
                predictions = _like(labels, _ridge(x, x_evaluation, labels))
            case LinearModel.LOGISTIC_EACH:
                predictions = _logistic_each(x, x_evaluation, labels, task.metric)
            case LinearModel.LOGISTIC:
                predictions = _logistic(x, x_evaluation, labels, task.metric)
    metrics = task_scores(task, predictions, features.evaluation_labels)
    fitting_seconds = time.perf_counter() - started
    return ProbeResult(
        quality=metrics[task.metric.value],
        predictions=predictions,
        metrics=metrics,
        train_examples=len(labels),
        evaluation_examples=len(features.evaluation_labels),
        seconds=features.seconds + fitting_seconds,
        notes=features.notes,
    )


def _few(
    rows: TokenRows, most: int, strata: Callable[[NDArray[Any]], NDArray[np.int64]], seed: int
) -> TokenRows:
    """Return at most so many rows, stratified."""
    if len(rows) <= most:
        return rows
    order = stratified_order(strata(rows.labels), seed)
    chosen = np.sort(order[:most])
    return rows.take(chosen)


def _frozen(
    model: ModelSpec,
    task: TaskSpec,
    recipe: Recipe,
    device: torch.device,
    candidates: Sequence[Candidate] = (),
) -> tuple[PreTrainedModel, Setting]:
    """Return the model of which nothing but the head would train, and how it is run."""
    # As many outputs as a trial's: the process then keeps one checkpoint in memory, not two.
    loaded = load_classifier(model, task.outputs, 0, shared=True)
    head = divide(loaded).head
    trainable = train_only(loaded, head)
    loaded.to(device)  # type: ignore[arg-type]  # its decorator hides nn.Module's signature
    layers = len(layer_list(loaded))
    # The model is not pooled otherwise: the features have what either head would read.
    as_loaded = replace(recipe, pooling=Pooling.HEAD)
    setting = Setting(
        trainable=trainable,
        recipe=as_loaded,
        precision=resolve_precision(recipe.precision, device.type).value,
        device=device,
        name=f"{model.name} on {task.name}",
        others=methods.first_trained_layers(candidates, layers),
    )
    return loaded, setting


def _features(
    loaded: PreTrainedModel, setting: Setting, data: TaskData, subsets: Mapping[str, TokenRows]
) -> list[Floats]:
    """Return [E, 2H] of the rows of each split: the token that heads read, then the tokens' mean.

    subsets: by the split's name, all of its rows or some.
    """
    hidden_size = loaded.config.hidden_size
    why_padded = packed_doubt(loaded, data, setting)
    runs, _ = taken_apart(loaded, data, setting, why_padded)
    kept = Reading()
    try:
        if _trials_keep_it(runs, data, setting, subsets):
            # There may be no room for it; then it is computed for the probe alone.
            with contextlib.suppress(NotKeptError, OSError):
                prefix = Prefix(runs, hidden_size, data, setting)
                kept = prefix.reading(runs.deepest, setting.others)
        features = []
        for split, rows in subsets.items():
            chunks = _chunks(runs, rows, setting, kept.hidden.get(split))
            # Where the tokenizer pads on the left (XLNet's), heads read the last token.
            of_split = _of_rows(chunks, rows, reads_last=data.padding_side == "left")
            features.append(of_split)
        return features
    finally:
        kept.close()
        del runs, loaded
        release()


def _trials_keep_it(
    runs: PackedModel | PaddedModel,
    data: TaskData,
    setting: Setting,
    subsets: Mapping[str, TokenRows],
) -> bool:
    """Return whether trials will read from disk, to the bit, what the probe needs."""
    recipe = setting.recipe
    splits = data.splits()
    has_all_rows = all(len(rows) == len(splits[split]) for split, rows in subsets.items())
    keeps_all_rows = recipe.prefix_cache is PrefixCache.FP32 and not recipe.frozen_dropout
    is_asked_for = runs.deepest in setting.others
    on_disk = setting.device.type == "cpu" and isinstance(runs, PackedModel)
    return on_disk and is_asked_for and has_all_rows and keeps_all_rows


def _chunks(
    runs: PackedModel | PaddedModel, rows: TokenRows, setting: Setting, kept: Tensor | None
) -> Iterator[tuple[IndexArray, Tensor]]:
    """Yield (row numbers, hidden states [P, H] behind all layers) of all rows in their order.

    kept: those hidden states [tokens, H] where they need not be computed.
    """
    if kept is None:
        depths = [setting.trainable.first_trained_layer]
        for chunk, _, hidden in rows_behind(runs, rows, depths, setting):
            yield chunk, hidden
        return
    for chunk in passes(rows):
        first = int(rows.offsets[chunk[0]])
        behind_last = int(rows.offsets[chunk[-1] + 1])
        yield chunk, kept[first:behind_last]


def _of_rows(
    chunks: Iterable[tuple[IndexArray, Tensor]], rows: TokenRows, *, reads_last: bool
) -> Floats:
    parts = []
    for chunk, hidden in chunks:
        hidden = hidden.float()  # [P, H]
        lengths = torch.from_numpy(rows.lengths[chunk]).to(hidden.device)
        ends = lengths.cumsum(0)
        places = ends - lengths
        if reads_last:
            places = ends - 1
        mean = torch.segment_reduce(hidden, "mean", lengths=lengths)
        features = torch.cat([hidden[places], mean], dim=1)
        parts.append(features.cpu().numpy())
    return np.concatenate(parts)


def _logistic(
    x: Floats, x_evaluation: Floats, labels: NDArray[Any], metric: Metric
) -> NDArray[Any]:
    """Return class ids [E], by the penalty with the best headline metric over the folds."""
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) == 1:
        return np.full(len(x_evaluation), classes[0], dtype=np.int64)
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    def untrained(strength: float) -> Any:
        return LogisticRegression(C=strength, max_iter=_ITERATIONS)

    strength = _FIXED_STRENGTH
    rarest = int(counts.min())
    folds = min(_FOLDS, rarest)
    if folds > 1:
        splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
        highest_id = int(classes.max())

        # By likelihood CoLA's best answer would be the majority's, with Matthews 0.
        def quality(strength: float) -> float:
            answers = cross_val_predict(untrained(strength), x, labels, cv=splitter)
            return score(metric, answers, labels, highest_id + 1)

        strength = max(_STRENGTHS, key=quality)  # of equal ones the strongest penalty
    model = untrained(strength).fit(x, labels)
    predictions: NDArray[Any] = model.predict(x_evaluation)
    return predictions


def _logistic_each(
    x: Floats, x_evaluation: Floats, labels: NDArray[Any], metric: Metric
) -> NDArray[Any]:
    """Return a 0 or 1 of each class [E, C], by one penalty: as `_logistic` has it."""
    from sklearn.model_selection import KFold

    strength = _FIXED_STRENGTH
    folds = min(_FOLDS, len(labels))
    if folds > 1:
        parts = list(KFold(folds, shuffle=True, random_state=0).split(x))

        def quality(strength: float) -> float:
            answers = np.zeros_like(labels)
            for learnt, judged in parts:
                answers[judged] = _columns(x[learnt], x[judged], labels[learnt], strength)
            return score(metric, answers, labels, labels.shape[1])

        strength = max(_STRENGTHS, key=quality)  # of equal ones the strongest penalty
    return _columns(x, x_evaluation, labels, strength)


def _columns(
    x: Floats, x_evaluation: Floats, labels: NDArray[Any], strength: float
) -> NDArray[Any]:
    """Return what a logistic regression for each column of labels [E, C] says of other rows."""
    from sklearn.linear_model import LogisticRegression

    shape = (len(x_evaluation), labels.shape[1])
    answers = np.zeros(shape, dtype=labels.dtype)
    for column, own in enumerate(labels.T):
        first = own[0]
        if (own == first).all():
            answers[:, column] = first
        else:
            model = LogisticRegression(C=strength, max_iter=_ITERATIONS)
            model.fit(x, own)
            answers[:, column] = model.predict(x_evaluation)
    return answers


def _like(labels: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return values [E] as labels are: of whole numbers the nearest within their range."""
    if labels.dtype.kind not in "iu":
        return values
    nearest = np.rint(values).clip(labels.min(), labels.max())
    whole: NDArray[Any] = nearest.astype(labels.dtype)
    return whole


def _ridge(x: Floats, x_evaluation: Floats, labels: NDArray[Any]) -> NDArray[Any]:
    """Return values [E], by the penalty with the smallest leave-one-out error."""
    if len(labels) < _FEWEST_FOR_RIDGE:
        return np.full(len(x_evaluation), labels.mean(), dtype=np.float32)
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(_RIDGE_PENALTIES).fit(x, labels)
    return np.asarray(model.predict(x_evaluation), dtype=np.float32)
