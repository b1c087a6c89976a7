"""`elsa-tune predict`: add an exported model's or a bundle's predictions to the rows of a file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from elsa_tune.searching.output import say

Format = Literal["csv", "tsv", "jsonl", "parquet"]


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `export` or of `bundle`.")
    ],
    rows: Annotated[
        str,
        typer.Argument(metavar="ROWS", help="A CSV, TSV, JSONL or Parquet file; - for stdin."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write. Default: stdout.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="The column with the texts; twice for two. Default: the task's own.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A task of a bundle; repeatable. Default: all."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also add the probability of each class.")
    ] = False,
    format: Annotated[
        Format | None,
        typer.Option("--format", help="What to write. Default: by --out's ending, or as the rows."),
    ] = None,
    input_format: Annotated[
        Format | None,
        typer.Option(help="What the rows are. Default: by the ending; `-` needs it."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --out.")
    ] = False,
) -> None:
    """Add predictions to rows.

    Prints the rows in their order, with all their columns and two more: prediction, and
    confidence, its probability. Of a regression the prediction alone; of a bundle both for each
    task, as TASK_prediction.
    """
    say(f"predict: loading {model}")
    from elsa_tune.exporting import predicted_file

    request = predicted_file.PredictRequest(
        model=model,
        rows=rows,
        out=out,
        format=format,
        input_format=input_format,
        text=text,
        tasks=task,
        probabilities=probabilities,
        overwrite=overwrite,
    )
    predicted_file.predict_file(request, say)
