"""`experiences`: texts learnt in practice, and their origin."""

import re
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, JsonOption, run_names, workspace
from grpo_practice.cli.terminal.formatting import count, print_json, say, say_next
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import brief

if TYPE_CHECKING:
    from grpo_practice.reports.experience_reports import (
        ExperienceReport,
        Held,
        LibraryChange,
        LibraryReport,
        Quarantined,
    )

app = typer.Typer(no_args_is_help=True, help="List, show and edit experiences.")

RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN",
        autocompletion=run_names,
        help="Library: RUN, RUN@BRANCH, RUN:STEP, or L<id> (default: the latest practice run).",
    ),
]
QUESTION = 120
"""Maximum length of a question in a list; `experiences show` prints it in full."""
SITES = 200
"""Maximum length of the list of web sites behind a text."""


@app.command("list")
def list_(
    run: RunOption = None,
    step: Annotated[
        str,
        typer.Option(metavar="last|best|N", help="Experiences after this step; the first is 0."),
    ] = "last",
    quarantined: Annotated[
        bool,
        typer.Option(
            "--quarantined", help="Also list the texts kept out of the library, with reasons."
        ),
    ] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """List the experiences of a run.

    Example: grpo-practice experiences list --run math --step 0
    """
    report = workspace(db).experiences(run, step, quarantined=quarantined)
    if json:
        print_json(report.document())
        return
    from grpo_practice.cli.terminal.reports_view import show_library

    library = report.library
    after = "" if report.step is None else f", after step {report.step}"
    name = f"L{library.id} ({report.run}{after})"
    evidence = {id_: found.sentence for id_, found in report.evidence.items()}
    show_library(library.experiences, name, report.run, evidence=evidence)
    if report.quarantined is not None:
        _show_quarantined(report.quarantined)
    _show_held(report.held)
    if report.held:
        say_next(
            f"{PROGRAM} experiences approve {quote(report.held[0].id)} --run {quote(report.run)}"
        )
    elif library.experiences:
        first = library.experiences[0].id
        say_next(f"{PROGRAM} experiences show {first} --run {quote(report.run)}")


@app.command()
def show(
    experience: Annotated[
        str,
        typer.Argument(
            metavar="E12|H12", help="Label of an experience (E12) or of a held text (H12)."
        ),
    ],
    run: RunOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show an experience and its origin.

    All versions are listed with the groups and lessons they come from.

    Example: grpo-practice experiences show E3 --run math
    """
    if re.fullmatch(r"[Hh]\d+", experience):
        _show_one_held(workspace(db).experiences(run), experience.upper(), json=json)
        return
    report = workspace(db).experience(experience, run)
    if json:
        print_json(report.document())
    else:
        _show(report)


def _show_one_held(report: "LibraryReport", name: str, *, json: bool) -> None:
    """Print one held text in full, with its sources.

    Raises:
        ConfigError: The run holds no text with this name.
    """
    found = [one for one in report.held if one.id == name]
    if not found:
        raise ConfigError(
            f"{report.run} has no held text {name}",
            hint=f"{PROGRAM} experiences list --run {quote(report.run)}",
        )
    if json:
        print_json(replace(report, held=found).document())
        return
    _show_held(found, whole=True)
    say_next(f"{PROGRAM} experiences approve {quote(name)} --run {quote(report.run)}")


def _show_held(found: "Sequence[Held]", *, whole: bool = False) -> None:
    if not found:
        return
    say("")
    say(f"{count(len(found), 'text')} held for approval, not in the library:")
    for one in found:
        sites = ", ".join(one.domains)
        does = f"{one.op} {one.target or ''}".rstrip()
        say(f"{one.id}, of step {one.step}: {does}", style="bold")
        waits = "yes; the text enters the library when the open step closes" if one.approved else ""
        facts(
            [
                ("text", one.text),
                ("web sites read", sites if whole else brief(sites, SITES)),
                *(("question", q if whole else brief(q, QUESTION)) for q in one.questions),
                ("approved", waits),
            ]
        )


def _show_quarantined(found: "Sequence[Quarantined]") -> None:
    say("")
    say(f"{count(len(found), 'text')} kept out of the library:" if found else "nothing quarantined")
    for one in found:
        came = "the merge" if one.slot is None else f"question {one.number or '?'}"
        place = f"{one.id}, step {one.step}, from {came}: {one.op} {one.target or ''}"
        say(place.rstrip(), style="bold")
        facts(
            [
                ("text", one.text),
                ("why not", one.reason),
                ("question", brief(one.question or "", QUESTION)),
            ]
        )


def _show(report: "ExperienceReport") -> None:
    from grpo_practice.reports.experience_reports import invented

    found = report.history
    say(f"{found.id} of {found.run}", style="bold")
    say(found.text or "(removed)")
    facts(
        [
            ("simulated", invented(found.text or "")),
            ("evidence", report.evidence.sentence if report.evidence else ""),
        ]
    )
    if found.imported is not None:
        facts([("at the start", f"from another run: {found.imported}")])
    for change in found.changes:
        _show_change(change)
    if found.votes:
        say("")
        say("votes:", style="bold")
    facts(
        [
            (
                f"step {vote.step}, question {vote.number or '?'}",
                f"{vote.said}{f' ({vote.uncounted})' if vote.uncounted else ''}: {vote.question}",
            )
            for vote in found.votes
        ]
    )


def _show_change(change: "LibraryChange") -> None:
    say("")
    made = "outside the run" if change.step is None else f"step {change.step}"
    say(f"{made}: {change.op}", style="bold")
    sites, since = ", ".join(change.domains), change.held_since
    facts(
        [
            ("text", change.text or ""),
            ("why", change.why or ""),
            ("approved", "" if since is None else f"held since step {since}"),
            *([("web sites read", sites)] if sites else []),
        ]
    )
    for proposal in change.proposals:
        proposed = f"{proposal.op} {proposal.text or ''}".strip()
        facts(
            [
                (f"question {proposal.number or '?'}", proposal.question),
                *(("lesson", lesson) for lesson in proposal.lessons),
                ("proposed", proposed),
            ]
        )
