"""Where what was computed once is kept."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "ELSA_TUNE_CACHE"


def cache_dir() -> Path:
    """$ELSA_TUNE_CACHE, or ~/.cache/elsa-tune; may not exist yet. Deleting it is always safe."""
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".cache" / "elsa-tune"
