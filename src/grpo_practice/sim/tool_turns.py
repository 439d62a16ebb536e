"""One turn of a simulated student with tools."""

from dataclasses import dataclass

PYTHON, SEARCH, READ = "execute_python_code", "search", "web_qa"
"""The tools it knows."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function it calls, with its arguments in JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """Speech, calls and thoughts of one turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
