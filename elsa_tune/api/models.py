"""`export` and `predict` from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from elsa_tune.api.asking import Search, load_search
from elsa_tune.files import expanded
from elsa_tune.searching.output import say
from elsa_tune.specs.arguments import checked


@checked()
def export(
    source: Search | str,
    out: str | Path,
    *,
    layers: int | None = None,
    way: str | None = None,
    check: str | Path | None = None,
    full: bool = False,
    onnx: bool = False,
    adapter: bool = False,
    push: str | None = None,
    overwrite: bool = False,
) -> Path:
    """`elsa-tune export`: train a search's answer once more and save it.

    Returns the folder, which `AutoModelForSequenceClassification.from_pretrained` loads.

    layers: fine-tuned ones, by default the answer's. way: in their place what to export, as the
    search calls it, such as `lora-last3` or `head`; a number counts frozen layers. check: a file of
    labelled rows to score the model on. full: train on all rows where the search used a subset.
    adapter: also write the folder `adapter`, as peft loads that of LoRA. push: a name on the hub.
    Errors as the command's.
    """
    from elsa_tune.exporting.model import ExportRequest
    from elsa_tune.exporting.model import export as write

    if not isinstance(source, Search):
        source = load_search(source)
    rows_to_check = None
    if check is not None:
        rows_to_check = expanded(check)
    request = ExportRequest(
        paths=source.paths,
        out=expanded(out),
        layers=layers,
        way=way,
        check=rows_to_check,
        full=full,
        onnx=onnx,
        adapter=adapter,
        push=push,
        overwrite=overwrite,
    )
    write(request, say)
    return request.out


@checked("rows")
def predict(
    model: str | Path,
    rows: pd.DataFrame | Sequence[str] | Sequence[tuple[str, str]] | str | Path,
    *,
    text: str | Sequence[str] | None = None,
    task: str | Sequence[str] | None = None,
    probabilities: bool = False,
    input_format: Literal["csv", "tsv", "jsonl", "parquet"] | None = None,
) -> pd.DataFrame:
    """`elsa-tune predict`: rows with what an exported model or a bundle says of each, in order.

    model: a folder of `export` or of `bundle`. rows: a DataFrame, a list of texts or of pairs of
    texts, or a file (CSV, TSV, JSONL or Parquet). text: the columns with the texts, by default
    those that the model was trained on. task: of a bundle, by default all. The columns that are
    added are `prediction` and `confidence`, its probability; of a regression the first alone; of a
    bundle both for each task, as `TASK_prediction`. probabilities: adds those of each class.
    input_format: what a file holds, by default by its ending. A missing text is an empty one.
    Raises UsageErrors.
    """
    from elsa_tune.exporting.predicted_frame import predict_frame
    from elsa_tune.exporting.predicting import Predictor
    from elsa_tune.training.bundle.texts import split_texts
    from elsa_tune.training.machine import plain_torch

    given: Any = rows
    if isinstance(rows, str | Path):
        given = expanded(rows)
    elif not isinstance(rows, pd.DataFrame):
        given = split_texts(rows, missing="")
    texts = [text] if isinstance(text, str) else text
    tasks = [task] if isinstance(task, str) else task
    with plain_torch():
        predictor = Predictor(expanded(model), tasks, texts, probabilities=probabilities)
        return predict_frame(predictor, given, say, input_format)
