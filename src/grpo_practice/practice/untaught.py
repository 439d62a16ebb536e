"""Libraries to compare a learnt one with: as many experiences, as long, learnt from nothing.

`direct` is what the teacher writes from the objectives alone, in one request; `filler` says nothing
about the task. What a learnt library gains over these is more than length, and more than what the
teacher knew before.
"""

from collections.abc import Sequence
from pathlib import Path

from grpo_practice.calls import Reply
from grpo_practice.errors import ReplyError
from grpo_practice.practice.lint import why_not
from grpo_practice.practice.replies import read_operations
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.prompts import DIRECT, FOLDER, Prompt, load_prompt, load_prompts
from grpo_practice.prompts.system import experience_lines
from grpo_practice.types import Experience, Library

AS_LONG = 0.1
"""Share by which a library written directly may be shorter or longer than the learnt one."""

SEVERAL = 150
"""Bytes that are left of an experience for another sentence before the one that fits best."""
FEW = 20
"""Packaged sentences to choose from, at least."""


def size(library: Library) -> int:
    """Return the length of a library's lines: UTF-8 bytes, which follow tokens in any script."""
    return len(experience_lines(library).encode())


async def write_directly(teacher: Teacher, like: Library, at: GroupKey) -> Library:
    """Return as many experiences as `like` has, as long in all, written from the objectives alone.

    Raises:
        ReplyError: The teacher does not write so many, or so long ones.
        EndpointError: There was no reply.
    """
    chars = len(experience_lines(like))
    words = round(len(experience_lines(like).split()) / len(like)) - 1  # without the label
    slots = {"limit": len(like), "words": words, "length": f"{chars:,}"}
    return await teacher.ask(
        teacher.open(at, "direct", None),
        teacher.render("direct", **slots),
        lambda reply: _read(reply, like),
    )


def direct_prompts() -> dict[str, Prompt]:
    """Return the prompts of `write_directly`."""
    return {"direct": load_prompt(FOLDER / "direct.md", DIRECT), "reask": load_prompts()["reask"]}


def _read(reply: Reply, like: Library) -> Library:
    """Return the experiences of a reply; of more than there should be those that fit best.

    Raises:
        ReplyError: They are too few, too short or too long.
    """
    operations = read_operations(reply, Library(), limit=2 * len(like))
    texts = [
        op.text for op in operations if op.text and op.refused is None and not why_not(op.text)
    ]
    if len(texts) < len(like):
        refused = next((op.refused for op in operations if op.refused), None)
        why = f" ({refused})" if refused else ""
        raise ReplyError(f"it has {len(texts)} experiences{why}, and {len(like)} are asked for")
    wanted = size(like)
    found = min(
        (_labelled(part, like) for part in _parts(texts, len(like))),
        key=lambda library: abs(size(library) - wanted),
    )
    if abs(size(found) - wanted) > AS_LONG * wanted:
        percent = round(100 * (wanted / size(found) - 1))
        how = "longer" if percent > 0 else "shorter"
        raise ReplyError(
            f"its experiences should be {abs(percent)} % {how}: the same number of them, with"
            " longer or shorter sentences"
        )
    return found


def _parts(texts: Sequence[str], n: int) -> list[list[str]]:
    """Return selections of n texts, from the shortest to the longest; each in its order."""
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i].encode()))
    return [
        [texts[i] for i in sorted(by_length[start : start + n])]
        for start in range(len(texts) - n + 1)
    ]


def _labelled(texts: Sequence[str], like: Library) -> Library:
    """Return the texts under the labels of `like`, so that these are as long, too."""
    pairs = zip(like.experiences, texts, strict=True)
    return Library(tuple(Experience(e.label, text) for e, text in pairs), like.next_label)


def filler(like: Library) -> Library:
    """Return as many experiences as `like` has, as long in all, about other things.

    The same library makes the same filler.
    """
    unused, texts, left = list[str](), list[str](), 0
    for experience in like.experiences:
        # By what one is too short or too long, the next gets longer or shorter.
        left += len(experience.text.encode())
        text = ""
        while not text or left > 0:
            if len(unused) < FEW:
                unused += _sentences()
            longer = {s: _after(text, s) for s in unused if _after(text, s) not in texts}
            room = left + len(text.encode())
            fits = min(longer, key=lambda s: abs(len(longer[s].encode()) - room))
            # The first while there is room for several, then the one that fits best.
            chosen = fits if left < SEVERAL else next(iter(longer))
            by = len(longer[chosen].encode()) - len(text.encode())
            if text and abs(by - left) >= left:
                break
            unused.remove(chosen)
            text, left = longer[chosen], left - by
        texts.append(text)
    return _labelled(texts, like)


def _after(text: str, sentence: str) -> str:
    """Return an experience with one sentence more, whose name counts only where it is the first."""
    return f"{text} {sentence.partition(': ')[2]}" if text else sentence


def _sentences() -> list[str]:
    """Return the packaged sentences about other things, each with a name before it."""
    text = Path(__file__).with_name("filler.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
