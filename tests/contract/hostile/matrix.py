"""Each attack given to each command, and what is wrong with what came of it."""

from pathlib import Path

from tests.contract.hostile import agent_files, configs, data, databases, dotenv
from tests.contract.hostile.attacks import RUNS_NOTHING, Attack
from tests.contract.hostile.place import Outcome, Place
from tests.contract.hostile.recorder import Recorder

CODES = frozenset({0, 1, 2, 3, 4, 7})
"""Exit codes that say what was found; any other is a crash."""
ATTACKS: list[Attack] = [
    *agent_files.ATTACKS,
    *configs.ATTACKS,
    *dotenv.ATTACKS,
    *databases.ATTACKS,
    *data.ATTACKS,
]


def typed(attack: Attack, name: str, root: Path, good: Recorder, evil: Recorder) -> Outcome:
    """Type a command in a new copy of the attack's folder."""
    place = Place(root, good, evil)
    attack.build(place)
    return place.type(*attack.commands[name])


def check(attack: Attack, name: str, outcome: Outcome) -> list[str]:
    """Return what is wrong: what left, what ran, what was not announced; nothing at best."""
    wrong, left = [], outcome.left
    if attack.own:
        sent = set(left) & outcome.named.keys()
        silent = {v for v in sent if not outcome.announces(v, outcome.before)}
        left = [v for v in left if v not in sent or v in silent]
        if name in RUNS_NOTHING:
            silent = {v for v in attack.told if not outcome.announces(v, outcome.shown)}
            wrong += [f"does not say where {v} goes" for v in sorted(silent)]
    if left:
        wrong.append(f"left: {', '.join(left)}")
    if outcome.ran and (name in RUNS_NOTHING or not attack.own):
        wrong.append(f"ran: {', '.join(sorted(set(outcome.ran)))}")
    if outcome.kept and not attack.own:
        wrong.append(f"kept: {', '.join(outcome.kept)}")
    if outcome.code not in CODES:
        wrong.append(f"exit {outcome.code}")
    return wrong
