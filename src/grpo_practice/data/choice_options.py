"""The options of a multiple-choice row: as datasets write them, and as an agent reads them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from typing_extensions import override

from grpo_practice.data.answers import is_scalar
from grpo_practice.data.cells import from_cell

MOST = len(ascii_uppercase)
"""Options that have a letter."""
_CODE = re.compile(r"[A-Za-z]|\d{1,2}")
"""Keys of an object that are letters or numbers of options."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one row; each is called by the letter of its place."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Names that the row itself has for them, such as `1` to `4`; () where it has none."""
    numbers: bool = False
    """Whether the row has them as numbers, so that a number may be one of them."""

    @property
    def letters(self) -> str:
        """Letters of the options, in order."""
        return ascii_uppercase[: len(self.texts)]

    @override
    def __str__(self) -> str:
        """Write them as the agent reads them, one a line."""
        pairs = zip(self.letters, self.texts, strict=True)
        return "\n".join(f"{letter}. {text}" for letter, text in pairs)

    def stand_in(self, question: str) -> bool:
        """Return whether the question has them already, each after its letter."""
        return all(
            re.search(rf"(?<!\w){letter}\W{{1,4}}{re.escape(text.strip())}", question)
            for letter, text in zip(self.letters, self.texts, strict=True)
        )


def options_in(value: object) -> Options | None:
    """Read options: a list of texts, a text for each letter, or texts and labels side by side.

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
    """Return whether it has the form of options, be they too many, too few or with a gap."""
    match from_cell(value):
        case {"text": [*_], "label": [*_]}:
            return True
        case {**named}:
            return bool(named) and all(isinstance(k, str) and _CODE.fullmatch(k) for k in named)
        case [*texts]:
            return all(text is None or isinstance(text, str | int | float) for text in texts)
        case str() as text:  # a list that cannot be read, such as NumPy's: refused, not left out
            return text.lstrip().startswith(("[", "{"))
        case _:
            return False


def options_of(fields: Mapping[str, Any], columns: Sequence[str]) -> Options | None:
    """Read the options of columns that hold one each."""
    return _options([fields.get(column) for column in columns])


def _options(values: Sequence[object], labels: Sequence[object] = ()) -> Options | None:
    texts = list(values)
    if labels:  # a struct of parquet has every label; what is null or empty there is no option
        kept = [n for n, text in enumerate(texts) if text is not None and text != ""]
        texts, labels = [texts[n] for n in kept], [labels[n] for n in kept]
    while texts and (texts[-1] is None or texts[-1] == ""):
        texts.pop()  # a table has as many columns as its longest row has options
    if not 2 <= len(texts) <= MOST or not all(is_scalar(text) for text in texts):
        return None
    named = [str(label).strip() for label in labels[: len(texts)]]
    numbers = any(isinstance(text, int | float) for text in texts)
    return Options(tuple(_unlettered([str(text) for text in texts])), tuple(named), numbers)


def _unlettered(texts: list[str]) -> list[str]:
    """Take the letter off each text, where all begin with their own: `(A)4`, `B) 5`."""
    found = [
        re.match(rf"\s*(?:\({letter}\)|{letter}\s?[).:])\s*(?=\S)", text)
        for letter, text in zip(ascii_uppercase, texts, strict=False)
    ]
    matches = [match for match in found if match]
    if len(matches) < len(texts):
        return texts
    return [match.string[match.end() :] for match in matches]
