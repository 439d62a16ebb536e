"""Multiple-choice answers: convert an option's letter, label, number or text to its letter."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Answer
from grpo_practice.data.cells import from_cell
from grpo_practice.data.choice_options import Options

GoldForm = Literal["letter", "index", "number", "text"]
"""Way in which an answer identifies its option: `index` counts from 0, `number` from 1."""
GOLD_FORMS: tuple[GoldForm, ...] = get_args(GoldForm)
Select = Literal["any", "all"]
"""Meaning of several correct options: any one of them suffices, or exactly this set is required."""
SELECTS: tuple[Select, ...] = get_args(Select)
Ask = Callable[[str], Select | None]
"""Callback that asks a person for the meaning; returns None if nobody can be asked."""

_GUESSED: frozenset[GoldForm] = frozenset({"letter", "index", "text"})
"""Forms that may be detected automatically; `number` is excluded, because a row does not show
whether its options are counted from 0 or from 1.
"""
_ASKED: frozenset[GoldForm] = frozenset({"number"})
"""Forms that only a person can choose."""
_LETTER = re.compile(r"\(?([A-Za-z])\)?(?:[.):]+(?:\s*(.+))?)?", re.DOTALL)
_SEVERAL = re.compile(r"\(?[A-Z]\)?(?:(?:\s*[,;/&、]\s*|\s+and\s+|)\(?[A-Z]\)?)+")
# pandas writes a column of integers with a gap as floats: 3.0.
_INTEGER = re.compile(r"\d{1,3}(?:\.0)?")
WORDS = {
    "letter": "option letters",
    "index": "option numbers from 0",
    "number": "option numbers from 1",
    "text": "option texts",
}
"""Description of each form, for messages."""


def nobody(_question: str) -> None:
    """Return None, for callers that have nobody to ask."""


class SeveralRightError(ConfigError):
    """An answer names several options, and their meaning was not specified."""


@dataclass(slots=True)
class GoldMapping:
    """Reads the multiple-choice answers of one file; unambiguous rows settle ambiguous ones."""

    gold: GoldForm | None = None
    """Form that the user chose."""
    select: Select | None = None
    open: frozenset[GoldForm] = field(init=False)
    """Forms that are consistent with all answers so far."""
    counted: int = 0
    """Number of answers matched to an option so far."""
    lowest: int = 99
    """Lowest option index seen among the answers."""

    def __post_init__(self) -> None:
        for option, value, known in (
            ("--gold", self.gold, GOLD_FORMS),
            ("--select", self.select, SELECTS),
        ):
            if value is not None and value not in known:
                raise ConfigError(f"{option} {value} is not one of {', '.join(known)}")
        self.open = frozenset({self.gold}) if self.gold else _GUESSED

    def read(self, answer: Answer, options: Options | None) -> Answer:
        """Return the letter of the answer, or the answer unchanged if the row has no options.

        Several correct options become a list for `any`, and one text such as `A, C` for `all`.

        Raises:
            DataError: The answer matches no option.
            ConfigError: The answer may mean two options, or names several and `select` is None.
        """
        if answer is None:
            return None
        listed = from_cell(answer)
        # The text of an option may look like a list: `[0, 1]` among intervals is one answer.
        whole = not isinstance(listed, list) or (
            options is not None and _folded(str(answer)) in map(_folded, options.texts)
        )
        values = [answer] if whole or not listed else listed
        # Several bare letters need --select even without options: nothing shows what they mean.
        if options is None:
            bare = [re.fullmatch(r"\(?([A-J])\)?\.?", str(value).strip()) for value in values]
            letters = [match[1] for match in bare if match]
            if len(values) < 2 or len(letters) < len(values):
                return answer
            return self._several(answer, letters, None)
        letters = [letter for value in values for letter in self._letters(value, options)]
        self.counted += 1
        if len(set(letters)) == 1:
            return letters[0]
        return self._several(answer, letters, options)

    def _several(self, answer: Answer, letters: list[str], options: Options | None) -> Answer:
        if self.select is None:
            raise SeveralRightError(
                f"an answer names several options: {str(answer)[:80]}",
                hint="if one of them is enough, add --select any; if exactly these are required,"
                " --select all (to `data upload` or `data download`)",
            )
        if self.select == "any" and options is None and isinstance(answer, list):
            return answer  # unchanged, so that the rows hash the same as in earlier uploads
        found = sorted(set(letters))
        return ", ".join(found) if self.select == "all" else list[object](found)

    def _letters(self, value: object, options: Options) -> list[str]:
        """Return the letter of the matching option; several letters for a text such as `ACD`."""
        text = str(value).strip()
        if not text or isinstance(value, list | dict):
            raise DataError("the answer is a list, but not all its elements are texts or numbers")
        if options.labels and self.gold in (None, "letter"):
            labels = [label.casefold() for label in options.labels]
            if text.casefold() in labels:
                return [options.letters[labels.index(text.casefold())]]
        forms = _forms(value, text, options, self.gold)
        fitting = {form: letter for form, letter in forms.items() if form in self.open}
        several = _SEVERAL.fullmatch(text) and re.findall("[A-Z]", text)
        if not fitting and several and {*several} <= {*options.letters}:
            return several
        if not fitting:
            raise self._none(text, options)
        if len({*fitting.values()}) > 1:
            # `number` is never guessed, but offer it wherever `index` is possible.
            may = {*fitting, *(_ASKED if self.lowest > 0 else ())}
            offered = [form for form in GOLD_FORMS if form in forms and form in may]
            *others, last = [
                f"--gold {form} ({WORDS[form]}: here {forms[form]})" for form in offered
            ]
            raise ConfigError(
                f"the answer {text[:80]!r} may mean option"
                f" {' or '.join(sorted({forms[form] for form in offered}))}",
                hint=f"choose how to read the answers: {', '.join(others)} or {last}",
            )
        self.open = frozenset(fitting)
        if "index" in fitting:
            self.lowest = min(self.lowest, int(float(text)))
        return [next(iter(fitting.values()))]

    def _none(self, text: str, options: Options) -> DataError:
        n = len(options.texts)
        read = " or ".join(WORDS[form] for form in sorted(self.open))
        hint = "to ignore a column that does not hold the options: --map meta.NAME=COLUMN"
        if text == str(n) and "index" in self.open:
            hint = "if the answers count from 1, add --gold number"
        elif self.open < _GUESSED and not self.gold:
            hint = f"earlier answers were {read}; --gold sets how all of them are read"
        return DataError(
            f"the answer {text[:80]!r} is none of the {n} options ({options.letters[0]} to"
            f" {options.letters[-1]}), read as {read}",
            hint=hint,
        )

    def note(self, column: str) -> str | None:
        """Describe how the answers were read; return None if there were no options."""
        what = []
        if self.counted and self.open != _GUESSED:
            forms = " or ".join(WORDS[form] for form in sorted(self.open))
            kept = "" if self.open == {"letter"} else ", stored as letters"
            what.append(f"the answers in {column!r} are {forms}{kept}")
        if self.gold is None and self.open == {"index"} and self.lowest > 0:
            what.append("none of them is 0: if they count from 1, add --gold number")
        if self.select:
            meaning = {"any": "one is enough", "all": "exactly these are required"}[self.select]
            what.append(f"if several options are right, {meaning}")
        return "; ".join(what) or None


def _forms(
    value: object, text: str, options: Options, gold: GoldForm | None
) -> dict[GoldForm, str]:
    """Return the letter that the value denotes in each form that it matches."""
    found: dict[GoldForm, str] = {}
    letters = options.letters
    if match := _LETTER.fullmatch(text):
        letter, rest = match[1].upper(), match[2]
        if letter in letters and (
            rest is None or _folded(rest) == _folded(options.texts[letters.index(letter)])
        ):
            found["letter"] = letter
    if _INTEGER.fullmatch(text) and not isinstance(value, bool):
        n = int(float(text))
        if n < len(letters):
            found["index"] = letters[n]
        if 1 <= n <= len(letters):
            found["number"] = letters[n - 1]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if options.numbers or not number or gold == "text":
        folded = _folded(text)
        same = (i for i, option in enumerate(options.texts) if _folded(option) == folded)
        if (place := next(same, None)) is not None:
            found["text"] = letters[place]
    return found


def _folded(text: str) -> str:
    return " ".join(text.split()).rstrip(".").casefold()
