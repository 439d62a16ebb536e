"""The built-ins that compare text: `exact`, `contains`, `choice`, `regex`."""

import re
import string
from collections.abc import Mapping
from typing import Any

from grpo_practice.text import strip_think
from grpo_practice.types import Sample, Verdict
from grpo_practice.verify.answers import gold_texts, last_box, last_line

_DRESS = " \t*_`\"'"
_STATED = r"(?i:answer|option|choice)(?i:\s+is)?\s*[:=]?[\s*_`$]*\(?([A-Z])\b(?![\w'])"
_MARKED = r"\(([A-Z])\)|\*\*([A-Z])[.):]?\*\*|(?<!\S)([A-Z])[.):](?!\S)"
_ALONE = r"^[\s*_`(]*([A-Z])[\s*_`).]*$"


def exact(sample: Sample, response: str, *, case_sensitive: bool = False) -> Verdict:
    """1.0 when the last box, else the last line, is the gold; case and spaces folded."""
    said = last_box(response) or last_line(response) or ""
    said = said.strip(_DRESS)
    for gold in gold_texts(sample.answer):
        for text in (said, said.rstrip(".")):
            if _folded(text, case_sensitive) == _folded(gold, case_sensitive):
                return Verdict(1.0, extracted=said)
    return _missed(sample, f"the answer was {said!r}" if said else "there was no answer", said)


def contains(sample: Sample, response: str, *, case_sensitive: bool = False) -> Verdict:
    """1.0 when the gold stands in the response as whole words (a gold of 4 is not in 42)."""
    visible = _folded(strip_think(response) or "", case_sensitive)
    for gold in gold_texts(sample.answer):
        wanted = _folded(gold, case_sensitive)
        before = r"(?<!\w)" if wanted[:1].isalnum() else ""
        after = r"(?!\w)" if wanted[-1:].isalnum() else ""
        if wanted and re.search(before + re.escape(wanted) + after, visible):
            return Verdict(1.0, extracted=gold)
    return _missed(sample, "it does not stand in the response")


def choice(sample: Sample, response: str) -> Verdict:
    """1.0 when the option stated last is the gold's.

    The options are the sample's `meta.options` or `meta.choices` (a list, or a mapping of letters
    to texts); without them any letter is one. The gold is a letter or an option's text.
    """
    options = _options(sample.meta)
    wanted = {_letter(gold, options) for gold in gold_texts(sample.answer)} - {None}
    said = _chosen(response, options)
    if said is not None and said in wanted:
        return Verdict(1.0, extracted=said)
    return _missed(sample, f"the answer was {said}" if said else "no option was chosen", said)


def regex(sample: Sample, response: str, *, pattern: str) -> Verdict:
    """1.0 when what the pattern's last match captures is the gold; case and spaces folded.

    The first group that took part is what is read, else the whole match.
    """
    said = None
    for match in re.finditer(pattern, strip_think(response) or ""):
        said = next((group for group in match.groups() if group is not None), match[0])
    if said is None:
        return _missed(sample, "the pattern does not match")
    if _folded(said, False) in [_folded(gold, False) for gold in gold_texts(sample.answer)]:
        return Verdict(1.0, extracted=said)
    return _missed(sample, f"the answer was {said!r}", said)


def unusable_choice(gold: str, meta: Mapping[str, Any]) -> str | None:
    """Why no answer could ever match this gold of a `choice`; None when one can."""
    options = _options(meta)
    if _letter(gold, options) is None:
        known = ", ".join(options) or "a letter"
        return f"it is neither {known} nor the text of an option"
    return None


def _options(meta: Mapping[str, Any]) -> dict[str, str]:
    """Letter → text, in order; {} when the sample has none."""
    match meta.get("options") or meta.get("choices"):
        case [*texts]:
            return {k: str(v) for k, v in zip(string.ascii_uppercase, texts, strict=False)}
        case {**named}:
            return {str(k).strip().upper(): str(v) for k, v in named.items()}
        case _:
            return {}


def _letter(text: str, options: Mapping[str, str]) -> str | None:
    """The option that the whole text is: its letter, its text, or the one before the other."""
    bare = text.strip(_DRESS)
    if match := re.fullmatch(r"\(?([A-Za-z])(?:[).:]+(?:\s+(.+))?)?", bare, re.DOTALL):
        letter, rest = match[1].upper(), match[2]
        if (not options or letter in options) and (
            rest is None or _same(rest, options.get(letter, ""))
        ):
            return letter
    return next((letter for letter, option in options.items() if _same(bare, option)), None)


def _same(text: str, option: str) -> bool:
    return _folded(text.rstrip("."), False) == _folded(option.rstrip("."), False)


def _chosen(response: str, options: Mapping[str, str]) -> str | None:
    """The option a response states last: boxed, after "answer", marked, or alone on a line."""
    box, line = last_box(response), last_line(response) or ""
    for text in (re.sub(r"^\\\w+\{(.*)\}$", r"\1", box or ""), line):
        if letter := _letter(text, options):
            return letter
    visible = strip_think(response) or ""
    for pattern, text in ((_STATED, visible), (_ALONE, visible), (_MARKED, line)):
        for match in reversed(list(re.finditer(pattern, text, re.MULTILINE))):
            letter = next(group for group in match.groups() if group)
            if not options or letter in options:
                return letter
    return None


def _folded(text: str, case_sensitive: bool) -> str:
    text = " ".join(text.split())
    return text if case_sensitive else text.casefold()


def _missed(sample: Sample, what: str, said: str | None = None) -> Verdict:
    return Verdict(0.0, f"expected {' or '.join(gold_texts(sample.answer))}; {what}", said or None)
