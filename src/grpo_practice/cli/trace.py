"""`runs trace`, and the options of commands that are traced while they run."""

from typing import Annotated, Literal

import typer

from grpo_practice.cli.completion import run_names
from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import print_json, say, say_next

TraceContentOption = Annotated[
    Literal["yes", "no"],
    typer.Option("--trace-content", help="Whether questions and answers are in traces."),
]
TraceSampleOption = Annotated[
    float,
    typer.Option("--trace-sample", metavar="SHARE", help="Share of the groups that are traced."),
]


def trace(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", autocompletion=run_names, help="Its name, as `runs list` says."
        ),
    ],
    trace_content: TraceContentOption = "yes",
    trace_sample: TraceSampleOption = 1.0,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Send a stored run to a collector of traces: Phoenix, say.

    PHOENIX_COLLECTOR_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT names it. Sent twice, it is there
    once.

    Example: grpo-practice runs trace math
    """
    sent = workspace(db).trace(run, content=trace_content == "yes", sample=trace_sample)
    if json:
        print_json(sent.document())
        return
    say(sent.sentence)
    say_next(sent.next_command)
