"""The simulated teacher, first half: reports attempts and compares them.

It knows nothing but what it is shown. A lesson is as good as the number of better and worse
attempts whose way of working can be seen in the prompt (`Teaching.p_help`), and it repeats the
method that the better ones really used. So a pipeline that drops the telling lines, the rewards
or the library on the way to the comparison learns less.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_practice.sim.lore import LORE, sentence
from grpo_practice.sim.questions import find
from grpo_practice.sim.request import Asked, labels
from grpo_practice.sim.world import World, topic_of, unit

_METHOD = re.compile(r"Method ([a-z]+-[0-9a-f]{2,}): [^.\n\\]+\.")
_FOLLOWED = re.compile(r"Followed (E\d+(?:, E\d+)*)\.")
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_REWARD = re.compile(r"reward:?\s+(\d[\d.eE+-]*)")
_LIMIT = re.compile(r"at most (\d+) lesson")


@dataclass(frozen=True, slots=True)
class Witness:
    """What the summary of one attempt tells."""

    reward: float | None
    method: str | None
    """The key of the method it used; None when the summary does not show it."""
    followed: frozenset[str]
    """Labels of the experiences it followed."""


def summarise(asked: Asked, world: World) -> str:
    """A report on the attempt shown: its telling lines, its answer, how it was judged."""
    attempt = "\n".join(asked.fenced("attempt")) or asked.asked
    methods = [m[0] for m in _METHOD.finditer(attempt)]
    followed, boxes = _FOLLOWED.findall(attempt), _BOX.findall(attempt)
    lines = ["The attempt read the task and took one decision."]
    lines += methods[-1:] or ["It does not show how it worked."]
    lines.append(f"Followed {followed[-1]}." if followed else "Followed none of the experiences.")
    lines.append(f"The answer it gave is {boxes[-1]}." if boxes else "It gave no answer.")
    for judgement in asked.fenced("judgement"):
        lines.append(f"It was judged: {' '.join(judgement.split())[:200]}")
    return "\n".join(lines)


def compare(asked: Asked, world: World) -> str:
    """Lessons from a group of attempts, as the JSON object asked for.

    An experience that only worse attempts followed is named as misleading; a method that sets the
    better attempts apart is suggested unless the library has good advice on the topic. With
    little to see, what is suggested is mostly a worse attempt's method or a platitude.
    """
    better, worse, quality = _sides(_witnesses(asked), world)
    topic = _topic(asked, better + worse)
    if topic is None:
        return _lessons("The attempts do not show what they are about.", [])
    library = labels("\n".join(asked.fenced("experiences")))
    key = _suggestion(topic, better, worse, quality, asked=asked, world=world)
    known = {world.item(k).kind for k in library.values() if topic_of(k) == topic}
    fresh = key if "help" not in known and key not in library.values() else None
    lessons: list[dict[str, str]] = []
    misleading = _misleading(library, better, worse)
    if misleading and unit(world.seed, "misled", asked.sha) < quality:
        remedy = fresh if fresh and world.item(fresh).kind == "help" else None
        lessons.append(_warning(topic, misleading, remedy, world))
        fresh = None if remedy else fresh
    if fresh:
        lessons.append({"lesson": sentence(world, fresh)})
    limit = _LIMIT.search(asked.frame)
    shown = f"{len(better)} better and {len(worse)} worse attempts show how they worked."
    return _lessons(shown, lessons[: int(limit[1]) if limit else 1])


def _lessons(thought: str, lessons: Sequence[dict[str, str]]) -> str:
    return f"{thought}\n\n{json.dumps({'lessons': list(lessons)}, ensure_ascii=False)}"


def _witnesses(asked: Asked) -> list[Witness]:
    found = []
    for fence in asked.fences:
        if fence.name == "summary":
            rewards = _REWARD.findall(fence.before)
            methods = _METHOD.findall(fence.body)
            followed = ", ".join(_FOLLOWED.findall(fence.body))
            found.append(
                Witness(
                    float(rewards[-1]) if rewards else None,
                    methods[-1] if methods else None,
                    frozenset(re.findall(r"E\d+", followed)),
                )
            )
    return found


def _sides(
    witnesses: Sequence[Witness], world: World
) -> tuple[list[Witness], list[Witness], float]:
    """The better and the worse attempts that show a method, and the lesson's chance to help.

    Without rewards the teacher tells good from bad by the method itself, and less surely.
    """
    rewards = [w.reward for w in witnesses if w.reward is not None]
    truth = bool(rewards)
    middle = sum(rewards) / len(rewards) if truth and min(rewards) < max(rewards) else 0.5

    def won(witness: Witness) -> bool:
        if witness.reward is None:
            return witness.method is not None and world.item(witness.method).kind == "help"
        return witness.reward > middle

    telling = [w for w in witnesses if w.method]
    better, worse = [w for w in telling if won(w)], [w for w in telling if not won(w)]
    return better, worse, world.teacher.p_help(len(better), len(worse), truth=truth)


def _topic(asked: Asked, witnesses: Sequence[Witness]) -> str | None:
    """What the task is about, by its text or else by the methods seen."""
    question = find("\n".join(asked.fenced("task")))
    if question:
        return question.topic
    return next((topic_of(w.method) for w in witnesses if w.method), None)


def _suggestion(
    topic: str,
    better: Sequence[Witness],
    worse: Sequence[Witness],
    quality: float,
    *,
    asked: Asked,
    world: World,
) -> str:
    """The key of what would be suggested: what the better attempts did, or worse."""
    draw = unit(world.seed, "lesson", asked.sha)
    second = int(unit(world.seed, "which", asked.sha) < 0.5)
    if draw < quality:
        return _usual(better) or world.key(topic, "help")
    if draw < quality + world.teacher.harm * (1 - quality):
        return _usual(worse) or world.key(topic, "harm", second)
    return world.key(topic, "null", second)


def _usual(witnesses: Sequence[Witness]) -> str | None:
    """The method used most, the first of equals; None when none is shown."""
    counts = Counter(w.method for w in witnesses)
    return counts.most_common(1)[0][0] if counts else None


def _misleading(
    library: dict[str, str], better: Sequence[Witness], worse: Sequence[Witness]
) -> str | None:
    """The label of an experience that worse attempts followed, and no better one did."""
    bad = frozenset[str]().union(*(w.followed for w in worse))
    good = frozenset[str]().union(*(w.followed for w in better))
    return next((label for label in library if label in bad - good), None)


def _warning(topic: str, label: str, remedy: str | None, world: World) -> dict[str, str]:
    if remedy:
        lesson = sentence(world, remedy, instead_of=label)
    else:
        lesson = f"When {LORE[topic].when}, do not follow {label}, which misled."
    return {"lesson": lesson, "experience": label, "problem": "misled"}
