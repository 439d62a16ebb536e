"""Options of a multiple-choice row: read them from a dataset, and format them for the agent."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from typing_extensions import override

from grpo_practice.data.answers import is_scalar
from grpo_practice.data.cells import from_cell

MOST = len(ascii_uppercase)
"""Maximum number of options, one per letter."""
_CODE = re.compile(r"[A-Za-z]|\d{1,2}")
"""Pattern for object keys that are the letter or number of an option."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one row; letters are assigned by position."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """The row's own labels for the options, such as `1` to `4`; empty if it has no labels."""
    numbers: bool = False
    """Whether the row's options are numbers; a numeric answer may then be the text of an option."""

    @property
    def letters(self) -> str:
        """Letters of the options, in order."""
        return ascii_uppercase[: len(self.texts)]

    @override
    def __str__(self) -> str:
        """Format the options as the agent reads them, one per line."""
        pairs = zip(self.letters, self.texts, strict=True)
        return "\n".join(f"{letter}. {text}" for letter, text in pairs)

    def stand_in(self, question: str) -> bool:
        """Return whether the question already lists every option after its letter."""
        return all(
            re.search(rf"(?<!\w){letter}\W{{1,4}}{re.escape(text.strip())}", question)
            for letter, text in zip(self.letters, self.texts, strict=True)
        )


def options_in(value: object) -> Options | None:
    """Parse options: a list of texts, one text per letter, or texts with labels.

    Return None for anything else.
    """
    match from_cell(value):
        case {"text": [*texts], "label": [*labels]} if len(texts) == len(labels):
            return _options(texts, labels)
        case {**named} if all(isinstance(key, str) and _CODE.fullmatch(key) for key in named):
            return _options(list(named.values()), list(named))
        case [{"text": _, "label": _}, *_] as pairs if all(
            isinstance(pair, dict) and {"text", "label"} <= pair.keys() for pair in pairs
        ):
            return _options([pair["text"] for pair in pairs], [pair["label"] for pair in pairs])
        case [*texts]:
            return _options(texts)
        case _:
            return None


def meant_as_options(value: object) -> bool:
    """Return whether the value looks like options, even with a gap or a wrong number of them."""
    match from_cell(value):
        case {"text": [*_], "label": [*_]}:
            return True
        case {**named}:
            return bool(named) and all(isinstance(k, str) and _CODE.fullmatch(k) for k in named)
        case [*texts]:
            return all(text is None or isinstance(text, str | int | float) for text in texts)
        case str() as text:  # an unparsable list, such as NumPy's: report it, do not ignore it
            return text.lstrip().startswith(("[", "{"))
        case _:
            return False


def options_of(fields: Mapping[str, Any], columns: Sequence[str]) -> Options | None:
    """Read options from columns that contain one option each."""
    return _options([fields.get(column) for column in columns])


def _options(values: Sequence[object], labels: Sequence[object] = ()) -> Options | None:
    texts = list(values)
    if labels:  # a parquet struct lists every label; a null or empty text means no such option
        kept = [n for n, text in enumerate(texts) if text is not None and text != ""]
        texts, labels = [texts[n] for n in kept], [labels[n] for n in kept]
    while texts and (texts[-1] is None or texts[-1] == ""):
        texts.pop()  # tables pad rows that have fewer options with empty cells
    if not 2 <= len(texts) <= MOST or not all(is_scalar(text) for text in texts):
        return None
    named = [str(label).strip() for label in labels[: len(texts)]]
    numbers = any(isinstance(text, int | float) for text in texts)
    return Options(tuple(_unlettered([str(text) for text in texts])), tuple(named), numbers)


def _unlettered(texts: list[str]) -> list[str]:
    """Strip the leading letter (`(A)4`, `B) 5`) if every text begins with its own letter."""
    found = [
        re.match(rf"\s*(?:\({letter}\)|{letter}\s?[).:])\s*(?=\S)", text)
        for letter, text in zip(ascii_uppercase, texts, strict=False)
    ]
    matches = [match for match in found if match]
    # All or none: a single match may be part of an option, such as the initial in `A. Smith`.
    if len(matches) < len(texts):
        return texts
    return [match.string[match.end() :] for match in matches]
