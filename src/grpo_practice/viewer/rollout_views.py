"""The viewer's pages on one rollout, and on long texts that need a page of their own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import brief
from grpo_practice.practice.transcript import Section, sections
from grpo_practice.reports.rollout_report import RolloutReport
from grpo_practice.run.rollouts import RolloutReader
from grpo_practice.store import Store
from grpo_practice.store.queries import pages
from grpo_practice.store.queries.group_operations import teacher_calls
from grpo_practice.store.queries.traced import MERGE
from grpo_practice.viewer.address import Page, Query
from grpo_practice.viewer.group_views import step_of

TURNS = 40
"""Turns of a rollout per page."""
PIECE = 200_000
"""Characters of a long text per page."""
_MARKS = frozenset(("<think>", "</think>"))


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a turn: its reasoning or its message."""

    part: str
    """Name of the text in an address."""
    text: str
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation."""

    number: int
    heading: str
    blocks: Sequence[Block]

    @property
    def name(self) -> str:
        """Heading without its brackets."""
        return self.heading.removeprefix("[").removesuffix("]")

    @property
    def role(self) -> str:
        """Role as a CSS class; `other` if it is unknown."""
        # The stored role may be any text, which must not become a class name.
        return self.name if self.name in ("system", "user", "assistant", "tool") else "other"


def rollout_page(store: Store, query: Query) -> Page:
    """Return the page of a rollout: its verdict and its transcript."""
    report, attempts = _rollout(store, query)
    rollout = report.rollout
    turns = [*_turns(sections(rollout.played))]
    shown, links = query.paged(turns, TURNS)
    values = {
        "report": report,
        "rollout": rollout,
        "ref": query.text("run"),
        "attempts": attempts,
        "turns": shown,
        "told": any(turn.role == "system" for turn in turns[:1]),
        **links,
    }
    return Page("view/rollout.html", values)


def text_page(store: Store, query: Query) -> Page:
    """Return a page of a long text, starting at the requested position."""
    part, at = query.text("part"), query.number("at", 0)
    about = part.split(".")[0]
    if about in ("lesson", "teacher", "merge"):
        run, branch, row, _ = step_of(store, query)
        slot = MERGE if about == "merge" else query.number("slot")
        lessons = store.read(pages.lessons_of, branch, row.plan.step, slot)
        known = {f"lesson.{n}": lesson for n, lesson in enumerate(lessons)}
        for n, call in enumerate(store.read(teacher_calls, branch, row.plan.step, slot)):
            known |= {f"{about}.{n}.asked": call.asked, f"{about}.{n}.reply": call.reply}
        title = f"{run.name}, step {row.plan.step}"
        title += "" if about == "merge" else f", group {slot}"
    else:
        report, _ = _rollout(store, query)
        known = dict(_texts(report))
        title = (
            f"{report.run}, step {report.step}, group {report.rollout.slot},"
            f" attempt {report.rollout.attempt + 1}"
        )
    text = known.get(part)
    if text is None:
        raise ConfigError(f"there is no text {brief(part, 40)} at this address")
    values = {
        "title": title,
        "part": part.replace(".", " "),
        "text": text[at : at + PIECE],
        "at": at,
        "chars": len(text),
        "before": max(at - PIECE, 0) if at else None,
        "more": at + PIECE if at + PIECE < len(text) else None,
        "ref": query.text("run"),
    }
    return Page("view/text.html", values)


def _rollout(store: Store, query: Query) -> tuple[RolloutReport, int]:
    """Return the rollout that an address names, and the planned size of its group.

    Raises:
        ConfigError: The rollout does not exist.
    """
    run, branch, row, _ = step_of(store, query)
    step, slot, attempt = row.plan.step, query.number("slot"), query.number("attempt")
    found = RolloutReader(store, branch).group(step, slot, attempt)
    if not found:
        raise ConfigError(
            f"step {step} of {run.name} has no attempt {attempt} in group {slot}",
            hint="it may not have been played yet",
        )
    return found[0], row.attempts(slot)


def _texts(report: RolloutReport) -> Iterator[tuple[str, str]]:
    """Yield the name in an address and the text, for each text of a rollout."""
    rollout, verdict = report.rollout, report.rollout.verdict
    yield "question", report.question
    yield "system", report.system
    yield "gold", str(rollout.sample.answer)
    yield "answer", rollout.played.response
    yield "error", rollout.played.error or ""
    if verdict is not None:
        yield "critique", verdict.critique or ""
        yield "extracted", verdict.extracted or ""
    for turn in _turns(sections(rollout.played)):
        for block in turn.blocks:
            yield block.part, block.text


def _turns(found: Sequence[Section]) -> Iterator[Turn]:
    """Yield the turns, with reasoning separated from messages."""
    for number, section in enumerate(found):
        texts = list[tuple[bool, list[str]]]()
        for piece in section.pieces:
            reasoning = piece.kind == "thought"
            # The marks are for the teacher; pages label reasoning in their own way.
            if piece.kind == "fixed" and piece.text.strip() in _MARKS:
                continue
            if not texts or texts[-1][0] != reasoning:
                texts.append((reasoning, []))
            texts[-1][1].append(piece.text)
        joined = [(reasoning, "".join(parts).strip("\n")) for reasoning, parts in texts]
        blocks = [
            Block(f"turn.{number}.{n}", text, reasoning)
            for n, (reasoning, text) in enumerate(joined)
            if text.strip()
        ]
        yield Turn(number, section.heading, blocks)
