r"""Reads the JSON form of a reply, `{"lessons": [{"lesson": "…"}]}` and its like, also broken.

LaTeX is mended before anything is decoded: `\theta` in a JSON string is a tab and `heta`, and a
decoder accepts that. Text that no decoder accepts goes to `json_repair`, when it is small enough:
that library takes four times as long for twice the braces.
"""

import json
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from grpo_practice.canonical import clean_json
from grpo_practice.errors import ReplyError
from grpo_practice.practice.reply_form import PIECE_CHARS, Form, Item
from grpo_practice.text import brief

MISSES = 500
"""Values that cannot be decoded, before the others are given up: each costs a look ahead."""
LOOK = 3
"""How many times the reply's length is looked at in values that cannot be decoded."""
REPAIR_CHARS = 20_000
"""The longest text that is repaired."""
REPAIR_BRACKETS = 200
"""The most opening brackets of a text that is repaired: half a second at the worst."""

_LATEX_NAMES = (
    "nabla natural ncong ne nearrow neg neq newcommand newline newpage nexists ngeq ngtr nleq nless"
    " nmid nolimits nonumber norm not notag notin nparallel nprec npreceq nrightarrow nsim nsubset"
    " nsubseteq nsucc nsucceq nsupseteq nu nwarrow"
    " rangle rbrace rbrack rceil rfloor rgroup rho right rightarrow rightarrowtail"
    " rightharpoondown rightharpoonup rightleftarrows rightleftharpoons rightrightarrows"
    " rightsquigarrow rlap rm root rtimes rvert"
    " tag tan tanh tau tbinom tensor text textbf textcolor textit textnormal textrm textsc textsf"
    " textstyle textsubscript textsuperscript texttt textup textwidth tfrac therefore theta"
    " thetasym thickapprox thicksim thinspace tilde times tiny to top trace triangle triangledown"
    " triangleleft trianglelefteq triangleq triangleright trianglerighteq tt twoheadrightarrow"
)
_LATEX = frozenset(_LATEX_NAMES.split())
r"""LaTeX commands that begin like the JSON escapes `\n`, `\r` and `\t`. No English word follows
such an escape and makes one of these, but `\tan` and `\top`, after a tab that nobody types."""

_BACKSLASH = re.compile(r"""\\(?:(u[0-9a-fA-F]{4}|["'\\/])|([A-Za-z]+)|)""")
_START = re.compile(r'\{\s*"|\[\s*\{')
_COMPLETE = re.compile(r"""(?:["'”]|]|\bnull|,)\s*[}\]]""")
"""The end of an object or a list: LaTeX in a text closes its braces otherwise."""


@dataclass(frozen=True, slots=True)
class Value:
    """Value that stands in place of the list of items."""

    raw: object
    start: int
    end: int
    """Offsets at which the JSON begins and ends in the reply."""


class Mended:
    """A reply whose LaTeX survives decoding; knows where each character stood before."""

    def __init__(self, text: str) -> None:
        self._added = list[int]()
        self.text = _BACKSLASH.sub(self._escape, text)

    def place(self, at: int) -> int:
        """Return where the character at `at` stands in the reply as it came."""
        return at - bisect_left(self._added, at)

    def _escape(self, match: re.Match[str]) -> str:
        r"""Return the escape, doubled where JSON has no such or would turn LaTeX into a character.

        `\b` and `\f` are always doubled: a lesson holds no backspace and no form feed, but `\beta`,
        `\frac` and the `\b` of a regex.
        """
        known, word = match.groups()
        if known or (word and word[0] in "nrt" and word not in _LATEX):
            return match[0]
        self._added.append(match.start() + len(self._added))
        return "\\" + match[0]


def last_value(mended: Mended, form: Form) -> Value | None:
    """Return the last list of items that can be decoded; None when there is none."""
    found, end = None, 0
    for start, raw, end in _values(mended.text):
        held = _held(raw, form)
        if held is not None:
            found = Value(held[0], mended.place(start), mended.place(end))
    return found


def _values(text: str) -> Iterator[tuple[int, object, int]]:
    """Yield the objects, and lists of objects, that stand in the text on their own."""
    decoder, end, misses, looked = json.JSONDecoder(strict=False), 0, 0, 0
    for start in (match.start() for match in _START.finditer(text)):
        if start < end:
            continue
        if misses >= MISSES or looked > LOOK * len(text):
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as e:
            misses += 1
            looked += e.pos - start if isinstance(e, json.JSONDecodeError) else 0
        else:
            yield start, value, end


def _held(value: object, form: Form, depth: int = 2) -> tuple[object] | None:
    """Return the list of items in a JSON value, which may be null; None when it holds none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.lower() == form.wrapper:
                return (inner,)
        inside = list(value.values())
    elif isinstance(value, list):
        items = (isinstance(x, dict) and any(k.lower() in form.signs for k in x) for x in value)
        if value and all(items):
            return (value,)
        inside = value
    else:
        return None
    found = (_held(inner, form, depth - 1) for inner in inside if depth and isinstance(inner, dict))
    return next((held for held in found if held is not None), None)


@dataclass(frozen=True, slots=True)
class Broken:
    """JSON that begins as the form asked for does."""

    form: Form
    start: int
    """Offset at which it begins in the reply."""
    text: str
    """From there on, beginning with the bracket of the list."""

    def error(self) -> ReplyError:
        """Return what the decoder says, and where."""
        what = f'its JSON with "{self.form.wrapper}" cannot be read'
        try:
            json.JSONDecoder(strict=False).raw_decode(self.text)
        except json.JSONDecodeError as e:
            at = max(0, e.pos - PIECE_CHARS // 2)
            return self.form.error(f"{what}: {e.msg}, at: {brief(self.text[at:], PIECE_CHARS)}")
        except RecursionError:
            pass
        return self.form.error(what)

    def repaired(self, *, cut: bool) -> object:
        """Return the list as `json_repair` makes it out; of a cut one, what is complete.

        Raises:
            ReplyError: It is too long, or nothing can be made of it.
        """
        import json_repair  # 50 ms, and hardly a reply needs it

        text = self.text
        if cut:
            end = max((match.end() for match in _COMPLETE.finditer(text)), default=0)
            left = text[end:].strip(" \n`,]}")
            text = text[:end]
            if left and left[0] not in "{\"'\u201c":  # prose: the list was a quotation in it
                raise self.error()
        brackets = text.count("{") + text.count("[")
        if not text or len(text) > REPAIR_CHARS or brackets > REPAIR_BRACKETS:
            raise self.error()
        try:
            whole = json_repair.loads(f'{{"{self.form.wrapper}": {text}')
        except (ValueError, RecursionError) as e:
            raise self.error() from e
        if not isinstance(whole, dict) or not whole.get(self.form.wrapper):
            raise self.error()
        return whole[self.form.wrapper]


def last_broken(mended: Mended, form: Form) -> Broken | None:
    """Return the last piece that begins like the form asked for; None when there is none."""
    key, sign = re.escape(form.wrapper), "|".join(sorted(form.signs))
    begins = re.compile(
        rf"""(?:["'“]{key}\\?["'”]|\{{\s*{key})\s*[:\uff1a]\s*(?=[\[{{])"""
        rf"""|(?=\[\s*\{{\s*["'“]?(?:{sign})\b)""",
        re.IGNORECASE,
    )
    for found in deque(begins.finditer(mended.text), maxlen=1):
        text = mended.text[found.end() :]
        if '\\"' in found[0]:  # an object written as the inside of a string
            text = text.replace('\\"', '"')
        return Broken(form, mended.place(found.start()), text)
    return None


def items(raw: object, form: Form) -> list[Item]:
    """Return the items of a decoded list; one object stands for a list of one, null for none.

    Raises:
        ReplyError: It is no list, or something in it is no item.
    """
    listed = [raw] if isinstance(raw, dict) else [] if raw is None else raw
    if not isinstance(listed, list):
        raise form.error(f"{form.wrapper}: it is no list, but {_excerpt(raw)}")
    found = list[Item]()
    for place, value in enumerate(clean_json(listed)):
        if isinstance(value, str) and form.plain:
            fields = {form.text: value}
        elif isinstance(value, dict):
            fields = {key.lower(): inner for key, inner in value.items() if inner is not None}
        else:
            raise form.error(f"{form.wrapper}.{place}: it is no object, but {_excerpt(value)}")
        found.append(Item(form, place, fields, _excerpt(value)))
    return found


def _excerpt(value: object) -> str:
    """Return a value as JSON on one line of limited length."""
    return brief(json.dumps(value, ensure_ascii=False), PIECE_CHARS)
