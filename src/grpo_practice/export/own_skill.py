"""The skill with which a coding agent uses this program, as specified at agentskills.io."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import check_free, write_files
from grpo_practice.reports.base import Report

NAME = "grpo-practice"
"""Name of the skill, which its folder must have, too."""


@dataclass(frozen=True, slots=True, repr=False)
class WrittenSkill(Report):
    """Files of the skill that were written to a folder."""

    schema: ClassVar = "grpo-practice.skill/1"

    files: Sequence[Path]

    @property
    @override
    def next_command(self) -> str | None:
        """Command that writes the skill where most agents look; None if it is in such a folder."""
        if self.files[0].absolute().match(".*/skills/*/SKILL.md"):
            return None
        return f"grpo-practice skill -o .agents/skills/{NAME}"


def write_skill(folder: Path, *, force: bool) -> WrittenSkill:
    """Write the skill to a folder, which may already contain the same text.

    Raises:
        ConfigError: The folder has another name than the skill; it contains another `SKILL.md` and
            `force` is not set; or it cannot be written.
    """
    if folder.absolute().name != NAME:
        raise ConfigError(
            f"{folder}: the folder of this skill must be called {NAME}",
            hint=f"grpo-practice skill -o {quote(str(folder / NAME))}",
        )
    text = Path(__file__).with_name("SKILL.md").read_text("utf-8")
    path = folder / "SKILL.md"
    if not (force or (path.is_file() and path.read_bytes() == text.encode())):
        check_free(path)
    write_files(folder, {path.name: text}, force=True)
    return WrittenSkill([path])
