"""Each attack given to each command, and what is wrong with what came of it."""

from pathlib import Path

from tests.hostile import agent_files, databases, dotenv
from tests.hostile.attacks import RUNS_NOTHING, Attack
from tests.hostile.place import Outcome, Place
from tests.hostile.recorder import Recorder

ATTACKS: list[Attack] = [*agent_files.ATTACKS, *dotenv.ATTACKS, *databases.ATTACKS]


def typed(attack: Attack, name: str, root: Path, good: Recorder, evil: Recorder) -> Outcome:
    """Type a command in a new copy of the attack's folder."""
    place = Place(root, good, evil)
    attack.build(place)
    return place.type(*attack.commands[name])


def check(attack: Attack, name: str, outcome: Outcome) -> list[str]:
    """Return what is wrong: what left, what ran, what was not announced; nothing at best."""
    wrong = []
    if outcome.left:
        wrong.append(f"left: {', '.join(outcome.left)}")
    if outcome.ran and (name in RUNS_NOTHING or not attack.own):
        wrong.append(f"ran: {', '.join(sorted(set(outcome.ran)))}")
    if outcome.kept:
        wrong.append(f"kept: {', '.join(outcome.kept)}")
    return wrong
