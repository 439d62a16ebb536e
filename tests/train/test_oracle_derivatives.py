"""The oracle agrees with itself: its gradient is the slope of its loss, its figures are by hand."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Literal, get_args

import numpy as np
import pytest

from tests.train.oracle import Batch, Floats, Loss, Objective, update

LOSSES: tuple[Loss, ...] = get_args(Loss)
LEVELS: tuple[Literal["token", "sequence"], ...] = ("token", "sequence")
KL = ((0.0, False), (0.04, False), (0.04, True))
LENGTHS = (3, 7, 5, 0, 6, 2)
H = 1e-6


def batch(seed: int = 0) -> Batch:
    draw = np.random.default_rng(seed)
    shape = (len(LENGTHS), max(LENGTHS))
    mask = (np.arange(shape[1]) < np.array(LENGTHS)[:, None]).astype(np.float64)
    logp = -draw.gamma(2.0, 1.0, shape) * mask
    old = logp - (draw.normal(0, 0.3, shape) + draw.normal(0, 0.3, (shape[0], 1))) * mask
    reference = logp + draw.normal(0, 0.5, shape) * mask
    return Batch(logp, old, reference, mask, np.array([1.3, -0.7, 0.4, 1.0, 0.0, -1.0]))


def objective(loss: Loss, level: Literal["token", "sequence"], kl: tuple[float, bool]) -> Objective:
    clip = (0.2, 1.1) if loss == "cispo" else (0.2, 0.28)
    return Objective(loss, level, kl[0], clip, 16, kl_by_ratio=kl[1])


def slopes(of: Callable[[Floats], float], at: Floats) -> Floats:
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[place] = H
        found[place] = (of(at + step) - of(at - step)) / (2 * H)
    return found


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
@pytest.mark.parametrize(("loss", "level", "kl"), list(product(LOSSES, LEVELS, KL)))
def test_the_gradient_is_the_slope_of_the_loss(
    loss: Loss, level: Literal["token", "sequence"], kl: tuple[float, bool], micro_batches: int
) -> None:
    here, goal = batch(), objective(loss, level, kl)

    def value(logp: Floats) -> float:
        moved = replace(here, logp=logp)
        return update(moved, goal, micro_batches=micro_batches, held=here.logp).loss

    found = update(here, goal, micro_batches=micro_batches)
    real = here.mask > 0
    assert found.clipped.any()
    assert (~found.clipped & real).any()
    kinks = np.array([1 - goal.clip[0], 1 + goal.clip[1], goal.clip[1]])
    assert np.abs(found.ratio[real][:, None] - kinks).min() > 10 * H  # differences cross none
    assert found.gradient == pytest.approx(slopes(value, here.logp), rel=1e-6, abs=1e-9)
    assert (found.gradient[~real] == 0).all()


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_a_clipped_token_has_no_gradient_and_one_of_cispo_keeps_its_own(loss: Loss) -> None:
    here = batch()
    found = update(here, objective(loss, "token", (0.0, False)))
    assert found.clipped.any()
    assert (found.gradient[found.clipped] == 0).all()
    other = update(here, objective("cispo", "token", (0.0, False)))
    share = -1.1 * here.advantages[:, None] / here.mask.sum() * np.ones_like(here.logp)
    assert other.clipped.any()
    assert other.gradient[other.clipped] == pytest.approx(share[other.clipped], rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_only_bnpo_depends_on_how_micro_batches_are_cut(loss: Loss) -> None:
    goal = objective(loss, "token", (0.04, False))
    whole, parts = update(batch(), goal), update(batch(), goal, micro_batches=3)
    assert len(parts.losses) == 3
    alike = parts.loss == pytest.approx(whole.loss, rel=1e-12)
    assert alike is (loss != "bnpo")
    assert np.allclose(whole.gradient, parts.gradient, rtol=1e-12, atol=0) is alike


@pytest.mark.parametrize(
    ("loss", "by_hand"),
    [
        # Completions of 1 and 3 tokens, advantages 2 and -1, ratio 1: tokens weigh -2, and 1 each.
        ("grpo", (-2 + 3 / 3) / 2),
        ("dr_grpo", (-2 + 3) / (2 * 16)),
        ("dapo", (-2 + 3) / 4),
        ("bnpo", (-2 + 3 / 3) / 2),
    ],
)
def test_losses_by_hand(loss: Loss, by_hand: float) -> None:
    logp = np.array([[-1.0, 0, 0], [-0.5, -1.5, -2]])
    mask = np.array([[1.0, 0, 0], [1, 1, 1]])
    here = Batch(logp, logp, logp, mask, np.array([2.0, -1.0]))
    goal = objective(loss, "token", (0.04, False))
    assert update(here, goal, micro_batches=2).loss == pytest.approx(by_hand, rel=1e-12)


def test_ratios_clips_and_kl_by_hand() -> None:
    logp = np.log([[0.5, 0.2], [0.3, 0.9]])
    old = np.log([[0.25, 0.2], [0.6, 0.45]])
    here = Batch(logp, old, np.log([[0.25, 0.2], [0.3, 0.9]]), np.ones((2, 2)), np.array([1.0, -1]))
    token = Objective("dapo", "token", 0.0, (0.2, 0.28), 16)
    found = update(here, token)
    assert found.ratio == pytest.approx(np.array([[2, 1], [0.5, 2]]), rel=1e-12)
    assert found.clipped.tolist() == [[True, False], [True, False]]
    assert found.loss == pytest.approx((-1.28 - 1 + 0.8 + 2) / 4, rel=1e-12)
    level = update(here, replace(token, importance="sequence"))
    assert level.ratio == pytest.approx(np.array([[2**0.5] * 2, [1, 1]]), rel=1e-12)
    assert level.loss == pytest.approx((-1.28 * 2 + 2) / 4, rel=1e-12)
    bound = update(here, Objective("cispo", "token", 0.0, (0.2, 1.5), 16))
    by_hand = -1.5 * logp[0, 0] - logp[0, 1] + 0.5 * logp[1, 0] + 1.5 * logp[1, 1]
    assert bound.loss == pytest.approx(by_hand / 4, rel=1e-12)
    k3 = 0.5 - np.log(0.5) - 1  # of the one token that has left the reference
    apart = update(here, replace(token, beta=0.1)).loss - found.loss
    assert apart == pytest.approx(0.1 * k3 / 4, rel=1e-12)
    times = update(here, replace(token, beta=0.1, kl_by_ratio=True)).loss - found.loss
    assert times == pytest.approx(0.1 * 2 * k3 / 4, rel=1e-12)


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_tokens_of_a_generation_may_be_other_than_those_of_the_update(loss: Loss) -> None:
    here, goal = batch(), objective(loss, "token", (0.04, False))
    own, twice = update(here, goal), update(here, goal, tokens=2 * here.mask.sum())
    assert twice.loss == pytest.approx(own.loss / 2, rel=1e-12)
    assert twice.gradient == pytest.approx(own.gradient / 2, rel=1e-12)
