"""Options that a response chooses: one option, or several if several are correct."""

import re
import string
import unicodedata
from collections.abc import Mapping
from typing import Any

from grpo_practice.core.text import strip_think
from grpo_practice.verify.answers import TAIL, last_box, last_line

_DRESS = " \t*_`\"'"
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Scripts that do not separate words by spaces, or join endings to words, as Korean does."""
LETTER = rf"[^\W{_UNSPACED}]"
"""A character that continues a word; a letter next to such a character is not an option by
itself.
"""
_WIDE = {0xFEE0 + code: code for code in range(0x21, 0x7F)} | {ord("。"): ".", ord("、"): ","}
"""Full-width characters → the ASCII characters in the patterns; ² and similar signs are kept."""
# Below, (?<!不) excludes 不选, which rejects an option.
_ANSWER = "answer|respuesta|resposta|risposta|réponse|antwort|ответ|答案|正解|正答|答え|정답|답"
_STATED = (
    rf"(?i:{_ANSWER}|option|choice|(?<!不)[选選])(?i:\s+(?:is|es|é|è|ist|est)\b|[是为為は은이项項])?"
    rf"[\"'>]{{0,3}}\s{{0,9}}[:=]?[\s*_`$\"'>(\[]{{0,20}}([A-Z])(?!{LETTER}|')"
)
_CHOSEN = r"\b(?i:is|be|choose|pick|select|es|é|è|ist|est)\s+[*_`$\"'(\[]*([A-Z])[\W_]*$"
_MARKED = r"\(([A-Z])\)|\*\*([A-Z])[.):]?\*\*|(?<!\S)([A-Z])[.):](?!\S)"
_ALONE = r"^[\s*_`(]*([A-Z])[\s*_`).]*$"
_IS = r"(?:\s+(?:is|are)|[是为為は은이])?\s*[:=]?"
_STATES = rf"(?:(?:{_ANSWER})s?|options?|choices?){_IS}"
_LIST = r"[A-Z]\b(?:\s*(?:[,;/&+、]|\band\b)\s*(?:and\s+)?[A-Z]\b)*|[A-Z]{2,}\b"
_SO = r"(?:(?:so|thus|hence|therefore)\b,?\s*)?"


def options_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return letter → text, in order; {} if the sample has no options."""
    match meta.get("options") or meta.get("choices"):
        case [*texts]:
            return {k: str(v) for k, v in zip(string.ascii_uppercase, texts, strict=False)}
        case {**named}:
            return {str(k).strip().upper(): str(v) for k, v in named.items()}
        case _:
            return {}


def _letter(text: str, options: Mapping[str, str]) -> str | None:
    """Return the option that equals the whole text: its letter, its text, or both."""
    bare = text.strip(_DRESS)
    if match := re.fullmatch(
        r"[(\[]?([A-Za-z])(?:[)\].:!?,]+(?:\s+(.+))?|\s+[-\u2013\u2014]\s+(.+))?", bare, re.DOTALL
    ):
        letter, rest = match[1].upper(), match[2] or match[3]
        if (not options or letter in options) and (
            rest is None or _same(rest, options.get(letter, ""))
        ):
            return letter
    return next((letter for letter, option in options.items() if _same(bare, option)), None)


def _same(text: str, option: str) -> bool:
    text, option = (folded(one.translate(_WIDE).rstrip("."), False) for one in (text, option))
    return text == option


def chosen_letter(response: str, options: Mapping[str, str]) -> str | None:
    """Return the last stated option: boxed, after "answer", marked, or alone on a line."""
    response = response.translate(_WIDE)
    box, line = last_box(response), last_line(response) or ""
    for text in (re.sub(r"^\\\w+\{(.*)\}$", r"\1", box or ""), line):
        if letter := _letter(text, options):
            return letter
    visible = strip_think(response) or ""
    places = ((_STATED, visible), (_ALONE, visible), (_MARKED, line), (_CHOSEN, line))
    for pattern, text in places:
        for match in reversed(list(re.finditer(pattern, text, re.MULTILINE))):
            letter = next(group for group in match.groups() if group)
            if not options or letter in options:
                return letter
    return None


def letters_of(gold: str, options: Mapping[str, str]) -> frozenset[str]:
    """Return the options that a gold answer names: one, or several in a text such as `A, C`."""
    letter = _letter(gold, options)
    return frozenset({letter}) if letter else _listed(gold, options, whole=True)


def chosen_letters(response: str, options: Mapping[str, str]) -> frozenset[str]:
    """Return the last stated options if several are allowed: boxed, labelled, or in a line."""
    response = response.translate(_WIDE)
    box, last = last_box(response), last_line(response) or ""
    if box and (found := letters_of(re.sub(r"\\[a-z]+", "", box).strip("{}"), options)):
        return found
    lines = (strip_think(response) or "")[-TAIL:].splitlines()
    # "The answer is C. Let me check option A": a statement labelled as answer takes precedence.
    for words in (f"(?:{_ANSWER})s?", r"options?|choices?|(?<!不)[选選]"):
        for place in range(len(lines) - 1, -1, -1):
            if match := re.search(rf"(?:{words}){_IS}", lines[place], re.IGNORECASE):
                stated = re.sub(_STATES, " ", lines[place][match.end() :], flags=re.IGNORECASE)
                below = [] if stated.strip(_DRESS) else lines[place + 1 :]
                if found := _first_list(stated, options) or _marked("\n".join(below), options):
                    return found
    several = _listed(re.sub(f"^{_SO}", "", last, flags=re.IGNORECASE), options)
    if len(several) > 1:
        return several
    if len(found := _marked(last, options)) > 1:
        return found
    letter = chosen_letter(response, options)
    return frozenset({letter} if letter else ())


def _first_list(text: str, options: Mapping[str, str]) -> frozenset[str]:
    """Return the options at the start of a line: `A, C`, or each with its text, `A) x, C) y`."""
    listed = _listed(text, options)
    marked = _marked(text, options) if listed else listed
    return marked if len(marked) > len(listed) else listed


def _listed(text: str, options: Mapping[str, str], *, whole: bool = False) -> frozenset[str]:
    """Return the options in a list of letters that starts the text or, if `whole`, is all of it."""
    bare = re.sub(r"\\[a-z]+|[*_`$(){}\[\]\\\"']", "", text).strip()
    match = re.match(_LIST, bare)
    if match is None or (whole and bare[match.end() :].strip(" .")):
        return frozenset()
    letters = re.findall(r"\b[A-Z]\b", match[0]) or [*match[0]]
    known = options or string.ascii_uppercase[:10]
    # A word such as BAD is not a list: adjacent letters are options only in alphabetical order.
    fits = len({*letters}) == len(letters) and all(letter in known for letter in letters)
    fits = fits and (len(match[0]) > len(letters) or letters == sorted(letters))
    return frozenset(letters if fits else ())


def _marked(text: str, options: Mapping[str, str]) -> frozenset[str]:
    """Return the options that are marked in the text: `(A)`, `A.` or `**A**`."""
    found = ("".join(groups) for groups in re.findall(_MARKED, text))
    return frozenset(letter for letter in found if not options or letter in options)


def folded(text: str, case_sensitive: bool) -> str:
    """Normalise spaces and composed accents, and fold case unless it matters."""
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    return text if case_sensitive else text.casefold()
