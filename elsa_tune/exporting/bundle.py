"""Puts exported models of one base into one folder: checked, written, compared, measured."""

import json
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elsa_tune.errors import ModelError, UnknownNameError, UsageError, first_line
from elsa_tune.exporting.folder import aside, check_out
from elsa_tune.searching.output import say
from elsa_tune.specs.arguments import checked
from elsa_tune.tracking.mlflow_models import write_pyfunc
from elsa_tune.training import bundled
from elsa_tune.training.bundled import ABOUT, Bundle, Member, Text
from elsa_tune.training.data.preparation import tokenizer_identity
from elsa_tune.training.saved import digest
from elsa_tune.words import listed, part_text

# Of a logit beside the model alone; where logits are larger than 1, a share of the largest.
LIMIT = 1e-5
ROWS = 64  # that are compared, half of them pairs of texts
BATCHES = (1, 32)

_SAME: dict[str, Callable[[Member], object]] = {
    "base": lambda member: member.facts["base"],
    "revision": lambda member: member.facts["revision"],
    "tokenizer": lambda member: tokenizer_identity(member.tokenizer)[:12],
}

Models = Mapping[str, Member]


@checked()
def bundle(
    models: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    remove: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write exported models as one folder, which `load_bundle` and MLflow load.

    models: their folders, each a task of that name; or bundles, of which each task is one. out: by
    default the first of `models`, if that is a bundle, which is then changed in place. remove:
    tasks to leave out. Returns the folder. Raises UsageErrors; then nothing is written.
    """
    in_place = out is None and any((Path(one) / ABOUT).is_file() for one in models[:1])
    if out is None and not in_place:
        raise UsageError("name the folder to create with `out`")
    target = Path(models[0] if out is None else out)
    check_out(target, "bundle", ABOUT, overwrite=overwrite or in_place)
    members = _members(list(map(Path, models)), remove)
    _check(members)
    facts = bundled.deepest(members).facts
    about: dict[str, Any] = {"base": facts["base"], "revision": facts["revision"]}
    with aside(target, "the bundle") as folder:
        about["tasks"] = bundled.write_members(folder, members)
        (folder / ABOUT).write_text(json.dumps(about))
        runs, differences = _compared(folder, members)
        about |= {"runs": runs.how, "largest_difference": differences}
        about["measured"] = _measured(folder, members, runs)
        (folder / ABOUT).write_text(json.dumps(about, indent=2, allow_nan=False) + "\n")
        write_pyfunc(folder, __name__, runs.tasks)
    for name, off in differences.items():
        layers = members[name].model.config.num_hidden_layers
        own = part_text(members[name].candidate, layers)
        say(f"{name}: {own} of its own; logits differ by {off:.1e} from the model's alone")
    for how, cost in about["measured"]["cost"].items():
        one, many = (f"{cost['milliseconds'][str(size)]:.2f} ms" for size in BATCHES)
        at_once = f"{many} with {BATCHES[1]} at once"
        say(f"{how}: {one} a text, {at_once}, {cost['megabytes']:.1f} MB")
    return target


def _members(folders: Sequence[Path], remove: Sequence[str]) -> dict[str, Member]:
    """Read every task's model. remove: the first of that name, so that another can be added."""
    members: dict[str, Member] = {}
    left = set(remove)
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}; `elsa-tune export` writes one")
        read = bundled.read_members(folder)
        for name in read:
            try:
                bundled.check_name(name)
            except ValueError as error:
                raise ModelError(f"{error}; rename the folder {folder}") from error
        for name in left & read.keys():
            del read[name]
            left.remove(name)
        for twice in members.keys() & read.keys():
            raise UsageError(f"two models are called '{twice}', as their folders: rename one")
        members |= read
    for name in left:
        raise UnknownNameError.among("task", name, members)
    return members


def _check(members: Models) -> None:
    """Raise UsageError unless two share frozen layers, ModelError unless those are the same."""
    if sum(member.has_prefix for member in members.values()) < 2:
        raise UsageError(
            f"a bundle needs two models with frozen layers, or nothing is shared (here: "
            f"{listed(members) or 'no model'}); transformers loads an exported model as it is"
        )
    [(first, first_member), *_] = members.items()
    base = bundled.deepest(members)
    for name, member in members.items():
        for what, of in _SAME.items():
            if (theirs := of(first_member)) != (ours := of(member)):
                raise ModelError(
                    f"models of a bundle have the same {what}: that of '{first}' is {theirs}, that "
                    f"of '{name}' is {ours}"
                )
        if digest(frozen := member.frozen()) != member.facts["prefix_sha256"]:
            raise ModelError(
                f"the frozen layers of '{name}' are not those that it was exported with, by the "
                "hash in its config.json: export it again"
            )
        shared = base.frozen()
        if not all(key in shared and torch.equal(x, shared[key]) for key, x in frozen.items()):
            raise ModelError(
                f"the frozen layers of '{name}' are not those of the others, as the weights of "
                f"{member.facts['base']} changed between the exports: export them again"
            )


def _texts(member: Member, count: int) -> list[str]:
    """Make texts of the vocabulary, the same each time, of 2 tokens to more than a model reads."""
    size = len(member.tokenizer)
    special = set(member.tokenizer.all_special_ids)
    words = sorted(set(range(size)) - special)
    draw = np.random.default_rng(0)
    lengths = draw.permutation(np.geomspace(2, 1.2 * member.facts["max_length"], count))
    return [member.tokenizer.decode(draw.choice(words, int(length))) for length in lengths]


def _compared(folder: Path, members: Models) -> tuple[Bundle, dict[str, float]]:
    """Return the bundle as it runs fastest, and by task its largest difference.

    ModelError above LIMIT.
    """
    texts = _texts(bundled.deepest(members), 3 * ROWS // 2)
    half = ROWS // 2
    pairs = list(zip(texts[half:-half], texts[-half:], strict=True))
    parts: list[Sequence[Text]] = [texts[:half], pairs]
    alone = {
        name: np.concatenate([bundled.alone(member, part) for part in parts])
        for name, member in members.items()
    }
    doubts = []
    for packed in (True, False):
        try:
            runs = Bundle(bundled.read_members(folder), packed)
            off = dict[str, float]()
            predictions = [runs.predict(part) for part in parts]
            for name, logits in alone.items():
                together = np.concatenate([prediction[name].logits for prediction in predictions])
                scale = max(1.0, float(np.abs(logits).max()))
                off[name] = float(np.abs(logits - together).max()) / scale
            if max(off.values()) <= LIMIT:
                return runs, off
            doubts.append(f"logits differ by {max(off.values()):.2g}")
        except Exception as error:  # an architecture may break in any way when taken apart
            doubts.append(first_line(error))
    raise ModelError(
        f"these models cannot be bundled: together they would not compute what each computes alone "
        f"(on packed tokens, {doubts[0]}; on padded batches, {doubts[1]})"
    )


def _measured(folder: Path, members: Models, runs: Bundle) -> dict[str, Any]:
    """Measure megabytes, and milliseconds a text by size of batch: alone in a row, and bundled."""
    texts = _texts(bundled.deepest(members), max(BATCHES))
    files = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    states = [member.model.state_dict().values() for member in members.values()]
    weights = sum(tensor.nbytes for state in states for tensor in state)
    each: list[Sequence[str]] = [[name] for name in members]
    cost = {}
    for how, calls, written in (("alone", each, weights), ("bundled", [runs.tasks], files)):
        spent = {str(size): milliseconds(runs, texts, size, calls) for size in BATCHES}
        cost[how] = {"milliseconds": spent, "megabytes": written / 1e6}
    versions = {name: metadata.version(name) for name in ("torch", "transformers")}
    where = {"threads": torch.get_num_threads(), "date": time.strftime("%Y-%m-%d")}
    return {"rows": ROWS, "cost": cost, "versions": versions, **where}


def milliseconds(
    runs: Bundle, texts: Sequence[Text], size: int, calls: Sequence[Sequence[str]]
) -> float:
    """Return the seconds a text takes in batches of `size`, by group of tasks: best of three."""

    def once() -> None:
        for start in range(0, len(texts), size):
            for tasks in calls:
                runs.predict(texts[start : start + size], tasks)

    return 1000 * min(timeit.repeat(once, number=1, repeat=3)) / len(texts)


class _Answering:
    """A bundle as MLflow asks a model."""

    def __init__(self, folder: str) -> None:
        self._bundle = bundled.load_bundle(folder)

    def predict(self, rows: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return a DataFrame with each task's label and score.

        rows: a DataFrame with `text` and, for pairs, `text_pair`. params: `tasks`, those asked.
        """
        columns = [rows[name] for name in ("text", "text_pair") if name in rows]
        texts = list(columns[0] if len(columns) == 1 else zip(*columns, strict=True))
        tasks = [str(name) for name in params["tasks"]] if params else None
        predictions = self._bundle.predict(texts, tasks)
        answers = {}
        scores = {}
        for name, prediction in predictions.items():
            answers[name] = prediction.labels
            scores[f"{name}_score"] = prediction.scores.astype(float)
        return rows[[]].assign(**answers, **scores)


_load_pyfunc = _Answering  # MLflow calls this name with the folder
