r"""Comparison of texts that differ only in typesetting: `b > a` and `b>a`, `\text{No}` and `no`.

Texts that computer algebra cannot read are compared only in this way: math-verify often keeps just
a part of such a text.
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
    # Match only at the end of a number: `x^{1}2` is not `x^12`.
    (r"([\^_])\{(-?\d+)\}(?!\d)", r"\1\2"),
    (r"([\^_])\{(-?[^\W_]+)\}(?!\w)", r"\1\2"),
    (r"(\\[A-Za-z]+)\s+(?![A-Za-z\s])", r"\1"),
    (r"\s+(?=[^\w\s]|_)", ""),
    # Before three digits, a space may separate two numbers: `(1, 500)` is not `(1,500)`.
    (r"(?<=[^\w\s])\s+(?!\d{3}(?!\d))", ""),
    (r"\s+", " "),
)
"""Patterns without meaning and their replacements, applied in order."""
_PATTERNS = [(re.compile(pattern), by) for pattern, by in _SET_ALIKE]
_CLOCK = re.compile(r"(?<=\d)\s*([ap])\.?\s?m\b\.?", re.IGNORECASE)
_HALF = re.compile(r"\d(?:\\text\s?\{|[\s~]){0,9}([ap])\.?\s?m\b", re.IGNORECASE)
_LANGUAGE = re.compile(r"[^\W\d_]{3,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")


def as_text(notation: str) -> str:
    """Return the canonical form of a text that is in the notation produced by `notation`.

    Equal texts have equal forms. Case is kept in formulas, where `E` is not `e`, and folded in
    prose.
    """
    text = unicodedata.normalize("NFKC", _spelled(notation))
    text = _CLOCK.sub(lambda m: f" {m[1].lower()}m", text)
    for pattern, by in _PATTERNS:
        text = pattern.sub(by, text)
    text = text.strip(" .,;:")
    return text.casefold() if _LANGUAGE.search(_COMMAND.sub(" ", text)) else text


def without_half(notation: str) -> str:
    """Return a time of day without a.m. or p.m.; other text is returned unchanged."""
    return _CLOCK.sub("", notation)


def other_half(one: str, other: str) -> bool:
    """Return whether two times of day are in different halves of the day: 3 a.m. and 3 p.m."""
    halves = [{half.lower() for half in _HALF.findall(text)} for text in (one, other)]
    return all(halves) and not halves[0] & halves[1]


def _spelled(text: str) -> str:
    """Replace ₂ by `_{2}` and so on; NFKC normalisation would turn ₂ into a plain digit."""
    if not text.isascii():
        for sign, digits in _SCRIPTS.items():
            run = "[" + "".join(map(chr, digits)) + "]+"
            text = re.sub(run, lambda m: f"{sign}{{{m[0].translate(digits)}}}", text)  # noqa: B023
    return text
