"""Folders whose names are not UTF-8, a database that is no file, numbers of twenty digits."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import folder_of, folder_text
from tests.cli.conftest import Gp

ODD = os.fsdecode(b"n\xff\xfe %41")
DIGITS = "9" * 20


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    try:
        (tmp_path / ODD).mkdir()
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    return tmp_path / ODD


@pytest.mark.long
def test_a_folder_whose_name_is_not_utf8_is_one_like_any_other(
    gp: Gp, odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(odd)
    ran = gp("demo", "--keep", ODD)
    assert ran.code == 0, ran.err
    monkeypatch.chdir(odd / ODD)
    for words in (
        ("runs", "show", "demo", "--json"),
        ("db", "check", "--json"),
        ("db", "backup", f"{ODD}.db"),
        ("runs", "list", "--db", f"{ODD}.db"),
        ("export-agent", "-o", f"{ODD}.yaml"),
        ("data", "upload", str(Path("test.jsonl").absolute()), "--name", "again"),
        ("eval", "--config", "practice.yaml", "--set", "exp_id=two", "--db", f"{ODD}.db"),
        ("eval", "--agent", f"{ODD}.yaml", "--dataset", "test", "--verify", "math"),
        ("practice", "--config", "practice.yaml", "--dry-run"),
        ("config", "show"),
    ):
        ran = gp(*words)
        assert ran.code == 0, (words, ran)
    with closing(sqlite3.connect("grpo-practice.db")) as db:
        (stored,) = {row[0] for row in db.execute("SELECT base_dir FROM branches")}
    assert folder_of(stored) == odd / ODD


@pytest.mark.parametrize("name", ["/a/b", "/é %41/file:", f"/x/{ODD}", "/"])
def test_a_folder_is_read_back_as_it_was_stored(name: str) -> None:
    text = folder_text(Path(name))
    assert folder_of(text) == Path(name)
    assert folder_of(text.encode().decode()) == Path(name)
    assert (text == name) is (ODD not in name)


def test_a_database_in_memory_is_refused(gp: Gp, tmp_path: Path) -> None:
    for command in ("runs list", "data list", "db check", "eval --model sim --dataset x"):
        ran = gp(*command.split(), "--db", ":memory:")
        assert (ran.code, ":memory: is not a file" in ran.err) == (2, True), ran.err
    with pytest.raises(ConfigError, match="is not a file"):
        Workspace(":memory:")
    assert list(tmp_path.iterdir()) == []


def test_twenty_digits_are_more_than_there_is(demo: Gp) -> None:
    for more in ((), ("--show",)):
        words = ("--config", "practice.yaml", "--set", "exp_id=v", "--limit", DIGITS)
        ran = demo("eval", *words, *more)
        assert ran.code == 0, ran.err
