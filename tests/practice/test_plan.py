"""The plan is a pure function: the same samples every epoch, in an order from the seed."""

from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.rollout.groups.plan import plan_practice


def plan(n: int = 5, **changes: object) -> list[tuple[int, int, int, list[int]]]:
    settings: dict[str, object] = {
        "epochs": 2,
        "batch_size": 2,
        "attempts": 3,
        "seed": 0,
        "drop_last": False,
    }
    steps = plan_practice(list(range(n)), **(settings | changes))  # type: ignore[arg-type]
    assert all(a == settings["attempts"] for s in steps for _, a in s.slots)
    return [(s.step, s.epoch, s.batch, [i for i, _ in s.slots]) for s in steps]


def test_steps_are_numbered_across_epochs_and_the_last_batch_is_kept() -> None:
    steps = plan()
    assert [(step, epoch, batch, len(ids)) for step, epoch, batch, ids in steps] == [
        (0, 0, 0, 2),
        (1, 0, 1, 2),
        (2, 0, 2, 1),
        (3, 1, 0, 2),
        (4, 1, 1, 2),
        (5, 1, 2, 1),
    ]


def test_the_shuffle_has_an_effect_and_differs_by_epoch_and_seed() -> None:
    def orders(**changes: object) -> list[list[int]]:
        return [ids for *_, ids in plan(20, batch_size=20, **changes)]

    first, second = orders()
    assert sorted(first) == sorted(second) == list(range(20))
    assert list(range(20)) != first != second
    assert orders() == [first, second]
    assert orders(seed=1)[0] != first
    assert orders(seed=None) == [list(range(20))] * 2


def test_the_last_batch_is_left_out_only_when_asked() -> None:
    assert [len(ids) for *_, ids in plan(drop_last=True)] == [2, 2, 2, 2]


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 15), st.integers(0, 9))
def test_every_epoch_plays_every_sample_once(n: int, epochs: int, batch: int, seed: int) -> None:
    steps = plan(n, epochs=epochs, batch_size=batch, seed=seed)
    for epoch in range(epochs):
        ids = [i for _, e, _, batch_ids in steps if e == epoch for i in batch_ids]
        assert sorted(ids) == list(range(n))


def test_more_epochs_do_not_change_the_steps_before() -> None:
    assert plan(epochs=3)[: len(plan())] == plan()
