"""A comparison on the terminal: the arms, the differences, and the questions that changed most."""

from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import (
    count,
    duration,
    file_size,
    reward,
    say,
    say_next,
)
from grpo_practice.cli.terminal.health_view import dollars
from grpo_practice.cli.terminal.tables import GAP, room, show_conclusion, table
from grpo_practice.core.stats.scores import mean
from grpo_practice.core.text import brief
from grpo_practice.reports.comparison import MOST_MOVED
from grpo_practice.reports.conclusion import points, spread
from grpo_practice.reports.side_by_side import said

if TYPE_CHECKING:
    from grpo_practice.reports.comparison import ComparisonReport, Contrast
    from grpo_practice.reports.learning_cost import LearningCost

SHARES = ("truncated", "empty", "no answer")
FEW_MOVED = 3
"""Number of questions shown per contrast if there are several contrasts."""
QUESTION = 200
"""Maximum length of a question and of an answer."""
ANSWER = 60
"""Maximum length of each of an arm's answers to a question."""


def show_comparison(report: "ComparisonReport") -> None:
    """Print a row for each arm, then each contrast with the questions that changed most."""
    _show_learning(report) if report.learning else _show_arms(report)
    if report.choice:
        say(f"\n{report.choice}", style="bold")
    for contrast in report.contrasts:
        say("")
        _show_contrast(report, contrast)
        _show_answers(report, contrast)
    if report.each:
        _show_disagreed(report)
    looks = [contrast.look for contrast in report.contrasts]
    if (n := max(max(look.together, looks.count(look)) for look in looks)) > 1:
        say(f"\nAdjusted for {n} contrasts measured together: the p values, not the intervals.")
    if report.learning:
        say("\nThis table does not show:")
        for limit in report.cannot_say:
            say(f"  {limit}")
    if report.simulated:
        say("simulated: says nothing about a real model")
    say_next(report.next_command)


def _show_arms(report: "ComparisonReport") -> None:
    columns = {
        "score": [reward(arm.score.mean) for arm in report.arms],
        "scored": [f"{arm.score.scored} of {arm.score.planned}" for arm in report.arms],
        "tokens": [
            "-" if (n := arm.tokens_per_answer) is None else f"{n:,.0f}" for arm in report.arms
        ],
        "cost": [
            f"${cost:.6f}" if (cost := arm.cost_usd_per_answer) else "-" for arm in report.arms
        ],
        "truncated": [_share(arm.truncated) for arm in report.arms],
        "empty": [_share(arm.empty) for arm in report.arms],
        "no answer": [_share(arm.no_answer_read) for arm in report.arms],
    }
    told = {name: cells for name, cells in columns.items() if {*cells} - {"-", "0 %"}}
    names = {"arm": [arm.named for arm in report.arms]} if report.by_arm else {}
    names["run"] = [arm.run for arm in report.arms]
    table(
        [*names, *told],
        zip(*names.values(), *told.values(), strict=True),
        right=[*told],
        least=[*SHARES, "scored", "cost", "tokens"],
    )


def _show_learning(report: "ComparisonReport") -> None:
    """Print a row for each arm with its score, its gain, and the cost of that gain."""
    gains = {contrast.arm: contrast.judged for contrast in report.contrasts}
    rows = []
    for arm in report.arms:
        gain, within = gains.get(arm.run), arm.score.ci95
        rows.append(
            (
                arm.named,
                reward(arm.score.mean)
                + (f" ({within[0]:.3f} to {within[1]:.3f})" if within else ""),
                f"{points(gain.mean, signed=True)} ({spread(*gain.ci95)})" if gain else "-",
                *_learnt(report.learning.get(arm.named), f"{arm.score.scored:,}"),
            )
        )
    names = ["arm", "score", "points", "learning", "asked", "tokens", "cost", "device", "wall"]
    table(
        [*names, "shipped"], rows, right=[*names[3:], "shipped"], least=["wall", "asked", "tokens"]
    )


def _learnt(cost: "LearningCost | None", asked: str) -> tuple[str, ...]:
    """Return the table cells about an arm's learning, including the number of questions asked."""
    if cost is None:
        return ("unknown", asked, "unknown", "unknown", "-", "-", "-")
    micro = cost.cost_micro
    return (
        f"{cost.rollouts:,}",
        asked,
        f"{cost.tokens:,}",
        "unknown" if micro is None else dollars(micro) if micro else "-",
        duration(cost.device_s) if cost.device_s else "-",
        duration(cost.wall_s) if cost.wall_s else "-",
        file_size(cost.shipped_bytes) if cost.shipped_bytes else "-",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _show_contrast(report: "ComparisonReport", contrast: "Contrast") -> None:
    of = contrast.difference
    say(report.title(contrast), style="bold")
    show_conclusion(report.conclusion(contrast))
    if contrast.known:
        new = contrast.new
        others = (
            f"; on the {len(new.questions)} others: {points(new.mean, signed=True)}"
            f" ({spread(*new.ci95)})"
            if new
            else ""
        )
        say(
            f"  used in practice or to choose a library: {count(contrast.known, 'question')};"
            f" on all {len(of.questions)}: {points(of.mean, signed=True)}{others}"
        )
    for note in contrast.notes:
        say(f"  {note}")
    if report.each:  # the arms' answers follow together
        return
    before, after = report.headings(contrast)
    numbers = len("moved by") + sum(max(len(name), 5) for name in (before, after))
    moved = contrast.moved[: MOST_MOVED if len(report.contrasts) == 1 else FEW_MOVED]
    say("")
    table(
        ["moved by", before, after, "question"],
        [
            (
                points(q.by, signed=True),
                reward(q.a),
                reward(q.b),
                brief(report.texts.get(int(q.key), ""), max(room() - numbers - 3 * GAP, 20)),
            )
            for q in moved
        ],
        right=["moved by", before, after],
    )
    if len(moved) < len(contrast.moved):
        say(f"  {len(moved)} of {len(contrast.moved)} changed questions shown")


def _show_disagreed(report: "ComparisonReport") -> None:
    """Print the questions on which arms disagree most, with expected and actual answers."""
    asked = count(max((arm.score.questions for arm in report.arms), default=0), "question")
    say(f"\nThe arms disagree on {len(report.disagreed)} of {asked}.", style="bold")
    shown = [sample for sample in report.disagreed if sample in report.expected]
    width = max(len("expected"), *(len(arm.named) for arm in report.arms))
    for sample in shown:
        say(brief(report.texts.get(sample, ""), QUESTION))
        answers = report.expected[sample]
        say(f"  {'expected':{width}}         {brief(' or '.join(answers) or '-', QUESTION)}")
        for arm in report.arms:
            rows = report.answers.get(arm.run, {}).get(sample, [])
            rewards = [row.reward for row in rows if row.reward is not None]
            scored = reward(mean(rewards) if rewards else None)
            say(f"  {arm.named:{width}}  {scored:5}  {said(rows, ANSWER)}")
    if len(shown) < len(report.disagreed):
        say(f"  {len(shown)} of {len(report.disagreed)} questions shown")


def _show_answers(report: "ComparisonReport", contrast: "Contrast") -> None:
    baseline = contrast.baseline
    for q in contrast.moved if not report.each else ():
        sample = int(q.key)
        if sample not in report.answers.get(baseline, {}):
            continue
        say("")
        say(brief(report.texts.get(sample, ""), QUESTION))
        say(f"  expected  {brief(' or '.join(report.expected.get(sample, ())), QUESTION)}")
        for name, run in zip(report.headings(contrast), (baseline, contrast.arm), strict=True):
            for row in report.answers.get(run, {}).get(sample, ()):
                said = brief(row.error or row.extracted or row.head, QUESTION)
                say(f"  {name:6}  {reward(row.reward)}  {said}")
