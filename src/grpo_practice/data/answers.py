"""Answers: how to extract an answer from its column, and which values are valid."""

from collections.abc import Callable
from dataclasses import dataclass

from grpo_practice.core.errors import DataError
from grpo_practice.core.types import Answer


@dataclass(frozen=True, slots=True)
class Form:
    """Position of the answer within the text of its column."""

    name: str
    """Description that completes the sentence "the answer is …"."""
    read: Callable[[str], tuple[str, str] | None]
    """Parser that returns (answer, worked solution), or None if the text does not have this
    form.
    """


def _hashes(text: str) -> tuple[str, str] | None:
    solution, _, last = text.rstrip().rpartition("\n")
    value = last.strip().removeprefix("####")
    if value == last.strip() or not value.strip():
        return None
    return value.strip(), solution


def _boxed(text: str) -> tuple[str, str] | None:
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    value = _braced(text[start:].removeprefix("\\boxed").removeprefix("\\fbox")).strip()
    return (value, text) if value else None


def _braced(text: str) -> str:
    """Return the content of the first braces.

    TeX also allows an argument without braces; then return the text up to the next `$`. Return ''
    if the brace is never closed.
    """
    if not text.lstrip().startswith("{"):
        return text.partition("$")[0]
    text = text.lstrip()
    depth, escaped = 0, False
    for i, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return text[1:i]
    return ""


AFTER_HASHES = Form("after '####' on the last line", _hashes)
IN_BOX = Form("in the last \\boxed{…}", _boxed)
PLAIN = Form("the whole text", lambda text: (text, ""))


def form_of(text: str, column: str) -> Form:
    """Detect the form of an answer: plain, GSM8K's, or MATH's (only in a column `solution`)."""
    if _hashes(text):
        return AFTER_HASHES
    if column.strip().casefold() == "solution" and _boxed(text):
        return IN_BOX
    return PLAIN


def gold(value: object) -> Answer:
    """Validate an answer: a scalar, a list of alternatives, or None if it is empty.

    Raises:
        DataError: The answer is an object, an empty list, or a list with non-scalar elements.
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value if value.strip() else None
        case list() if value and all(is_scalar(v) for v in value):
            return value
        case list():
            raise DataError("the answer is a list, but not all its elements are texts or numbers")
        case _:
            raise DataError("the answer is an object, not a text, a number, or a list of these")


def is_scalar(value: object) -> bool:
    """Return whether the value is a number, a Boolean or a non-blank string."""
    return isinstance(value, bool | int | float) or (isinstance(value, str) and value.strip() != "")


def read_as(form: Form, text: str, column: str) -> tuple[str, str]:
    """Extract the answer and the text around it; raise DataError if the text has another form."""
    found = form_of(text, column)
    read = form.read(text)
    if found is not form or read is None:
        raise DataError(f"the answer is {found.name}, but in the first row it is {form.name}")
    return read
