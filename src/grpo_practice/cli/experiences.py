"""`experiences`: what was learnt, and where it comes from."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, JsonOption, existing_store
from grpo_practice.cli.terminal.formatting import count, print_json, say
from grpo_practice.cli.terminal.tables import facts
from grpo_practice.errors import ConfigError
from grpo_practice.text import brief

if TYPE_CHECKING:
    from grpo_practice.practice.evidence import Evidence
    from grpo_practice.store.queries.history import ExperienceHistory, LibraryChange, Quarantined

app = typer.Typer(no_args_is_help=True, help="What was learnt, and where it comes from.")

RunOption = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="RUN",
        help="Whose: RUN, RUN@BRANCH, RUN:STEP, or L<id> (default: the latest practice run).",
    ),
]
QUESTION = 120
"""Characters of a question."""
SITES = 200
"""Characters of the web sites behind a change."""


@app.command("list")
def list_(
    run: RunOption = None,
    step: Annotated[
        str, typer.Option(metavar="last|best|N", help="As they were after that step.")
    ] = "last",
    quarantined: Annotated[
        bool,
        typer.Option("--quarantined", help="Also what was kept out up to then, and why."),
    ] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """List the experiences of a run.

    Example: grpo-practice experiences list --run math --step 0
    """
    from grpo_practice.app.library_evidence import evidence_of
    from grpo_practice.app.library_refs import library_of
    from grpo_practice.store.queries import history

    with existing_store(db) as store:
        found = library_of(store, run, step)
        evidence = evidence_of(store, found)
        until = -1 if found.step is None else found.step
        outside = store.read(history.quarantined, found.branch, until=until) if quarantined else []
    library = found.library
    if json:
        print_json(
            {
                "schema": "grpo-practice.experiences/1",
                "run": found.run,
                "step": found.step,
                "library": f"L{library.id}" if library.id else None,
                "experiences": [
                    {"id": e.id, "text": e.text, "evidence": _document(evidence[e.id])}
                    for e in library.experiences
                ],
                **({"quarantined": [asdict(one) for one in outside]} if quarantined else {}),
                "exit": 0,
            }
        )
        return
    from grpo_practice.cli.terminal.reports_view import show_library

    after = "" if found.step is None else f", after step {found.step}"
    name = f"L{library.id} ({found.run}{after})"
    show_library(library.experiences, name, found.run, evidence=evidence)
    if quarantined:
        _show_quarantined(outside)
    if library.experiences:
        first = library.experiences[0].id
        say(f"next: {PROGRAM} experiences show {first} --run {found.run}")


@app.command()
def show(
    experience: Annotated[str, typer.Argument(metavar="E12", help="Its label.")],
    run: RunOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show an experience and where it comes from.

    Each version, with the groups and lessons behind it.

    Example: grpo-practice experiences show E3 --run math
    """
    from grpo_practice.app.library_evidence import evidence_of
    from grpo_practice.app.library_refs import library_of
    from grpo_practice.store.queries import history

    label = re.fullmatch(r"[Ee]?([1-9]\d{0,8})", experience)
    if label is None:
        raise ConfigError(f"{experience!r} is not an experience", hint="they are called E1, E2, …")
    with existing_store(db) as store:
        library = library_of(store, run)
        until = -1 if library.step is None else library.step
        at = {"branch": library.branch, "until": until}
        found = store.read(history.experience, library.run, int(label[1]), **at)
        evidence = evidence_of(store, library).get(found.id)
    if json:
        document = {"schema": "grpo-practice.experience/1", **asdict(found), "text": found.text}
        print_json({**document, "evidence": _document(evidence), "exit": 0})
    else:
        _show(found, evidence)


def _document(evidence: "Evidence | None") -> dict[str, object] | None:
    if evidence is None:
        return None
    return {
        "supporting": evidence.supporting,
        "opposing": evidence.opposing,
        "reward_change": evidence.change,
        "reward_questions": len(evidence.changes),
        "support": evidence.support,
    }


def _show_quarantined(found: "Sequence[Quarantined]") -> None:
    say("")
    say(f"{count(len(found), 'text')} kept out of the library:" if found else "nothing quarantined")
    for one in found:
        came = "the merge" if one.slot is None else f"group {one.slot}"
        say(f"step {one.step}, from {came}: {one.op} {one.target or ''}".rstrip(), style="bold")
        facts(
            [
                ("text", one.text),
                ("why not", one.reason),
                ("question", brief(one.question or "", QUESTION)),
            ]
        )


def _show(found: "ExperienceHistory", evidence: "Evidence | None") -> None:
    from grpo_practice.practice.evidence import told

    say(f"{found.id} of {found.run}", style="bold")
    say(found.text or "(removed)")
    facts([("evidence", told(evidence) if evidence else "")])
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
                f"step {vote.step}, group {vote.slot}",
                f"{vote.said}{' (on an earlier text)' if vote.earlier else ''}: "
                f"{brief(vote.question, QUESTION)}",
            )
            for vote in found.votes
        ]
    )
    say(f"next: {PROGRAM} experiences list --run {found.run}")


def _show_change(change: "LibraryChange") -> None:
    say("")
    say(f"step {change.step}: {change.op}", style="bold")
    sites = brief(", ".join(change.domains), SITES)
    facts(
        [
            ("text", change.text or ""),
            ("why", change.why or ""),
            *([("web sites read", sites)] if sites else []),
        ]
    )
    for proposal in change.proposals:
        proposed = f"{proposal.op} {proposal.text or ''}".strip()
        facts(
            [
                (f"group {proposal.slot}", brief(proposal.question, QUESTION)),
                *(("lesson", lesson) for lesson in proposal.lessons),
                ("proposed", proposed),
            ]
        )
