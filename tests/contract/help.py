"""What the installed command's own help says: which commands there are, and what each takes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tests.contract.command import typed

_LISTED = re.compile(r"^  (\S+)  ", re.MULTILINE)
_OPTION = re.compile(r"^  (?:(-\w), )?(--[\w-]+)(?: (\S+))?(?:  .*)?$", re.MULTILINE)
_SHORT = re.compile(r"^  (-\w) ([A-Z]+)  ", re.MULTILINE)
_ARGUMENT = re.compile(r"(\[|\{)(.+?)[\]}](?=\.\.\.| )(\.\.\.)?")


@dataclass(frozen=True)
class Usage:
    """What one command takes."""

    least: int
    most: int | None
    """Arguments; None: any number."""
    options: Mapping[str, str]
    """Name → what stands for its value in the help; '' for a flag."""

    def refusal(self, words: Sequence[str]) -> str | None:
        """Return why these words cannot follow the command; None if they can."""
        left, given = list(words), 0
        while left:
            name, equals, value = left.pop(0).partition("=")
            if name == "-" or not name.startswith("-"):
                given += 1
            elif name not in self.options:
                return f"no option {name}"
            elif shape := self.options[name]:
                if not equals and not left:
                    return f"{name} has no value"
                value = value if equals else left.pop(0)
                if shape.startswith("<") and value not in shape.strip("<>").split("|"):
                    return f"{name} cannot be {value}"
                if shape == "N" and not value.isdigit():
                    return f"{name} is a number, not {value}"
            elif equals:
                return f"{name} takes no value"
        if "--help" in words:
            return None
        enough = given >= self.least and (self.most is None or given <= self.most)
        return None if enough else f"{given} arguments, not {self.least} to {self.most or 'any'}"


@cache
def listed(*group: str) -> tuple[str, ...]:
    """Return the names that the help of a group lists; none for a command."""
    shown = typed(*group, "--help").out
    return tuple(_LISTED.findall(shown.partition("\nCommands:\n")[2]))


@cache
def usage(*command: str) -> Usage:
    """Read the help of a command."""
    shown = typed(*command, "--help").out
    first = f"{shown.splitlines()[0]} "
    found = list(_ARGUMENT.finditer(first.partition("[OPTIONS]")[2]))
    most = None if any(a[3] for a in found) else len(found)
    options = dict[str, str]()
    for short, long, value in _OPTION.findall(shown):
        options |= {name: value for name in (short, long) if name}
    options |= dict(_SHORT.findall(shown))
    return Usage(sum(a[1] == "{" for a in found), most, options)


def commands(*group: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below a group."""
    for name in listed(*group):
        if listed(*group, name):
            yield from commands(*group, name)
        else:
            yield (*group, name)


def is_command(words: Sequence[str]) -> bool:
    """Return whether the words begin with a command that exists."""
    return any(command == tuple(words[: len(command)]) for command in commands())


def refusal(words: Sequence[str]) -> str | None:
    """Return why `grpo-practice WORDS…` cannot be typed; None if it can."""
    command, left = tuple[str, ...](), list(words)
    while left and left[0] in ("--debug", "--version"):
        left.pop(0)
    while names := listed(*command):
        if not left or left[0] in ("-h", "--help"):
            return None
        if left[0] not in names:
            return f"no command {left[0]}"
        command = (*command, left.pop(0))
    return usage(*command).refusal(left)
