"""How a name becomes one that a file may have."""

from __future__ import annotations

import re


def slug(name: str) -> str:
    """A model, a task or several of them as a part of a file's or a search's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")
