"""Models as MLflow keeps and loads them."""

import contextlib
import logging
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elsa_tune.tracking.mlflow.connection import MlflowConnection, set_environment
from elsa_tune.tracking.uris import TRACKING_VARIABLE


def log_model(
    store: MlflowConnection,
    run_id: str,
    classifier: Any,
    row: Mapping[str, str],
    options: Mapping[str, Any],
    versions: Mapping[str, str],
) -> str:
    """Log a model of this run, with signature and example; returns its URI.

    classifier: transformers' pipeline; by a folder's path MLflow 3.17 cannot log under transformers
    5.23. row: an example, by input column. options: what the pipeline is to be called with.
    versions: of packages, for whoever loads the model. Raises whatever MLflow raises.
    """
    store.import_mlflow()
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, Schema

    packages = []
    for name in ("torch", "transformers"):
        if name in versions:
            # PyPI has no build such as 2.13.0+cpu.
            version, _, _ = versions[name].partition("+")
            packages.append(f"{name}=={version}")
    outputs: Schema | None = None  # not known under options that change what comes back
    if options.keys() <= {"truncation"}:
        outputs = Schema([ColSpec("string", "label"), ColSpec("double", "score")])
    inputs = Schema([ColSpec("string", name) for name in row])
    with _logging_to(store.uri):
        client = store.client()
        run = client.get_run(run_id)
        # Made first, for `log_model` would put it into whatever experiment the process is in.
        model = client.create_logged_model(
            run.info.experiment_id, "model", run_id, params=dict(run.data.params)
        )
        logged = mlflow.transformers.log_model(
            classifier,
            model_id=model.model_id,
            run_id=run_id,
            task="text-classification",
            signature=ModelSignature(inputs, outputs),
            input_example=[dict(row)],
            model_config=dict(options),
            pip_requirements=packages,
        )
    return str(logged.model_uri)


@contextlib.contextmanager
def _logging_to(uri: str) -> Iterator[None]:
    """Have calls of MLflow that take no client use this store, and say little, while inside.

    Afterwards the store that the caller has set, the variable and the logger are as they were.
    """
    import mlflow

    logger = logging.getLogger("mlflow")
    level = logger.level
    variable = os.environ.pop(TRACKING_VARIABLE, None)
    # Without the variable, for that must stay one which the caller may change.
    is_set = mlflow.is_tracking_uri_set()  # type: ignore[no-untyped-call]  # untyped
    before = mlflow.get_tracking_uri() if is_set else None
    try:
        mlflow.set_tracking_uri(uri)
        logger.setLevel(logging.ERROR)  # it says at length what it found in the folder
        yield
    finally:
        logger.setLevel(level)
        # It sets the variable, too, or takes it away.
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None: none is set
        if variable is None:
            os.environ.pop(TRACKING_VARIABLE, None)
        else:
            os.environ[TRACKING_VARIABLE] = variable


def write_pyfunc(folder: Path, loader: str, tasks: Sequence[str]) -> None:
    """Make a folder what `mlflow.pyfunc.load_model` loads: the file `MLmodel`, with a signature.

    loader: the module whose `_load_pyfunc` gets the folder. tasks: each is a column of labels, and
    `NAME_score` one of scores. Raises whatever MLflow raises.
    """
    set_environment()
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema

    text = ColSpec("string", "text")
    second_text = ColSpec("string", "text_pair", required=False)
    labels = [ColSpec("string", name) for name in tasks]
    scores = [ColSpec("double", f"{name}_score") for name in tasks]
    some_tasks = ParamSpec("tasks", "string", list(tasks), shape=(-1,))
    signature = ModelSignature(
        inputs=Schema([text, second_text]),
        outputs=Schema([*labels, *scores]),
        params=ParamSchema([some_tasks]),
    )
    model = Model(signature=signature)
    # As `mlflow.pyfunc.add_to_model` does it, whose module warns while it is imported.
    version = platform.python_version()
    model.add_flavor("python_function", loader_module=loader, python_version=version)
    model.save(folder / "MLmodel")
