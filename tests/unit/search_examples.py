"""Small, valid search specifications for tests that need one and train nothing."""

from __future__ import annotations

from elsa_tune.testing import EXAMPLE_DEPTHS as DEPTHS
from elsa_tune.testing import example_spec as make_spec

__all__ = ["DEPTHS", "make_spec"]
