"""One command writes a run, also where two have the database open in one process."""

import subprocess
import sys
from pathlib import Path

from grpo_practice.store.lock import RunLocks

TAKE = """
import sys
from pathlib import Path
from grpo_practice.store.lock import RunLocks
with RunLocks(Path(sys.argv[1])).hold(sys.argv[2]) as mine:
    print(mine)
"""


def another_process_gets(database: Path, run: str) -> bool:
    command = [sys.executable, "-c", TAKE, str(database), run]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_run_that_is_held_in_this_process_is_held(tmp_path: Path) -> None:
    one, other = RunLocks(tmp_path / "x.db"), RunLocks(tmp_path / "x.db")
    with one.hold("r") as mine:
        assert mine
        with other.hold("r") as twice, other.hold("s") as another:
            assert (twice, another) == (False, True)
        assert not another_process_gets(tmp_path / "x.db", "r"), "what was refused freed it"
    with other.hold("r") as mine:
        assert mine


def test_closing_one_database_frees_no_run_of_another_one_open_on_the_same_file(
    tmp_path: Path,
) -> None:
    one, other = RunLocks(tmp_path / "x.db"), RunLocks(tmp_path / "x.db")
    with one.hold("r"):
        with other.hold("s"):
            pass
        other.close()
        assert not another_process_gets(tmp_path / "x.db", "r")
    one.close()
    assert another_process_gets(tmp_path / "x.db", "r")
