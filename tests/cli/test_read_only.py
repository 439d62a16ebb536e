"""A database that cannot be written, and one beside which nothing can be, can be read."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo_practice.core.types import Sample
from grpo_practice.store import Store
from tests.cli.conftest import Gp
from tests.contract.command import BOUND, Said, commands

COMMANDS = """
import contextlib, io, json, sys
from grpo_practice.main import run
said = []
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command.split())
    said.append([code, out.getvalue(), err.getvalue()])
json.dump(said, sys.stdout)
"""
READING = [
    "runs list --json",
    "runs show demo --json",
    "rollouts list demo --flipped --json",
    "rollouts show demo:0 --question 14 --json",
    "experiences list --json",
    "experiences show E1 --json",
    "export-agent --run demo",
    "export-data demo --format dpo",
    "runs export demo",
    "data list --json",
    "data show test --json",
    "db check --json",
    "practice --config practice.yaml --dry-run --json",
    "eval --arms none,full -k 4 --dry-run --json",
    "eval --config practice.yaml --dataset practice.jsonl --exp-id x --dry-run --json",
    "eval --run demo/eval --rejudge --verify exact --dry-run --json",
]
DB = "grpo-practice.db"


def without_rights(words: list[str], folder: Path) -> Said:
    """Run them where neither a file nor the folder may be written."""
    files = [folder, *folder.iterdir()]
    modes = [file.stat().st_mode for file in files]
    for file in files:
        file.chmod(file.stat().st_mode & 0o555)
    try:
        return commands(words, folder, *BOUND)
    finally:
        for file, mode in zip(files, modes, strict=True):
            file.chmod(mode)


def without_the_file(words: list[str], folder: Path) -> Said:
    """Run them where only the databases may not be written."""
    for file in folder.glob("*.db"):
        file.chmod(0o400)
    return commands(words, folder, *BOUND)


def mounted(words: list[str], folder: Path) -> Said:
    """Run them on a read-only file system, which no other process sees."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
    start = ["unshare", "-m", "sh", "-c", mount, str(folder)]
    if subprocess.run([*start, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    return commands(words, folder, *start)


ENDS = [without_rights, pytest.param(without_the_file, marks=pytest.mark.long), mounted]
"""The ways, of which one is between the others."""


@pytest.fixture
def folder(finished_demo: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished_demo, tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.long
@pytest.mark.parametrize("way", ENDS)
def test_what_only_reads_reads(
    folder: Path, demo: Gp, way: Callable[[list[str], Path], Said]
) -> None:
    words = [*READING, f"db backup {folder.parent / 'copy.db'}"]
    before = sorted(path.name for path in folder.iterdir())
    ran = [demo(*command.split()) for command in READING]
    plain = [[done.code, done.out, done.err] for done in ran]
    assert [code for code, *_ in plain] == [0] * len(READING)
    *said, copied = way(words, folder)
    assert said == plain
    assert copied[0] == 0, copied
    assert (folder.parent / "copy.db").read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.long
@pytest.mark.parametrize("way", ENDS)
def test_what_a_killed_process_left_is_read_too(
    folder: Path, way: Callable[[list[str], Path], Said]
) -> None:
    log, both = "log.db", "index.db"
    other = folder.parent / "other"
    other.mkdir()
    with Store(folder / DB) as store:
        store.add_dataset("late", [Sample("q", "1")], origin="x", replace=False)
        for name, left in ((log, ("-wal",)), (both, ("-wal", "-shm"))):
            for end in ("", *left):
                shutil.copy(folder / f"{DB}{end}", other / f"{name}{end}")
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    names = (log, both)
    said = way([f"{words} --db {n}" for n in names for words in ("data list", "db check")], other)
    for listed, checked in (said[:2], said[2:]):
        assert "late" in listed[1], listed
        assert checked[0] == 0, checked
    after = {path.name: path.read_bytes() for path in other.iterdir()}
    assert after.keys() == before.keys()
    assert all(
        after[f"{name}{end}"] == before[f"{name}{end}"] for name in names for end in ("", "-wal")
    )


@pytest.mark.long
@pytest.mark.parametrize("way", ENDS)
def test_what_writes_says_that_it_cannot(
    folder: Path, way: Callable[[list[str], Path], Said]
) -> None:
    before = (folder / DB).read_bytes()
    words = [
        "runs delete demo --yes",
        "data delete test --yes",
        "data upload test.jsonl --name again",
        "eval --config practice.yaml --set exp_id=x",
    ]
    for code, out, err in way(words, folder):
        assert (code, out) == (7, ""), err
        assert f"the database {DB} is read-only" in err
        assert "Traceback" not in err
    assert (folder / DB).read_bytes() == before
