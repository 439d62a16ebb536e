"""Distils one group: reads its attempts, compares them and proposes edits to the library.

Source: Training-Free GRPO (arXiv 2510.08191), "group advantage computation". Unlike the published
code, the comparison prompt contains the library, so that the teacher can name an experience that
misled the agent; and attempts that fit into one request are compared in full, without summaries.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from grpo_practice.core.calls import Chat, Message, Reply
from grpo_practice.core.errors import ContextOverflowError, StepError, unanswered
from grpo_practice.core.fences import without_marks
from grpo_practice.core.prompts.system import experience_lines
from grpo_practice.core.types import (
    Answer,
    Distilled,
    Group,
    Lesson,
    Library,
    Operation,
    Rollout,
    TeacherFailure,
)
from grpo_practice.practice.lint import GivesAway
from grpo_practice.practice.propose import propose
from grpo_practice.practice.reading import chars_in, chars_of, room_of, shortened
from grpo_practice.practice.replies import read_lessons, read_summary
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.practice.transcript import (
    Piece,
    Shortened,
    Transcript,
    how_it_ended,
    shorten,
    transcript_of,
)
from grpo_practice.rollout.groups.informative import group_advantages, status_of
from grpo_practice.rollout.play import task_group

T = TypeVar("T")
INSTRUCTIONS = 2_000
"""Length in characters to which the agent's instructions are shortened in a comparison."""


@dataclass(frozen=True, slots=True)
class Task:
    """A group to distil, its place in the run, and the inputs for the teacher."""

    teacher: Teacher
    group: Group
    library: Library
    """Library that the proposals edit."""
    shown: Callable[[int], Library]
    """Library as an attempt was shown it, by the attempt's number: of an earlier step for an early
    group, and without the experiences on trial that it left out.
    """
    at: GroupKey


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt as the comparison prompt shows it."""

    rollout: Rollout
    kind: Literal["summary", "attempt"]
    """Form of `text`: `attempt` means the transcript itself. The prompt also uses it as the label
    of the fence around the text.
    """
    text: Transcript
    cut: int = 0
    """Number of characters of the transcript that were cut before it was summarised."""


async def distil(
    teacher: Teacher,
    group: Group,
    library: Library,
    at: GroupKey,
    *,
    shown: Callable[[int], Library] | None = None,
    gives_away: GivesAway = lambda op: None,
) -> Distilled:
    """Distil an informative group into edits to `library`.

    `shown` returns the library that an attempt was shown, if it is not `library`. If a stage fails
    permanently, the group is marked as `failed`, with the reason, and the run continues. If a
    summary fails, only its own attempt is left out, provided that the remaining attempts still have
    different scores.
    """
    task = Task(teacher, group, library, shown or (lambda _: library), at)
    attempts, unread = await read_attempts(task)
    done = Distilled(group.slot, unread=tuple(_error_text(e) for e in unread))
    try:
        if unread and not _differ(task, attempts):
            raise unread[0]
        lessons, cuts = await compare(task, attempts)
        cut = sum(c > 0 for c in cuts)
        done = replace(done, lessons=lessons, shortened=cut, cut_chars=sum(cuts))
        done = replace(done, operations=confirmations(lessons))
        asked = await propose(teacher, group.sample, lessons, library, at, gives_away)
    except StepError as e:
        return replace(done, failed=_error_text(e), failed_kind=_kind(e), unanswered=unanswered(e))
    return replace(done, operations=(*done.operations, *asked))


def _error_text(error: StepError) -> str:
    return f"{type(error).__name__}: {error}"


def _kind(error: StepError) -> TeacherFailure:
    known: tuple[TeacherFailure, ...] = get_args(TeacherFailure)
    return next((kind for kind in known if kind == error.kind), "provider")


def _differ(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Return True if these attempts alone differ enough to be compared."""
    left = replace(task.group, rollouts=[attempt.rollout for attempt in attempts])
    return status_of(left, truth=task.teacher.truth) == "scored"


async def read_attempts(task: Task) -> tuple[list[Attempt], list[StepError]]:
    """Return the teachable attempts for the comparison and the errors of failed summaries.

    With `summaries: auto`, attempts are summarised only if their transcripts do not fit into one
    prompt.
    """
    whole = [Attempt(r, "attempt", transcript_of(r)) for r in task.group.teachable]
    # Decide only from stored data, so that a resumed run makes the same choice.
    if task.teacher.summaries == "never" or (
        task.teacher.summaries == "auto" and _fit(task, whole)
    ):
        return whole, []
    return await summarise_all(task)


def _fit(task: Task, attempts: Sequence[Attempt]) -> bool:
    """Return True if the full transcripts fit into one prompt, or if even summaries would not."""
    frame = _comparison(task, attempts, [""] * len(attempts))
    left = _left(task, frame, [a.text for a in attempts])
    return left <= 0 or sum(a.text.chars for a in attempts) <= left


def _left(task: Task, frame: Sequence[Message], texts: Sequence[Transcript]) -> int:
    """Return the number of characters of these texts that fit into a prompt alongside the frame."""
    said = [str(message["content"]) for message in frame]
    written = "".join([*said, *(without_marks(text.text) for text in texts)])
    return chars_in(task.teacher.room, written) - chars_of(frame)


async def summarise_all(task: Task) -> tuple[list[Attempt], list[StepError]]:
    """Summarise all teachable rollouts concurrently; wait for all, since each one is billed."""

    async def settled(rollout: Rollout) -> Attempt | StepError:
        try:
            return await summarise(task, rollout)
        except StepError as e:
            # Do not raise, because an error would cancel the other summaries, which are paid for.
            return e

    async with task_group() as tasks:
        asked = [tasks.create_task(settled(rollout)) for rollout in task.group.teachable]
    found = [one.result() for one in asked]
    return (
        [one for one in found if isinstance(one, Attempt)],
        [one for one in found if isinstance(one, StepError)],
    )


async def summarise(task: Task, rollout: Rollout) -> Attempt:
    """Request a summary of one attempt: each step, and which experiences helped or hurt.

    Raises:
        ReplyError: The model gave three empty or cut-off replies.
        EndpointError: The endpoint did not reply.
    """
    teacher, text = task.teacher, transcript_of(rollout)

    def write(shown: Sequence[str]) -> list[Message]:
        return teacher.render(
            "summarise",
            question=rollout.sample.question,
            answer=answer_text(rollout.sample.answer) if teacher.truth else None,
            critique=judgement(rollout) if teacher.truth else None,
            reward=f"{rollout.reward or 0.0:g}" if teacher.truth else None,
            experiences=experience_lines(task.shown(rollout.attempt)),
            transcript=shown[0],
            words=words_for(text.chars),
        )

    chat = teacher.open(task.at, "summarise", rollout.sample, rollout.attempt)
    summary, (cut,) = await _ask(task, chat, [text], write, read_summary, keep=True)
    return Attempt(rollout, "summary", Transcript((Piece("said", summary),)), cut)


def words_for(chars: int) -> int:
    """Return the word limit of a summary for a transcript of `chars` characters; 300 for 15,000."""
    return min(150 + round(chars, -3) // 100, 900)


async def compare(
    task: Task, attempts: Sequence[Attempt]
) -> tuple[tuple[Lesson, ...], tuple[int, ...]]:
    """Ask the teacher how the better and the worse attempts differ.

    The attempts are shown best first if the teacher may see the truth, and otherwise in attempt
    order.

    Returns:
        At most `limit` lessons, not counting confirmations; and for each transcript, the number of
        characters that were cut.

    Raises:
        ReplyError: No reply could be parsed.
        EndpointError: The endpoint did not reply.
    """
    teacher = task.teacher
    chat = teacher.open(task.at, "compare", task.group.sample)
    lessons, cuts = await _ask(
        task,
        chat,
        [attempt.text for attempt in attempts],
        lambda texts: _comparison(task, attempts, texts),
        lambda reply: read_lessons(
            reply, task.library, limit=teacher.limit, question=task.group.sample.question
        ),
    )
    return lessons, tuple(a.cut + cut for a, cut in zip(attempts, cuts, strict=True))


async def _ask(
    task: Task,
    chat: Chat,
    texts: Sequence[Transcript],
    write: Callable[[Sequence[str]], list[Message]],
    read: Callable[[Reply], T],
    *,
    keep: bool = False,
) -> tuple[T, list[int]]:
    """Send a request with texts shortened to fit; retry once if the prompt is still too long.

    The retry shortens the texts further. Returns the parsed reply and the number of characters cut
    from each text.
    """
    frame = write([""] * len(texts))

    def fitted(chars: int) -> tuple[list[Shortened], list[Message]]:
        fit = shortened(texts, chars)
        return fit, write([one.text for one in fit])

    left = _left(task, frame, texts)
    # If a long question alone fills the prompt, cutting the attempts would only hide them.
    fit, messages = fitted(left if left > 0 else sum(text.chars for text in texts))
    try:
        return await task.teacher.ask(chat, messages, read, keep=keep), [one.cut for one in fit]
    except ContextOverflowError as e:
        fit, less = fitted(_most(task, messages, e.limit) - chars_of(frame))
        # With nothing left to cut, the same request would fail again and cost money.
        if less == messages:
            raise
    return await task.teacher.ask(chat, less, read, keep=keep), [one.cut for one in fit]


def _most(task: Task, messages: Sequence[Message], limit: int | None) -> int:
    """Return the length to which to cut a prompt that overflowed a context of `limit` tokens."""
    chars, most = chars_of(messages), 0
    if limit is not None:
        text = "".join(str(message["content"]) for message in messages)
        most = chars_in(room_of(limit, task.teacher.reply), text)
    # Use half if the error does not give the limit, or gives one above this prompt's length.
    return most if 0 < most < chars else chars // 2


def _comparison(task: Task, attempts: Sequence[Attempt], texts: Sequence[str]) -> list[Message]:
    """Render the comparison prompt with these texts, which are in attempt order."""
    teacher, group = task.teacher, task.group
    shown: list[dict[str, object]] = [
        {
            "number": attempt.rollout.attempt + 1,
            "shown": _ids(task.shown(attempt.rollout.attempt), task.library),
            "kind": attempt.kind,
            "text": text,
            "summary": text,  # older prompts use this name
        }
        for attempt, text in zip(attempts, texts, strict=True)
    ]
    if teacher.truth:
        shown = _ranked(shown, [attempt.rollout for attempt in attempts])
    return teacher.render(
        "compare",
        question=group.sample.question,
        answer=answer_text(group.sample.answer) if teacher.truth else None,
        experiences=experience_lines(task.library),
        attempts=shown,
        truth=teacher.truth,
        limit=teacher.limit,
        instructions=shorten(teacher.instructions, INSTRUCTIONS).text,
    )


def _ids(shown: Library, now: Library) -> str:
    """Return the ids of the experiences that an attempt was shown, and which changed since."""
    ids = []
    for experience in shown.experiences:
        current = now.get(experience.id)
        since = " (reworded since)" if current else " (removed since)"
        ids.append(experience.id + ("" if current == experience else since))
    return ", ".join(ids) or "none"


def _ranked(
    attempts: Sequence[dict[str, object]], rollouts: Sequence[Rollout]
) -> list[dict[str, object]]:
    """Add reward, rank and judgement to the attempts and sort them by descending advantage.

    Attempts with equal advantage keep their order. The judgement is added only to full transcripts,
    because a summary already includes it.
    """
    worth = group_advantages(rollouts)
    order = sorted(range(len(worth)), key=lambda i: -worth[i])
    return [
        {
            **attempts[i],
            "reward": f"{rollouts[i].reward or 0.0:g}",
            "rank": 1 + sum(other > worth[i] for other in worth),
            "judgement": judgement(rollouts[i]) if attempts[i]["kind"] == "attempt" else None,
        }
        for i in order
    ]


def judgement(rollout: Rollout) -> str | None:
    """Explain the reward of an attempt if the verify function returned a critique.

    An attempt that was cut off before it answered never reached a verify function. The recorded
    reason is addressed to the user and may mention settings, so the teacher gets a different text.
    """
    if not rollout.played.answered:
        return f"There is no answer: {how_it_ended(rollout.played) or rollout.played.outcome}."
    return rollout.verdict.critique if rollout.verdict else None


def confirmations(lessons: Iterable[Lesson]) -> tuple[Operation, ...]:
    """Return a vote for each experience that a lesson confirms; this needs no request."""
    return tuple(
        Operation("NONE", lesson.experience, call_id=lesson.call_id, finding="confirmed")
        for lesson in lessons
        if lesson.finding == "confirmed"
    )


def answer_text(answer: Answer) -> str | None:
    """Return a gold answer as text for a person or a model; None if the sample has no answer."""
    if answer is None:
        return None
    if isinstance(answer, list):
        return " or ".join(str(a) for a in answer)
    return str(answer)
