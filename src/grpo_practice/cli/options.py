"""Options that several commands share, their workspace, and the command line as typed."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import (
    environment_secrets,
    hide_output,
    key_shaped,
    redact_url,
    redactor,
    url_logins,
)

if TYPE_CHECKING:
    from grpo_practice import Workspace
    from grpo_practice.api.workspace import Environment


PROGRAM = "grpo-practice"
DATABASE = Path("grpo-practice.db")
_VARIABLE = "GRPO_PRACTICE_DB"

_typed_db: ContextVar[Path | None] = ContextVar("_typed_db", default=None)
"""File from `--db` on the command line; the value remains set for the next command."""


def _keep_typed_db(context: typer.Context, db: Path | None) -> Path | None:
    source = context.get_parameter_source("db")
    _typed_db.set(db if source is not None and source.name == "COMMANDLINE" else None)
    return db


DbOption = Annotated[
    Path | None,
    typer.Option(
        "--db",
        callback=_keep_typed_db,
        envvar=_VARIABLE,
        metavar="FILE",
        dir_okay=False,
        help=f"Database file (default: ./{DATABASE}).",
    ),
]


def needed_model() -> str:
    """Return ` --model sim` for a suggested command if the environment names no model."""
    from grpo_practice.config import read_environment

    with suppress(ConfigError):  # reported by the command that needs it
        return "" if read_environment(os.environ).get("UTU_LLM_MODEL") else " --model sim"
    return " --model sim"


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, even on failure.")
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="A config file, or its name in ./configs."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one key of the config; repeatable."),
]
AgentOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False, metavar="FILE", help="Agent file in YAML, as written by export-agent."
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Show the remaining work and cost; send and write nothing."),
]
TrustOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Trust this agent file or database from other people, and remember it. Read it first.",
    ),
]
TrustHostOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="Allow your keys to be sent to this host, and remember it."),
]
TraceContentOption = Annotated[
    Literal["yes", "no"],
    typer.Option(help="Whether traces, if sent, include questions and answers."),
]
TraceSampleOption = Annotated[
    float,
    typer.Option(metavar="SHARE", help="Share of the questions to trace: 0.1 is one in ten."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Output file (default and `-`: stdout)."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def written_file(output: Path | None, *, json: bool) -> Path | None:
    """Return the file to write; None for stdout.

    Raises:
        ConfigError: The rows go to stdout, where the report of `--json` would mix with them.
    """
    if output is None or output == Path("-"):
        if json:
            raise ConfigError(
                "--json cannot be used if the rows go to stdout", hint="add -o FILE.jsonl"
            )
        return None
    return output


def database(db: Path | None) -> Path:
    """Return the database of a command: `--db`, `GRPO_PRACTICE_DB`, or ./grpo-practice.db."""
    return db or DATABASE


def workspace(db: Path | None) -> "Workspace":
    """Return the workspace of a command; signals stop it gracefully."""
    from grpo_practice import Workspace
    from grpo_practice.cli.reference_options import database_hint

    if db is None and (other := database_hint()):
        # Not `note`, because its module imports this one.
        from grpo_practice.cli.terminal.consoles import err, print_line

        print_line(err, f"note: {other}", "yellow")
    return Workspace(database(db), command=as_typed(), signals=True)


def trusting(files: list[Path] | None, hosts: list[str] | None) -> "Environment":
    """Return the environment variables, with the user's trust from options and earlier commands."""
    from grpo_practice.api.workspace import environment

    return environment(files or [], hosts or [])


_ON_DATABASE = re.compile(
    rf"{PROGRAM} (?:(?:config|data|db|experiences|rollouts|runs) [a-z]+"
    r"|doctor|eval|export-agent|export-data|practice|report|serve|train|view)\b(?!.* --db\b)"
)
"""Pattern that matches a command that accepts `--db` and does not have it yet."""


def on_database(text: str) -> str:
    """Add the typed `--db` to the commands in a text, so that they can be copied."""
    db = _typed_db.get()
    if db is None:
        return text
    return _ON_DATABASE.sub(lambda found: f"{found[0]} --db {shlex.quote(str(db))}", text)


def forecast_only(*, dry_run: bool, pilot: int | None) -> bool:
    """Return whether the command only forecasts a run.

    Raises:
        ConfigError: Both `--dry-run` and `--pilot` are given.
    """
    if dry_run and pilot is not None:
        raise ConfigError(
            "--dry-run sends nothing, but --pilot plays rollouts: use only one of them",
            hint="--pilot also prints the forecast, after playing",
        )
    return dry_run or pilot is not None


def current_database() -> Path:
    """Return the database of the command that this process is running."""
    named = os.environ.get(_VARIABLE)
    return database(_typed_db.get() or (Path(named) if named else None))


def forget_database() -> None:
    """Forget the `--db` of an earlier command in this process."""
    _typed_db.set(None)


_URL = re.compile(r"[a-z]+://\S+")
_SECRET = re.compile(
    r"(?<![A-Za-z])(api_?key|headers|extra_headers|extra_query|password|token)\W*[=:].*",
    re.IGNORECASE | re.DOTALL,
)
"""Start of a secret within a command-line word: `--set a.api_key=…`, in any form."""


def as_typed(argv: Sequence[str] | None = None) -> str:
    """Return the command line with secrets as `***`; `argv` are the words after the program."""
    words = [redactor.text(word) for word in (sys.argv[1:] if argv is None else argv)]
    # Redact URLs before applying `_SECRET`, which would cut a URL at its first `token=`.
    words = [_URL.sub(lambda url: redact_url(url[0]), word) for word in words]
    return shlex.join([PROGRAM, *(_SECRET.sub(r"\1=***", word) for word in words)])


_ANEW = re.compile(r" --again\b| --restart-step[ =]\d+")


def continuing() -> str:
    """Return the command line without the options that replay steps."""
    return _ANEW.sub("", as_typed())


def keep_secrets(argv: Sequence[str]) -> None:
    """Hide secrets of the environment, of `.env` and of the command line in all output."""
    hide_output()
    redactor.know(environment_secrets(os.environ))
    redactor.know(key_shaped("\n".join(argv)))
    redactor.know(login for word in argv for url in _URL.findall(word) for login in url_logins(url))
    with suppress(ConfigError, OSError):  # reported by the command that needs it
        here = Path.cwd()
        if any((folder / ".env").is_file() for folder in (here, *here.parents)):
            from grpo_practice.config import read_environment

            read_environment(os.environ)


ASKED = "_GRPO_PRACTICE_COMPLETE"
"""Variable that the shell sets to request completions instead of running a command."""


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of runs that start with the text, newest first."""
    return _names(ctx, incomplete, "runs")


def dataset_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of datasets that start with the text."""
    return _names(ctx, incomplete, "datasets")


def _names(ctx: typer.Context, incomplete: str, kind: Literal["runs", "datasets"]) -> list[str]:
    from grpo_practice import Workspace

    path = Path(ctx.params.get("db") or os.environ.get(_VARIABLE) or DATABASE)
    try:
        names = Workspace(path).names(kind) if path.is_file() else []  # opening would create it
    except Exception:  # noqa: BLE001 - a traceback would garble the prompt
        return []
    return [name for name in names if name.startswith(incomplete)]
