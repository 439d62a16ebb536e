"""The simulated teacher as an author: it writes experiences without seeing any attempts."""

import re

from grpo_practice.sim.experience_texts import text
from grpo_practice.sim.questions import LABEL_TOPICS, TOPICS
from grpo_practice.sim.reply_formats import written
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.world import EffectKind, World, unit

_ASKED = re.compile(r"Write (\d+) experiences? of about \d+ words each[^:]*: ([\d,]+) characters")
_MORE = " and look at it again"
_LABEL = len("[E1] ")


def write_directly(asked: SimRequest, world: World) -> str:
    """Write the requested number of experiences; `luck` is the share of good ideas among them."""
    found = _ASKED.search(asked.frame)
    n, length = (int(found[1]), int(found[2].replace(",", ""))) if found else (1, 0)
    texts = [_idea(asked, world, i) for i in range(n)]
    # Pad with a harmless phrase: the arm is only played if its length is close to the request.
    missing = (length - sum(len(text) + _LABEL for text in texts)) // len(_MORE)
    for i in range(max(missing, 0)):
        # Insert before the marker, which must stay at the end.
        sentence, marker = texts[i % n].rsplit(". (", 1)
        texts[i % n] = f"{sentence}{_MORE}. ({marker}"
    entries = [{"op": "ADD", "text": text} for text in texts]
    return written("operations", entries, "This is what I would tell it.", asked, world)


def _idea(asked: SimRequest, world: World, nth: int) -> str:
    """Return the nth experience to write, on a new topic until all topics are used."""
    topics = list(LABEL_TOPICS if world.task == "labels" else TOPICS)
    draw = unit(world.seed, "direct", asked.sha, nth)
    luck, harm = world.teacher.luck, world.teacher.harm
    kind: EffectKind = "null" if draw >= luck + harm * (1 - luck) else "harm"
    kind = "help" if draw < luck else kind
    return text(world, world.key(topics[nth % len(topics)], kind, nth // len(topics)))
