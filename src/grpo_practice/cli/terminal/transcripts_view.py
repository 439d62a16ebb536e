"""Rollouts on the terminal: one line each, or with the whole conversation."""

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING

from grpo_practice.cli.options import on_database
from grpo_practice.cli.terminal.formatting import count, reward, say, say_next
from grpo_practice.cli.terminal.tables import GAP, room, table
from grpo_practice.core.text import brief, cut

if TYPE_CHECKING:
    from grpo_practice.reports.rollout_report import (
        RolloutReport,
        RolloutsReport,
        TeacherCall,
        TranscriptsReport,
    )

CHARS = 2_000
"""Maximum length of a turn, unless full texts are requested."""
HEAD = 80
"""Maximum length of an answer in a list."""
ANSWER = "answer"
NUMBERS = 12
"""Maximum number of question numbers that are listed."""
LEAST = 12
"""Minimum width of the start of a question or an answer."""


def show_rollout_list(report: "RolloutsReport") -> None:
    """Print a line for each rollout, the number of rollouts, and the next command."""
    from rich.cells import cell_len

    if not report.rollouts:
        _say_none(report)
        return
    flips = report.flips or {}
    heads = ["step", "attempt", "reward", *(["flip"] if flips else []), "outcome"]
    cells = [
        [
            str(row.step),
            str(row.attempt + 1),
            reward(row.reward),
            *(
                ["wrong → right" if flips[row.sample_id].right else "right → wrong"]
                if flips
                else []
            ),
            "answered" if row.outcome == "ok" else row.outcome,
        ]
        for row in report.rollouts
    ]
    digits = max(len(str(row.number or "-")) for row in report.rollouts)
    taken = sum(max(map(len, column)) for column in zip(heads, *cells, strict=True))
    left = room() - taken - GAP * (len(heads) + 3) - digits
    answers = [brief(row.error or row.extracted or row.head, HEAD) for row in report.rollouts]
    said = min(max(map(cell_len, [ANSWER, *answers])), max(left // 2, LEAST))
    asked = max(left - said, LEAST)
    table(
        [heads[0], "question", *heads[1:], ANSWER],
        [
            (
                first,
                f"{row.number or '-':>{digits}}  {_in_cells(row.question, asked)}",
                *others,
                _in_cells(answer, said),
            )
            for (first, *others), row, answer in zip(cells, report.rollouts, answers, strict=True)
        ],
        right=["step", "attempt", "reward"],
    )
    if report.compared:
        say(f"compared with: {report.compared}")
    if flips and report.step is None:
        right = sum(flip.right for flip in flips.values())
        turned = f"{right} from wrong to right, {len(flips) - right} from right to wrong"
        say(f"{count(len(flips), 'question')} flipped: {turned}; their rollouts:")
    if len(report.rollouts) < report.matching.rollouts:
        say(f"{len(report.rollouts):,} of {count(report.matching.rollouts, 'rollout')}")
        say(f"more: {on_database(report.more_command)}")
    elif report.filters:
        failed = sum(row.reward is None for row in report.rollouts)
        less = f", {failed} without a reward" if failed else ""
        of = f"of the {count(report.all.rollouts, 'rollout')} of {report.ref}"
        say(f"{report.matching.rollouts} {of}{less}")
    say_next(report.next_command)


def _in_cells(text: str, columns: int) -> str:
    """Return the text on one line with the given number of columns; some characters take two."""
    from rich.cells import cell_len, set_cell_size

    line = brief(text, columns)
    return line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1).rstrip()}…"


def _say_none(report: "RolloutsReport") -> None:
    if report.compared:
        say(f"compared with: {report.compared}")
    there = report.all.rollouts
    say(
        f"{report.ref}: {f'none of its {there:,} rollouts matches' if there else 'no rollouts yet'}"
    )
    if numbers := report.questions_played:
        more = ", …" if len(numbers) > NUMBERS else ""
        say(f"it has rollouts of question {', '.join(map(str, numbers[:NUMBERS]))}{more}")
    say_next(report.next_command)


def show_whole(report: "TranscriptsReport", *, full: bool) -> None:
    """Print rollouts with their conversations and the total; shorten texts unless `full`."""
    if not report.rollouts:
        _say_none(report.listed)
        return
    chars = None if full else CHARS
    show_transcripts(report.rollouts, sys.maxsize, chars=chars, whole=True, teacher=report.teacher)
    say_how_many(report.shown, report.listed.matching.groups, report.more_command)
    if report.next_command is not None:
        say_next(report.next_command)


def say_how_many(shown: int, there: int, command: str) -> None:
    """Print how many of the questions were shown, and the command that shows more."""
    say(f"{shown} of {count(there, 'question')} shown")
    if shown < there:
        say(f"more: {on_database(command)}")


def show_transcripts(
    rollouts: "Iterable[RolloutReport]",
    limit: int,
    *,
    chars: int | None = None,
    whole: bool = False,
    teacher: "Sequence[TeacherCall]" = (),
) -> int:
    """Print every rollout of the first `limit` questions: its turns, its verdict, the gold answer.

    Turns that a rollout shares with the previous attempt, such as the question, are not repeated.

    Args:
        rollouts: Rollouts to print.
        limit: Maximum number of questions.
        chars: Maximum length of a turn; None cuts nothing.
        whole: Whether to print question headings, and a prompt and question missing from the turns.
        teacher: Calls of the teacher, printed after the attempts of their group.

    Returns:
        Number of questions that were printed.
    """
    most, asked, printed, system = min(limit, sys.maxsize), list[tuple[str, str]](), 0, ""
    for place, group in islice(groupby(rollouts, key=lambda r: (r.step, r.rollout.slot)), most):
        for n, report in enumerate(group):
            if whole and n == 0:
                say(f"question {report.number or '-'}, step {report.step}", style="bold")
            if whole and system != (system := _unsaid(report)) and system:
                say("[system prompt of the agent]", style="bold")
                say(system if chars is None else cut(system, chars))
            if whole and n == 0 and not any(report.question in body for _, body in report.sections):
                say("[question]", style="bold")
                say(report.question if chars is None else cut(report.question, chars))
            known = _same(asked, report.sections)
            _show(report, report.sections[known:], chars)
            asked = list(islice(report.sections, _asked(report)))
        for call in teacher:
            if (call.step, call.slot) == place:
                _show_call(call, chars)
        printed += 1
    return printed


def _show_call(call: "TeacherCall", chars: int | None) -> None:
    """Print the teacher's reply; without a length limit, print the prompt too."""
    about = f", attempt {call.attempt + 1}" if call.attempt >= 0 else ""
    if chars is None:
        say(f"[request to the teacher: {call.stage}{about}]", style="bold")
        say(call.asked)
    cut_off = " (cut by the token limit)" if call.finish == "length" else ""
    say(f"[teacher: {call.stage}{about}]{cut_off}", style="bold")
    said = call.reply or "(an empty reply)"
    say(said if chars is None else cut(said, chars))
    say("")


def _unsaid(report: "RolloutReport") -> str:
    """Return the system prompt of a rollout whose conversation does not contain it."""
    said = any(message.get("role") == "system" for message in report.transcript)
    return "" if said else report.system


def _asked(report: "RolloutReport") -> int:
    """Return the number of turns before the agent's first turn."""
    told = enumerate(report.transcript)
    return next((n for n, message in told if message.get("role") == "assistant"), 0)


def _same(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> int:
    """Return the number of leading turns that are equal."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(before), len(now)))


def _show(report: "RolloutReport", sections: Sequence[tuple[str, str]], chars: int | None) -> None:
    rollout = report.rollout
    if report.attempts > 1:
        say(f"attempt {rollout.attempt + 1} of {report.attempts}", style="bold")
    for heading, body in sections:
        say(heading, style="bold")
        if body:
            say(body if chars is None else cut(body, chars))
    played, verdict = rollout.played, rollout.verdict
    why = f": {played.error}" if played.error else ""
    outcome = "answered" if played.outcome == "ok" else played.outcome
    say(f"[{outcome}{why}]  reward {reward(rollout.reward)}", style="bold")
    if rollout.sample.answer is not None:
        say(f"right answer: {rollout.sample.answer}")
    if verdict is not None and verdict.critique:
        say(verdict.critique if chars is None else cut(verdict.critique, chars))
    say("")
