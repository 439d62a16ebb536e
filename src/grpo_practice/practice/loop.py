"""The main loop: runs the steps in order, each with the library that the previous step produced."""

from collections.abc import Sequence

from grpo_practice.practice.context import Practice
from grpo_practice.practice.step import PracticeStep
from grpo_practice.rollout.play import task_group
from grpo_practice.store import libraries
from grpo_practice.store.records import StepRow


async def practise(job: Practice, rows: Sequence[StepRow]) -> None:
    """Close every step in `rows`, in order; closed steps are only read.

    With `job.overlap`, the first groups of a step may be played while the previous step is being
    finished. No step then waits for the slowest rollouts, but these early groups are played without
    the previous step's lessons. A pilot plays and distils the first groups of the next step and
    ends there.

    Raises:
        RunFailedError: Too many rollouts of a step failed, or no comparison of a pilot was useful.
        PausedError: All comparisons of a step were useless.
        EndpointRefusedError: The endpoint rejected our requests.
    """
    store, library, before = job.store, job.branch.library, None
    ahead: PracticeStep | None = None
    async with task_group() as tasks:
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row.closed:
                # Only an open step asks for the library before the last one.
                if following is not None and not following.closed:
                    before = store.read(libraries.load, row.library_in)
                library = store.read(libraries.load, row.library_out or library.id)
            else:
                # Reuse the step that has played early groups, or these would be played again.
                step = ahead or PracticeStep(job, tasks, row, before)
                if job.pilot is not None:
                    await step.pilot(library, job.pilot)
                    return
                ahead = None
                if following is not None and job.early(len(following.plan.slots)):
                    ahead = PracticeStep(job, tasks, following, library)
                made = await step.run(library, ahead=ahead)
                before, library = library, store.read(libraries.load, made)
            # Do this only once the step is closed, because its library has no stored version until
            # then.
            if job.pilot is None:
                await job.after_step(row.plan, library)
