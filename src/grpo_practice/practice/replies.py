"""Parses a teacher's reply into lessons or operations, or raises `ReplyError` with the problem."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.hashing import clean
from grpo_practice.core.text import brief, cut
from grpo_practice.core.types import Lesson, LessonFinding, Library, Operation, OpKind, RefusedRule
from grpo_practice.practice.reply_form import CUT, SHORTER, Form, Item, visible
from grpo_practice.practice.reply_json import Broken, Mended, items, last_broken, last_value
from grpo_practice.practice.reply_tags import Block, blocks
from grpo_practice.rollout.agents.simple import answer_of

LESSON_CHARS = 600
"""Maximum length of a lesson, in characters; a longer text is certainly not one sentence."""
EXPERIENCE_CHARS = 500
"""Maximum length of an experience, in characters. A longer text is refused, because every rollout
pays for it; it is recorded up to this length.
"""
ID_CHARS = 40
"""Maximum length of an unknown id in an error message, in characters."""
BEYOND = 50
"""Number of operations beyond the limit that are recorded as refused; the rest are dropped."""
LIBRARY_SIZE = 200
"""Maximum number of experiences in a library: about 10,000 tokens in the prompt of every rollout,
and several times the size of published libraries. A full library accepts an addition only after
a removal.
"""
FULL = f"the library is full ({LIBRARY_SIZE} experiences)"
"""Reason for refusing an addition to a full library."""

LESSONS = Form(
    wrapper="lessons",
    item="lesson",
    text="lesson",
    signs=frozenset({"lesson"}),
    plain=True,
    whole=False,
    example="<lessons><lesson>When <situation>, do <action>.</lesson></lessons>\n"
    '(about an experience: <lesson experience="E3" finding="misled">; none: <lessons></lessons>)',
)
_OP_KEYS = ("op", "operation", "action", "type")


def _operations_form(sources: str = "") -> Form:
    """Return the form of operations; in a merge, each operation has the attribute `sources`."""
    return Form(
        wrapper="operations",
        item="operation",
        text="text",
        signs=frozenset(_OP_KEYS),
        plain=False,
        # A merge cut off before its last operations would keep experiences that it meant to
        # delete.
        whole=True,
        example=f'<operations><operation op="ADD"{sources}>Short name: one sentence.</operation>'
        f'<operation op="UPDATE" id="E3"{sources}>Short name: one sentence.</operation>\n'
        f'<operation op="DELETE" id="E4"{sources}/><operation op="NONE" id="E2"{sources}/>'
        "</operations>",
    )


PROPOSED = _operations_form()
MERGED = _operations_form(' from="P1 P4"')

# Limit the digits, because above 4,300 of them int() raises an error that is not a ReplyError.
_ID = re.compile(r"(?<![A-Za-z0-9])[Ee]0*([1-9][0-9]{0,8})(?![A-Za-z0-9])")
_BARE_ID = re.compile(r"[^\w-]*0*([1-9][0-9]{0,8})[^\w-]*")
_PROPOSAL = re.compile(r"(?<![A-Za-z0-9])[Pp]?0*([1-9][0-9]{0,5})(?![A-Za-z0-9])")
_NO_LESSON = re.compile(r"(?i)(?:none|n/?a|nothing|no lessons?)\W*")
_EXAMPLE = "Short name: one sentence."
_BULLET = re.compile(r"(?:[-*•·]|\(?[0-9]{1,2}[.)]) +")
_LABEL = re.compile(r"\[E[0-9]{1,9}] ?[:\uff1a]? ?")
_STRONG = re.compile(r"(?<![A-Za-z0-9*])\*\*(?=[^\s*])([^*]*)(?<=[^\s*])\*\*(?![A-Za-z0-9*])")
_KINDS: dict[str, OpKind] = {
    **{kind: kind for kind in get_args(OpKind)},
    "MODIFY": "UPDATE",
    "REMOVE": "DELETE",
    "KEEP": "NONE",
}
_FINDINGS: dict[str, LessonFinding] = {
    **{finding: finding for finding in get_args(LessonFinding)},
    "confirms": "confirmed",
    "confirm": "confirmed",
    "misleads": "misled",
    "misleading": "misled",
    "narrow": "too_narrow",
    "helpful": "confirmed",
    "helped": "confirmed",
    "contradicted": "misled",
}


def read_summary(reply: Reply) -> str:
    """Return the summary; raise ReplyError if the reply has no text."""
    text = answer_of(reply.content)
    if not text:
        if reply.ended_early:
            raise ReplyError(CUT, hint=SHORTER, kind="cut")
        raise ReplyError("it is empty", kind="empty")
    return text


def read_lessons(
    reply: Reply, library: Library, *, limit: int, question: str = ""
) -> tuple[Lesson, ...]:
    """Return at most `limit` lessons, strongest first, each on one line, without overlong lessons.

    If there are more, the lessons closest to the question are kept, because advice that fits every
    task would otherwise crowd out the lesson about this one. Confirmations do not count towards
    `limit`; there is at most one per experience. A lesson about an unknown experience is treated as
    a general lesson. If a lesson names an experience with an unknown finding, only its experience
    is kept.

    Raises:
        ReplyError: The reply cannot be parsed, or every lesson is too long.
    """
    found = [item for item in _read(reply, LESSONS) if not _confirms_nothing(item, library)]
    if any(map(_says_something, found)):  # an empty lesson does not invalidate the others
        found = [item for item in found if _says_something(item)]
    lessons = [_lesson(item, library, reply.call_id) for item in found]
    kept = [lesson for lesson in lessons if len(lesson.text) <= LESSON_CHARS]
    if lessons and not kept:
        what = f"it has {len(lessons[0].text)} characters (at most {LESSON_CHARS})"
        raise found[0].error("lesson", what)
    new = [lesson for lesson in kept if lesson.finding != "confirmed"]
    asked = _grams(question)
    new = sorted(new, key=lambda lesson: -len(asked & _grams(lesson.text)))[:limit]
    # In reverse order, so that the dict keeps the first lesson about each experience.
    confirmed = {x.experience: x for x in reversed(kept) if x.finding == "confirmed"}.values()
    return tuple(lesson for lesson in kept if any(lesson is one for one in (*new, *confirmed)))


def _grams(text: str) -> set[str]:
    """Return the character 4-grams of a text, which need no knowledge of its language."""
    plain = " ".join(re.findall(r"\w+", text.casefold()))
    return {plain[i : i + 4] for i in range(len(plain) - 3)}


def _says_something(item: Item) -> bool:
    text = _first_text(item, "lesson", "text", "content")
    return (bool(text) and _NO_LESSON.fullmatch(text) is None) or _finding(item) == "confirmed"


def _confirms_nothing(item: Item, library: Library) -> bool:
    """Return True for a confirmation of an unknown experience that has no text of its own."""
    held = library.get(_about(item) or "")
    confirms = held is None and _finding(item) == "confirmed"
    return confirms and not _first_text(item, "lesson", "text", "content")


def _lesson(item: Item, library: Library, call_id: int) -> Lesson:
    about = library.get(_about(item) or "")
    text = _first_text(item, "lesson", "text", "content")
    finding: LessonFinding | None = None
    if about is not None:
        finding = _finding(item)
        if finding == "confirmed":
            text = text or about.text  # a confirmation needs no text of its own
    if not text:
        raise item.error("lesson", "it has no text")
    return Lesson(text, call_id, about.id if about else None, finding)


def _about(item: Item) -> str | None:
    """Return the experience that a lesson names; operations and some lessons call it `id`."""
    return _id(item.fields.get("experience", item.fields.get("id")))


def read_operations(
    reply: Reply, library: Library, *, limit: int, proposals: int = 0
) -> tuple[Operation, ...]:
    """Return the operations in order, marking unacceptable ones as `refused` with the reason.

    An UPDATE to an unknown experience becomes an ADD, since the operation contains the full text. A
    DELETE of an unknown experience is refused, and a NONE about an unknown experience confirms
    nothing. Operations beyond `limit` are refused. `from` may name up to `proposals` proposals
    (`P1` …).

    Raises:
        ReplyError: The reply cannot be parsed.
    """
    edits = _Edits(library, limit)
    return tuple(
        edits.checked(_operation(item, library, reply.call_id, _sources(item, proposals)))
        for item in _read(reply, MERGED if proposals else PROPOSED)[: limit + BEYOND]
    )


def _operation(item: Item, library: Library, call_id: int, sources: tuple[int, ...]) -> Operation:
    """Return an operation as requested, before it is checked.

    `text` is the full text, '' if it is missing, and None if the operation takes no text.
    """
    op = _kind(item)
    named = item.fields.get("experience")
    if isinstance(named, str) and _ID.fullmatch(named.strip(" [].")):
        target, text = _id(item.fields.get("id", named)), _first_text(item, "text", "content")
    else:
        target, text = (
            _id(item.fields.get("id")),
            _first_text(item, "text", "content", "experience"),
        )
    known = target is not None and library.get(target) is not None
    if op == "UPDATE" and target and not known:
        op = "ADD"
    if op == "ADD" or (op == "NONE" and not known):
        target = None
    return Operation(
        op=op,
        target=target,
        text=text if op in ("ADD", "UPDATE") else None,
        from_ops=sources,
        call_id=call_id,
        finding=_finding(item) if target else None,
    )


def _finding(item: Item) -> LessonFinding | None:
    named = item.fields.get("finding", item.fields.get("problem"))
    return _FINDINGS.get(re.sub(r"[^a-z]+", "_", str(named).lower()).strip("_"))


def _kind(item: Item) -> OpKind:
    """Return the kind of an operation; raise ReplyError if it is missing or unknown."""
    key = next((key for key in _OP_KEYS if key in item.fields), None)
    if key is None:
        raise item.error("op", "it is missing")
    said = str(item.fields[key])
    kind = _KINDS.get(re.sub(r"[^A-Z]", "", said.upper()))
    if kind is None:
        raise item.error(key, f'"{brief(said, ID_CHARS)}" is none of {", ".join(get_args(OpKind))}')
    return kind


def _sources(item: Item, proposals: int) -> tuple[int, ...]:
    """Return the positions, from 0, of the proposals that an operation names."""
    named = item.fields.get("from")
    listed = named if isinstance(named, list) else [named]
    numbers = [int(n) for one in listed for n in _PROPOSAL.findall(_half_width(str(one)))]
    return tuple(dict.fromkeys(n - 1 for n in numbers if n <= proposals))


class _Edits:
    """Decides, in order, which operations of a list can be accepted."""

    def __init__(self, library: Library, limit: int) -> None:
        self._library, self._left, self._limit = library, limit, limit
        self._targets = set[str]()
        self._texts = {e.text: "the library" for e in library.experiences}
        self._room = LIBRARY_SIZE - len(library)

    def checked(self, op: Operation) -> Operation:
        """Return the next operation as it is recorded: refused if it cannot be accepted."""
        refused = self._bad_target(op) or self._bad_text(op)
        if refused is None and self._left == 0:
            refused = _refused(op, "beyond_limit", f"more than {self._limit} operations")
        if refused is None and op.op == "ADD" and self._room <= 0:
            refused = _refused(op, "library_full", FULL)
        if refused is None:
            self._left -= 1
            self._room += {"ADD": -1, "DELETE": 1}.get(op.op, 0)
            self._targets |= {op.target} if op.target and op.op != "NONE" else set()
            self._texts |= {op.text: "another operation"} if op.text else {}
        # Shorten only now, because the length of the whole text is a reason to refuse it.
        return replace(refused or op, text=cut(op.text, EXPERIENCE_CHARS) if op.text else None)

    def _bad_target(self, op: Operation) -> Operation | None:
        if op.op not in ("UPDATE", "DELETE"):
            return None
        if op.target is None or self._library.get(op.target) is None:
            named = brief(op.target or "no id", ID_CHARS)
            return _refused(op, "unknown_id", f"{named} is not in the library")
        if op.target in self._targets:
            return _refused(op, "second_operation", f"{op.target} has an operation already")
        return None

    def _bad_text(self, op: Operation) -> Operation | None:
        if op.text is None:
            return None
        if not op.text:
            return _refused(op, "no_text", "it has no text")
        if op.text == _EXAMPLE:
            return _refused(op, "no_text", "its text is the one of the form asked for")
        if len(op.text) > EXPERIENCE_CHARS:
            why = f"its text has {len(op.text)} characters (at most {EXPERIENCE_CHARS})"
            return _refused(op, "too_long", why)
        said = self._texts.get(op.text)
        return _refused(op, "duplicate", f"{said} says exactly this already") if said else None


def _refused(op: Operation, rule: RefusedRule, why: str) -> Operation:
    return replace(op, refused=why, rule=rule)


def _first_text(item: Item, *keys: str) -> str:
    """Return an item's text on one line, without the Markdown or list marks around it.

    Raises:
        ReplyError: The value is not a string.
    """
    key = next((key for key in keys if key in item.fields), None)
    if key is None:
        return ""
    value = item.fields[key]
    if not isinstance(value, str):
        raise item.error(key, "it is no text")
    text = " ".join(clean(value).split())
    text = _STRONG.sub(r"\1", text[bullet.end() :] if (bullet := _BULLET.match(text)) else text)
    text = (text[label.end() :] if (label := _LABEL.match(text)) else text).strip()
    return text if any(char.isalnum() for char in text) else ""


def _id(named: object) -> str | None:
    """Return `E3` for `[E3]`, `e3`, `E03` or `3`; other text unchanged; None for an empty id."""
    text = _half_width(str(named)).strip() if named is not None else ""
    found = _ID.search(text) or _BARE_ID.fullmatch(text)
    return f"E{found[1]}" if found else text or None


def _half_width(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _read(reply: Reply, form: Form) -> Sequence[Item]:
    """Return the items of the last list in the reply, in any accepted form.

    Raises:
        ReplyError: The reply has no list, or an incomplete one.
    """
    text, thinking = visible(reply)
    cut_off = reply.ended_early
    if not text:
        raise form.cut_off() if cut_off else form.error("it is empty", "empty")
    mended, marked = Mended(text), blocks(text, form)
    block = next((block for block in reversed(marked) if block.readable), None)
    value = last_value(mended, form)
    ends = max(block.end if block else -1, value.end if value else -1)
    left = text[max(ends, 0) :].strip("` \n")
    if thinking and (cut_off or ends < 0 or left):
        raise form.cut_off() if cut_off else form.error("its thinking never ends")
    broken = last_broken(mended, form)
    if broken and broken.start > ends:
        return _repaired(broken, cut_off=cut_off)
    goes_on = block and block is marked[-1] and not block.closed and block.end == ends
    if cut_off and left and not (goes_on and left.startswith(("<", "\uff1c"))):
        # The list before the remaining text was a draft or a quotation.
        raise form.cut_off()
    if value and value.end == ends:
        return items(value.raw, form)
    return _complete(block, marked, form, cut_off=cut_off)


def _repaired(broken: Broken, *, cut_off: bool) -> Sequence[Item]:
    if cut_off and broken.form.whole:
        raise broken.form.cut_off()
    try:
        return items(broken.repaired(cut=cut_off), broken.form)
    except ReplyError as e:
        if cut_off:
            raise broken.form.cut_off() from e
        raise


def _complete(
    block: Block | None, marked: Sequence[Block], form: Form, *, cut_off: bool
) -> Sequence[Item]:
    """Return the items of a block; if the block is not closed, only the complete items.

    Raises:
        ReplyError: There is no such block, or a partial block is not acceptable.
    """
    tag = f"<{form.wrapper}>"
    if block is None:
        if cut_off:
            raise form.cut_off()
        if not marked:
            raise form.error(f'it holds no {tag} block and no JSON object with "{form.wrapper}"')
        closed = marked[-1].closed
        why = f"there is no <{form.item}> in it" if closed else "it is never closed"
        raise form.error(f"its {tag} cannot be read: {why}")
    if form.whole and not block.closed and cut_off:
        raise form.cut_off()
    if form.whole and block.unfinished:
        raise form.error(f"its last <{form.item}> is never closed")
    return block.items
