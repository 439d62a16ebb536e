"""An attack: a hostile folder, and the commands that somebody types in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.contract.hostile.place import Place

Folder = Literal[
    "agent file", "config", ".env", "prompts", "database", "dataset", "verify file", "MCP server"
]
Commands = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Attack:
    """What a folder holds, and what is typed in it."""

    folder: Folder
    name: str
    build: Callable[[Place], None]
    commands: Commands
    own: bool = False
    """Whether the folder's own config is named: trusted like a Makefile, once it has said so."""
    told: tuple[str, ...] = ()
    """Variables that an own config names: each is announced with host, file and line."""

    @property
    def id(self) -> str:
        return f"{self.folder}: {self.name}"


RUNS_NOTHING = frozenset({"doctor", "show", "validate", "eval --dry-run", "practice --dry-run"})
"""Commands that run nothing, whatever is trusted."""
