"""`grpo-practice`: registers all commands and converts errors to exit codes."""

import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from types import FrameType
from typing import Annotated

import typer

from grpo_practice import __version__, demo
from grpo_practice.cli import (
    compare,
    config,
    data,
    db,
    doctor,
    edit_commands,
    evaluate,
    experiences,
    export_agent,
    init,
    practice,
    rollouts,
    run_labels,
    runs,
    trust,
    verify,
)
from grpo_practice.cli.grouped_help import Commands, group_options
from grpo_practice.cli.options import (
    ASKED,
    PROGRAM,
    as_typed,
    current_database,
    forget_database,
    keep_secrets,
    on_database,
)
from grpo_practice.cli.reference_options import hint_for
from grpo_practice.cli.terminal import stdio
from grpo_practice.cli.terminal.formatting import choose, count, note, print_json, say
from grpo_practice.cli.terminal.tables import table
from grpo_practice.core.errors import (
    FingerprintError,
    GrpoPracticeError,
    StoppedError,
    UnderWay,
)
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import unlike
from grpo_practice.effects import commands as effects
from grpo_practice.export import commands as export
from grpo_practice.reports.base import ErrorReport
from grpo_practice.serve import commands as serve
from grpo_practice.tracing import commands as trace
from grpo_practice.train import commands as train
from grpo_practice.viewer import commands as view

INTERRUPTED = 130
CHANGE = 60
"""Maximum length of a changed value in the table that explains a refused change."""

app = typer.Typer(
    name=PROGRAM,
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # typer's tracebacks show local variables, which may hold keys
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("init")(init.init)
app.command("demo")(demo.demo)
app.command("doctor", short_help="Find problems before a run costs anything.")(doctor.doctor)
app.command("verify")(verify.verify)
app.command("eval", short_help="Score an agent on a dataset, with a confidence interval.")(
    evaluate.evaluate
)
app.command("practice", short_help="Let an agent learn by comparing its attempts.")(
    practice.practice
)
app.command("train", short_help="Train weights on the same questions and scores.")(train.train)
app.command("export-agent")(export_agent.export_agent)
app.command("export-data")(export.export_data)
app.command("skill", short_help="Write a skill with which a coding agent uses this program.")(
    export.skill
)
app.command("report", short_help="Write a page about runs: scores, gains and reasons.")(view.report)
app.command("serve", short_help="Serve an agent as an endpoint for any program.")(serve.serve)
app.command("view", short_help="View runs in a browser, even while they are running.")(view.view)
app.command("trust", short_help="Trust other people's files that you have read.")(trust.trust)
app.add_typer(data.app, name="data")
runs.app.command()(compare.compare)
runs.app.command()(runs.diagnose)
runs.app.command()(run_labels.tag)
runs.app.command()(run_labels.note)
runs.app.command()(trace.trace)
runs.app.command("export")(export.export_rows)
runs.app.command("import")(export.import_runs)
app.add_typer(runs.app, name="runs")
app.add_typer(rollouts.app, name="rollouts")
experiences.app.command()(edit_commands.approve)
experiences.app.command()(edit_commands.reject)
experiences.app.command()(edit_commands.diff)
experiences.app.command()(edit_commands.remove)
experiences.app.command()(edit_commands.edit)
experiences.app.command()(effects.effect)
experiences.app.command()(effects.prune)
app.add_typer(experiences.app, name="experiences")
app.add_typer(config.app, name="config")
app.add_typer(db.app, name="db")
group_options(app)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Let an LLM agent practise: it improves at your task without changing its weights.

    Start with `grpo-practice demo`, which needs no endpoint, or with `grpo-practice init`.

    Example: grpo-practice eval --model gpt-4o-mini --dataset mine --verify math
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command in `argv` (default: the process's arguments) and exit with its code."""
    words = list(sys.argv[1:] if argv is None else argv)
    stdio.prepare()
    sys.exit(stdio.finish(run(words)))


def run(words: list[str]) -> int:
    """Run a command, report its error if it fails, and return its exit code."""
    if ASKED in os.environ:  # completion prints only names and must be fast
        return _run(words, [int(signal.SIGINT)])
    redactor.forget()  # secrets of an earlier command in this process
    keep_secrets(words)
    forget_database()
    with _stoppable() as signals:
        try:
            return _run(words, signals)
        except KeyboardInterrupt:  # a second Ctrl-C while an error is being printed
            return 128 + signals[0]
        except OSError as e:
            return stdio.lost(e)


def _only(words: list[str]) -> typer.Typer:
    """Return the program with only the command that the words start with.

    Typer would build all options of all commands, which takes as long as importing rich.
    """
    groups = [group for group in app.registered_groups if group.name in words[:1]]
    commands = [command for command in app.registered_commands if command.name in words[:1]]
    if not groups and not commands:
        return app
    one = copy(app)
    one.registered_groups, one.registered_commands = groups, commands
    return one


def _run(words: list[str], signals: list[int]) -> int:
    out, err = sys.stdout, sys.stderr
    try:
        code = _only(words)(args=words, prog_name=PROGRAM, standalone_mode=False)
    except typer.TyperException as e:
        return _usage(e, words)
    except StoppedError as e:
        return _interrupted(e.exit_code, words, e)
    except GrpoPracticeError as e:
        return _expected(e, words)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except SystemExit as e:
        # typer exits with SystemExit in two cases, although standalone_mode is off.
        if e.code in (0, None) or ASKED in os.environ:  # completion is done
            return int(e.code or 0)
        # Otherwise typer exits this way because the output pipe was closed.
        sys.stdout, sys.stderr = out, err
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more") from None
    except Exception as e:
        if stdio.is_theirs(e):
            raise
        return _unexpected(e, words)
    if code == INTERRUPTED:  # typer returns this after Ctrl-C
        return _interrupted(128 + signals[0], words)
    return code if isinstance(code, int) else 0


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP stop the block like Ctrl-C; yield a list that receives the signal."""
    came = [int(signal.SIGINT)]

    def stop(number: int, frame: FrameType | None) -> None:
        came[0] = number
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):
            raise KeyboardInterrupt
        interrupt(number, frame)

    # Keep ignored signals ignored: nohup ignores SIGHUP so that the run survives.
    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield came
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _usage(error: typer.TyperException, words: list[str]) -> int:
    message = error.format_message().replace(": Value error, ", ": ", 1)  # pydantic's prefix
    if message.startswith("Usage:"):  # a group without a command prints its help
        note(message)
        return error.exit_code
    context = getattr(error, "ctx", None)
    command = context.command_path if context else PROGRAM
    options = {name for param in context.command.params for name in param.opts} if context else ()
    other = hint_for(message, frozenset(options), command.removeprefix(PROGRAM).strip())
    hint = f"{other} ({command} --help)" if other else f"{command} --help"
    return _report(ErrorReport("usage", message, hint, error.exit_code), words)


def _expected(error: GrpoPracticeError, words: list[str]) -> int:
    diff = error.diff if isinstance(error, FingerprintError) else []
    if "--debug" in words:
        _traceback()
    report = ErrorReport(error.kind, str(error), error.hint, error.exit_code, diff)
    return _report(report, words)


def _unexpected(error: Exception, words: list[str]) -> int:
    from grpo_practice import Workspace

    # A damaged database causes errors of any kind; report the damage instead of its symptom.
    if damage := Workspace(current_database()).damage_behind(error):
        return _expected(damage, words)
    hint = ""
    if "--debug" in words:
        _traceback()
    else:
        hint = f"{as_typed(argv=['--debug', *words])} shows the traceback"
    message = f"internal error: {type(error).__name__}: {error}"
    return _report(ErrorReport("internal", message, hint, 1), words)


def _traceback() -> None:
    """Print the current error's traceback without local variables, which may hold keys."""
    from traceback import TracebackException

    error = sys.exception()
    assert error is not None
    shown = TracebackException.from_exception(error)
    shown.__notes__ = None  # drop the hint: `_report` prints it with --db
    note("".join(shown.format()))


def _keep_or_cancel(batches: Sequence[UnderWay], *, ask: bool) -> None:
    """Name the batches that are still under way; at a terminal, ask whether to cancel them."""
    for batch in batches:
        with suppress(typer.Abort):  # Ctrl-C again keeps it
            question = f"{batch.text}: keep it, or cancel it? Finished replies are billed"
            if ask and choose(question, "keep", "cancel") == "cancel":
                import asyncio

                try:
                    asyncio.run(batch.cancel())
                except GrpoPracticeError as e:
                    note(f"not cancelled: {e}")
                else:
                    note("cancelled; run the same command again to use its replies and go on")
                    continue
        note(f"{batch.text}: run the same command again to read its replies")


def _interrupted(code: int, words: list[str], stop: StoppedError | None = None) -> int:
    message, hint, unanswered = "stopped", None, stop.unanswered if stop else 0
    if stop:
        _keep_or_cancel(stop.batches, ask=code == INTERRUPTED)
    if {"eval", "practice"} & set(words):
        message += "; all answers so far are stored"
        if unanswered:
            message += (
                f", except for {count(unanswered, 'request')} in flight, which will be sent"
                " again and may be billed twice"
            )
        # With --again, the suggested command would start over instead of resuming.
        hint = f"to continue: {as_typed(argv=[word for word in words if word != '--again'])}"
    return _report(ErrorReport("interrupted", message, hint, code), words)


def _report(error: ErrorReport, words: list[str]) -> int:
    """Print the error on stderr and, with `--json`, its document on stdout; return the code."""
    by_person = error.kind in ("interrupted", "declined")
    note(error.message if by_person else f"error: {error.message}", style="red")
    rows = [(c.key, *unlike(str(c.was), str(c.now), CHANGE)) for c in error.diff]
    if rows:
        table(["key", "was", "now"], rows, stderr=True)
    if error.hint:
        note(f"hint: {on_database(error.hint)}")
    if "--json" in words:
        print_json(error.document())
    return error.exit_code
