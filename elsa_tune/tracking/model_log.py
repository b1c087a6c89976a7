"""An exported model on its search's run in MLflow, for `mlflow.pyfunc` and model serving."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from elsa_tune.tracking.mlflow_writer import MlflowStore

_PACKAGES = ("torch", "transformers")
MODEL = "model"


def log_model(
    store: MlflowStore,
    run_id: str,
    classifier: Any,
    row: Mapping[str, str],
    versions: Mapping[str, str],
) -> str:
    """Log a model of this run, with signature and example; returns its URI.

    classifier: transformers' pipeline; by a folder's path MLflow 3.17 cannot log under transformers
    5.23. row: an example, by input column. versions: of packages, for whoever loads the model.
    Raises whatever MLflow raises.
    """
    store.import_mlflow()
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, Schema

    packages = [f"{name}=={versions[name]}" for name in _PACKAGES if name in versions]
    outputs = Schema([ColSpec("string", "label"), ColSpec("double", "score")])
    inputs = Schema([ColSpec("string", name) for name in row])
    mlflow.set_tracking_uri(store.uri)
    # It says at length what it found in the folder.
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logged = mlflow.transformers.log_model(
        classifier,
        name=MODEL,
        run_id=run_id,
        task="text-classification",
        signature=ModelSignature(inputs, outputs),
        input_example=[dict(row)],
        model_config={"truncation": True},
        pip_requirements=packages,
    )
    return str(logged.model_uri)
