"""Control libraries for a learnt library: equal in number and length, but without learnt content.

The teacher writes `direct` from the objectives alone, in one request; `filler` is unrelated to the
task. If a learnt library beats both, neither its length nor the teacher's prior knowledge explains
the gain.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.prompts.files import DIRECT, FOLDER, Prompt, load_prompt, load_prompts
from grpo_practice.core.prompts.system import experience_lines
from grpo_practice.core.text import count
from grpo_practice.core.types import Experience, Library
from grpo_practice.practice.lint import why_not
from grpo_practice.practice.replies import read_operations
from grpo_practice.practice.teacher import GroupKey, Teacher

AS_LONG = 0.1
"""Relative difference in length allowed between a directly written library and the learnt one."""
FILLER_AS_LONG = 0.05
"""Relative excess length of a filler over the learnt library above which a notice is shown."""
FIRST = -1
"""Number of the first attempt to write a library; each further attempt has different seeds."""
SEVERAL = 170
"""Length in bytes above which more than two packaged sentences fill an experience."""


def size(library: Library) -> int:
    """Return the length of a library's lines in UTF-8 bytes, which track tokens in any script."""
    return len(experience_lines(library).encode())


async def write_directly(
    teacher: Teacher, like: Library, at: GroupKey, attempt: int = FIRST
) -> Library:
    """Request a library of the size and length of `like`, written from the objectives alone.

    Raises:
        ReplyError: The teacher did not write enough experiences, or not at the right length.
        EndpointError: The endpoint did not reply.
    """
    chars = len(experience_lines(like))
    # The label at the start of each line does not count as a word.
    words = round(len(experience_lines(like).split()) / len(like)) - 1
    values = {"limit": len(like), "words": words, "length": f"{chars:,}"}
    return await teacher.ask(
        teacher.open(at, "direct", None, attempt),
        teacher.render("direct", **values),
        lambda reply: _read(reply, like),
    )


def direct_prompts() -> dict[str, Prompt]:
    """Return the prompts that `write_directly` uses."""
    return {"direct": load_prompt(FOLDER / "direct.md", DIRECT), "reask": load_prompts()["reask"]}


def _read(reply: Reply, like: Library) -> Library:
    """Return the experiences of a reply; if there are too many, those whose length fits best.

    Raises:
        ReplyError: The experiences are too few, too short or too long.
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
    """Return selections of n texts, from shortest to longest, each in the original order."""
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i].encode()))
    return [
        [texts[i] for i in sorted(by_length[start : start + n])]
        for start in range(len(texts) - n + 1)
    ]


def _labelled(texts: Sequence[str], like: Library) -> Library:
    """Return the texts under the labels of `like`, so that the labels have the same length too."""
    pairs = zip(like.experiences, texts, strict=True)
    return Library(tuple(Experience(e.label, text) for e, text in pairs), like.next_label)


def filler(like: Library) -> Library:
    """Return a library of the size and length of `like`, about unrelated subjects.

    The result is deterministic: the same library gives the same filler.
    """
    # Each sentence is preceded by a name.
    lines = Path(__file__).with_name("filler.txt").read_text("utf-8").splitlines()
    sentences = [line for line in lines if line and not line.startswith("#")]
    used, made, left = Counter[int](), dict[tuple[int, ...], str](), 0
    ways: list[tuple[int, ...]] = [(i,) for i in range(len(sentences))]
    ways += permutations(range(len(sentences)), 2)
    names = [len(sentence.partition(": ")[0].encode()) for sentence in sentences]
    lengths = {way: len(_together([sentences[i] for i in way]).encode()) for way in ways}
    # Length in a later position, where a space is added and the name is dropped.
    later = {way: length - names[way[0]] - 1 for way, length in lengths.items()}
    for experience in like.experiences:
        # Carry the difference over, so that the next experience becomes longer or shorter to
        # balance it.
        left += len(experience.text.encode())
        way, more = tuple[int, ...](), left
        while more > SEVERAL:
            rare = min(range(len(sentences)), key=lambda i: (used[i], i))
            way, used[rare] = (*way, rare), used[rare] + 1
            more = left - len(_together([sentences[i] for i in way]).encode())
        # Take the one or two sentences that fit best; among equals, those used least often so
        # far.
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
    """Join sentences into one experience under the name of the first sentence."""
    first, *others = sentences
    return " ".join([first, *(other.partition(": ")[2] for other in others)])
