r"""Parses the JSON form of a reply, `{"lessons": [{"lesson": "…"}]}` or similar, even if broken.

LaTeX is repaired before decoding: a decoder accepts `\theta` in a JSON string and turns it into a
tab and `heta`. Text that cannot be decoded is passed to `json_repair` only if it is small enough,
since that library takes four times as long for twice as many braces.
"""

import json
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from grpo_practice.core.errors import ReplyError
from grpo_practice.core.hashing import clean_json
from grpo_practice.core.text import brief
from grpo_practice.practice.reply_form import PIECE_CHARS, Form, Item

MISSES = 500
"""Number of undecodable values after which parsing stops, because each costs a scan ahead."""
LOOK = 3
"""Limit of characters scanned in undecodable values, as a multiple of the reply's length."""
REPAIR_CHARS = 20_000
"""Length of the longest text that is repaired, in characters."""
REPAIR_BRACKETS = 200
"""Maximum number of opening brackets in a text that is repaired: half a second at worst."""

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
r"""LaTeX commands that begin like the JSON escapes `\n`, `\r` and `\t`. None of them could be such
an escape followed by the rest of an English word, except `\tan` and `\top`, whose tab nobody
types.
"""

_BACKSLASH = re.compile(r"""\\(?:(u[0-9a-fA-F]{4}|["'\\/])|([A-Za-z]+)|)""")
_START = re.compile(r'\{\s*"|\[\s*\{')
_COMPLETE = re.compile(r"""(?:["'”]|]|\bnull|,)\s*[}\]]""")
"""The end of an object or a list, as opposed to a closing LaTeX brace in a text."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value found in place of the list of items."""

    raw: object
    end: int
    """Offset of the end of the JSON in the reply."""


class Mended:
    """A reply in which LaTeX survives decoding; maps its characters to their original positions."""

    def __init__(self, text: str) -> None:
        self._added = list[int]()
        self.text = _BACKSLASH.sub(self._escape, text)

    def place(self, at: int) -> int:
        """Return the position in the original reply of the character at `at`."""
        return at - bisect_left(self._added, at)

    def _escape(self, match: re.Match[str]) -> str:
        r"""Return the escape, doubled if it is not JSON or would turn LaTeX into another character.

        `\b` and `\f` are always doubled: a lesson contains no backspace or form feed, but `\beta`,
        `\frac` and the `\b` of a regex.
        """
        known, word = match.groups()
        if known or (word and word[0] in "nrt" and word not in _LATEX):
            return match[0]
        self._added.append(match.start() + len(self._added))
        return "\\" + match[0]


def last_value(mended: Mended, form: Form) -> Value | None:
    """Return the last list of items that can be decoded; None if there is no such list."""
    found, end = None, 0
    for raw, end in _values(mended.text):
        held = _held(raw, form)
        if held is not None:
            found = Value(held[0], mended.place(end))
    return found


def _values(text: str) -> Iterator[tuple[object, int]]:
    """Yield the outermost objects, and lists of objects, in the text, with the end of each."""
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
            yield value, end


def _held(value: object, form: Form, depth: int = 2) -> tuple[object] | None:
    """Return the list of items (which may be null) in a JSON value, or None if there is no list."""
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
    """Undecodable JSON that begins in the requested form."""

    form: Form
    start: int
    """Offset in the reply at which it begins."""
    text: str
    """Text from there to the end, beginning with the bracket of the list."""

    def error(self) -> ReplyError:
        """Return the error with the decoder's message and the text at its position."""
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
        """Return the list repaired by `json_repair`, or its complete part if it was cut off.

        Raises:
            ReplyError: The text is too long or cannot be repaired.
        """
        import json_repair  # takes 50 ms, and few replies need it

        text = self.text
        if cut:
            end = max((match.end() for match in _COMPLETE.finditer(text)), default=0)
            left = text[end:].strip(" \n`,]}")
            text = text[:end]
            # If prose follows the list, the list was a quotation in that prose.
            if left and left[0] not in "{\"'\u201c":
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
    """Return the last piece that begins in the requested form; None if there is no such piece."""
    key, sign = re.escape(form.wrapper), "|".join(sorted(form.signs))
    begins = re.compile(
        rf"""(?:["'“]{key}\\?["'”]|\{{\s*{key})\s*[:\uff1a]\s*(?=[\[{{])"""
        rf"""|(?=\[\s*\{{\s*["'“]?(?:{sign})\b)""",
        re.IGNORECASE,
    )
    for found in deque(begins.finditer(mended.text), maxlen=1):
        text = mended.text[found.end() :]
        if '\\"' in found[0]:  # the object was written inside a string
            text = text.replace('\\"', '"')
        return Broken(form, mended.place(found.start()), text)
    return None


def items(raw: object, form: Form) -> list[Item]:
    """Return the items of a decoded list; a single object counts as a list of one, null as empty.

    Raises:
        ReplyError: The value is not a list, or an entry is not an item.
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
