"""The forms that a teacher's reply may have, and the items parsed from any of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError, ReplyFailure
from grpo_practice.core.text import brief, strip_think

PIECE_CHARS = 80
"""Number of characters of the faulty piece that an error quotes."""

CUT = "it was cut off by the token limit"
SHORTER = "Be shorter."
"""Advice to the model whose reply was cut off, not to the user."""

_THINKING = re.compile(
    r"\s*(?:<(think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis|seed:think)>"
    r"|(\[)think]|(◁)think▷)",
    re.IGNORECASE,
)
_FINAL = "<|channel|>final<|message|>"


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of list, written as tags or as JSON."""

    wrapper: str
    """Tag around all items, and the JSON key of the list."""
    item: str
    """Tag of one item."""
    text: str
    """JSON key for an item's text; in the tag form, the text is the content of the tag."""
    signs: frozenset[str]
    """JSON keys that identify an item in a list without a wrapper."""
    plain: bool
    """True if a JSON string instead of an object is accepted as the item's text."""
    whole: bool
    """True if a partial list must not be accepted."""
    example: str
    """Example of the form in two lines, repeated to the model after an unreadable reply."""

    def error(self, what: str, kind: ReplyFailure = "unreadable") -> ReplyError:
        """Return the error for a reply, with the form as its hint."""
        return ReplyError(what, hint=f"The form asked for:\n\n{self.example}", kind=kind)

    def cut_off(self) -> ReplyError:
        """Return the error for a reply that the token limit cut off."""
        error = self.error(CUT, "cut")
        error.hint = f"{SHORTER} {error.hint}"
        return error


@dataclass(frozen=True, slots=True)
class Item:
    """One item as written: its fields by lower-case name, without null values."""

    form: Form
    place: int
    """Position in the list, from 0."""
    fields: Mapping[str, object]
    source: str
    """The part of the reply that the item was parsed from."""

    def error(self, field: str, what: str) -> ReplyError:
        """Return the error for one field of this item: position, problem and source text."""
        where = f"{self.form.wrapper}.{self.place}.{field}"
        return self.form.error(f"{where}: {what}, in: {brief(self.source, PIECE_CHARS)}")


def visible(reply: Reply) -> tuple[str, bool]:
    """Return the reply's text after its thinking, and whether the thinking was left open.

    If the thinking is never closed, its text is returned, because the answer may be at its end.
    """
    text = reply.content.rpartition(_FINAL)[2]
    outside = strip_think(text)
    if outside is None:
        return text.rpartition("<think>")[2].strip(), True
    opened = _THINKING.match(outside)
    if opened is None:
        return outside.strip(), False
    closing = f"</{opened[1]}>" if opened[1] else "[/think]" if opened[2] else "◁/think▷"
    closed = re.search(re.escape(closing), outside, re.IGNORECASE)
    return outside[(closed or opened).end() :].strip(), closed is None
