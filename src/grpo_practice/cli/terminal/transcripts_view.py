"""Transcripts of rollouts, for a person."""

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING

from grpo_practice.cli.terminal.formatting import reward, say

if TYPE_CHECKING:
    from grpo_practice.reports.rollout_report import RolloutReport


def show_transcripts(rollouts: "Iterable[RolloutReport]", limit: int) -> None:
    """Print every rollout of the first `limit` questions: its turns, the verdict, the gold.

    The question stands there once, where the attempt before was asked the same.
    """
    most, asked = min(limit, sys.maxsize), list[tuple[str, str]]()
    for _, group in islice(groupby(rollouts, key=lambda r: (r.step, r.rollout.slot)), most):
        for report in group:
            known = _same(asked, report.sections)
            _show(report, report.sections[known:])
            asked = list(islice(report.sections, _asked(report)))


def _asked(report: "RolloutReport") -> int:
    """Return how many of the turns come before the agent's first."""
    told = enumerate(report.transcript)
    return next((n for n, message in told if message.get("role") == "assistant"), 0)


def _same(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> int:
    """Return how many of the first turns are the same."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(before), len(now)))


def _show(report: "RolloutReport", sections: Sequence[tuple[str, str]]) -> None:
    rollout = report.rollout
    if report.attempts > 1:
        say(f"attempt {rollout.attempt + 1} of {report.attempts}", style="bold")
    for heading, body in sections:
        say(heading, style="bold")
        if body:
            say(body)
    played, verdict = rollout.played, rollout.verdict
    why = f": {played.error}" if played.error else ""
    outcome = "answered" if played.outcome == "ok" else played.outcome
    say(f"[{outcome}{why}]  reward {reward(rollout.reward)}", style="bold")
    if rollout.sample.answer is not None:
        say(f"right answer: {rollout.sample.answer}")
    if verdict is not None and verdict.critique:
        say(f"{verdict.critique}")
    say("")
