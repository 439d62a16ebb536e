"""Kill a training with -9 at 20 instants, go on each time, and compare with one that was not.

Run by hand, where the extra is installed: python -m tests.train.kill
"""

# ruff: noqa: T201

import random
import sys
import tempfile
import time
from pathlib import Path

from tests.train.real import RealProject, end

KILLS = 20


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        unbroken = RealProject(Path(folder) / "unbroken")
        began = time.monotonic()
        code, said = unbroken.train()
        took = time.monotonic() - began
        if code:
            print(said)
            return 1
        chance, wrong = random.Random(0), 0
        for n in range(KILLS):
            project = RealProject(Path(folder) / str(n))
            kills, at = 0, []
            while True:
                process = project.begin()
                wait = took * chance.random()
                time.sleep(wait)
                if process.poll() is not None or kills == 3:
                    process.communicate()
                    break
                end(process)
                kills += 1
                at.append(f"{wait:.2f}")
            code, said = project.train()
            same = project.weights().get(7) == unbroken.weights()[7]
            whole = project.rows() == unbroken.rows()
            wrong += code != 0 or not same or not whole
            print(f"{n:2} | killed after {', '.join(at) or '-'} s | exit {code} |"
                  f" weights {'equal' if same else 'OTHER'} | rows {'equal' if whole else 'OTHER'}",
                  flush=True)  # fmt: skip
        print(f"{wrong} of {KILLS} came out otherwise")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
