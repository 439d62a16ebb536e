"""A group's comparison: summarise each attempt, compare them, propose edits of the library.

Source: Training-Free GRPO (arXiv 2510.08191), "group advantage computation". Unlike the published
code, the comparison sees the library, so that it can say which experience misled.
"""

from collections.abc import Sequence

from grpo_practice.errors import StepError
from grpo_practice.metrics import advantages
from grpo_practice.practice.replies import read_lessons, read_operations, read_summary
from grpo_practice.practice.teacher import At, Teacher
from grpo_practice.practice.transcript import transcript_text
from grpo_practice.prompts.system import experience_lines
from grpo_practice.rollout import task_group
from grpo_practice.types import (
    Answer,
    Distilled,
    Group,
    Lesson,
    Library,
    Operation,
    Rollout,
    Sample,
)


async def distil(
    teacher: Teacher, group: Group, library: Library, at: At, *, shown: Library | None = None
) -> Distilled:
    """What an informative group teaches, as edits of `library`.

    `shown` is what its attempts were played with, where that is an earlier one. A stage that fails
    for good makes the group `failed`, with the reason; nothing else stops.
    """
    shown = library if shown is None else shown
    try:
        summaries = await summarise_all(teacher, group, shown, at)
        lessons = await compare(teacher, group, summaries, library, at, shown=shown)
        operations = await propose(teacher, group.sample, lessons, library, at)
    except StepError as e:
        return Distilled(group.slot, failed=f"{type(e).__name__}: {e}")
    return Distilled(group.slot, lessons, operations)


async def summarise_all(teacher: Teacher, group: Group, library: Library, at: At) -> list[str]:
    """A summary of each teachable rollout, in attempt order, asked for at once.

    Raises:
        StepError: One could not be had. The others were waited for: they are paid, and recorded.
    """

    async def settled(rollout: Rollout) -> str | StepError:
        try:
            return await summarise(teacher, rollout, library, at)
        except StepError as e:
            return e

    async with task_group() as tasks:
        asked = [tasks.create_task(settled(rollout)) for rollout in group.teachable]
    summaries = []
    for task in asked:
        found = task.result()
        if isinstance(found, StepError):
            raise found
        summaries.append(found)
    return summaries


async def summarise(teacher: Teacher, rollout: Rollout, library: Library, at: At) -> str:
    """What was done at each step of one attempt, and which experience helped or hurt there.

    Raises:
        ReplyError: The model said nothing, three times.
        EndpointError: There was no reply.
    """
    critique = rollout.verdict.critique if rollout.verdict else None
    messages = teacher.render(
        "summarise",
        question=rollout.sample.question,
        answer=answer_text(rollout.sample.answer) if teacher.truth else None,
        critique=critique if teacher.truth else None,
        experiences=experience_lines(library),
        transcript=transcript_text(rollout.played.transcript),
    )
    chat = teacher.open(at, "summarise", rollout.sample, rollout.attempt)
    return await teacher.ask(chat, messages, read_summary)


async def compare(
    teacher: Teacher,
    group: Group,
    summaries: Sequence[str],
    library: Library,
    at: At,
    *,
    shown: Library | None = None,
) -> tuple[Lesson, ...]:
    """What the better attempts did that the worse ones did not: at most `limit` lessons.

    Args:
        teacher: Prompts, objectives and the model.
        group: The group; its teachable rollouts are shown, best first where the truth may be.
        summaries: One per teachable rollout, in attempt order.
        library: The experiences there are.
        at: Where the call is made.
        shown: What all of the attempts were shown, where that is an earlier library.

    Raises:
        ReplyError: No reply could be read.
        EndpointError: There was no reply.
    """
    told = _told(library if shown is None else shown, library)
    attempts: list[dict[str, object]] = [
        {"number": rollout.attempt + 1, "shown": told, "summary": summary}
        for rollout, summary in zip(group.teachable, summaries, strict=True)
    ]
    if teacher.truth:
        attempts = _ranked(attempts, [rollout.reward or 0.0 for rollout in group.teachable])
    messages = teacher.render(
        "compare",
        question=group.sample.question,
        answer=answer_text(group.sample.answer) if teacher.truth else None,
        experiences=experience_lines(library),
        attempts=attempts,
        truth=teacher.truth,
        limit=teacher.limit,
    )
    chat = teacher.open(at, "compare", group.sample)
    return await teacher.ask(
        chat, messages, lambda r: read_lessons(r, library, limit=teacher.limit)
    )


def _told(shown: Library, library: Library) -> str:
    """What was shown, by id; what an id stands for may have changed since."""
    ids = []
    for experience in shown.experiences:
        now = library.get(experience.id)
        since = "" if now == experience else " (reworded since)" if now else " (removed since)"
        ids.append(experience.id + since)
    return ", ".join(ids) or "none"


def _ranked(
    attempts: Sequence[dict[str, object]], rewards: Sequence[float]
) -> list[dict[str, object]]:
    """The attempts with reward and rank, by falling advantage; equal ones keep their order."""
    found = advantages(rewards)
    order = sorted(range(len(found)), key=lambda i: -found[i])
    return [
        {**attempts[i], "reward": f"{rewards[i]:g}", "rank": 1 + sum(a > found[i] for a in found)}
        for i in order
    ]


async def propose(
    teacher: Teacher, sample: Sample, lessons: Sequence[Lesson], library: Library, at: At
) -> tuple[Operation, ...]:
    """The edits that the lessons ask of the library. No lesson, no call.

    Raises:
        ReplyError: No reply could be read.
        EndpointError: There was no reply.
    """
    if not lessons:
        return ()
    messages = teacher.render(
        "propose",
        experiences=experience_lines(library),
        lessons=[_lesson_line(lesson) for lesson in lessons],
    )
    chat = teacher.open(at, "propose", sample)
    limit = 2 * len(lessons)
    return await teacher.ask(chat, messages, lambda r: read_operations(r, library, limit=limit))


def _lesson_line(lesson: Lesson) -> str:
    """Return a lesson as the teacher is shown it: with the experience it is about."""
    if lesson.experience is None:
        return lesson.text
    return f"{lesson.text} (about {lesson.experience}: {lesson.finding})"


def answer_text(answer: Answer) -> str | None:
    """A gold answer for a person or a model; None when there is none."""
    if answer is None:
        return None
    if isinstance(answer, list):
        return " or ".join(str(a) for a in answer)
    return str(answer)
