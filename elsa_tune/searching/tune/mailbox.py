"""The actor that holds finished trials' predictions; it imports nothing that trains, so that its
process is there at once and stays small.
"""

import numpy as np
import ray


@ray.remote(num_cpus=0, max_restarts=-1)
class Mailbox:
    """Keeps the predictions of finished trials until the driver, which it is beside, fetches them.

    They do not travel through `tune.report`: Ray keeps every report in its own state files.
    """

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def put(self, key: str, predictions: np.ndarray) -> None:
        """Keep the predictions [E] of a trial."""
        self._held[key] = predictions

    def take(self, key: str) -> np.ndarray | None:
        """Hand them over and forget them."""
        return self._held.pop(key, None)
