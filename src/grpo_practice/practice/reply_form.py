"""The forms that a teacher may answer in, and what is read from any of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_practice.calls import Reply
from grpo_practice.errors import ReplyError, ReplyFailure
from grpo_practice.text import brief, strip_think

PIECE_CHARS = 80
"""Characters of the offending piece that an error shows."""

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
    """One kind of list, in tags or in JSON."""

    wrapper: str
    """The tag around all items, and the JSON key they stand under."""
    item: str
    """The tag of one item."""
    text: str
    """The JSON key of an item's text; in tags, the text is what stands between them."""
    signs: frozenset[str]
    """JSON keys that show an item where the list stands alone."""
    plain: bool
    """True when a JSON string in place of an object is the item's text."""
    whole: bool
    """True when the list must not be taken in part."""
    example: str
    """The form in two lines, repeated when a reply could not be read."""

    def error(self, what: str, kind: ReplyFailure = "unreadable") -> ReplyError:
        """Return the error of a reply, with the form as its hint."""
        return ReplyError(what, hint=f"The form asked for:\n\n{self.example}", kind=kind)

    def cut_off(self) -> ReplyError:
        """Return the error of a reply that the token limit ended too early."""
        error = self.error(CUT, "cut")
        error.hint = f"{SHORTER} {error.hint}"
        return error


@dataclass(frozen=True, slots=True)
class Item:
    """One item as written: its fields by lower-case name, without those that are null."""

    form: Form
    place: int
    """Place in the list, from 0."""
    fields: Mapping[str, object]
    source: str
    """The piece of the reply it was read from."""

    def error(self, field: str, what: str) -> ReplyError:
        """Return the error of one field of this item: place, what is wrong, the piece itself."""
        where = f"{self.form.wrapper}.{self.place}.{field}"
        return self.form.error(f"{where}: {what}, in: {brief(self.source, PIECE_CHARS)}")


def visible(reply: Reply) -> tuple[str, bool]:
    """Return the reply's text after its thinking, and whether the thinking is never closed.

    Thinking that is never closed is the text itself: the answer may stand at its end.
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
