"""How many of an encoder's last layers must be fine-tuned to keep 90 % of its quality?

    import elsa_tune

    found = elsa_tune.search("minilm", "stdlib", space="demo")
    elsa_tune.export(found, "model")
    elsa_tune.predict("model", rows)

The verbs of the command line as functions, and `freeze` for a trainer of your own. Nothing is
imported before it is used, and nothing here prints to stdout.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers, which do not run `__getattr__`
    from elsa_tune.api import (
        Answers,
        Curves,
        Search,
        answer,
        curve,
        export,
        load_search,
        predict,
        resume,
        search,
    )
    from elsa_tune.exporting.bundle import bundle
    from elsa_tune.training.bundled import load_bundle
    from elsa_tune.training.freezing import freeze
else:
    # By name: where it is.
    _SURFACE = {
        "Answers": "elsa_tune.api",
        "Curves": "elsa_tune.api",
        "Search": "elsa_tune.api",
        "answer": "elsa_tune.api",
        "bundle": "elsa_tune.exporting.bundle",
        "curve": "elsa_tune.api",
        "export": "elsa_tune.api",
        "freeze": "elsa_tune.training.freezing",
        "load_bundle": "elsa_tune.training.bundled",
        "load_search": "elsa_tune.api",
        "predict": "elsa_tune.api",
        "resume": "elsa_tune.api",
        "search": "elsa_tune.api",
    }

    def __getattr__(name):
        from importlib import import_module

        if name not in _SURFACE:
            raise AttributeError(f"module 'elsa_tune' has no attribute '{name}'")
        return getattr(import_module(_SURFACE[name]), name)


__version__ = "0.1.0"

__all__ = [
    "Answers",
    "Curves",
    "Search",
    "__version__",
    "answer",
    "bundle",
    "curve",
    "export",
    "freeze",
    "load_bundle",
    "load_search",
    "predict",
    "resume",
    "search",
]


def __dir__() -> list[str]:
    return __all__
