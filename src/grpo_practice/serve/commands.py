"""`serve`: serve the practised agent as an OpenAI-compatible endpoint."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import (
    PROGRAM,
    DbOption,
    JsonOption,
    TrustHostOption,
    TrustOption,
    trusting,
    workspace,
)
from grpo_practice.cli.terminal.formatting import count, note, note_next, print_json, warn

if TYPE_CHECKING:
    from grpo_practice.serve.serving import Served

PORT = 8400


def serve(
    agent: Annotated[
        Path,
        typer.Option(
            dir_okay=False, metavar="FILE", help="Agent file in YAML, as written by export-agent."
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="Port; 0 picks a free one.")
    ] = PORT,
    record: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Record all requests and replies as a run of this name."),
    ] = None,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Serve an agent as an OpenAI-compatible endpoint on this machine, until Ctrl-C.

    The agent's instructions and experiences are prepended to every request. Everything else is
    forwarded to its model and returned unchanged, including streams. A program uses the agent
    through its base URL. With --json, the document is printed when the endpoint is ready.

    Example: grpo-practice serve --agent agent.yaml --port 8400
    """
    ws, served = workspace(db), list["Served"]()

    def ready(now: "Served") -> None:
        # `ws.serve` returns nothing, so the summary needs this reference.
        served.append(now)
        if json:
            print_json(now.document())
        agent = now.prepared.agent
        knows = f" ({count(agent.experiences, 'experience')})" if agent.experiences else ""
        to = f"{now.prepared.passing_on_to} ({agent.model}) until Ctrl-C"
        note(
            f"serving {agent.name}{knows} at {now.url}, forwarding to {to}",
            style="bold",
        )
        if record is not None:
            note(f"recording all requests as run {record} in {ws.path}")
        note(f"to use it: export OPENAI_BASE_URL={now.url} OPENAI_API_KEY=unused")

    ws.serve(
        agent,
        port=port,
        record=record,
        env=trusting(trust, trust_host),
        on_ready=ready,
        on_event=warn,
    )
    for last in served:
        note(_summary(last))
    if record is not None:
        note_next(f"{PROGRAM} runs show {quote(record)}")


def _summary(served: "Served") -> str:
    counts, recorder = served.counts, served.recorder
    parts = [count(counts.requests, "request"), count(counts.errors, "error")]
    if counts.given_up:
        parts.append(f"{counts.given_up} cut off before the end")
    if recorder is not None:
        missed = f", {recorder.missed} not" if recorder.missed else ""
        parts.append(f"{recorder.kept} recorded{missed}")
    return f"stopped: {', '.join(parts)}"
