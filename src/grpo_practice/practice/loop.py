"""The loop: every step after the other, each with the library that the one before has made."""

from collections.abc import Sequence

from grpo_practice.practice.context import Practice
from grpo_practice.practice.step import PracticeStep
from grpo_practice.rollout import task_group
from grpo_practice.store import libraries
from grpo_practice.store.records import StepRow


async def practise(job: Practice, rows: Sequence[StepRow]) -> None:
    """Close every step of `rows`, in order; closed ones are only read.

    With `job.overlap`, the first groups of a step may be played while the one before is finished:
    nobody waits for its slowest rollouts then, and they do not know yet what it teaches. In a
    pilot, the first groups of the next step are played and distilled, and that is all.

    Raises:
        RunFailedError: Too many rollouts of a step failed, or no comparison of a pilot was of use.
        PausedError: No comparison of a step was of use.
        EndpointRefusedError: The endpoint refuses us.
    """
    store, library, before = job.store, job.branch.library, None
    ahead: PracticeStep | None = None
    async with task_group() as tasks:
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row.closed:
                before = store.read(libraries.load, row.library_in)
                library = store.read(libraries.load, row.library_out or library.id)
            else:
                # The one that has played early groups already, or they would be played again.
                step = ahead or PracticeStep(job, tasks, row, before)
                if job.pilot is not None:
                    await step.pilot(library, job.pilot)
                    return
                ahead = None
                if following is not None and job.policy.early(len(following.plan.slots)):
                    ahead = PracticeStep(job, tasks, following, library)
                made = await step.run(library, ahead=ahead)
                before, library = library, store.read(libraries.load, made)
            # Only here, after the step is closed: before, its library is no stored version.
            if job.pilot is None:
                await job.after_step(row.plan, library)
