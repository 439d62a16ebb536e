"""Libraries to compare a learnt one with: as many experiences, as long, learnt from nothing.

`direct` is what the teacher writes from the objectives alone, in one request; `filler` says nothing
about the task. A learnt library that is better than both helps by more than its length, and by more
than the teacher knew before.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from grpo_practice.calls import Reply
from grpo_practice.errors import ReplyError
from grpo_practice.practice.lint import why_not
from grpo_practice.practice.replies import read_operations
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.prompts import DIRECT, FOLDER, Prompt, load_prompt, load_prompts
from grpo_practice.prompts.system import experience_lines
from grpo_practice.text import count
from grpo_practice.types import Experience, Library

AS_LONG = 0.1
"""Share by which a library written directly may be shorter or longer than the learnt one."""
FILLER_AS_LONG = 0.05
"""Share by which a filler may be longer than the learnt library, unless a notice says so."""
FIRST = -1
"""Number of the first attempt to have a library written; another one has other seeds."""
SEVERAL = 170
"""Bytes of an experience from which more than two of the packaged sentences stand in it."""


def size(library: Library) -> int:
    """Return the length of a library's lines: UTF-8 bytes, which follow tokens in any script."""
    return len(experience_lines(library).encode())


async def write_directly(
    teacher: Teacher, like: Library, at: GroupKey, attempt: int = FIRST
) -> Library:
    """Return as many experiences as `like` has, as long in all, written from the objectives alone.

    Raises:
        ReplyError: The teacher does not write so many, or so long ones.
        EndpointError: There was no reply.
    """
    chars = len(experience_lines(like))
    words = round(len(experience_lines(like).split()) / len(like)) - 1  # without the label
    slots = {"limit": len(like), "words": words, "length": f"{chars:,}"}
    return await teacher.ask(
        teacher.open(at, "direct", None, attempt),
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
        raise ReplyError(
            f"it has {count(len(texts), 'experience')}{why}, and {len(like)} are asked for"
        )
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
    sentences = _sentences()
    used, made, left = Counter[int](), dict[tuple[int, ...], str](), 0
    ways: list[tuple[int, ...]] = [(i,) for i in range(len(sentences))]
    ways += permutations(range(len(sentences)), 2)
    names = [len(sentence.partition(": ")[0].encode()) for sentence in sentences]
    lengths = {way: len(_together([sentences[i] for i in way]).encode()) for way in ways}
    # As they stand after others: a space, and no name.
    later = {way: length - names[way[0]] - 1 for way, length in lengths.items()}
    for experience in like.experiences:
        # By what one is too short or too long, the next gets longer or shorter.
        left += len(experience.text.encode())
        way, more = tuple[int, ...](), left
        while more > SEVERAL:
            rare = min(range(len(sentences)), key=lambda i: (used[i], i))
            way, used[rare] = (*way, rare), used[rare] + 1
            more = left - len(_together([sentences[i] for i in way]).encode())
        # The one or two that fit best; of equal ones, those that stand elsewhere least often.
        taken = later if way else lengths
        best = min(abs(length - more) for w, length in taken.items() if (*way, *w) not in made)
        fitting = [w for w in ways if abs(taken[w] - more) == best and (*way, *w) not in made]
        last = min(fitting, key=lambda w: sum(used[i] for i in w))
        used.update(last)
        text = _together([sentences[i] for i in (*way, *last)])
        made[*way, *last] = text
        left -= len(text.encode())
    return _labelled(list(made.values()), like)


def _together(sentences: Sequence[str]) -> str:
    """Return sentences as one experience, under the name of the first."""
    first, *others = sentences
    return " ".join([first, *(other.partition(": ")[2] for other in others)])


def _sentences() -> list[str]:
    """Return the packaged sentences about other things, each with a name before it."""
    text = Path(__file__).with_name("filler.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
