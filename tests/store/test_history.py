"""The changes of an experience and the votes on it, on the line that is asked for."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Operation
from grpo_practice.store import Store, branches, steps
from grpo_practice.store.queries import history
from grpo_practice.store.queries.history import ExperienceHistory
from tests.store.test_evidence import ADD, CONFIRM, SHARPEN, TURN, Run, merged


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Store(tmp_path / "s.db"))


def of(run: Run, branch: int, until: int = 3, label: int = 1) -> ExperienceHistory:
    rows = run.store.read(steps.on_line, run.store.read(branches.load, branch))
    library = max((row.library_out or 0 for row in rows if row.plan.step <= until), default=0)
    at = {"branch": branch, "until": until, "library": library}
    return run.store.read(history.experience, "r", label, **at)


async def test_votes_before_the_last_change_of_meaning_are_on_an_earlier_text(run: Run) -> None:
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    await run.close(1, [[], [TURN], [CONFIRM]], merged(TURN, 0))
    await run.close(2, [[CONFIRM], [SHARPEN], []], merged(SHARPEN, 0))
    await run.close(3, [[], [], [TURN]])
    found = of(run, run.branch.id)
    assert [(c.step, c.op, c.reworded) for c in found.changes] == [
        (0, "ADD", False),
        (1, "UPDATE", False),
        (2, "UPDATE", True),
    ]
    assert [(v.step, v.slot, v.said, v.earlier) for v in found.votes] == [
        (1, 1, "misled", True),
        (1, 2, "confirmed", True),
        (2, 0, "confirmed", False),
        (2, 1, "unclear", False),
        (3, 2, "misled", False),
    ]
    early = of(run, run.branch.id, until=0)
    assert (early.text, len(early.changes), early.votes) == ("A: a.", 1, ())
    with pytest.raises(ConfigError):
        of(run, run.branch.id, until=-1)


async def test_a_lesson_that_repeats_an_experience_is_listed_as_a_vote(run: Run) -> None:
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    await run.close(1, [[], [ADD], [ADD]], Operation("NONE", "E1", from_ops=(0,)))
    assert [(v.step, v.slot, v.said) for v in of(run, run.branch.id).votes] == [(1, 1, "repeated")]


async def test_no_votes_of_another_branch_are_listed(run: Run) -> None:
    first = run.branch.id
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    await run.close(1, [[], [TURN], []], merged(TURN, 0))
    run.restart(1)
    await run.close(1, [[], [], [CONFIRM]])
    told = {b: of(run, b) for b in (first, run.branch.id)}
    assert [found.text for found in told.values()] == ["A: not a.", "A: a."]
    assert [[v.said for v in found.votes] for found in told.values()] == [["misled"], ["confirmed"]]


async def test_what_was_kept_out_is_listed_on_the_line_that_is_asked_for(run: Run) -> None:
    first = run.branch.id
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    bad = Operation("ADD", text="See http://a.b", refused="a web address", rule="web_address")
    await run.close(1, [[bad], [], []])
    run.restart(1)
    await run.close(1, [[], [], []])
    kept = {b: run.store.read(history.quarantined, b, until=3) for b in (first, run.branch.id)}
    assert [len(found) for found in kept.values()] == [1, 0]
