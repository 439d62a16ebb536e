"""The simulated teacher, second half: turns lessons into operations on the library, and merges."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_practice.sim.lore import keys_in, text
from grpo_practice.sim.request import Asked, labels
from grpo_practice.sim.world import World
from grpo_practice.types import OpKind

_LINE = re.compile(r"^(?:###+ (.*)|(P\d+) (ADD|UPDATE|DELETE)\b.*)$", re.MULTILINE)
_LABEL = re.compile(r"\bE\d+\b")
_MISLED = re.compile(r"\b(E\d+)\b.*\bmisled\b|\bmisled\b.*\b(E\d+)\b", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Edit:
    """An operation, with the proposals it stands for."""

    op: OpKind
    target: str | None = None
    text: str | None = None
    stands_for: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """The experience its text holds."""
        return next(iter(keys_in(self.text or "")), None)


def propose(asked: Asked, world: World) -> str:
    """One operation per lesson, as the JSON object asked for."""
    library = labels("\n".join(asked.fenced("experiences")))
    edits = [_edit(lesson, library, world) for lesson in asked.fenced("lesson")]
    return _operations(f"There are {len(edits)} lessons.", edits)


def _edit(lesson: str, library: Mapping[str, str], world: World) -> Edit:
    """What a lesson should change; a lesson without a marker is nothing this teacher knows."""
    key = next(iter(keys_in(lesson)), None)
    fresh = key if key not in library.values() else None
    match = _MISLED.search(lesson)
    target = (match[1] or match[2]) if match else None
    if target in library:
        if fresh:
            return Edit("UPDATE", target, text(world, fresh))
        return Edit("DELETE", target)
    return Edit("ADD", None, text(world, fresh)) if fresh else Edit("NONE")


def merge(asked: Asked, world: World) -> str:
    """One consistent list from all proposals, as the JSON object asked for.

    One operation per experience, an update before a deletion; an addition asked for several
    times, or already in the library, is not made again.
    """
    proposals = _proposals(asked)
    taken: set[str | None] = {*labels("\n".join(asked.fenced("experiences"))).values()}
    edits: list[Edit] = []
    for target in dict.fromkeys(p.target for p in proposals if p.target):
        edit = _settle([p for p in proposals if p.target == target], taken)
        taken.add(edit.key)
        edits.append(edit)
    edits += _additions([p for p in proposals if not p.target], taken)
    return _operations(f"There are {len(proposals)} proposals.", edits)


def _settle(proposals: Sequence[Edit], taken: set[str | None]) -> Edit:
    """What becomes of one experience: the first update that is news, else its deletion."""
    everyone = tuple(name for p in proposals for name in p.stands_for)
    news = [
        p
        for p in proposals
        if p.op == "UPDATE" and p.text and (p.key is None or p.key not in taken)
    ]
    if news:
        return replace(news[0], stands_for=everyone)
    return Edit("DELETE", proposals[0].target, stands_for=everyone)


def _additions(proposals: Sequence[Edit], taken: set[str | None]) -> list[Edit]:
    """The additions that are news, equal ones made one."""
    by_content: dict[str, Edit] = {}
    for p in proposals:
        content = p.key or p.text
        if p.op != "ADD" or not content or content in taken:
            continue
        first = by_content.setdefault(content, replace(p, stands_for=()))
        by_content[content] = replace(first, stands_for=first.stands_for + p.stands_for)
    return list(by_content.values())


def _proposals(asked: Asked) -> list[Edit]:
    """The proposals of a merge prompt, in order: a heading, a line `P3 UPDATE`, a fenced text."""
    found: list[Edit] = []
    target: str | None = None
    pieces = [(fence.before, fence) for fence in asked.fences]
    for between, fence in [*pieces, (asked.asked.rpartition(">>>")[2], None)]:
        for heading, name, op in _LINE.findall(between):
            if name:
                found.append(Edit(op, None if op == "ADD" else target, stands_for=(name,)))
            else:
                label = _LABEL.search(heading)
                target = label[0] if label else None
        if found and fence is not None and fence.name == "proposal":
            found[-1] = replace(found[-1], text=fence.body)
    return found


def _operations(thought: str, edits: Sequence[Edit]) -> str:
    listed = []
    for edit in edits:
        told = {"op": edit.op, "id": edit.target, "text": edit.text, "from": list(edit.stands_for)}
        listed.append({name: value for name, value in told.items() if value})
    return f"{thought}\n\n{json.dumps({'operations': listed}, ensure_ascii=False)}"
