"""The stage that turns a group's lessons into edits of the library."""

from collections.abc import Sequence
from dataclasses import replace

from grpo_practice.calls import Reply
from grpo_practice.errors import ContentFilterError, ContextOverflowError, ReplyError
from grpo_practice.practice.lint import GivesAway
from grpo_practice.practice.replies import PROPOSED, read_operations
from grpo_practice.practice.reply_form import PIECE_CHARS
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.prompts.system import experience_lines
from grpo_practice.text import brief
from grpo_practice.types import Lesson, Library, Operation, Sample


async def propose(
    teacher: Teacher,
    sample: Sample,
    lessons: Sequence[Lesson],
    library: Library,
    at: GroupKey,
    gives_away: GivesAway = lambda op: None,
) -> tuple[Operation, ...]:
    """Ask which edits the lessons call for; make no call if they only confirm something.

    Edits that give an answer away are asked for once more. If no further reply can be used, the
    first one counts.

    Raises:
        ReplyError: No reply could be read.
        EndpointError: There was no reply.
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
        # Without `truth`, the teacher must not see the answer, which the complaint would tell.
        if len(readable) == 1 and teacher.truth:
            _refuse_answers(readable[0], gives_away)

    try:
        await teacher.ask(chat, messages, read)
    except (ReplyError, ContextOverflowError, ContentFilterError):  # they would come again
        if not readable:
            raise
    return tuple(_with_finding(op, lessons, library) for op in readable[-1])


def _refuse_answers(operations: Sequence[Operation], gives_away: GivesAway) -> None:
    """Raise ReplyError for the first text that gives an answer away."""
    for n, op in enumerate(operations):
        if op.text and (why := gives_away(op)) and why.rule == "gives_answer_away":
            what = f"operations.{n}.text: {why.sentence}, in: {brief(op.text, PIECE_CHARS)}"
            raise PROPOSED.error(f"{what}; say it without the answer of this task")


def _with_finding(op: Operation, lessons: Sequence[Lesson], library: Library) -> Operation:
    """Return the operation with what was found of its target; the comparison knows best.

    An addition of what the library says word for word is a vote for that.
    """
    same = [e.id for e in library.experiences if op.op == "ADD" and e.text == op.text]
    if same:
        return Operation("NONE", same[0], call_id=op.call_id, finding="confirmed")
    about = [x.finding for x in lessons if x.experience == op.target and op.target]
    found = "misled" if "misled" in about else next(iter(about), None) or op.finding
    if op.op == "NONE" and found is not None and found != "confirmed":
        return replace(op, target=None)  # nothing is to change; that confirms nothing
    if op.op == "DELETE":
        found = "misled"
    return replace(op, finding=found if op.target else None)


def _lesson_line(lesson: Lesson) -> str:
    """Return a lesson as the teacher is shown it: with the experience it is about."""
    if lesson.experience is None:
        return lesson.text
    finding = f": {lesson.finding.replace('_', ' ')}" if lesson.finding else ""
    return f"{lesson.text} (about {lesson.experience}{finding})"
