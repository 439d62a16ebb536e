"""`runs trace`: the traces of a stored run."""

from grpo_practice.cli.options import (
    DbOption,
    JsonOption,
    TraceContentOption,
    TraceSampleOption,
    workspace,
)
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.formatting import count, print_json, say, say_next
from grpo_practice.cli.terminal.tables import facts


def trace(
    run: RunArgument,
    trace_content: TraceContentOption = "yes",
    trace_sample: TraceSampleOption = 1.0,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Send the traces of a run to Phoenix or another collector.

    The environment names the collector, for instance PHOENIX_ENDPOINT=http://127.0.0.1:6006, or
    OTEL_EXPORTER_OTLP_ENDPOINT for any OpenTelemetry collector. Sending a run twice is harmless.

    Example: grpo-practice runs trace math --trace-content no
    """
    content = trace_content == "yes"
    report = workspace(db).trace(run, content=content, sample=trace_sample)
    if json:
        print_json(report.document())
        return
    say(f"{report.run}: {count(report.traces, 'trace')} to {report.to}")
    facts([(kind, str(n)) for kind, n in sorted(report.spans.items())])
    if report.open_groups:
        say(f"  {count(report.open_groups, 'group')} left out: not fully played yet")
    say_next(report.next_command)
