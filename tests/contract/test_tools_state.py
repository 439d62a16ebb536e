"""Servers of tools with a state: a rollout that goes on finds it as it was, or says why not."""

from pathlib import Path
from typing import Any

import pytest

from tests.contract.clerk import Student, calling, config, played, turn
from tests.contract.command import Gp, Ran
from tests.contract.endpoint.actions import Action, error
from tests.contract.endpoint.server import serving
from tests.contract.test_tools_servers import kit
from tests.processes import until


def gone_on(
    gp: Gp, toolkit: dict[str, Any], before: list[Action], after: Action
) -> tuple[Ran, Student]:
    """Stop a run after some calls, and go on with one more; return how it ended, and its model."""
    going = Student(*before, after)
    now = [Student(*before, error(401, "no key"))]
    with serving(lambda asked: now[0](asked)) as server:
        config({"toolkits": toolkit}, server.url)
        assert gp("eval", "--config", "c.yaml").code == 3
        now[0] = going
        return gp("eval", "--config", "c.yaml"), going


@pytest.mark.long
def test_a_rollout_that_goes_on_has_the_state_that_it_had(gp: Gp, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    counts = [calling("count", n=n) for n in (1, 10)]
    toolkit = kit("well", str(notes), stateful=True)
    ran, going = gone_on(gp, toolkit, counts, calling("count", n=100))
    assert (ran.code, going.results) == (0, ["1", "11", "111"])
    made = [line.split()[1] for line in notes.read_text().splitlines() if "count" in line]
    first, second = made[:2], made[2:]
    assert len(set(first)) == len(set(second)) == 1
    assert (len(second), set(first) & set(second)) == (3, set()), "the stored two, and the new one"


@pytest.mark.long
def test_a_state_that_cannot_be_had_again_ends_the_rollout(gp: Gp) -> None:
    ran, _ = gone_on(gp, kit(stateful=True), [calling("pid")], calling("say"))
    assert ran.code == 1
    assert "the tool pid answers a stored call differently than before" in ran.err
    assert "set `workdir: rollout` under toolkits.kit.config" in ran.err


def test_each_rollout_has_a_server_and_a_folder_of_its_own(gp: Gp, tmp_path: Path) -> None:
    env = {"NOTEBOOK": "{workdir}/elsewhere.txt"}
    toolkit = kit(program="notebook.py", stateful=True, config={"workdir": "rollout", "env": env})
    write = [turn(("write", {"line": "a"})), turn(("write", {"line": "b"})), calling("where")]
    said = [played(gp, toolkit, *write).results for _ in range(2)]
    assert [lines[:2] for lines in said] == [["a\n", "a\nb\n"]] * 2
    assert said[0][2] != said[1][2]
    until(lambda: not any(Path(lines[2]).exists() for lines in said))
    assert not list(tmp_path.rglob("elsewhere.txt"))
