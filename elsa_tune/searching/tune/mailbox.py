"""The actor that holds what trials leave behind.

It imports nothing that trains, so that its process is there at once and stays small.
"""

from typing import Any

import ray


@ray.remote(num_cpus=0, max_restarts=-1)
class Mailbox:
    """Keeps finished trials' predictions, and what the linear probe found, for the driver.

    It runs beside the driver, which fetches them. They do not travel through `tune.report`: Ray
    keeps every report in its own state files.
    """

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def put(self, key: str, what: Any) -> None:
        """Keep what a trial leaves: its predictions [E, ...], or what the probe found."""
        self._held[key] = what

    def take(self, key: str) -> Any:
        """Return what a trial left and forget it; None where it left nothing."""
        return self._held.pop(key, None)
