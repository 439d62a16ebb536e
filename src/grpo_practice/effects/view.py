"""Terminal output for effects of experiences and for pruned libraries."""

from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import count, note, say, say_next
from grpo_practice.cli.terminal.tables import GAP, facts, room, table
from grpo_practice.core.text import brief
from grpo_practice.reports.conclusion import points

if TYPE_CHECKING:
    from grpo_practice.effects.pruning import PruneReport
    from grpo_practice.reports.effects import EffectsReport, ExperienceEffect

NUMBERS = 44
"""Total width of the columns other than the text."""


def show_effects(report: "EffectsReport") -> None:
    """Print a row for each experience, best first, then the effect of the whole library."""
    found = report.found
    mark = " (simulated)" if found.simulated else ""
    say(f"L{found.library.id}{mark}: effect of each experience, in points", style="bold")
    known = [one for one in found.experiences if one.effect is not None]
    rows = sorted(known, key=lambda one: -(one.effect or 0))
    rows += [one for one in found.experiences if one.effect is None]
    table(
        ["experience", "effect", "95 % interval", "P(harm)", "text"],
        map(_row, rows),
        right=["effect", "P(harm)"],
    )
    if any(one.bounds for one in found.experiences):
        say("")
        headers = ["experience", "failed with it", "without it", "effect, failed as 0", "as 1"]
        table(headers, map(_failed, rows), right=headers[1:3])
    asked = f"{count(found.questions, 'question')} of {found.dataset} \u00d7 {found.k}"
    facts(
        [
            ("measured", f"{asked}, {count(found.scored, 'rollout')} scored"),
            ("run", found.run),
        ]
    )
    say(report.sentence)
    for text in report.notes:
        say(f"  {text}")
    note("each effect is measured with half of the other experiences; about 1 in 20 intervals")
    note("misses the true effect, while P(harm) takes the other experiences into account")
    say_next(report.next_command)


def show_pruned(report: "PruneReport") -> None:
    """Print the removed experiences with reasons, then the new library."""
    table(
        ["experience", "effect", "P(harm)", "why", "text"],
        [
            (
                one.of.experience.id,
                _points(one.of.effect),
                "-" if one.of.p_harm is None else _probability(one.of.p_harm),
                one.reason,
                brief(one.of.experience.text, max(room() - NUMBERS - 4 * GAP, 20)),
            )
            for one in report.removed
        ],
        right=["effect", "P(harm)"],
    )
    say(report.sentence)
    if report.library is not None:
        note(f"{report.run} keeps its own library; the new one has not been measured")
    say_next(report.next_command)


def _probability(p: float) -> str:
    """Format a probability, which is never exactly 0 or 1."""
    return "< .01" if p < 0.01 else "> .99" if p > 0.99 else f"{p:.2f}".removeprefix("0")


def _points(value: float | None) -> str:
    return "-" if value is None else points(value, signed=True)


def _row(one: "ExperienceEffect") -> tuple[str, str, str, str, str]:
    text = brief(one.experience.text, max(room() - NUMBERS - 4 * GAP, 20))
    if one.effect is None or one.ci95 is None or one.p_harm is None:
        return one.experience.id, "-", "-", "-", text
    effect = points(one.effect, signed=True) + ("" if one.supported else " ?")
    return one.experience.id, effect, _interval(one), _probability(one.p_harm), text


def _interval(one: "ExperienceEffect") -> str:
    return " to ".join(points(end, signed=True) for end in one.ci95 or ()) or "-"


def _failed(one: "ExperienceEffect") -> list[str]:
    """Return an experience's row in the table of failed rollouts."""
    shares = [f"{share:.1%}" for share in one.failed]
    cases = [f"{_points(case.effect)} ({_interval(case)})" for case in one.bounds]
    return [one.experience.id, *shares, *cases]
