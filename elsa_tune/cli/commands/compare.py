"""`compare`: ask a record or a results table for the cheapest way to adapt the model."""

from typing import Annotated

import typer

from elsa_tune.cli.commands.answer import (
    Details,
    Format,
    Options,
    compared,
    note,
    read_question,
    require_a_comparison,
)
from elsa_tune.cli.options import ANSWER, CostName, grouped
from elsa_tune.errors import NoAnswerError

Target = Annotated[
    float,
    typer.Option(
        rich_help_panel=ANSWER, help="Share of the best way's quality that is to be kept."
    ),
]
CostUnit = Annotated[
    CostName,
    typer.Option(
        rich_help_panel=ANSWER,
        help="What is cheap: the time of a training run, its peak memory, how many parameters it "
        "trains; or what the exported model takes for one text, alone (latency) or per task of a "
        "bundle of eight. The last two are measured now, on this machine.",
    ),
]


@grouped
def compare(
    options: Options,
    target: Target = 0.95,
    cost: CostUnit = "time",
    details: Details = False,
    format: Format = "table",
) -> None:
    """Name the cheapest way to adapt the model.

    It keeps the target of the best way that was measured: freeze depths, other methods, the head.

    Exit status: 0 at least one comparison; 2 bad input; 3 nothing that was asked can be compared.
    """
    from elsa_tune.analysis.answer import check_target
    from elsa_tune.analysis.answer_json import as_json
    from elsa_tune.analysis.comparing.comparison_json import comparison_object, comparisons_csv

    source, question = read_question(options)
    check_target(target)  # latencies take long to measure
    try:
        rows = source.ask(question, note)
        comparisons = compared(source, question, rows, cost, target)
    except NoAnswerError:
        if format == "json":
            # A reader of stdout gets valid JSON here too.
            typer.echo("[]")
        raise
    if format == "json":
        typer.echo(as_json([comparison_object(comparison) for comparison in comparisons]))
    elif format == "csv":
        typer.echo(comparisons_csv(comparisons), nl=False)
    else:
        from elsa_tune.cli.comparison_tables import print_comparisons

        print_comparisons(comparisons, details=details)
    require_a_comparison(comparisons, is_table=format == "table")
