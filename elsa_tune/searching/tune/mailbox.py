"""The actor that holds what trials leave behind.

It imports nothing that trains, so that its process is there at once and stays small.
"""

from pathlib import Path
from typing import Any

import ray

from elsa_tune.training.checkpoints import FolderCheckpoints

# Checkpoints of large models take seconds to minutes each. They have threads of their own, so that
# predictions wait for none, and a trial that begins not for those that others write.
_WRITING = "writing checkpoints"
_READING = "reading checkpoints"


@ray.remote(  # type: ignore[call-overload]  # Ray names no groups in its types
    num_cpus=0,
    max_restarts=-1,
    concurrency_groups={_WRITING: 1, _READING: 1},
)
class Mailbox:
    """Keeps finished trials' predictions, and what the linear probe found, for the driver.

    It runs beside the driver, which fetches them. They do not travel through `tune.report`: Ray
    keeps every report in its own state files. Checkpoints of trials on other nodes it puts into a
    folder of the driver's machine.
    """

    def __init__(self, checkpoints: Path) -> None:
        self._held: dict[str, Any] = {}
        self._checkpoints = FolderCheckpoints(checkpoints)

    def put(self, key: str, what: Any) -> None:
        """Keep what a trial leaves: its predictions [E, ...], or what the probe found."""
        self._held[key] = what

    def held(self, key: str) -> Any:
        """Return what a trial left; None where it left nothing. It is kept: an answer may be late.

        Whoever has got it says so by `forget`.
        """
        return self._held.get(key)

    def forget(self, key: str) -> None:
        """Keep what a trial left no longer."""
        self._held.pop(key, None)

    @ray.method(concurrency_group=_WRITING)
    def save_checkpoint(self, key: str, content: bytes) -> None:
        """Keep a running trial's checkpoint. Raises OSError."""
        self._checkpoints.save(key, lambda file: file.write(content))

    @ray.method(concurrency_group=_READING)
    def load_checkpoint(self, key: str) -> bytes | None:
        """Return a trial's checkpoint; None where it has none. Raises OSError."""
        return self._checkpoints.load(key)

    @ray.method(concurrency_group=_WRITING)
    def delete_checkpoint(self, key: str) -> None:
        """Delete a trial's checkpoint, if it has one. Raises OSError."""
        self._checkpoints.delete(key)
