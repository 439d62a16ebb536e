r"""Texts that are the same but for how they are set: `b > a` and `b>a`, `\text{No}` and `no`.

Texts that no computer algebra reads are compared in this way, and in no other: math-verify often
keeps a piece of such a text alone.
"""

import re
import unicodedata

_SCRIPTS = {
    "_": str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789"),
    "^": str.maketrans("⁰¹⁴⁵⁶⁷⁸⁹", "01456789"),
}
_SET_ALIKE = (
    (r"\\(?:left|right|big|Big|displaystyle|limits)(?![A-Za-z])|\$|\\[,;:!]|~", " "),
    (r"\\(?:text|textbf|textit|textrm|mbox)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\(?:mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}", r"\1"),
    (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\(le|ge|ne)(?:qslant|q)(?![A-Za-z])", r"\\\1"),
    (r"\\(?:mid|vert|lvert|rvert)(?![A-Za-z])", "|"),
    (r"\\(?:varnothing|oslash)(?![A-Za-z])", r"\\emptyset"),
    # Only where it ends: `x^{1}2` is not `x^12`.
    (r"([\^_])\{(-?\d+)\}(?!\d)", r"\1\2"),
    (r"([\^_])\{(-?[^\W_]+)\}(?!\w)", r"\1\2"),
    (r"(\\[A-Za-z]+)\s+(?![A-Za-z\s])", r"\1"),
    (r"\s+(?=[^\w\s]|_)", ""),
    # Before three digits a space may tell two numbers from one: `(1, 500)` and `(1,500)`.
    (r"(?<=[^\w\s])\s+(?!\d{3}(?!\d))", ""),
    (r"\s+", " "),
)
"""Patterns of what says nothing, and what stands in their place, one after the other."""
_PATTERNS = [(re.compile(pattern), by) for pattern, by in _SET_ALIKE]
_CLOCK = re.compile(r"(?<=\d)\s*([ap])\.?\s?m\b\.?", re.IGNORECASE)
_HALF = re.compile(r"\d(?:\\text\s?\{|[\s~]){0,9}([ap])\.?\s?m\b", re.IGNORECASE)
_LANGUAGE = re.compile(r"[^\W\d_]{3,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")


def as_text(notation: str) -> str:
    """Return what texts in the notation of `notation` have in common when they are the same.

    Case counts in formulas, where `E` is not `e`, and not in language.
    """
    text = unicodedata.normalize("NFKC", _spelled(notation))
    text = _CLOCK.sub(lambda m: f" {m[1].lower()}m", text)
    for pattern, by in _PATTERNS:
        text = pattern.sub(by, text)
    text = text.strip(" .,;:")
    return text.casefold() if _LANGUAGE.search(_COMMAND.sub(" ", text)) else text


def without_half(notation: str) -> str:
    """Return a time of day without its a.m. or p.m.; other text as it is."""
    return _CLOCK.sub("", notation)


def other_half(one: str, other: str) -> bool:
    """Return whether both are times of day, of different halves of it: 3 a.m. and 3 p.m."""
    halves = [{half.lower() for half in _HALF.findall(text)} for text in (one, other)]
    return all(halves) and not halves[0] & halves[1]


def _spelled(text: str) -> str:
    """Spell ₂ as `_{2}` and so on: compatibility alone would make digits of them."""
    if not text.isascii():
        for sign, digits in _SCRIPTS.items():
            run = "[" + "".join(map(chr, digits)) + "]+"
            text = re.sub(run, lambda m: f"{sign}{{{m[0].translate(digits)}}}", text)  # noqa: B023
    return text
