"""The stage that turns a group's lessons into edits to the library."""

from collections.abc import Sequence
from dataclasses import replace

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ContentFilterError, ContextOverflowError, ReplyError
from grpo_practice.core.prompts.system import experience_lines
from grpo_practice.core.text import brief
from grpo_practice.core.types import Lesson, Library, Operation, Sample
from grpo_practice.practice.lint import GivesAway
from grpo_practice.practice.replies import PROPOSED, read_operations
from grpo_practice.practice.reply_form import PIECE_CHARS
from grpo_practice.practice.teacher import GroupKey, Teacher


async def propose(
    teacher: Teacher,
    sample: Sample,
    lessons: Sequence[Lesson],
    library: Library,
    at: GroupKey,
    gives_away: GivesAway = lambda op: None,
) -> tuple[Operation, ...]:
    """Ask which edits the lessons call for; send no request if all lessons are confirmations.

    If an edit reveals an answer, the request is repeated once. If no later reply is usable, the
    first reply is used.

    Raises:
        ReplyError: No reply could be parsed.
        EndpointError: The endpoint did not reply.
    """
    lessons = [lesson for lesson in lessons if lesson.finding != "confirmed"]
    if not lessons:
        return ()
    messages = teacher.render(
        "propose",
        experiences=experience_lines(library),
        lessons=[_lesson_line(lesson) for lesson in lessons],
    )
    chat = teacher.open(at, "propose", sample)
    readable = list[tuple[Operation, ...]]()

    def read(reply: Reply) -> None:
        readable.append(read_operations(reply, library, limit=2 * len(lessons)))
        # The complaint reveals the answer, which the teacher must not see without `truth`.
        if len(readable) == 1 and teacher.truth:
            _refuse_answers(readable[0], gives_away)

    try:
        await teacher.ask(chat, messages, read)
    except (ReplyError, ContextOverflowError, ContentFilterError):  # a retry would fail too
        if not readable:
            raise
    return tuple(_with_finding(op, lessons, library) for op in readable[-1])


def _refuse_answers(operations: Sequence[Operation], gives_away: GivesAway) -> None:
    """Raise ReplyError for the first text that reveals an answer."""
    for n, op in enumerate(operations):
        if op.text and (why := gives_away(op)) and why.rule == "gives_answer_away":
            what = f"operations.{n}.text: {why.sentence}, in: {brief(op.text, PIECE_CHARS)}"
            raise PROPOSED.error(f"{what}; say it without the answer of this task")


def _with_finding(op: Operation, lessons: Sequence[Lesson], library: Library) -> Operation:
    """Add the lessons' finding on the operation's target, preferring the comparison's finding.

    An addition whose text is already in the library counts as a vote for that experience.
    """
    same = [e.id for e in library.experiences if op.op == "ADD" and e.text == op.text]
    if same:
        return Operation("NONE", same[0], call_id=op.call_id, finding="confirmed")
    about = [x.finding for x in lessons if x.experience == op.target and op.target]
    found = "misled" if "misled" in about else next(iter(about), None) or op.finding
    if op.op == "NONE" and found is not None and found != "confirmed":
        return replace(op, target=None)  # no change is requested, which confirms nothing
    if op.op == "DELETE":
        found = "misled"
    return replace(op, finding=found if op.target else None)


def _lesson_line(lesson: Lesson) -> str:
    """Format a lesson for the teacher, naming the experience it is about."""
    if lesson.experience is None:
        return lesson.text
    finding = f": {lesson.finding.replace('_', ' ')}" if lesson.finding else ""
    return f"{lesson.text} (about {lesson.experience}{finding})"
