"""Votes and plays are read from what steps left on record, along the run's own line."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.types import Distilled, Library, Operation, PlannedStep
from grpo_practice.practice.merge import changes, edits, votes
from grpo_practice.store import Store, libraries, steps
from grpo_practice.store.libraries import edited
from grpo_practice.store.queries import past_votes
from grpo_practice.store.records import GroupRow, Past, StepResult
from tests.store.helpers import planned, spec, upload

Proposed = Sequence[Operation]
"""What one group proposes."""


class Run:
    """A run of three questions a step; each step is closed by hand."""

    def __init__(self, store: Store, name: str = "r", start: Library | None = None) -> None:
        self.store = store
        self.data, self.ids = upload(store, 6)
        self.plan = [PlannedStep(n, 0, n, tuple((i, 2) for i in self.ids[:3])) for n in range(4)]
        self.spec = spec(self.data, name, library=start)
        self.branch = store.begin(self.spec, plan=planned(self.plan))

    def restart(self, step: int) -> None:
        self.branch = self.store.begin(self.spec, restart_step=step, plan=planned(self.plan))

    async def close(
        self,
        step: int,
        groups: Sequence[Proposed],
        *merged: Operation,
        reward: float = 0.5,
        shown: int | None = None,
    ) -> Library:
        before = self.library(step)
        await self.store.open_step(self.branch, step, before.id)
        rows = [
            GroupRow(slot, self.ids[slot], 2, 2, 2, 2, reward, True, "distilled", library_id=shown)
            for slot in range(len(groups))
        ]
        distilled = [Distilled(slot, operations=tuple(ops)) for slot, ops in enumerate(groups)]
        made = edits(before, merged, (), changes(votes(distilled, self.ids)))
        stats = {"mean_reward": reward}
        result = StepResult(rows, distilled, made, edited(before, made), stats)
        return self.store.read(
            libraries.load, await self.store.close_practice(self.branch, step, result)
        )

    def library(self, step: int) -> Library:
        """The library that a step begins with."""
        rows = {row.plan.step: row for row in self.store.read(steps.on_line, self.branch)}
        out = rows[step - 1].library_out if step else None
        return self.store.read(libraries.load, out or self.branch.library.id)

    def past(self, step: int) -> Past:
        return self.store.read(past_votes.past, self.branch, self.library(step), end=step)

    def votes(self, step: int, label: str = "E1") -> dict[int, int]:
        """Votes before a step by the number of the question."""
        found = self.past(step).votes[label]
        return {self.ids.index(sample_id): vote for sample_id, vote in found.items()}


ADD = Operation("ADD", text="A: a.")
CONFIRM = Operation("NONE", "E1", finding="confirmed")
TURN = Operation("UPDATE", "E1", "A: not a.", finding="misled")
SHARPEN = Operation("UPDATE", "E1", "A: a, always.", finding="unclear")
DELETE = Operation("DELETE", "E1", finding="misled")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Store(tmp_path / "s.db"))


def merged(op: Operation, *behind: int) -> Operation:
    return Operation(op.op, op.target, op.text, from_ops=behind)


async def test_who_led_to_an_experience_and_who_confirmed_it_vote_for_it(run: Run) -> None:
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0, 1))
    await run.close(1, [[], [CONFIRM], [CONFIRM]])
    await run.close(2, [[DELETE], [CONFIRM], []])
    assert run.votes(1) == {0: 1, 1: 1}
    assert run.votes(2) == {0: 1, 1: 2, 2: 1}
    assert run.votes(3) == {0: 0, 1: 3, 2: 1}


async def test_an_experience_turned_round_begins_anew(run: Run) -> None:
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0, 1))
    await run.close(1, [[], [TURN], [DELETE]], merged(TURN, 0))
    await run.close(2, [[TURN], [], [CONFIRM]])
    assert run.votes(2) == {1: 1}
    assert run.votes(3) == {0: -1, 1: 1, 2: 1}


async def test_an_experience_made_clearer_keeps_its_votes(run: Run) -> None:
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0, 1))
    await run.close(1, [[CONFIRM], [], [SHARPEN]], merged(SHARPEN, 0))
    await run.close(2, [[], [TURN], []])
    assert run.votes(2) == {0: 2, 1: 1, 2: 1}
    assert run.votes(3) == {0: 2, 1: 0, 2: 1}


async def test_what_takes_in_a_new_experience_has_its_vote(run: Run) -> None:
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    await run.close(1, [[], [SHARPEN], [ADD]], merged(SHARPEN, 0, 1))
    assert run.votes(2) == {0: 1, 1: 1, 2: 1}


async def test_a_proposal_that_was_refused_or_quarantined_has_no_vote(run: Run) -> None:
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    bad = Operation("UPDATE", "E1", "x", refused="too long")
    worse = Operation("UPDATE", "E1", "x", refused="a web address", rule="web_address")
    await run.close(1, [[bad], [worse], [CONFIRM]])
    assert run.votes(2) == {0: 1, 2: 1}


async def test_a_restart_takes_back_the_votes_of_the_steps_it_leaves(run: Run) -> None:
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    await run.close(1, [[], [CONFIRM], []])
    await run.close(2, [[], [], [CONFIRM]])
    run.restart(1)
    assert run.votes(1) == {0: 1}
    await run.close(1, [[], [], [TURN]])
    assert run.votes(2) == {0: 1, 2: -1}


async def test_plays_are_in_the_order_in_which_they_were_played(run: Run) -> None:
    empty = run.branch.library.id
    made = await run.close(0, [[ADD], [], []], merged(ADD, 0), reward=0.5)
    await run.close(1, [[], [], []], reward=0.75)
    found = run.past(2)
    plays = [(p.sample_id, p.library_id, p.part.reward, p.part.scored, p.mean) for p in found.plays]
    assert plays == [
        *((sample, empty, 0.5, 2, 0.5) for sample in run.ids[:3]),
        *((sample, made.id, 0.75, 2, 0.75) for sample in run.ids[:3]),
    ]
    assert found.shown == {made.id: {"E1"}}


async def test_a_repeated_lesson_votes_for_the_experience_it_repeats(run: Run) -> None:
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    again = Operation("NONE", "E1", from_ops=(0,))
    await run.close(1, [[], [ADD], [ADD]], again, merged(ADD, 1))
    assert run.votes(2) == {0: 1, 1: 1}
    assert run.votes(2, "E2") == {2: 1}


async def test_a_subject_holds_all_who_proposed_something_about_an_experience(run: Run) -> None:
    """Whichever side they take, and also if the experience has gone."""
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    again = Operation("NONE", "E1", from_ops=(1,))
    await run.close(1, [[DELETE], [ADD], []], again)
    first, second, third = run.ids[:3]
    assert run.past(2).subjects == [{first, second}]
    await run.close(2, [[ADD], [], [DELETE]], merged(DELETE, 1), merged(ADD, 0))
    assert run.past(3).subjects == [{first, second, third}, {first}]


async def test_samples_of_a_cluster_are_known_as_one_family(run: Run) -> None:
    with closing(sqlite3.connect(run.store.path)) as db, db:
        db.execute("UPDATE samples SET cluster = 'f' WHERE sample_id IN (?, ?)", run.ids[:2])
        db.execute("UPDATE samples SET cluster = '' WHERE sample_id = ?", run.ids[2:3])
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    assert run.past(1).families == dict.fromkeys(run.ids[:2], "f")


async def test_a_text_that_rewards_disproved_is_remembered(run: Run) -> None:
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0), merged(ADD, 1))
    turned = replace(merged(TURN, 0), disproved=True)
    refused = Operation("DELETE", "E2", refused="outvoted", disproved=True)
    await run.close(1, [[TURN], [], []], turned, refused)
    assert run.past(2).disproved == ("A: a.",)
    gone = replace(merged(DELETE, 0), disproved=True)
    await run.close(2, [[DELETE], [], []], gone, Operation("DELETE", "E2"))
    assert run.past(3).disproved == ("A: a.", "A: not a.")


async def test_a_library_shows_only_what_it_says_in_the_same_words(run: Run) -> None:
    first = await run.close(0, [[ADD], [ADD], []], merged(ADD, 0), merged(ADD, 1))
    second = await run.close(1, [[TURN], [], []], merged(TURN, 0))
    assert run.past(2).shown == {second.id: {"E1", "E2"}, first.id: {"E2"}}


async def test_a_library_from_another_run_brings_its_votes_along(run: Run) -> None:
    """Also those of steps that only confirmed what it holds."""
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0, 1))
    taken = await run.close(1, [[], [CONFIRM], [CONFIRM]])
    other = Run(run.store, "other", start=taken)
    await other.close(0, [[TURN], [], []])
    assert other.votes(1) == {0: 0, 1: 2, 2: 1}


async def test_a_library_from_another_run_brings_votes_against_it_along(run: Run) -> None:
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0, 1))
    await run.close(1, [[], [], [TURN]])
    taken = await run.close(2, [[], [], [TURN]])
    assert run.votes(3) == {0: 1, 1: 1, 2: -2}
    other = Run(run.store, "other", start=taken)
    assert other.votes(0) == {0: 1, 1: 1, 2: -2}


async def test_a_question_has_one_vote_a_step_however_often_it_says_so(run: Run) -> None:
    await run.close(0, [[], [ADD], []], merged(ADD, 0))
    await run.close(1, [[CONFIRM, CONFIRM, CONFIRM], [], []])
    assert run.votes(2) == {0: 1, 1: 1}
    await run.close(2, [[DELETE], [], []])
    assert run.votes(3) == {0: 0, 1: 1}


async def test_who_was_not_played_with_an_experience_cannot_speak_against_it(run: Run) -> None:
    """A group that began before the step could not know what its step begins with."""
    empty = run.branch.library.id
    await run.close(0, [[ADD], [], []], merged(ADD, 0))
    await run.close(1, [[], [TURN], [CONFIRM]], shown=empty)
    assert run.votes(2) == {0: 1, 2: 1}


async def test_a_rewording_keeps_the_plays_that_speak_for_what_it_says(run: Run) -> None:
    first = await run.close(0, [[ADD], [], []], merged(ADD, 0))
    second = await run.close(1, [[], [], [SHARPEN]], merged(SHARPEN, 0))
    assert run.past(2).shown == {first.id: {"E1"}, second.id: {"E1"}}
    third = await run.close(2, [[], [TURN], []], merged(TURN, 0))
    assert run.past(3).shown == {third.id: {"E1"}}


async def test_an_update_that_nobody_proposed_begins_anew(run: Run) -> None:
    """Nor does one that only takes in additions say what was said before."""
    await run.close(0, [[ADD], [ADD], []], merged(ADD, 0, 1))
    await run.close(1, [[], [], [CONFIRM]], merged(TURN))
    assert run.votes(2) == {}
    await run.close(2, [[], [ADD], [CONFIRM]], merged(TURN, 0))
    assert run.votes(3) == {1: 1}


def test_an_empty_library_has_no_past(run: Run) -> None:
    assert run.past(0) == Past({}, [], {}, [], ())
