"""The simulated teacher, first half: it summarises attempts and compares them.

This half knows only its prompt: the task, the attempts with their rewards, and the words of the
library. The teacher recognises the truth with a probability that grows with the number of better
and worse attempts whose method is visible (`Teaching.p_help`), and then recommends the method
that the better attempts really used. A pipeline that loses the relevant lines, the rewards or the
library before the comparison therefore learns less.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from grpo_practice.sim import teacher_prompts
from grpo_practice.sim.experience_texts import (
    NULL,
    about,
    advice,
    told,
    truism,
    without_warning,
    wording_of,
)
from grpo_practice.sim.questions import LORE, find
from grpo_practice.sim.reply_formats import Entry, written
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.teacher_prompts import REPORT, Witness
from grpo_practice.sim.world import EffectKind, World, topic_of, unit

Way = tuple[str, str]
"""A way of working: its key, and the words that describe it."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Attempts with a visible method, as the teacher sees them."""

    better: Sequence[Witness]
    worse: Sequence[Witness]
    quality: float
    """Probability of recognising the difference between the sides."""

    @property
    def misleading(self) -> frozenset[str]:
        """Labels of the experiences that worse attempts followed, and no better attempt did."""
        bad = frozenset[str]().union(*(w.followed for w in self.worse))
        return bad - frozenset[str]().union(*(w.followed for w in self.better))

    def reversed(self) -> "Sides":
        """Return the same attempts with better and worse swapped."""
        return Sides(self.worse, self.better, self.quality)


def summarise(asked: SimRequest, world: World) -> str:
    """Report on the attempt in the prompt: its method, its answer, and its judgement."""
    attempt = teacher_prompts.witness(None, "\n".join(asked.fenced("attempt")))
    followed = ", ".join(sorted(attempt.followed, key=lambda label: int(label[1:])))
    lines = [REPORT]
    shows = f"Method {attempt.method}: {attempt.do}."
    lines.append(shows if attempt.method else "It does not show how it worked.")
    lines.append(f"Followed {followed}." if followed else "Followed none of the experiences.")
    answer = attempt.answer
    lines.append(f"The answer it gave is {answer}." if answer else "It gave no answer.")
    for judgement in asked.fenced("judgement"):
        lines.append(f"It was judged: {' '.join(judgement.split())[:200]}")
    return "\n".join(lines)


def compare(asked: SimRequest, world: World) -> str:
    """Write lessons from a group of attempts, in the requested format.

    A lesson confirms an experience of the library with the same content. A lesson names an
    experience as misleading if the experience is about the same situation but differs, or if only
    worse attempts followed it. With little evidence, the conclusion is mostly a platitude or the
    opposite of the truth.
    """
    sides = _sides(teacher_prompts.witnesses(asked), world)
    question = find("\n".join(asked.fenced("task")))
    seen = (topic_of(w.method) for w in (*sides.better, *sides.worse) if w.method)
    topic = question.topic if question else next(seen, None)
    if topic is None:
        return written("lessons", [], "The attempts do not show what they are about.", asked, world)
    shown = (
        f"{len(sides.better)} better and {len(sides.worse)} worse attempts show how they worked."
    )
    if topic in world.biased or unit(world.seed, "noise", asked.sha) < world.teacher.noise:
        sides = sides.reversed()
    way, sides = _conclusion(topic, sides, asked, world)
    lessons = list(_lessons(topic, way, sides, asked, world))
    for n, lesson in enumerate(lessons):
        if world.happens(world.teacher.adds, "adds", asked.sha, n):
            lessons[n] = _without_target(lesson)
    given = list(filter(None, lessons))[: teacher_prompts.limit(asked)]
    return written("lessons", [*_truisms(asked, world), *given], shown, asked, world)


def _truisms(asked: SimRequest, world: World) -> list[Entry]:
    """Return the truism that the comparison begins with, if any."""
    if not world.happens(world.teacher.truism, "truism", asked.sha):
        return []
    return [{"lesson": truism(int(unit(world.seed, "which truism", asked.sha) * len(NULL)))}]


def _without_target(lesson: Entry) -> Entry:
    """Return a lesson that names no experience; empty if it has nothing else to say."""
    text = str(lesson["lesson"])
    return {"lesson": without_warning(text)} if teacher_prompts.key_of(text) else {}


def _sides(witnesses: Sequence[Witness], world: World) -> Sides:
    """Split attempts with a visible method into better and worse; rate how clear the difference is.

    Without rewards, the most frequent answer is assumed to be right, with less certainty.
    """
    telling = [w for w in witnesses if w.method]
    rewards = [w.reward for w in witnesses if w.reward is not None]
    if rewards:
        # Equal rewards have no middle; 0.5 separates all right from all wrong.
        middle = sum(rewards) / len(rewards) if min(rewards) < max(rewards) else 0.5
        won = [w.reward is not None and w.reward > middle for w in telling]
    else:
        answers = [w.answer or w.method for w in telling]
        usual = Counter(answers).most_common(1)[0][0] if answers else None
        won = [answer == usual for answer in answers]
    better = [w for w, right in zip(telling, won, strict=True) if right]
    worse = [w for w, right in zip(telling, won, strict=True) if not right]
    quality = world.teacher.p_help(len(better), len(worse), truth=bool(rewards))
    return Sides(better, worse, quality)


def _conclusion(topic: str, sides: Sides, asked: SimRequest, world: World) -> tuple[Way, Sides]:
    """Return the method that the teacher considers better, and the sides as it then sees them."""
    draw = unit(world.seed, "lesson", asked.sha)
    second = int(unit(world.seed, "which", asked.sha) < 0.5)
    if draw < sides.quality:
        return _usual(sides.better) or _idea(topic, "help", 0, world), sides
    if draw < sides.quality + world.teacher.harm * (1 - sides.quality):
        return _usual(sides.worse) or _idea(topic, "harm", second, world), sides.reversed()
    return _idea(topic, "null", second, world), sides


def _idea(topic: str, kind: EffectKind, nth: int, world: World) -> Way:
    """Return a method that no attempt used, with an effect of this kind."""
    key = world.key(topic, kind, nth)
    return key, advice(world, key).do


def _usual(witnesses: Sequence[Witness]) -> Way | None:
    """Return the most frequent method, the first one on ties; None if no method is visible."""
    counts = Counter((w.method, w.do) for w in witnesses if w.method)
    return counts.most_common(1)[0][0] if counts else None


def _lessons(topic: str, way: Way, sides: Sides, asked: SimRequest, world: World) -> list[Entry]:
    """Return the lessons implied by the conclusion and the library, the most important first."""
    library = teacher_prompts.library(asked)
    key, do = way
    say = partial(told, key, do, wording=wording_of(world, asked.sha))
    there = [label for label, text in library.items() if about(text) == topic]
    accused = next((label for label in there if label in sides.misleading), None)
    seen = accused if unit(world.seed, "misled", asked.sha) < sides.quality else None
    # Compare keys, not words, because a lesson that words the same method differently confirms the
    # experience.
    same = next((label for label in library if teacher_prompts.key_of(library[label]) == key), None)
    if same is not None:
        confirmed: Entry = {"lesson": say(), "experience": same, "problem": "confirmed"}
        return [confirmed, *_warning(topic, seen if seen != same else None)]
    if do in [advice.do for advice in NULL]:  # a platitude is not evidence against an experience
        fresh: list[Entry] = [] if there else [{"lesson": say()}]
        return [*_warning(topic, seen), *fresh]
    accused = accused or next(iter(there), None)
    if accused is None:
        return [{"lesson": say()}]
    return [{"lesson": say(instead_of=accused), "experience": accused, "problem": "misled"}]


def _warning(topic: str, label: str | None) -> list[Entry]:
    """Return a lesson against an experience, for use if there is no better advice to give."""
    if label is None:
        return []
    lesson = f"When {LORE[topic].when}, do not follow {label}, which misled."
    return [{"lesson": lesson, "experience": label, "problem": "misled"}]
