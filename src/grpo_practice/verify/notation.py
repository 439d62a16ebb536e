r"""One notation for numbers and formulas in any spelling: `1\,000`, `25.`, `½`, `12 apples`.

The exact and the symbolic comparison both read the result, so they cannot disagree about it.
"""

import re
import unicodedata
from functools import lru_cache

LONGEST = 2_000
"""Maximum length in characters of an answer that is read as mathematics."""

_PLAIN = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+"
    r"|[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d{1,2}"  # decimal commas
)

_SIGNS = str.maketrans("\u2212\ufe63\uff0d\uff05\uff1d\uff0e", "---%=.")
_SYMBOLS = {
    "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "\u00d7": r"\times ", "·": r"\cdot ",
    "⋅": r"\cdot ", "÷": "/", "≤": r"\le ", "≥": r"\ge ", "\u222a": r"\cup ", "∩": r"\cap ",
    "∅": r"\emptyset ", "∈": r"\in ", "±": r"\pm ", "°": r"^\circ ", "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}",
    "²": "^{2}", "³": "^{3}", "⁴": "^{4}", "⁵": "^{5}", "\u00a0": " ", "\u2009": " ",
    "\u202f": " ", "\u200b": "",
}  # fmt: skip
_CIRCLED = {chr(ord("①") + n): rf"\textcircled{{{n + 1}}}" for n in range(20)}
_TRANSLATED = str.maketrans(_SYMBOLS | _CIRCLED)

_SPACED_THOUSANDS = re.compile(
    r"(?<![\d.,])[1-9]\d{0,2}(?:(?:\\[,;:! ]|\{,\}|,\\!|~| )\d{3})+(?![\d])"
)
_SEPARATOR = re.compile(r"\\[,;:! ]|\{,\}|,\\!|~| ")
_TEXT = r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|boldsymbol)"
_WRAPPED = re.compile(rf"{_TEXT}\s?\{{([^{{}}]*)\}}")
_UPRIGHT = re.compile(r"\\mathrm\s*(?:\{([dei])\}|([dei])(?![A-Za-z]))")
"""Constants and the differential set in upright type, as typesetters set them."""
_WITH_UNIT = re.compile(
    rf"({_NUMBER})(?:\s|\\[,;: ]|~)*"
    rf"(?:{_TEXT}\s?\{{([^{{}}]*)\}}|([A-Za-z][A-Za-z./ ]*[A-Za-z]))(?:\^\{{?[23]\}}?)?\.?"
)
_NOT_UNITS = re.compile(
    r"\b(?:percent|pct|and|or|to|mod|plus|minus|times|over|pi|sin|cos|tan|ln|log|sqrt|exp)\b",
    re.IGNORECASE,
)
_MULTIPLES = {
    "hundred": "10^{2}",
    "thousand": "10^{3}",
    "million": "10^{6}",
    "billion": "10^{9}",
    "trillion": "10^{12}",
    "dozen": "12",
}
_DELIMITERS = ((r"\(", r"\)"), (r"\[", r"\]"), ("$$", "$$"), ("$", "$"), ('"', '"'))


def ascii_digits(text: str) -> str:
    """Return the text with all Unicode decimal digits and minus signs replaced by ASCII."""
    if text.isascii():
        return text
    text = text.translate(_SIGNS)
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)


def notation(text: str) -> str:
    """Return the text in one LaTeX notation; its mathematical value stays the same."""
    if _PLAIN.fullmatch(text):
        return text
    # Do not cache long texts: a thousand of them would stay in memory.
    return _kept(text) if len(text) <= LONGEST else _written(text)


def _written(text: str) -> str:
    text = _bare(ascii_digits(text).translate(_TRANSLATED).replace("\n", " "))
    text = re.sub(r"\\varnothing\b", r"\\emptyset", text).replace("**", "^")
    text = _UPRIGHT.sub(lambda m: m[1] or m[2], text)
    text = re.sub(r"\bnp\.(?=(?:arc)?(?:sin|cos|tan|log|exp)\()", r"\\", text).replace("np.", "")
    text = re.sub(r"(?<=\d)\.(?=[-+*/^)])", "", text)  # the float `1.` in program output
    text = re.sub(r"(?<![A-Za-z\\])sqrt\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi ", text)
    text = _SPACED_THOUSANDS.sub(lambda m: _SEPARATOR.sub("", m[0]), text)
    text = re.sub(r"^([-+]?)(?:\\?\$|[€£¥₹])\s*(?=[-+.\d])", r"\1", text)
    text = re.sub(r"(?<=\d)\s*[€£¥₹]$", "", text)
    text = re.sub(r"(?<!\\)%", r"\\%", re.sub(r"(?<=\d)\s?(?:percent\b|pct\b|%)", r"\\%", text))
    if measured := _WITH_UNIT.fullmatch(text):
        text = _measured(text, measured[1], measured[2] or measured[3] or "")
    if wrapped := _WRAPPED.fullmatch(text):
        text = _bare(wrapped[1])
    return _number(text)


_kept = lru_cache(1_024)(_written)
"""A cache for gold answers, each of which is normalised again for every answer to its question."""


def _bare(text: str) -> str:
    """Strip delimiters, emphasis and final punctuation from a formula."""
    before = None
    while text != before:
        before = text
        text = text.lstrip(" \t\r\n*`").rstrip(" \t\r\n*`.,;:")
        for begin, end in _DELIMITERS:
            inner = text[len(begin) : -len(end)]
            if text == begin + inner + end and begin not in inner:
                text = inner
        if text.endswith("\\"):  # stripping cut a final `\,` or `\.` in half
            text = text[:-1]
    return text


def _measured(text: str, number: str, words: str) -> str:
    """Return the number without its unit, or multiplied by a word like million; else `text`."""
    first, *_ = [*words.lower().split(), ""]
    if first in _MULTIPLES:
        return rf"{number.replace(',', '')}\times {_MULTIPLES[first]}"
    return text if _NOT_UNITS.search(words) else number


def _number(text: str) -> str:
    """Remove thousands separators, plus and leading zeros from a plain number; keep other text."""
    if re.fullmatch(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    if whole := re.fullmatch(r"([-+]?)0*(\d+(?:\.\d+)?)", text):
        return whole[2] if whole[2] == "0" else whole[1].replace("+", "") + whole[2]
    if mixed := re.fullmatch(r"([-+]?\d{1,9})\s+(\d{1,9})/(\d{1,9})", text):
        return rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if power := re.fullmatch(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})", text):
        return rf"{power[1]}\times 10^{{{power[2].lstrip('+')}}}"
    return text
