"""How many of an encoder's last layers must be fine-tuned to keep 90 % of its quality?

    import elsa_tune

    found = elsa_tune.search("minilm", "stdlib", space="demo")
    elsa_tune.export(found, "model")
    elsa_tune.predict("model", rows)

The verbs of the command line as functions, and `freeze` for a trainer of your own. Nothing is
imported before it is used, and nothing here prints to stdout.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Where each name is found when it is used.
_SURFACE = {
    "Answers": "elsa_tune.api",
    "Comparisons": "elsa_tune.api",
    "Curves": "elsa_tune.api",
    "Search": "elsa_tune.api",
    "answer": "elsa_tune.api",
    "bundle": "elsa_tune.exporting.bundle",
    "compare": "elsa_tune.api",
    "curve": "elsa_tune.api",
    "export": "elsa_tune.api",
    "freeze": "elsa_tune.training.freezing",
    "load_bundle": "elsa_tune.training.bundle.together",
    "load_search": "elsa_tune.api",
    "predict": "elsa_tune.api",
    "resume": "elsa_tune.api",
    "search": "elsa_tune.api",
}
__all__ = ["__version__", *_SURFACE]

# The same for editors and type checkers, which run nothing. These see no `__getattr__`: a name that
# is mistyped is an error to them, and not Any.
if TYPE_CHECKING:
    from elsa_tune.api import Answers as Answers
    from elsa_tune.api import Comparisons as Comparisons
    from elsa_tune.api import Curves as Curves
    from elsa_tune.api import Search as Search
    from elsa_tune.api import answer as answer
    from elsa_tune.api import compare as compare
    from elsa_tune.api import curve as curve
    from elsa_tune.api import export as export
    from elsa_tune.api import load_search as load_search
    from elsa_tune.api import predict as predict
    from elsa_tune.api import resume as resume
    from elsa_tune.api import search as search
    from elsa_tune.exporting.bundle import bundle as bundle
    from elsa_tune.training.bundle.together import load_bundle as load_bundle
    from elsa_tune.training.freezing import freeze as freeze
else:

    def __getattr__(name):
        if name not in _SURFACE:
            raise AttributeError(f"module 'elsa_tune' has no attribute '{name}'")
        signals = import_module("elsa_tune.signals")
        with signals.completing_imports():
            return getattr(import_module(_SURFACE[name]), name)


def __dir__() -> list[str]:
    return __all__
