"""How many of an encoder's last layers must be fine-tuned to keep 90 % of its quality?

    import elsa_tune

    found = elsa_tune.search("minilm", "stdlib", space="demo")
    elsa_tune.export(found, "model")
    elsa_tune.predict("model", rows)

The verbs of the command line as functions, and `freeze` for a trainer of your own. Nothing is
imported before it is used, and nothing here prints to stdout.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# By name: where it is. `__init__.pyi` says it to editors and type checkers, which run nothing.
_SURFACE = {
    **dict.fromkeys(("Answers", "Curves", "Search"), "elsa_tune.api"),
    **dict.fromkeys(("answer", "curve", "export", "load_search"), "elsa_tune.api"),
    **dict.fromkeys(("predict", "resume", "search"), "elsa_tune.api"),
    "bundle": "elsa_tune.exporting.bundle",
    "freeze": "elsa_tune.training.freezing",
    "load_bundle": "elsa_tune.training.bundled",
}
__all__ = ["__version__", *_SURFACE]


def __getattr__(name: str) -> Any:
    if name not in _SURFACE:
        raise AttributeError(f"module 'elsa_tune' has no attribute '{name}'")
    return getattr(import_module(_SURFACE[name]), name)


def __dir__() -> list[str]:
    return __all__
