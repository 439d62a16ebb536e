"""A small project against the simulated endpoint, through the same functions the commands call."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from grpo_practice.reports.run_reports import EvalReport, PracticeReport
from grpo_practice.run.evaluation_run import EvalJob, prepare_eval, run_eval
from grpo_practice.run.practice_run import PracticeJob, prepare_practice, run_practice
from grpo_practice.run.requests.runs import EvalRequest, PracticeRequest
from grpo_practice.run.session import Session
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from tests.contract.project import Project as ContractProject
from tests.contract.project import finished_by


@dataclass
class Project(ContractProject):
    """A project whose runs are jobs, made and run by the functions inside `Workspace`."""

    max_requests: int | None = None

    @override
    def fill(self) -> None:
        samples = questions(24, 0)
        with Store(self.db) as store:
            store.add_dataset("train", samples[:12], origin="sim", replace=False)
            store.add_dataset("test", samples[12:], origin="sim", replace=False)

    def session(self, store: Store) -> Session:
        return Session(store, self.events.append, "test")

    def practice_job(self, store: Store, *overrides: str, **request: Any) -> PracticeJob:
        given = {"config": self.config, "env": {}, "max_requests": self.max_requests, **request}
        return prepare_practice(self.session(store), PracticeRequest(sets=overrides, **given))

    def eval_job(self, store: Store, *overrides: str, **request: Any) -> EvalJob:
        given = {"config": self.config, "env": {}, "max_requests": self.max_requests, **request}
        return prepare_eval(self.session(store), EvalRequest(sets=overrides, **given))

    @override
    async def practise(self, *overrides: str, **request: Any) -> PracticeReport:
        """Practise under the project's config; `request` as `PracticeRequest` has it."""
        with Store(self.db) as store:
            return await run_practice(self.practice_job(store, *overrides, **request))

    @override
    async def evaluate(self, *overrides: str, **request: Any) -> EvalReport:
        """Evaluate under the project's config; `request` as `EvalRequest` has it."""
        with Store(self.db) as store:
            return await run_eval(self.eval_job(store, *overrides, **request))


finished = partial(finished_by, Project)


async def restarted(folder: Path) -> Project:
    """Return a run of four steps that was restarted at the third: its line has two segments."""
    if not _RESTARTED:
        project = await finished(folder)
        await project.practise(restart_step=2)
        _RESTARTED.append(project.db.read_bytes())
        project.events.clear()
        return project
    project = Project(folder)
    project.db.write_bytes(_RESTARTED[0])
    return project


_RESTARTED: list[bytes] = []
"""The database of the restarted run, once it was played in this process."""
