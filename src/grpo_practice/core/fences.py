"""Fences around untrusted text in a prompt, which the text itself cannot close.

The fence of a text from the web also names its site.
"""

import hmac
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

CODE_BYTES = 12
"""Length of a fence's code in bytes: without the key, none of the 2**96 codes can be guessed."""
_UNSEEN = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e0fff]"
)
_OPENS, _CLOSES = "<\ufe64\uff1c", ">\ufe65\uff1e"
REPLY_TAG = r"[<\uff1c]\s{0,9}([/\uff0f]?)\s{0,9}(lessons?|operations?)\b"
"""Regex of the tags around a teacher's answer, in upper and lower case."""
_TURN = (
    r"<[|\uff5c][^\s<>|\uff5c]{1,40}[|\uff5c]>|\[\|\w{1,20}\|\]|</?s>|<</?sys>>|<[be]os>"
    r"|</?(?:start|end)_of_turn>"
    r"|\[/?(?:inst|system_prompt|tool_calls|tool_results|tool_content|available_tools)\]"
)
"""Regex of the tokens that separate the turns of known chat formats, in any case.

Many servers interpret such a token inside a message as their own: it would end the turn, and with
it the fence.
"""
_MARK = re.compile(
    "|".join(rf"[{one}](?:{_UNSEEN}*+[{one}]){{2,}}" for one in (_OPENS, _CLOSES))
    + f"|{REPLY_TAG}|{_TURN}",  # a quoted reply tag would be parsed as the teacher's own answer
    re.IGNORECASE,
)
"""Three consecutive angle brackets of any width, even with invisible characters between them."""
_QUOTED = str.maketrans(
    dict.fromkeys(_OPENS, "\u2039")
    | dict.fromkeys(_CLOSES, "\u203a")
    | {"[": "\u27e6", "]": "\u27e7"}
)
_NO_LABEL = re.compile(r"[^\w .:\[\]-]")


@dataclass(frozen=True, slots=True)
class Fences:
    """Fences of one run: equal texts get equal fences, so that a repeated request is identical."""

    key: bytes = field(repr=False)
    """Secret key of the run, stored with it."""

    @classmethod
    def with_new_key(cls) -> Self:
        """Return fences with a new secret key."""
        return cls(new_key())

    def around(self, text: object, label: str = "text") -> str:
        """Return the text between two lines with a code that cannot be computed without the key.

        Brackets of fence marks in the text are replaced by quotation marks, so that the text
        neither closes its fence nor seems to. The same applies to the tags that are parsed in a
        teacher's reply, and to tokens that end a turn.
        """
        body = without_marks(str(text))
        label = _NO_LABEL.sub("_", label)
        # The code depends on label and text: once seen, it is useless around another text.
        code_of = hmac.digest(self.key, f"{label}\n{body}".encode("utf-8", "replace"), "sha256")
        code = code_of[:CODE_BYTES].hex()
        return f"<<<{label} {code}\n{body}\n{code}>>>"


CODE = rf"[0-9a-f]{{{2 * CODE_BYTES}}}"
"""Regex of a code."""


def new_key() -> bytes:
    """Return a secret key for the fences of a new run."""
    return secrets.token_bytes(32)


def without_marks(text: str) -> str:
    """Replace the brackets of fence marks, reply tags and chat tokens, one mark for each."""
    return _MARK.sub(lambda mark: mark[0].translate(_QUOTED), text)


_BEGIN = re.compile(rf"^<<<web (\S+) ({CODE})\n", re.MULTILINE)


def web_fenced(fences: Fences, body: str, domain: str) -> str:
    """Put the text in a fence that it cannot close and that names its site."""
    return fences.around(body, f"web {domain}")


def web_texts(text: str) -> Iterator[tuple[str, str]]:
    """Yield (site, text) for each fence in a tool's result; a truncated one extends to the end."""
    # Continue after the fence: a fence inside it is a page that impersonates another site.
    at = 0
    while begin := _BEGIN.search(text, at):
        end = text.find(f"\n{begin[2]}>>>", begin.end())
        stop = len(text) if end < 0 else end
        yield begin[1], text[begin.end() : stop]
        at = stop
