"""What a person types to name a library, and which step is the best one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Experience, Library, Operation
from grpo_practice.reports.known_scores import measured
from grpo_practice.run.library_refs import RunRef, library_of, parse_ref
from grpo_practice.store import Store, branches, steps
from tests.run.recorded import Recorded


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with Store(tmp_path / "s.db") as store:
        yield Recorded(store)


def texts(library: Library) -> list[str]:
    return [e.text for e in library.experiences]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("m", RunRef("m")),
        ("m:3", RunRef("m", step=3)),
        ("m:last", RunRef("m", step="last")),
        ("m@2", RunRef("m", 2)),
        ("m@2:best", RunRef("m", 2, "best")),
        ("m/eval/model=qwen:7b", RunRef("m/eval/model=qwen:7b")),
        ("m/eval/model=qwen:7b:0", RunRef("m/eval/model=qwen:7b", step=0)),
        ("m/eval/model=a@b:c@4:last", RunRef("m/eval/model=a@b:c", 4, "last")),
        ("m:-1", RunRef("m:-1")),
    ],
)
def test_only_the_end_of_a_reference_is_a_branch_and_a_step(typed: str, meant: RunRef) -> None:
    assert parse_ref(typed) == meant


def test_an_empty_reference_is_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        parse_ref("")


async def test_a_step_is_the_library_it_left_behind(recorded: Recorded) -> None:
    store = recorded.store
    await recorded.practised("a", "", "b")
    assert [texts(library_of(store, f"m:{n}").library) for n in range(3)] == [
        ["a"],
        ["a"],
        ["a", "b"],
    ]
    assert [library_of(store, "m", str(n)).step for n in range(3)] == [0, 1, 2]
    last = library_of(store, "m")
    assert (texts(last.library), last.run, last.step) == (["a", "b"], "m", 2)
    assert library_of(store, "m:last") == library_of(store, "m:2") == last


async def test_without_a_name_it_is_the_practice_run_worked_on_last(recorded: Recorded) -> None:
    store = recorded.store
    with pytest.raises(ConfigError, match="no practice run"):
        library_of(store)
    await recorded.practised("a", exp_id="old")
    await recorded.practised("b", exp_id="new")
    await recorded.evaluated("new/eval", [1.0])
    for run in ("new", "old"):
        with store.invocation(recorded.begin(run, steps=1), "practice"):
            pass
        assert library_of(store).run == run


async def test_a_branch_is_followed_where_it_goes(recorded: Recorded) -> None:
    store = recorded.store
    await recorded.practised("a", "b", "c")
    second = recorded.begin(steps=3, restart_step=1)
    first = library_of(store, "m@1:2")
    assert (texts(first.library), first.branch) == (["a", "b", "c"], 1)
    kept = library_of(store, "m")
    assert (texts(kept.library), kept.branch, kept.step) == (["a"], 1, 0)
    await recorded.close(second, 1, Operation("ADD", text="z"))
    assert texts(library_of(store, "m").library) == ["a", "z"]
    assert library_of(store, "m").branch == second.id
    with pytest.raises(ConfigError, match="step 2; its last closed step is 1"):
        library_of(store, "m:2")
    with pytest.raises(ConfigError, match="no branch 9") as e:
        library_of(store, "m@9")
    assert e.value.hint == "its branches: m@1, m@2"


async def test_a_library_has_a_name_of_its_own(recorded: Recorded) -> None:
    store = recorded.store
    made = await recorded.practised("a", "b")
    found = library_of(store, f"L{made[0].id}")
    assert (found.library, found.run, found.branch, found.step) == (made[0], "m", 1, 0)
    start = library_of(
        store, f"L{store.read(steps.on_line, recorded.begin(steps=2))[0].library_in}"
    )
    assert (len(start.library), start.branch, start.step) == (0, 1, None)
    afresh = recorded.begin(steps=2, restart_step=0)
    assert library_of(store, f"L{afresh.library.id}").branch == afresh.id
    with pytest.raises(ConfigError, match="no library L99"):
        library_of(store, "L99")
    with pytest.raises(ConfigError, match="is one library"):
        library_of(store, "L1", "best")


async def test_what_cannot_be_found_says_what_can(recorded: Recorded) -> None:
    store = recorded.store
    branch = recorded.begin(steps=1)
    with pytest.raises(ConfigError, match="has closed no step"):
        library_of(store, "m")
    await recorded.close(branch, 0)
    with pytest.raises(ConfigError, match="no run 'n'"):
        library_of(store, "n")
    with pytest.raises(ConfigError, match="m:first: cannot read what follows m") as e:
        library_of(store, "m:first")
    assert "m:last" in (e.value.hint or "")
    with pytest.raises(ConfigError, match="two steps"):
        library_of(store, "m:0", "best")
    with pytest.raises(ConfigError, match="should be"):
        library_of(store, "m", "-1")


async def test_an_evaluation_has_no_library_even_when_its_name_ends_like_a_step(
    recorded: Recorded,
) -> None:
    await recorded.evaluated("m/eval/model=qwen:7", [1.0])
    with pytest.raises(ConfigError, match="model=qwen:7 is an evaluation"):
        library_of(recorded.store, "m/eval/model=qwen:7")


async def test_the_best_step_is_the_last_unless_another_is_surely_better(
    recorded: Recorded,
) -> None:
    store = recorded.store
    a, ab, abc = await recorded.practised("a", "b", "c")
    await recorded.selected(Library(), [0.2, 0.4, 0.2, 0.4])
    await recorded.selected(a, [0.7, 0.1, 0.7, 0.1])
    await recorded.selected(ab, [1.0, 0.0, 1.0, 0.6])  # 0.05 above the last, and 0.40 its error
    await recorded.selected(abc, [0.4, 1.0, 0.4, 0.6])
    best = library_of(store, "m", "best")
    assert (best.step, best.library) == (2, abc)
    assert library_of(store, "m@1:best") == best


async def test_an_earlier_step_that_is_surely_better_is_the_best_and_of_equals_the_earliest(
    recorded: Recorded,
) -> None:
    a, ab, abc = await recorded.practised("a", "b", "c")
    await recorded.selected(Library(), [0.0, 0.0, 0.0, 0.0])
    await recorded.selected(a, [1.0, 1.0, 1.0, 0.4])
    await recorded.selected(ab, [1.0, 1.0, 1.0, 0.4])
    await recorded.selected(abc, [0.4, 1.0, 0.4, 0.6])
    best = library_of(recorded.store, "m", "best")
    assert (best.step, best.library) == (0, a)


async def test_where_practice_did_harm_the_best_is_what_the_run_started_with(
    recorded: Recorded,
) -> None:
    (a,) = await recorded.practised("a")
    await recorded.selected(Library(), [1.0, 1.0, 0.0])
    await recorded.selected(a, [0.5, 0.0, 0.0])
    best = library_of(recorded.store, "m", "best")
    assert (best.step, len(best.library), best.branch) == (None, 0, 1)


async def test_a_step_that_was_not_evaluated_takes_no_part_but_start_and_last_must(
    recorded: Recorded,
) -> None:
    _, _, abc = await recorded.practised("a", "b", "c")
    await recorded.selected(Library(), [1.0, 1.0])
    with pytest.raises(ConfigError, match=r"1 of 4 .* on sel \(L"):
        library_of(recorded.store, "m:best")
    await recorded.selected(abc, [1.0, 1.0])
    assert library_of(recorded.store, "m:best").library == abc


async def test_a_library_that_is_not_fully_evaluated_is_not_passed_over(
    recorded: Recorded,
) -> None:
    _, ab, abc = await recorded.practised("a", "b", "c")
    with pytest.raises(ConfigError, match="no evaluations to choose") as e:
        library_of(recorded.store, "m:best")
    assert "select_dataset" in (e.value.hint or "")
    await recorded.selected(Library(), [1.0, 1.0])
    await recorded.selected(ab, [1.0], unplayed=1)
    await recorded.selected(abc, [1.0, None])
    with pytest.raises(ConfigError, match="2 of 4 libraries have no complete"):
        library_of(recorded.store, "m:best")


async def test_a_score_counts_only_for_the_agent_it_was_measured_of(recorded: Recorded) -> None:
    store = recorded.store
    await recorded.practised("a")
    await recorded.evaluated("m/eval", [1.0, 0.0])
    first = store.read(branches.load, 1)
    known = measured(store, first, Library())
    assert known is not None
    assert known.score.mean == 0.5
    recorded.env["UTU_LLM_MODEL"] = "model-b"
    other = recorded.begin(steps=1, restart_step=0)
    assert measured(store, other, Library()) is None
    assert measured(store, first, Library((Experience(1, "x"),), 2)) is None
