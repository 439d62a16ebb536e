"""A teacher by rule, for tests with a real student: it is no model, and says so by its name.

It reads what every teacher reads, the prompt alone. From the attempts of a group it measures a few
properties of form (`FORMS`), takes the one that separates better attempts from worse ones most
clearly, and writes the advice for it. What a group shows by chance it believes, as a model would.
It never sees the verify function, and no other group.
"""

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from grpo_practice.core.stages import Stage
from grpo_practice.sim import teacher_prompts
from grpo_practice.sim.request import SimRequest, read
from tests.contract.endpoint.actions import Action, Asked, ok
from tests.contract.endpoint.server import serving
from tests.real.servers import Server

_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_REWARD = re.compile(r"^### Attempt \d+: reward ([\d.]+),", re.MULTILINE)
_ENTRY = re.compile(r"^\[(E\d+)\] (.+)$", re.MULTILINE)
Form = tuple[Callable[[str], float], str, str]
"""A property of a text; the advice if better attempts have more of it, and if they have less."""
FORMS: Mapping[str, Form] = {
    "sentences": (
        lambda text: len(_SENTENCE_END.findall(text)),
        "Several sentences: When you are asked a question, answer in several sentences.",
        "Stop early: When the question is answered, stop after the first sentence.",
    ),
    "words": (
        lambda text: len(text.split()),
        "Details: When you are asked a question, tell all the details.",
        "Few words: When you are asked a question, answer in few words.",
    ),
    "finished": (
        lambda text: text.rstrip().endswith((".", "!", "?")),
        "Come to an end: When you answer, end the last sentence with a full stop.",
        "Keep going: When you answer, leave the last sentence open.",
    ),
    "lines": (
        lambda text: text.count("\n"),
        "Lines: When you answer, start a new line for each thought.",
        "One line: When you answer, write everything on one line.",
    ),
    "exclamations": (
        lambda text: text.count("!"),
        "Joy: When you answer, use exclamation marks.",
        "Calm: When you answer, use no exclamation marks.",
    ),
    "reader": (
        lambda text: len(re.findall(r"\byou\b|\byour\b", text.lower())),
        "Speak to the reader: When you explain something, say you.",
        "Leave the reader out: When you explain something, do not say you.",
    ),
    "comparisons": (
        lambda text: len(re.findall(r"\blike\b|\bimagine\b|\bfor example\b", text.lower())),
        "Compare: When you explain something, compare it with something else.",
        "No comparison: When you explain something, compare it with nothing.",
    ),
}


def answer(body: Mapping[str, Any]) -> str:
    """Return the reply to a request of a teacher's stage."""
    asked = read(body)
    return _STAGES[teacher_prompts.stage_of(asked)](asked)


def _compare(asked: SimRequest) -> str:
    attempts = [
        (float(reward[1]), _said(fence.body))
        for fence in asked.fences
        if fence.name in ("attempt", "summary") and (reward := _REWARD.search(fence.before))
    ]
    middle = statistics.fmean(reward for reward, _ in attempts)
    better = [text for reward, text in attempts if reward > middle]
    worse = [text for reward, text in attempts if reward <= middle]
    if not better or not worse:
        return "<lessons></lessons>"
    gaps = {name: _gap(measure, better, worse) for name, (measure, _, _) in FORMS.items()}
    name = max(gaps, key=lambda name: abs(gaps[name]))
    _, more, less = FORMS[name]
    advice = (more if gaps[name] > 0 else less).partition(": ")[2]
    known = {text.partition(": ")[2]: label for label, text in _library(asked).items()}
    tag = f' experience="{known[advice]}" finding="confirmed"' if advice in known else ""
    return f"<lessons>\n<lesson{tag}>{escape(advice)}</lesson>\n</lessons>"


def _gap(measure: Callable[[str], float], better: Sequence[str], worse: Sequence[str]) -> float:
    """Return the difference of the means in units of the deviation over all attempts."""
    values = [float(measure(text)) for text in (*better, *worse)]
    spread = statistics.pstdev(values)
    up, down = values[: len(better)], values[len(better) :]
    return (statistics.fmean(up) - statistics.fmean(down)) / spread if spread else 0.0


def _propose(asked: SimRequest) -> str:
    names = {advice.partition(": ")[2]: advice for form in FORMS.values() for advice in form[1:]}
    known = set(_library(asked).values())
    wanted = [names[lesson] for lesson in asked.fenced("lesson") if lesson in names]
    return _operations([("ADD", text, ()) for text in wanted if text not in known])


def _merge(asked: SimRequest) -> str:
    sources = dict[str, list[str]]()
    for proposal in teacher_prompts.proposals(asked):
        if proposal.op == "ADD" and proposal.text:
            sources.setdefault(proposal.text, []).append(proposal.name)
    known = set(_library(asked).values())
    new = [("ADD", text, names) for text, names in sources.items() if text not in known]
    gone = [label for label, stays in teacher_prompts.decided(asked).items() if not stays]
    return _operations([*new, *(("DELETE", label, ()) for label in gone)])


def _operations(operations: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    lines = [
        f'<operation op="DELETE" id="{text}"/>'
        if op == "DELETE"
        else f'<operation op="{op}" from="{" ".join(names)}">{escape(text)}</operation>'
        for op, text, names in operations
    ]
    return "\n".join(["<operations>", *lines, "</operations>"])


def _library(asked: SimRequest) -> dict[str, str]:
    return dict(_ENTRY.findall("\n".join(asked.fenced("experiences"))))


def _said(attempt: str) -> str:
    """Return the answer of an attempt, which is its last turn."""
    return attempt.rpartition("[assistant]")[2].strip()


_STAGES: Mapping[Stage, Callable[[SimRequest], str]] = {
    "compare": _compare,
    "propose": _propose,
    "merge": _merge,
}


@contextmanager
def teacher() -> Iterator[Server]:
    """Serve the teacher on loopback."""
    with serving(_reply) as server:
        yield Server("teacher", server.url, "teacher-by-rule")


def _reply(asked: Asked) -> Action:
    said = answer(asked.body)
    usage = {"prompt_tokens": len(str(asked.body)) // 4, "completion_tokens": len(said) // 4}
    usage["total_tokens"] = sum(usage.values())
    return ok(said, usage=usage, model=asked.body["model"])
