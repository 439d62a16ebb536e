"""The simulated teacher, second half: it proposes operations, and merges proposals.

This half knows only the texts and numbers in its prompt; it does not know the true effect of an
experience. As an author that sees no attempts (`write_directly`), it has good ideas only by luck.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grpo_practice.core.types import OpKind
from grpo_practice.sim import teacher_prompts
from grpo_practice.sim.experience_texts import about, named, text
from grpo_practice.sim.questions import LABEL_TOPICS, TOPICS
from grpo_practice.sim.reply_formats import Entry, written
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.teacher_prompts import ShownProposal, key_of
from grpo_practice.sim.world import EffectKind, World, unit

NO_SOURCES, SAYS_NONE = 0.2, 0.2
"""Probability that a merge omits its source proposals, and that it lists an unchanged
experience.
"""

_MISLED = re.compile(r"\b(E\d+)\b.*\bmisled\b|\bmisled\b.*\b(E\d+)\b", re.DOTALL)
_CONFIRMED = re.compile(
    r"\b(E\d+)\b[^\n]{0,40}\bconfirmed\b|\bconfirmed\b[^\n]{0,40}\b(E\d+)\b", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Edit:
    """An operation, with the proposals that it combines."""

    op: OpKind
    target: str | None = None
    text: str | None = None
    stands_for: tuple[str, ...] = ()


def propose(asked: SimRequest, world: World) -> str:
    """Write one operation per lesson, in the requested format.

    A teacher that leaves out the names of experiences (`Teaching.adds`) also adds what is there.
    """
    library = {label: key_of(text) for label, text in teacher_prompts.library(asked).items()}
    repeats = world.teacher.adds > 0
    edits = [_edit(lesson, library, repeats=repeats) for lesson in asked.fenced("lesson")]
    return _operations(f"There are {len(edits)} lessons.", edits, asked, world)


def _edit(lesson: str, library: Mapping[str, str | None], *, repeats: bool) -> Edit:
    """Return the edit that a lesson implies; without a marker, a lesson implies no change.

    With `repeats`, a lesson that names no experience is added even if the library holds it.
    """
    key = key_of(lesson)
    held = next((label for label, there in library.items() if key and there == key), None)
    confirmed, misled = _label(_CONFIRMED, lesson), _label(_MISLED, lesson)
    if confirmed in library:
        return Edit("NONE", confirmed)
    if misled in library:
        fresh = key is not None and held is None
        return Edit("UPDATE", misled, named(lesson)) if fresh else Edit("DELETE", misled)
    if key is None or (held and not repeats):
        return Edit("NONE", held)
    return Edit("ADD", None, named(lesson))


def _label(pattern: re.Pattern[str], lesson: str) -> str | None:
    match = pattern.search(lesson)
    return (match[1] or match[2]) if match else None


def merge(asked: SimRequest, world: World) -> str:
    """Write one consistent list of operations from all proposals, in the requested format.

    An experience whose vote is to keep it does not change; an experience without a vote may change.
    Updates take precedence over deletions. If several additions are about the same situation, only
    the one proposed most often is made.
    """
    proposals, stays = teacher_prompts.proposals(asked), teacher_prompts.decided(asked)
    library = teacher_prompts.library(asked)
    removed = "\n".join(asked.fenced("removed")).splitlines()
    taken: set[str | None] = {*map(key_of, (*library.values(), *removed))}
    edits: list[Edit] = []
    # Not a set: the order of the operations must be reproducible.
    for target in dict.fromkeys(p.target for p in proposals if p.target):
        about_it = [p for p in proposals if p.target == target]
        if _passes(target, stays.get(target), asked, world):
            edit = _settle(about_it, taken)
            taken.add(key_of(edit.text or ""))
            edits.append(edit)
    added = [p for p in proposals if p.op == "ADD"]
    edits += [*_additions(added, taken), *_repeats(added, library)]
    if world.teacher.forms == "mixed":
        edits = _as_models_do(edits, asked, world)
    return _operations(f"There are {len(proposals)} proposals.", edits, asked, world)


def _as_models_do(edits: Sequence[Edit], asked: SimRequest, world: World) -> list[Edit]:
    """Make some merges inexact, as merges by real models are.

    The reply then omits the source proposals, or lists an experience that does not change.
    """
    written = list(edits)
    if unit(world.seed, "sources", asked.sha) < NO_SOURCES:
        written = [replace(edit, stands_for=()) for edit in written]
    changed = {edit.target for edit in edits}
    stays = [label for label in teacher_prompts.library(asked) if label not in changed]
    if stays and unit(world.seed, "stays", asked.sha) < SAYS_NONE:
        written.append(Edit("NONE", stays[0]))
    return written


def _passes(target: str, stays: bool | None, asked: SimRequest, world: World) -> bool:
    """Return True if the experience may change: it has no vote, or the vote is to change it.

    A teacher that errs (`Teaching.noise`) acts against the vote.
    """
    if stays is None:
        return True
    confused = unit(world.seed, "outvoted", target, asked.sha) < world.teacher.noise
    return stays == confused


def _settle(proposals: Sequence[ShownProposal], taken: set[str | None]) -> Edit:
    """Return the edit of one experience: its most frequent new update, or else a deletion."""
    everyone = tuple(p.name for p in proposals)
    # An update to the content of another experience would make the library repeat itself.
    news = [
        p.text
        for p in proposals
        if p.op == "UPDATE" and p.text and (key_of(p.text) is None or key_of(p.text) not in taken)
    ]
    if news:
        best = max(news, key=lambda text: [_content(t) for t in news].count(_content(text)))
        return Edit("UPDATE", proposals[0].target, best, everyone)
    return Edit("DELETE", proposals[0].target, stands_for=everyone)


def _additions(proposals: Sequence[ShownProposal], taken: set[str | None]) -> list[Edit]:
    """Return the new additions: combine equal ones, and keep one per situation."""
    by_content = dict[str, Edit]()
    for p in proposals:
        if p.text and _content(p.text) not in taken:
            before = by_content.get(_content(p.text))
            names = (*(before.stands_for if before else ()), p.name)
            by_content[_content(p.text)] = Edit(
                "ADD", None, before.text if before else p.text, names
            )
    best = dict[str, Edit]()
    for content, edit in by_content.items():
        situation = about(edit.text or "") or content
        rival = best.get(situation)
        if rival is None or len(edit.stands_for) > len(rival.stands_for):
            best[situation] = edit
    return [edit for edit in by_content.values() if edit in best.values()]


def _repeats(proposals: Sequence[ShownProposal], library: Mapping[str, str]) -> list[Edit]:
    """Return the additions that the library already holds, as confirmations of its experiences."""
    held = {_content(text): label for label, text in library.items()}
    names = dict[str, list[str]]()
    for p in proposals:
        if p.text and (label := held.get(_content(p.text))):
            names.setdefault(label, []).append(p.name)
    return [Edit("NONE", label, None, tuple(of)) for label, of in names.items()]


def _content(text: str) -> str:
    """Return the identity of a text: the key of its experience, or else its words."""
    return key_of(text) or text


def _operations(thought: str, edits: Sequence[Edit], asked: SimRequest, world: World) -> str:
    entries: list[Entry] = []
    for edit in edits:
        told = {"op": edit.op, "id": edit.target, "text": edit.text, "from": list(edit.stands_for)}
        entries.append({name: value for name, value in told.items() if value})
    return written("operations", entries, thought, asked, world)


_ASKED = re.compile(r"Write (\d+) experiences? of about \d+ words each[^:]*: ([\d,]+) characters")
_MORE = " and look at it again"
_LABEL = len("[E1] ")


def write_directly(asked: SimRequest, world: World) -> str:
    """Write the requested number of experiences; `luck` is the share of good ideas among them."""
    found = _ASKED.search(asked.frame)
    n, length = (int(found[1]), int(found[2].replace(",", ""))) if found else (1, 0)
    texts = [_idea(asked, world, i) for i in range(n)]
    # Pad with a harmless phrase: the arm is only played if its length is close to the request.
    missing = (length - sum(len(text) + _LABEL for text in texts)) // len(_MORE)
    for i in range(max(missing, 0)):
        # Insert before the marker, which must stay at the end.
        sentence, marker = texts[i % n].rsplit(". (", 1)
        texts[i % n] = f"{sentence}{_MORE}. ({marker}"
    entries = [{"op": "ADD", "text": text} for text in texts]
    return written("operations", entries, "This is what I would tell it.", asked, world)


def _idea(asked: SimRequest, world: World, nth: int) -> str:
    """Return the nth experience to write, on a new topic until all topics are used."""
    topics = list(LABEL_TOPICS if world.task == "labels" else TOPICS)
    draw = unit(world.seed, "direct", asked.sha, nth)
    luck, harm = world.teacher.luck, world.teacher.harm
    kind: EffectKind = "null" if draw >= luck + harm * (1 - luck) else "harm"
    kind = "help" if draw < luck else kind
    return text(world, world.key(topics[nth % len(topics)], kind, nth // len(topics)))
