"""What a simulated student with tools says in one turn."""

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
    """What it says, calls, and thinks."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""
