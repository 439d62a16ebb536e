"""A project whose experiences are measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, finished, questions

HELD = 30


class Measured(Project):
    """A project that has practised, with a dataset that is neither practised nor evaluated on."""

    name = "toy"
    """Library that is measured."""

    async def measure(self, **options: Any) -> Any:
        """Measure, by default on `held`; `options` as `Workspace.effects` has them."""
        given: dict[str, Any] = {"dataset": "held", "env": {}, "on_event": self.events.append}
        return await Workspace(self.db).effects_async(**(given | options))

    def upload(self, name: str, first: int, end: int, *more: dict[str, Any]) -> None:
        rows = [*questions(end)[first:], *more]
        Workspace(self.db).datasets.upload(name, rows, if_exists="replace")

    async def library(self, n: int) -> str:
        """Store a library of so many experiences; return its name."""
        file, exp_id = self.folder / f"{n}.yaml", f"rules{n}"
        file.write_text(json.dumps([f"Rule {i}: say {i}." for i in range(1, n + 1)]))
        with pytest.raises(Exception, match="spent so far"):
            await self.practise(f"exp_id={exp_id}", start=str(file), max_requests=0)
        ((library,),) = self.query("SELECT library_id FROM branches WHERE run_id = ?", exp_id)
        return f"L{library}"

    @property
    def effect(self) -> str:
        ((name,),) = self.query("SELECT run_id FROM runs WHERE purpose = 'effect'")
        return str(name)


async def measurable(folder: Path) -> Measured:
    """Return a project that has practised, and has measured nothing yet."""
    project = Measured((await finished(folder)).folder)
    project.upload("held", 24, 24 + HELD)
    return project
