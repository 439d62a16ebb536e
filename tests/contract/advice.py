"""The commands that a text tells a person to type, and whether they can be typed as they stand."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tests.contract.help import refusal

_COMMAND = re.compile(
    r"`(grpo-practice [^`\n]+)`"
    r"|(?:(?<=next: )|(?<=hint: )|(?<=: )|\b(?:or|then|and) )(grpo-practice [^`\n]+)"
)
_ENDS = re.compile(r"; |, then |, or | \(|,? and then |\.$|\",$")
_UNTYPED = re.compile(r"\[OPTIONS\]|\\udc|\\x[0-9a-f]{2}")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|[^'"]+|['"]""")
_PLACEHOLDER = re.compile(r"[A-Z]{3,}|[A-Z]|…|\.\.\.")


def commands_in(text: str) -> Iterator[str]:
    """Yield each command of this program that a text, or a JSON document, says to type."""
    with suppress(ValueError):
        text = "\n".join(f"next: {part}" for part in _strings(json.loads(text)))
    for found in _COMMAND.finditer(text):
        command = _before_end(found[1] or found[2])
        # Words of a test are no command line, and are not repeated; a name that no shell can
        # type is shown escaped.
        if not command.startswith("grpo-practice -") and not _UNTYPED.search(command):
            yield command


def _strings(value: Any) -> Iterator[str]:
    """Yield each text in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _before_end(text: str) -> str:
    """Return the command at the beginning of a sentence; quoted words are its own."""
    command, parts = "", (found[0] for found in _QUOTED.finditer(text))
    for part in parts:
        ends = None if part[0] in "'\"" else _ENDS.search(part)
        if ends:
            return (command + part[: ends.start()]).strip()
        command += part
    return command.strip()


def why_not(command: str) -> str | None:
    """Return why a command cannot be typed as it stands; None where it can."""
    words = shlex.split(command)[1:]
    if shape := next((word for word in words if _PLACEHOLDER.fullmatch(word)), None):
        return f"{shape} stands for something"
    return refusal(words)


def next_words(text: str, after: str = "next: ") -> list[str]:
    """Return the words after `grpo-practice` on the last line that says what to type."""
    line = next(x for x in reversed(text.splitlines()) if after in x)
    program, *words = shlex.split(line.partition(after)[2])
    assert program == "grpo-practice"
    return words
