"""Fences around text from outside in a prompt, which no such text can close."""

import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Self

CODE_BYTES = 12
"""Length of a fence's code: one of 2**96, which nobody without the key can compute or try."""
_UNSEEN = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e0fff]"
)
_OPENS, _CLOSES = "<\ufe64\uff1c", ">\ufe65\uff1e"
REPLY_TAG = r"[<\uff1c]\s{0,9}([/\uff0f]?)\s{0,9}(lessons?|operations?)\b"
"""Pattern of the tags in which a teacher answers, in upper and lower case."""
_TURN = (
    r"<[|\uff5c][^\s<>|\uff5c]{1,40}[|\uff5c]>|\[\|\w{1,20}\|\]|</?s>|<</?sys>>|<[be]os>"
    r"|</?(?:start|end)_of_turn>"
    r"|\[/?(?:inst|system_prompt|tool_calls|tool_results|tool_content|available_tools)\]"
)
"""Pattern of the tokens that separate the turns of known chat formats, in any case.

Many servers take such a token in a message for their own: it ends the turn, and with it the fence.
"""
_MARK = re.compile(
    "|".join(rf"[{one}](?:{_UNSEEN}*+[{one}]){{2,}}" for one in (_OPENS, _CLOSES))
    + f"|{REPLY_TAG}|{_TURN}",  # a quotation of it would read as the teacher's own answer
    re.IGNORECASE,
)
"""Three angle brackets in a row as a reader sees them: in any width, unseen characters between."""
_QUOTED = str.maketrans(
    dict.fromkeys(_OPENS, "\u2039")
    | dict.fromkeys(_CLOSES, "\u203a")
    | {"[": "\u27e6", "]": "\u27e7"}
)
_NO_LABEL = re.compile(r"[^\w .:\[\]-]")


@dataclass(frozen=True, slots=True)
class Fences:
    """Fences of one run: equal texts get equal ones, so that a request made again is the same."""

    key: bytes = field(repr=False)
    """Secret of the run, stored with it."""

    @classmethod
    def with_new_key(cls) -> Self:
        """Return fences of a key that nobody has seen."""
        return cls(new_key())

    def around(self, text: object, label: str = "text") -> str:
        """Return the text between two lines with a code that only the key's holder can make.

        Marks of a fence in the text become quotation marks, so that it neither closes its fence
        nor seems to; so do the brackets of tags that a teacher's reply is read from, and of tokens
        that end a turn.
        """
        body = without_marks(str(text))
        label = _NO_LABEL.sub("_", label)
        # Of the label and the text: a code that was once seen is of no use around another text.
        code_of = hmac.digest(self.key, f"{label}\n{body}".encode("utf-8", "replace"), "sha256")
        code = code_of[:CODE_BYTES].hex()
        return f"<<<{label} {code}\n{body}\n{code}>>>"


CODE = rf"[0-9a-f]{{{2 * CODE_BYTES}}}"
"""Pattern of a code."""


def new_key() -> bytes:
    """Return a secret for the fences of a new run."""
    return secrets.token_bytes(32)


def without_marks(text: str) -> str:
    """Replace the brackets of fence marks, reply tags and chat tokens by as many other marks."""
    return _MARK.sub(lambda mark: mark[0].translate(_QUOTED), text)
