"""TRL's loss, gradient and advantages are those of the papers, as float64 has them."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pytest

from grpo_practice.core.stats.scores import advantages
from grpo_practice.train.rewards import Rewards, given_rewards
from tests.train.oracle import Loss, Objective, update
from tests.train.recorded import Plan, Step, recorded_steps
from tests.train.tiny import tiny_model_folder

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default", "ignore:.*gradient_checkpointing:FutureWarning"),
]

LOSSES: tuple[Loss, ...] = get_args(Loss)
LEVELS: tuple[Literal["token", "sequence"], ...] = ("token", "sequence")
KL = ((0.0, False), (0.04, False), (0.04, True))
RELATIVE = 1e-5
GRPO = Objective("grpo", "token", 0.0, (0.2, 0.28), 16)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Take little time: such a small model is slower on more, and TRL collects garbage each run."""
    from transformers import Trainer
    from trl import GRPOTrainer

    assert issubclass(GRPOTrainer, Trainer)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers are far from equally likely."""
    return tiny_model_folder(tmp_path_factory.mktemp("model"), spread=0.2)


def objective(loss: Loss, level: Literal["token", "sequence"], kl: tuple[float, bool]) -> Objective:
    # CISPO's bound is 1.1 itself: were it 1 + 1.1, hardly a token would reach it.
    clip = (0.2, 1.1) if loss == "cispo" else (0.2, 0.28)
    return Objective(loss, level, kl[0], clip, 16, kl_by_ratio=kl[1])


def assert_as_the_oracle(step: Step, *, on_policy: bool = False) -> None:
    expected = step.expected
    found, due = [*step.losses, step.losses.sum()], [*expected.losses, expected.loss]
    if on_policy:  # where all ratios are 1 losses cancel out, and a relative error says nothing
        scales = [*expected.scales, expected.scales.sum()]
        errors = np.abs(np.subtract(found, due)) / scales
        assert errors.max() <= RELATIVE
    else:
        assert found == pytest.approx(due, rel=RELATIVE, abs=0)
    for trained, exact in zip(step.gradients, step.expected_gradients, strict=True):
        assert float(exact.norm()) > 0
        assert float((trained - exact).norm() / exact.norm()) <= RELATIVE


def assert_clipping_acts(step: Step, loss: Loss) -> None:
    real = step.batch.mask > 0
    good, bad = (real & (sign * step.batch.advantages[:, None] > 0) for sign in (1, -1))
    clipped = step.expected.clipped
    assert (clipped & good).any()
    assert (real & ~clipped).any()
    assert loss == "cispo" or (clipped & bad).any()


@pytest.mark.parametrize("update_epochs", [1, 2])
@pytest.mark.parametrize("micro_batches", [1, 2, 4])
@pytest.mark.parametrize("kl", KL, ids=["no KL", "KL", "KL by ratio"])
@pytest.mark.parametrize(("loss", "level"), list(product(LOSSES, LEVELS)))
def test_loss_and_gradient_are_the_oracles(
    folder: Path,
    tmp_path: Path,
    loss: Loss,
    level: Literal["token", "sequence"],
    kl: tuple[float, bool],
    micro_batches: int,
    update_epochs: int,
) -> None:
    goal = objective(loss, level, kl)
    # With two passes TRL notes the old log-probabilities itself, and its first update moves away.
    plan = Plan(goal, micro_batches, update_epochs, old_is_made_up=update_epochs == 1)
    steps = recorded_steps(folder, tmp_path, plan)
    assert [len(step.losses) for step in steps] == [micro_batches] * update_epochs
    for step in steps[:-1]:
        assert_as_the_oracle(step, on_policy=True)
    assert_clipping_acts(steps[-1], loss)
    assert_as_the_oracle(steps[-1])


@pytest.mark.parametrize("loss", LOSSES)
def test_where_nothing_is_old_the_ratio_is_one(folder: Path, tmp_path: Path, loss: Loss) -> None:
    (step,) = recorded_steps(folder, tmp_path, Plan(objective(loss, "token", KL[1]), 2))
    assert step.expected.ratio == pytest.approx(np.ones_like(step.batch.mask), abs=1e-12)
    assert_as_the_oracle(step, on_policy=True)


@pytest.mark.parametrize("loss", LOSSES)
def test_two_updates_of_one_generation(folder: Path, tmp_path: Path, loss: Loss) -> None:
    plan = Plan(objective(loss, "token", KL[1]), 2, updates_of_a_generation=2, old_is_made_up=True)
    steps = recorded_steps(folder, tmp_path, plan)
    assert len(steps) == 2
    for step in steps:
        assert_as_the_oracle(step)
        # The normaliser of DAPO and CISPO spans the generation, not the update.
        own = update(step.batch, plan.objective, micro_batches=2)
        alike = own.loss == pytest.approx(step.expected.loss, rel=1e-3)
        assert alike is (loss not in {"dapo", "cispo"})


@pytest.mark.parametrize("loss", LOSSES)
def test_a_masked_completion_still_counts_as_one(folder: Path, tmp_path: Path, loss: Loss) -> None:
    plan = Plan(objective(loss, "token", KL[1]), 2, old_is_made_up=True, truncated=3)
    (step,) = recorded_steps(folder, tmp_path, plan)
    lengths = step.batch.mask.sum(1)
    assert sorted(lengths)[:2] == [0, 3]
    assert (step.expected.gradient[lengths == 0] == 0).all()
    assert_as_the_oracle(step)


NEAR = (0.5, 0.5 + 1e-6, 0.5, 0.5)
GROUPS: tuple[Rewards, ...] = (
    *((0.1,) * 4, (0.7,) * 4, (1 / 3,) * 4, (0.0,) * 4, (1.0,) * 4, (1e6 + 0.1,) * 4),
    *((1.0, 0.0, 0.25, 1.0), (0.1, 0.7, 0.3, 0.3), (1e6, 1e6 + 1, 1e6, 1e6), NEAR, (0, 0, 0, 1)),
)
"""Rewards of groups: the first six have equal ones."""
GAPS: tuple[Rewards, ...] = (
    *((1.0, None, 0.25, 0.5), (0.3, None, None, 0.7), (None, 0.4, 0.4, 0.4)),
    *((None, None, None, 0.8), (None,) * 4, (1.0, 0.0, 0.0, 1.0)),
)
"""Rewards of which some are unknown; the third to the fifth leave nothing to compare."""


def scored(folder: Path, output: Path, groups: tuple[Rewards, ...], **more: object) -> Step:
    plan = Plan(GRPO, lengths=(4,) * (4 * len(groups)), rewards=groups)
    (step,) = recorded_steps(folder, output, replace(plan, **more))  # type: ignore[arg-type] # named by the test
    return step


@pytest.mark.parametrize("scale", ["group", "none"])
def test_advantages_are_ours_and_exactly_zero_for_equal_rewards(
    folder: Path, tmp_path: Path, scale: str
) -> None:
    step = scored(folder, tmp_path, GROUPS, scale=scale)
    assert step.advantages == pytest.approx(step.batch.advantages, rel=1e-6, abs=0)
    assert (step.advantages[step.groups < 6] == 0).all()
    assert (step.advantages[step.groups >= 6] != 0).any()


def test_advantages_scaled_by_the_batch_need_raw_rewards(folder: Path, tmp_path: Path) -> None:
    groups = GROUPS[6:8] + GROUPS[10:]
    step = scored(folder, tmp_path, groups, scale="batch")
    assert step.advantages == pytest.approx(step.batch.advantages, rel=1e-6)
    other = scored(folder, tmp_path, groups, scale="batch", given_for="group")
    assert np.abs(other.advantages / other.batch.advantages - 1).min() > 1e-3


@pytest.mark.parametrize("scale", ["group", "none"])
def test_an_unknown_reward_is_left_out_of_its_group(
    folder: Path, tmp_path: Path, scale: str
) -> None:
    step = scored(folder, tmp_path, GAPS, scale=scale)
    assert step.advantages == pytest.approx(step.batch.advantages, rel=1e-6, abs=0)
    assert (step.advantages[(step.groups >= 2) & (step.groups <= 4)] == 0).all()
    assert [(step.advantages[step.groups == i] != 0).sum() for i in (0, 1, 5)] == [3, 2, 4]
    # In float64 the mean of these three is not 0.4; in single precision TRL may not see that.
    assert given_rewards(GAPS[2], scale) == [None, 0, 0, 0]


def test_advantages_of_a_group_sum_to_about_zero(folder: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    groups: tuple[Rewards, ...] = tuple(tuple(draw.random(4).tolist()) for _ in range(16))
    step = scored(folder, tmp_path, groups)
    for i, group in enumerate(groups):
        theirs = step.advantages[step.groups == i]
        assert abs(theirs.sum()) < 1e-5
        assert np.abs(theirs).max() > 0.5
        ours = advantages([reward for reward in group if reward is not None])
        assert np.sort(theirs) == pytest.approx(np.sort(ours), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("spread", [0.02, 0.2, 1.0])
def test_log_probabilities_are_at_most_zero(tmp_path: Path, spread: float) -> None:
    """With a large spread the model is all but sure of its next token."""
    model = tiny_model_folder(tmp_path / "model", spread=spread)
    (step,) = recorded_steps(model, tmp_path / "out", Plan(GRPO))
    real = step.batch.mask > 0
    assert (step.log_probabilities[real] <= 0).all()
    assert (step.batch.logp[real] <= 0).all()
    assert (step.log_probabilities[~real] == 0).all()
    assert step.log_probabilities == pytest.approx(step.batch.logp, rel=1e-6, abs=1e-5)
