"""`serve`: the practised agent as an endpoint that any program can be pointed at."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, as_typed, database, open_store
from grpo_practice.cli.terminal.formatting import count, note

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from grpo_practice.app.serving import Prepared
    from grpo_practice.serve.recorder import Recorder
    from grpo_practice.serve.service import Counts
    from grpo_practice.store import Store

PORT = 8400


def serve(
    agent: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False, metavar="FILE", help="Agent YAML, as export-agent writes."
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="Where; 0 takes any free one.")
    ] = PORT,
    record: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Keep all that passes, as a run of this name."),
    ] = None,
    db: DbOption = None,
) -> None:
    """Serve an agent as an OpenAI-compatible endpoint on this machine, until Ctrl-C.

    Its instructions, with what it learnt, stand in front of every request; all else is passed on
    to its model and comes back as it is, streams too. A program gets the agent by its base URL.

    Example: grpo-practice serve --agent agent.yaml --port 8400
    """
    import os

    from grpo_practice.app.serving import prepare
    from grpo_practice.config import read_environment

    prepared = prepare(agent, read_environment(os.environ))
    for text in prepared.notices:
        note(f"note: {text}", style="yellow")
    if record is None:
        _serve(prepared, port, None, None)
        return
    with open_store(db) as store, _recording(store, record, prepared) as recorder:
        _serve(prepared, port, recorder, f"{record} in {database(db)}")
    note(f"next: {PROGRAM} runs show {record}")


def _recording(
    store: "Store", run: str, prepared: "Prepared"
) -> "AbstractContextManager[Recorder]":
    from grpo_practice.app.serving import recording

    return recording(store, run, prepared, as_typed(), _notice)


def _notice(text: str) -> None:
    note(f"note: {text}", style="yellow")


def _serve(prepared: "Prepared", port: int, recorder: "Recorder | None", where: str | None) -> None:
    """Until Ctrl-C or a signal to end; then what has passed is told."""
    import asyncio

    from grpo_practice.app.serving import serve
    from grpo_practice.text import LOOPBACK

    counts: list[Counts] = []

    def ready(bound: int, counted: "Counts") -> None:
        counts.append(counted)
        agent, url = prepared.agent, f"http://{LOOPBACK}:{bound}/v1"
        knows = f" ({count(agent.experiences, 'experience')})" if agent.experiences else ""
        on = f"{prepared.passing_on_to} ({agent.model})"
        note(f"serving {agent.name}{knows} at {url}, passing on to {on}", style="bold")
        if where is not None:
            note(f"recording what passes as run {where}")
        note(f"to use it: export OPENAI_BASE_URL={url} OPENAI_API_KEY=unused; Ctrl-C ends it")

    with suppress(KeyboardInterrupt):
        asyncio.run(serve(prepared, port, recorder=recorder, on_ready=ready, notice=_notice))
    if counts:
        note(_summary(counts[0], recorder))


def _summary(counts: "Counts", recorder: "Recorder | None") -> str:
    told = [count(counts.requests, "request"), count(counts.errors, "error")]
    if counts.given_up:
        told.append(f"{counts.given_up} cut off before the end")
    if recorder is not None:
        missed = f", {recorder.missed} not" if recorder.missed else ""
        told.append(f"{recorder.kept} recorded{missed}")
    return f"stopped: {', '.join(told)}"
