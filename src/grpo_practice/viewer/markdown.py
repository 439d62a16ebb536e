"""The report on one or more runs as Markdown, for example for a pull request."""

import re
from collections.abc import Iterable, Sequence

from grpo_practice.core.findings import Finding
from grpo_practice.core.text import count
from grpo_practice.reports.base import number
from grpo_practice.sim.experience_texts import flaw
from grpo_practice.viewer.pages import figure, line, points, share, tokens, usd
from grpo_practice.viewer.report import Part
from grpo_practice.viewer.training import Course, stretches

LISTED = 20
"""Maximum number of rows in each list."""

_MARKUP = re.compile(r"([\\`*_{}\[\]<>&~|$#@!])")


def markdown(parts: Sequence[Part], made: str) -> str:
    """Return the report on the runs; stored text is escaped, so it cannot act as markup."""
    lines = list[str]()
    if len(parts) > 1:
        lines += _table(["run", "result"], ([part.story.name, part.result] for part in parts))
    for part in parts:
        lines += [f"# {_plain(part.story.name)}", "", *_run(part)]
    return "\n".join([*lines, f"Made by grpo-practice, {made}.", ""])


def _run(part: Part) -> list[str]:
    story = part.story
    lines = [f"**{_plain(part.answer)}**", ""]
    if story.conclusion:
        lines += [f"- {label}: {_plain(text)}" for label, text in story.conclusion.lines.items()]
        lines += [""]
    if story.report.run.simulated:
        lines += ["Simulated: no model was used; this says nothing about a real agent.", ""]
    if story.measure:
        lines += [f"To measure it: {_code(story.measure)}", ""]
    lines += [_finding(found) for found in story.report.findings]
    lines += [""] if story.report.findings else []
    lines += _table(
        ["agent", "score", "95 % interval", "questions"],
        (
            [
                row.label,
                number(row.score.mean),
                f"{row.score.ci95[0]:.3f} to {row.score.ci95[1]:.3f}" if row.score.ci95 else "-",
                str(row.score.questions_scored),
            ]
            for row in part.ranges
        ),
    )
    lines += [f"- {name}: {_plain(value)}" for name, value in part.facts] + [""]
    lines += _training(part.course) if part.course else []
    if part.experiences:
        lines += ["## Experiences", "", part.experiences_sentence, ""]
        lines += _table(
            ["id", "life", "text", *(["effect"] if story.effects else [])],
            (
                [
                    row.life.id,
                    row.lived,
                    line(row.life.text or "", 400) + _flaw(row.life.text or ""),
                    *([row.effect] if story.effects else []),
                ]
                for row in part.experiences
            ),
        )
    if part.shown.flips:
        lines += ["## Questions that flipped", "", part.flips_sentence, ""]
        lines += _table(
            ["question", "before", "now"],
            ([line(f.question), number(f.was), number(f.now)] for f in part.shown.flips[:LISTED]),
        )
    moved = [q for q in story.questions if q.change][:LISTED]
    if moved:
        lines += ["## Reward by question", "", part.questions_sentence, ""]
        lines += _table(
            ["question", *story.headings, "change"],
            (
                [
                    line(q.text),
                    *(number(one) for one in q.rewards),
                    *[""] * (len(story.headings) - len(q.rewards)),
                    points(q.change),
                ]
                for q in moved
            ),
        )
    lines += ["## Cost", ""] if part.has_costs else []
    lines += _table(
        ["stage", "model", "calls", "tokens in", "tokens out", "cost"],
        (
            [c.stage, c.name, f"{c.calls:,}", tokens(c.tokens_in), tokens(c.tokens_out), usd(c.usd)]
            for c, _ in part.costs
        ),
    )
    failed = len(story.failures) + story.more_failures
    if failed:
        lines += [f"{count(failed, 'request')} got no usable answer.", ""]
    return lines


def _finding(found: Finding) -> str:
    """Return a finding as a list item, with its hint and command."""
    text = f"- **{found.severity}**: {_plain(f'{found.about}: {found.sentence}')}"
    text += f"; {_plain(found.hint)}" if found.hint else ""
    return text + (f": {_code(found.command)}" if found.command else "")


def _training(course: Course) -> list[str]:
    """Return the steps of a training run and its last checkpoints; empty before the first step."""
    lines = ["## Training", ""] if course.stretches or course.checkpoints else []
    steps = stretches(course.rows, course.trained, LISTED)
    lines += _table(
        [
            "steps",
            "mean reward",
            "not informative",
            "loss",
            "KL",
            "entropy",
            "gradient norm",
            "clipped",
        ],
        (
            [
                one.name,
                number(one.reward),
                share(one.uniform),
                *(figure(value) for value in (one.loss, one.kl, one.entropy, one.grad_norm)),
                share(one.clipped),
            ]
            for one in steps
        ),
    )
    lines += _table(
        ["checkpoint", "selection", "size", "sha256", "folder"],
        (
            [f"step {one.step}", number(one.selection), one.size, one.sha, one.path]
            for one in course.checkpoints[-LISTED:]
        ),
    )
    return lines


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table; empty if it has no rows."""
    body = [f"| {' | '.join(_plain(cell) for cell in row)} |" for row in rows]
    if not body:
        return []
    return [
        f"| {' | '.join(headings)} |",
        f"|{' --- |' * len(headings)}",
        *body,
        "",
    ]


def _code(command: str) -> str:
    """Return a command as inline code; backticks inside it cannot end the code."""
    fence = "`" * (1 + max([0, *map(len, re.findall("`+", command))]))
    return f"{fence} {line(command, 400)} {fence}" if len(fence) > 1 else f"`{line(command, 400)}`"


def _flaw(text: str) -> str:
    wrong = flaw(text)
    return f" ({wrong})" if wrong else ""


def _plain(text: str) -> str:
    """Return the text as one line of Markdown, with all markup escaped."""
    return _MARKUP.sub(r"\\\1", line(text, 600))
