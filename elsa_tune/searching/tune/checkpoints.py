"""The place of a search's checkpoints: the driver's machine, whatever node a trial runs on."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ray

from elsa_tune.errors import first_line
from elsa_tune.searching.extending_packages import packages_of_trial
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import TrialSpec
from elsa_tune.training.checkpoints import FolderCheckpoints, TrialCheckpoint

# How long a trial waits for the driver's machine: a large model's checkpoint takes its time.
_SECONDS = 600.0
# A trial that saves sends no news. It goes on before it would count as hung, by default five
# minutes after its last news at the earliest; what it sent is written later then.
_SAVE_SECONDS = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriversFolder:
    """Checkpoints in the search's folder on the driver's machine.

    On its node they are files; from every other node they travel through the mailbox, for nodes
    share no disk.
    """

    folder: Path  # on the driver's machine
    node: str  # Ray's id of that machine
    mailbox: Any  # handle of the `Mailbox` there

    @property
    def _is_here(self) -> bool:
        return bool(ray.get_runtime_context().get_node_id() == self.node)

    def load(self, key: str) -> bytes | None:
        if self._is_here:
            return FolderCheckpoints(self.folder).load(key)
        content: bytes | None = _answer(self.mailbox.load_checkpoint, _SECONDS, key)
        return content

    def save(self, key: str, write: Callable[[BinaryIO], object]) -> None:
        if self._is_here:
            FolderCheckpoints(self.folder).save(key, write)
            return
        file = io.BytesIO()
        try:
            write(file)
            content = file.getvalue()
        except MemoryError as error:
            raise OSError("this node has no memory for it") from error
        _answer(self.mailbox.save_checkpoint, _SAVE_SECONDS, key, content)

    def delete(self, key: str) -> None:
        if self._is_here:
            FolderCheckpoints(self.folder).delete(key)
            return
        _answer(self.mailbox.delete_checkpoint, _SECONDS, key)


def _answer(method: Any, seconds: float, *given: Any) -> Any:
    """Return what the mailbox answers. Raises OSError, whatever keeps it from answering."""
    try:
        return ray.get(method.remote(*given), timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise OSError(f"the driver's machine did not answer within {seconds:.0f} s") from error
    except (ray.exceptions.RayError, TimeoutError) as error:
        cause = getattr(error, "cause", None) or error
        raise OSError(first_line(cause)) from error


def checkpoint_of(
    trial: TrialSpec,
    spec: SearchSpec,
    kept: DriversFolder | None,
    is_leaving: Callable[[], bool] = lambda: False,
) -> TrialCheckpoint | None:
    """Return the checkpoint that a trial of a search writes; None where it writes none.

    is_leaving: whether the trial's node has said that it will end.
    """
    if kept is None or spec.checkpoint == "never":
        return None
    every = None
    if spec.checkpoint != "auto":
        every = spec.checkpoint
    names = ["version.elsa-tune", "version.git_commit"]
    for package in packages_of_trial(trial.task, trial.candidate):
        names.append(f"version.{package}")
    version = " ".join(spec.versions.get(name, "unknown") for name in names)
    return TrialCheckpoint(kept, trial.key, every, version, is_leaving=is_leaving)
