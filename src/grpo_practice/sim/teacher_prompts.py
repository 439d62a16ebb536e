"""Reads the shipped prompts of distillation, which are recognised by their headings and fences.

Other prompts have other headings, so a simulated teacher accepts only the shipped ones
(`run/specs.py`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_practice.core.stages import STAGES, Stage
from grpo_practice.core.types import OpKind
from grpo_practice.sim.experience_texts import MARKER
from grpo_practice.sim.request import SimRequest

REPORT = "The attempt read the task and took one decision."
"""First sentence of every summary of the simulated teacher."""

_METHOD = re.compile(r"Method ([a-z]+-[0-9a-f]{2,}): ([^.\n]+)\.")
_FOLLOWED = re.compile(r"Followed (E\d+(?:, E\d+)*)\.")
_ANSWER = re.compile(r"\\boxed\{([^{}]*)\}|The answer it gave is ([^\n]{1,200}?)\.(?=\s|$)")
_LABEL = re.compile(r"E\d+")
_ENTRY = re.compile(rf"^\[(E\d+)\] (.*{MARKER.pattern})", re.MULTILINE)
_REWARD = re.compile(r"^### Attempt \d+: reward ([\d.]+(?:e-?\d+)?),", re.MULTILINE)
_MARK = re.compile(
    r"^### (?P<target>.+)$|^(?P<name>P\d+) (?P<op>ADD|UPDATE|DELETE)\b", re.MULTILINE
)
_OPS: Mapping[str, OpKind] = {"ADD": "ADD", "UPDATE": "UPDATE", "DELETE": "DELETE"}
_DECIDED = re.compile(r"^### (E\d+)\n(?:(?!###).*\n)*?It (stays|goes)\.", re.MULTILINE)
_LIMIT = re.compile(r"^Give at most (\d+) lessons?", re.MULTILINE)

_SIGNED: tuple[Stage, ...] = tuple(
    sorted(
        (stage for stage in reversed(list(STAGES)) if STAGES[stage].heading),
        key=lambda stage: STAGES[stage].role == "teacher",
    )
)
"""Stages that are recognised by a heading or a fence."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Facts that are visible in the text of one attempt."""

    reward: float | None
    method: str | None
    """Key of the method that the attempt used; None if the text does not show it."""
    do: str
    """Words that describe the method."""
    followed: frozenset[str]
    """Labels of the experiences that the attempt followed."""
    answer: str | None


@dataclass(frozen=True, slots=True)
class ShownProposal:
    """One proposed edit of a library."""

    name: str
    op: OpKind
    target: str | None
    text: str | None


def stage_of(asked: SimRequest) -> Stage:
    """Return the stage of the request; `play` unless the prompt belongs to another stage.

    A request to read a web page for a tool has the stage `tool`.
    """
    names, frame = {fence.name for fence in asked.fences}, asked.frame
    for stage in _SIGNED:
        if STAGES[stage].heading in frame or STAGES[stage].fence in names:
            return stage
    return "play"


def library(asked: SimRequest) -> dict[str, str]:
    """Return the text of each experience in the prompt's library, by label and in order."""
    shown = "\n".join(asked.fenced("experiences"))
    return {entry[1]: entry[2] for entry in _ENTRY.finditer(shown)}


def key_of(text: str) -> str | None:
    """Return the key of the experience in a text."""
    match = MARKER.search(text)
    return match[1] if match else None


def witnesses(asked: SimRequest) -> list[Witness]:
    """Return the facts about each attempt in the prompt, in order."""
    found = []
    for fence in asked.fences:
        if fence.name in ("summary", "attempt"):
            reward = _REWARD.search(fence.before)
            found.append(witness(float(reward[1]) if reward else None, fence.body))
    return found


def witness(reward: float | None, text: str) -> Witness:
    """Extract the facts from the text of an attempt; of several methods, the last one counts."""
    methods, answers = _METHOD.findall(text), _ANSWER.findall(text)
    method, do = methods[-1] if methods else (None, "")
    followed = frozenset(_LABEL.findall(" ".join(_FOLLOWED.findall(text))))
    answer = next(filter(None, answers[-1]), None) if answers else None
    return Witness(reward, method, do, followed, answer)


def proposals(asked: SimRequest) -> list[ShownProposal]:
    """Return the proposals in a prompt, in order; the fence after a proposal contains its text."""
    found, target = list[ShownProposal](), None
    # Deletions have no text, so the last proposals may follow the last fence.
    tail = (asked.asked.rpartition(">>>")[2], None)
    for before, text in [*((fence.before, fence.body) for fence in asked.fences), tail]:
        marks = list(_MARK.finditer(before))
        for mark in marks:
            if mark["target"]:
                target = mark["target"] if _LABEL.fullmatch(mark["target"]) else None
            else:
                # Only the proposal directly before the fence owns its text.
                own = text if mark is marks[-1] else None
                found.append(ShownProposal(mark["name"], _OPS[mark["op"]], target, own))
    return found


def decided(asked: SimRequest) -> dict[str, bool]:
    """Return, by label, whether each experience with votes stays."""
    return {label: word == "stays" for label, word in _DECIDED.findall(asked.frame)}


def limit(asked: SimRequest) -> int:
    """Return the maximum number of lessons requested; 2 if the prompt sets no limit."""
    found = _LIMIT.findall(asked.frame)
    return int(found[-1]) if found else 2
