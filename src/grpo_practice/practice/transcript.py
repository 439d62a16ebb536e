"""A rollout's conversation as text, for a teacher or a person.

A text that is too long for a teacher is shortened in this order, and only as far as necessary:
thinking (all of it evenly), results of tools, messages to the agent in later turns, the agent's
earlier prose, the arguments of its calls (the oldest of each kind first). Each such piece keeps
`KEPT` characters of its head and tail; if that is not enough, only the note about the number of cut
characters remains. Some parts are never cut: the answer, the last tool result, the names of the
called tools, and how the attempt ended. If an attempt ran out of output tokens, its last prose is
not an answer and is cut like any other.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from grpo_practice.core.calls import Message, Reply, content_texts
from grpo_practice.core.text import think_spans
from grpo_practice.core.types import Rollout, Trajectory
from grpo_practice.rollout.agents.simple import answer_of

KEPT = 800
"""Length in characters, including the note, to which all pieces are cut before any is cut
further.
"""

PieceKind = Literal["thought", "result", "told", "said", "arguments", "fixed"]
CUT_ORDER: tuple[PieceKind, ...] = ("thought", "result", "told", "said", "arguments")
"""Kinds of pieces in the order in which they are shortened; `fixed` pieces never are."""

ANSWER = "[answer that was scored]"
LIMITS: Mapping[str | None, str] = {
    "turns": "it ran out of turns",
    "time": "it ran out of time",
    "tokens": "it ran out of tokens",
    "cost": "it ran out of money",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a transcript that is shortened as a unit, or not at all."""

    kind: PieceKind
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A turn of a conversation, or a note on how the attempt ended."""

    heading: str
    """`[assistant]`, `[tool]`, … or the note itself."""
    pieces: tuple[Piece, ...] = ()

    @property
    def body(self) -> str:
        """Text under the heading."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Shortened:
    """A transcript shortened to fit."""

    text: str
    cut: int = 0
    """Number of characters that were cut."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A text divided into pieces that may or may not be cut."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def chars(self) -> int:
        """Length of the whole text, in characters."""
        return sum(len(piece.text) for piece in self.pieces)

    @property
    def least(self) -> int:
        """Minimum length to which the text can be shortened, in characters."""
        return sum(
            len(p.text) if p.kind == "fixed" else len(shorten(p.text, 0).text) for p in self.pieces
        )

    def within(self, chars: int) -> Shortened:
        """Shorten the text to at most `chars` characters, or to `least` if that is more."""
        now = [Shortened(piece.text) for piece in self.pieces]
        over = self.chars - chars
        for floor in (KEPT, 0):
            for kind in CUT_ORDER:
                places = [i for i, piece in enumerate(self.pieces) if piece.kind == kind]
                if kind == "thought":
                    lengths = [len(now[i].text) for i in places]
                    floors = [max(floor, n) for n in levels(lengths, sum(lengths) - over)]
                else:
                    floors = [floor] * len(places)
                for i, least in zip(places, floors, strict=True):
                    long = len(now[i].text)
                    if over > 0 and long > least:
                        now[i] = shorten(self.pieces[i].text, max(long - over, least))
                        over -= long - len(now[i].text)
        return Shortened("".join(s.text for s in now), sum(s.cut for s in now))


def shorten(text: str, chars: int) -> Shortened:
    """Keep the head and tail of a text, with a note between them on the number of cut characters.

    The result has at most `chars` characters, unless the note alone has more. A text that is not
    longer than the note is returned unchanged.
    """
    if len(text) <= chars:
        return Shortened(text)
    kept = max(chars - len(_note(len(text))), 0)
    cut = len(text) - kept
    note = _note(cut)
    if kept == 0 and len(note) >= len(text):
        return Shortened(text)
    tail = kept // 2
    return Shortened(f"{text[: kept - tail]}{note}{text[len(text) - tail :]}", cut)


def _note(cut: int) -> str:
    return f" … [{cut:,} more characters were cut here] … "


def levels(lengths: Sequence[int], room: int, least: Sequence[int] = ()) -> list[int]:
    """Divide `room` so that small needs are met in full and the rest is shared equally.

    Args:
        lengths: The need of each recipient.
        room: Total to divide; the sum of the result exceeds it only if the sum of `least` does.
        least: Guaranteed amount for each recipient; 0 by default.
    """
    least = least or [0] * len(lengths)

    def shared(level: int) -> list[int]:
        return [max(few, min(n, level)) for n, few in zip(lengths, least, strict=True)]

    # Find the highest level that fits by bisection, since the sum only grows with the level.
    low, high = 0, max(lengths, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(shared(middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return shared(low)


def transcript_of(rollout: Rollout) -> Transcript:
    """Return the transcript of a rollout as a teacher reads it.

    The question and the system prompt with the experiences are left out: the teacher's prompts show
    them separately.
    """
    told = [s for s in sections(rollout.played) if s.heading != "[system]"]
    question = Section("[user]", (Piece("told", rollout.sample.question),))
    if told and told[0] == question:
        told = told[1:]
    pieces = list[Piece]()
    for section in told:
        gap = "\n\n" if pieces else ""
        pieces.append(Piece("fixed", gap + section.heading + ("\n" if section.pieces else "")))
        pieces += section.pieces
    return Transcript(tuple(pieces))


def sections(played: Trajectory) -> list[Section]:
    """Return the turns of a rollout, a note if it was cut off, and the scored answer.

    The scored answer comes last, but is not repeated if it is the last turn.
    """
    messages = played.transcript
    last_result = max((i for i, m in enumerate(messages) if m.get("role") == "tool"), default=-1)
    answered = bool(messages) and _is_answer(messages[-1], played.response)
    found = list[Section]()
    for i, message in enumerate(messages):
        pieces = _pieces(message)
        if i == last_result:
            pieces = _fixed(pieces, "result")
        if answered and i == len(messages) - 1 and played.outcome != "truncated":
            pieces = _fixed(pieces, "said")
        found.append(Section(f"[{message.get('role', '?')}]", tuple(pieces)))
    if ended := how_it_ended(played):
        found.append(Section(f"[the attempt ended here: {ended}]"))
    if played.response.strip() and not answered:
        found.append(Section(ANSWER, (Piece("fixed", played.response),)))
    return found


def how_it_ended(played: Trajectory) -> str | None:
    """Return which limit ended an attempt; None if it reached no limit."""
    if played.outcome == "truncated":
        return "it ran out of output tokens"
    if played.outcome == "limit":
        return LIMITS.get(played.reason, "it reached a limit")
    return None


def _is_answer(message: Message, response: str) -> bool:
    """Return True for the scored message: a reply without its thinking, or a tool's result."""
    if message.get("role") == "assistant":
        return answer_of(Reply(message).content) == response
    return (
        message.get("role") == "tool"
        and "\n".join(content_texts(message.get("content"))) == response
    )


def _fixed(pieces: Iterable[Piece], kind: PieceKind) -> list[Piece]:
    return [replace(piece, kind="fixed") if piece.kind == kind else piece for piece in pieces]


def _pieces(message: Message) -> list[Piece]:
    """Return the pieces of a turn: its thinking, its prose, and its tool calls with arguments."""
    role, content = message.get("role"), "\n".join(content_texts(message.get("content")))
    if role != "assistant":
        return [Piece("result" if role == "tool" else "told", content)]
    thought = message.get("reasoning_content") or message.get("reasoning")
    thought = thought or "\n".join(content_texts(message.get("content"), thought=True))
    parts = [_thought(thought)] if isinstance(thought, str) and thought.strip() else []
    for span in think_spans(content):
        if span.thought:
            parts.append(_thought(span.text, closed=span.closed))
        elif said := span.text.lstrip("\n").rstrip():
            parts.append([Piece("said", said)])
    calls = message.get("tool_calls")
    parts += [_call(call) for call in calls] if isinstance(calls, list) else []
    lines = [[Piece("fixed", "\n"), *part] for part in parts]
    return [piece for line in lines for piece in line][1:]


def _thought(text: str, *, closed: bool = True) -> list[Piece]:
    before, after = Piece("fixed", "<think>\n"), Piece("fixed", "\n</think>")
    return [before, Piece("thought", text.strip("\n")), *([after] if closed else [])]


def _call(call: Any) -> list[Piece]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return [Piece("fixed", "calls a tool")]
    arguments = function.get("arguments")
    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
    name = Piece("fixed", f"calls {function.get('name')}(")
    return [name, Piece("arguments", _readable(told)), Piece("fixed", ")")]


def _readable(arguments: str) -> str:
    """Return the arguments as `name=value`, so that code in them keeps its line breaks."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(given, dict):
        return arguments
    return ", ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in given.items())
