"""The command line's verbs as functions, and their results as values that a notebook shows.

Words go to stderr, as there; errors are those of `elsa_tune.errors`.
"""

from elsa_tune.api.asking import Search, answer, compare, curve, load_search
from elsa_tune.api.models import export, predict
from elsa_tune.api.searching import resume, search
from elsa_tune.api.shown import Answers, Comparisons, Curves

__all__ = [
    "Answers",
    "Comparisons",
    "Curves",
    "Search",
    "answer",
    "compare",
    "curve",
    "export",
    "load_search",
    "predict",
    "resume",
    "search",
]
