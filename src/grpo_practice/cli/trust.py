"""`trust`: record the user's trust in files and hosts that come from other people."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import JsonOption, workspace
from grpo_practice.cli.terminal.formatting import print_json, say
from grpo_practice.cli.terminal.tables import facts


def trust(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE|DIR", help="Files or folders that you have read and trust."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="With --key: allow this key to be sent to this host."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIABLE", help="With --host: the key's variable, such as UTU_LLM_API_KEY."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Remember that you trust files or folders from other people; without arguments, list them.

    Read them first: a trusted file may run programs. `config validate --agent FILE` names what an
    agent's file would start or read; `report RUN --db FILE` writes a page with the settings of a
    database's run. Hosts for your keys need a separate decision: --host with --key. A file is
    trusted until its text changes, a folder with all its present and future files. To withdraw
    trust, delete the lines that name it from the file that the list ends with.

    Example: grpo-practice trust agent.yaml
    """
    report = workspace(None).trust(*(paths or []), hosts=host or [], keys=key or [])
    if json:
        print_json(report.document())
        return
    facts((label, text) for label, text in report.summary()[1:])
    if not report.trusted:
        say("no files from other people are trusted")
    elif report.file:
        say(f"to withdraw trust, delete the lines that name it from {report.file}")
