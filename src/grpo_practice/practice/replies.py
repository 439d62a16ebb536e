"""A teacher's reply becomes lessons or operations, or a `ReplyError` that says what is wrong."""

import json
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from grpo_practice.agents.simple import answer_of
from grpo_practice.calls import Reply
from grpo_practice.canonical import clean_json
from grpo_practice.errors import ReplyError
from grpo_practice.text import brief, cut
from grpo_practice.types import Lesson, Library, Operation

LESSON_CHARS = 600
"""A longer text is no lesson: it is never one sentence."""
MISSES = 500
"""Braces that begin nothing, before a reply is given up: each costs a look at all that follows."""
EXPERIENCE_CHARS = 500
"""A longer text is refused: every rollout pays for it. Of one refused, so much is kept."""
ID_CHARS = 40
"""Characters of an unknown id in the reason that names it."""
LIBRARY_SIZE = 200
"""The most experiences of a library: some 10,000 tokens in front of every rollout, and several
times what the published libraries hold. Beyond it nothing is added before something goes."""

_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _LessonItem(_Reply):
    lesson: Annotated[str, AfterValidator(_one_line), Field(min_length=1)]
    experience: str | None = None
    problem: str | None = None


class _Lessons(_Reply):
    lessons: list[_LessonItem]


class _OperationItem(_Reply):
    op: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    id: str | None = None
    text: str | None = None
    stands_for: list[str] = Field(default_factory=list, alias="from")


class _Operations(_Reply):
    operations: list[_OperationItem]


M = TypeVar("M", bound=_Reply)


def read_summary(reply: Reply) -> str:
    """The summary.

    Raises:
        ReplyError: There is none.
    """
    text = answer_of(reply.content)
    if not text:
        raise ReplyError("it is empty")
    return text


def read_lessons(reply: Reply, *, limit: int) -> tuple[Lesson, ...]:
    """At most `limit` lessons, strongest first, each on one line; too long ones are left out.

    Raises:
        ReplyError: It holds no JSON object of the form asked for.
    """
    found = _read(reply, "lessons", _Lessons).lessons
    texts = [text for item in found if len(text := _lesson_text(item)) <= LESSON_CHARS]
    return tuple(Lesson(text, reply.call_id) for text in texts[:limit])


def _lesson_text(item: _LessonItem) -> str:
    if not item.experience:
        return item.lesson
    about = _one_line(f"{item.experience}: {item.problem or 'see there'}")
    return f"{item.lesson} (about {about})"


def read_operations(
    reply: Reply, library: Library, *, limit: int, proposals: int = 0
) -> tuple[Operation, ...]:
    """The operations in order, each one that cannot be taken marked `refused` with the reason.

    Args:
        reply: What the teacher answered.
        library: What the operations edit.
        limit: The most operations taken; further ones are refused.
        proposals: How many proposals `from` may name (`P1` …).

    Raises:
        ReplyError: It holds no JSON object of the form asked for.
    """
    found = _read(reply, "operations", _Operations).operations
    edits = _Edits(library, limit)
    return tuple(_operation(i, reply.call_id, proposals, edits.why_not(i)) for i in found)


def _operation(
    item: _OperationItem, call_id: int, proposals: int, refused: str | None
) -> Operation:
    numbers = (int(p[1:]) for p in item.stands_for if re.fullmatch(r"P[0-9]{1,6}", p))
    text = _one_line(item.text) if item.text and item.op in ("ADD", "UPDATE") else None
    return Operation(
        op=item.op,
        target=item.id if item.op in ("UPDATE", "DELETE") else None,
        text=cut(text, EXPERIENCE_CHARS) if text else None,
        from_ops=tuple(n - 1 for n in numbers if 1 <= n <= proposals),
        refused=refused,
        call_id=call_id,
    )


class _Edits:
    """Which operations of a list can be taken, one after another."""

    def __init__(self, library: Library, limit: int) -> None:
        self._library, self._left, self._limit = library, limit, limit
        self._targets = set[str]()
        self._texts = {e.text: "the library" for e in library.experiences}
        self._room = LIBRARY_SIZE - len(library)

    def why_not(self, item: _OperationItem) -> str | None:
        """Why the next operation cannot be taken; None when it is."""
        target = item.id if item.op in ("UPDATE", "DELETE") else None
        text = _one_line(item.text or "") if item.op in ("ADD", "UPDATE") else None
        refused = self._bad_target(item) or self._bad_text(text)
        if refused is None and self._left == 0:
            refused = f"more than {self._limit} operations"
        if refused is None and item.op == "ADD" and self._room <= 0:
            refused = f"the library is full ({LIBRARY_SIZE} experiences)"
        if refused is None:
            self._left -= 1
            self._room += {"ADD": -1, "DELETE": 1}.get(item.op, 0)
            self._targets |= {target} if target else set()
            self._texts |= {text: "another operation"} if text else {}
        return refused

    def _bad_target(self, item: _OperationItem) -> str | None:
        if item.op not in ("UPDATE", "DELETE"):
            return None
        if self._library.get(item.id or "") is None:
            return f"{brief(item.id or 'no id', ID_CHARS)} is not in the library"
        return f"{item.id} has an operation already" if item.id in self._targets else None

    def _bad_text(self, text: str | None) -> str | None:
        if text is None:
            return None
        if not text:
            return "it has no text"
        if len(text) > EXPERIENCE_CHARS:
            return f"its text has {len(text)} characters (at most {EXPERIENCE_CHARS})"
        said = self._texts.get(text)
        return f"{said} says exactly this already" if said else None


def _read(reply: Reply, key: str, model: type[M]) -> M:
    """The last JSON object in the reply that has this key, as a typed value."""
    text = answer_of(reply.content)
    found = _last_object(text, key) or _last_object(_TRAILING_COMMA.sub(r"\1", text), key)
    if found is None:
        raise ReplyError(f'it holds no JSON object with "{key}"')
    try:
        return model.model_validate(clean_json(found))
    except ValidationError as e:
        first = e.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ReplyError(f"{place}: {first['msg']}") from e


def _last_object(text: str, key: str) -> dict[str, Any] | None:
    """The last object with `key` that stands in the text on its own, not inside another one."""
    decoder, found, at, misses = json.JSONDecoder(), None, text.find("{"), 0
    while at != -1 and misses < MISSES:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, misses = at + 1, misses + 1
        else:
            if isinstance(value, dict) and key in value:
                found = value
        at = text.find("{", end)
    return found
