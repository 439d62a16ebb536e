"""Print the table: a row for each hostile folder and command, and before it each cell that fails.

`python -m tests.contract.hostile WORD…` takes the attacks with one of these words.
"""

# ruff: noqa: T201

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.contract.hostile.attacks import Attack
from tests.contract.hostile.matrix import ATTACKS, check, typed
from tests.contract.hostile.place import Outcome
from tests.contract.hostile.recorder import Recorder, recording


def main(words: list[str]) -> int:
    cells = defaultdict[tuple[str, str], list[tuple[Attack, Outcome, list[str]]]](list)
    good, evil = Recorder(), Recorder()
    with recording(good, evil):
        for attack in ATTACKS:
            if words and not any(word in attack.id for word in words):
                continue
            for name in attack.commands:
                start = time.monotonic()
                with tempfile.TemporaryDirectory() as folder:
                    outcome = typed(attack, name, Path(folder) / "p", good, evil)
                wrong = check(attack, name, outcome)
                cells[attack.folder, name].append((attack, outcome, wrong))
                if words or wrong:
                    mark = "FAIL" if wrong else "ok  "
                    took = time.monotonic() - start
                    end = f"exit {outcome.code} | {took:.1f} s | {'; '.join(wrong)}"
                    print(f"{mark} {attack.id} | {name} | {end}", flush=True)
                    if words:
                        print("     " + outcome.shown[-700:].replace("\n", "\n     "))
    _table(cells)
    return 0


def _table(cells: dict[tuple[str, str], list[tuple[Attack, Outcome, list[str]]]]) -> None:
    """Print for each cell: attacks, those that fail, secrets that left, programs that ran."""
    columns = list(dict.fromkeys(name for _, name in cells))
    print("\nfolder | command | attacks | wrong | secrets left | programs ran | secrets kept")
    for folder in dict.fromkeys(folder for folder, _ in cells):
        for name in columns:
            found = cells.get((folder, name))
            if found:
                left = sum(len(o.left) for _, o, _ in found)
                ran = sum(len(o.ran) for _, o, _ in found)
                kept = sum(len(o.kept) for _, o, _ in found)
                wrong = sum(bool(w) for *_, w in found)
                print(f"{folder} | {name} | {len(found)} | {wrong} | {left} | {ran} | {kept}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
