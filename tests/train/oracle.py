"""The mathematics of GRPO in float64 and numpy alone: loss and its gradient, from the papers.

What a library computes is tested against this; nothing here knows that library. All is written for
one update of the weights with B completions of at most T tokens. Below, r is the ratio of
probabilities pi / pi_old, A the advantage of a completion, |o| its number of tokens, and sg(x) is
x taken as a constant.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Loss = Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo"]


@dataclass(frozen=True)
class Batch:
    """Completions of one update, in the order in which micro-batches take them."""

    logp: Floats
    """Log-probability of each token under the weights that are trained; [B, T]."""
    old: Floats
    """The same under the weights that played the rollouts; [B, T]."""
    reference: Floats
    """The same under the weights from which training may not stray; [B, T]."""
    mask: Floats
    """1 for each token of a completion, 0 behind its end; [B, T]."""
    advantages: Floats
    """Advantage of each completion in its group; [B]."""


@dataclass(frozen=True)
class Objective:
    """Settings of the loss."""

    loss: Loss
    importance: Literal["token", "sequence"]
    """Level of the ratio: of one token, or the geometric mean over a completion."""
    beta: float
    """Weight of the KL divergence."""
    clip: tuple[float, float]
    """Clip range: 1 - low to 1 + high; CISPO has no lower bound, and high is the bound itself."""
    max_output_tokens: int
    """Constant length by which Dr. GRPO divides."""
    kl_by_ratio: bool = False
    """Whether the KL divergence is multiplied by the ratio: not in GRPO's paper, but in that of
    DeepSeek-V3.2 (arXiv 2512.02556), whose gradient of it is unbiased."""


@dataclass(frozen=True)
class Update:
    """Loss of one update, and how it changes with each log-probability."""

    losses: Floats
    """Share of each micro-batch in the loss, which is their sum; [N]."""
    scales: Floats
    """The same of the absolute losses of tokens: rounding is measured by it; [N]."""
    gradient: Floats
    """Derivative of the loss by `logp`; [B, T]."""
    ratio: Floats
    """Ratio of probabilities, of the token or of its completion; [B, T]."""
    clipped: NDArray[np.bool_]
    """Tokens whose ratio is beyond the bound that their advantage has; [B, T]."""

    @property
    def loss(self) -> float:
        """Loss of the whole update."""
        return float(self.losses.sum())


def update(
    batch: Batch,
    objective: Objective,
    *,
    micro_batches: int = 1,
    tokens: float | None = None,
    held: Floats | None = None,
) -> Update:
    """Return loss and gradient of an update that takes the completions in `micro_batches` parts.

    Args:
        batch: The completions.
        objective: Settings of the loss.
        micro_batches: Equal parts, in order, whose gradients are added.
        tokens: Tokens by which DAPO and CISPO divide; where several updates share the completions
            of one generation, it is their mean over these updates. None: those of this batch.
        held: Log-probabilities at which the constant sg(…) of CISPO is taken. None: `batch.logp`.
    """
    weights = token_weights(batch.mask, objective, micro_batches, tokens)
    ratio = ratios(batch, objective, batch.logp)
    advantages = np.broadcast_to(batch.advantages[:, None], ratio.shape)
    if objective.loss == "cispo":
        constant = ratio if held is None else ratios(batch, objective, held)
        policy, by_logp, clipped = cispo(batch.logp, constant, advantages, objective.clip[1])
        by_ratio = np.zeros_like(ratio)
    else:
        policy, by_ratio, clipped = clipped_surrogate(ratio, advantages, objective.clip)
        by_logp = np.zeros_like(ratio)
    kl, kl_by_logp = k3(batch.logp, batch.reference)
    if objective.kl_by_ratio:
        by_ratio = by_ratio + objective.beta * kl
        kl, kl_by_logp = ratio * kl, ratio * kl_by_logp
    by_logp = by_logp + objective.beta * kl_by_logp
    per_token = weights * (policy + objective.beta * kl)
    return Update(
        losses=_sums(per_token, micro_batches),
        scales=_sums(np.abs(per_token), micro_batches),
        gradient=weights * by_logp
        + through_ratio(weights * by_ratio, ratio, batch.mask, objective),
        ratio=ratio,
        clipped=clipped & (batch.mask > 0),
    )


def _sums(per_token: Floats, parts: int) -> Floats:
    return np.array([part.sum() for part in np.split(per_token, parts)])


def ratios(batch: Batch, objective: Objective, logp: Floats) -> Floats:
    """Return the ratio of each token: its own, or that of its completion.

    Token: pi(o_t) / pi_old(o_t), GRPO (arXiv 2402.03300, equation 3). Sequence: s = (pi(o) /
    pi_old(o))^(1/|o|), the geometric mean, GSPO (arXiv 2507.18071).
    """
    log_ratio = logp - batch.old
    if objective.importance == "sequence":
        mean = (log_ratio * batch.mask).sum(1) / lengths(batch.mask)
        log_ratio = np.repeat(mean[:, None], logp.shape[1], axis=1)
    return np.exp(log_ratio)


def lengths(mask: Floats) -> Floats:
    """Return |o| of each completion, at least 1: one without tokens adds nothing. [B, T] to [B]."""
    found: Floats = np.maximum(mask.sum(1), 1.0)
    return found


def token_weights(
    mask: Floats, objective: Objective, micro_batches: int, tokens: float | None
) -> Floats:
    """Return the weight of each token's loss in the loss of the update; [B, T].

    GRPO (arXiv 2402.03300, equation 3): 1/B sum_i 1/|o_i| sum_t, a mean of means of completions.
    Dr. GRPO (arXiv 2503.20783): no division by |o_i|, but by one constant length.
    DAPO (arXiv 2503.14476, equation 8): 1/sum_i |o_i|, a mean over all tokens; CISPO (arXiv
    2506.13585) has the same. BNPO is DAPO's mean of each micro-batch by itself, and
    the mean of these: it depends on how micro-batches are cut.
    """
    count = len(mask)
    match objective.loss:
        case "grpo":
            return mask / lengths(mask)[:, None] / count
        case "dr_grpo":
            return mask / float(count * objective.max_output_tokens)
        case "bnpo":
            cut = np.split(mask, micro_batches)
            sizes: Floats = np.repeat([max(p.sum(), 1.0) for p in cut], count // micro_batches)
            return mask / sizes[:, None] / micro_batches
        case "dapo" | "cispo":
            return mask / max(mask.sum() if tokens is None else tokens, 1.0)


def clipped_surrogate(
    ratio: Floats, advantages: Floats, clip: tuple[float, float]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return -min(r A, clip(r) A), its derivative by r, and where it is clipped; each [B, T].

    GRPO (arXiv 2402.03300, equation 3), with the two bounds of DAPO's clip-higher (arXiv
    2503.14476, equation 8). The minimum is the clipped term, which does not depend on r, only
    where A > 0 and r above 1 + high, or A < 0 and r below 1 - low.
    """
    low, high = clip
    bound = np.clip(ratio, 1 - low, 1 + high)
    clipped = ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low))
    loss = -np.minimum(ratio * advantages, bound * advantages)
    return loss, np.where(clipped, 0.0, -advantages), clipped


def cispo(
    logp: Floats, constant: Floats, advantages: Floats, bound: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return -sg(min(r, bound)) A log pi, its derivative by log pi, and where r is above the bound.

    CISPO (arXiv 2506.13585). The paper writes the bound as 1 + high; here it is
    given itself, and there is no lower one, as in the paper's runs. No token is left without a
    gradient; `clipped` are those whose weight the bound lowers.
    """
    weight = np.minimum(constant, bound)
    return -weight * advantages * logp, -weight * advantages, constant > bound


def through_ratio(slope: Floats, ratio: Floats, mask: Floats, objective: Objective) -> Floats:
    """Return the derivative by log pi, from that by the ratio of each token; [B, T].

    Token: dr/dlog pi = r. Sequence (GSPO, arXiv 2507.18071): each token of a
    completion has a share of s / |o| in the ratio that all of its tokens have.
    """
    if objective.importance == "token":
        return slope * ratio
    whole: Floats = (slope * ratio).sum(1) / lengths(mask)
    return whole[:, None] * mask


def k3(logp: Floats, reference: Floats) -> tuple[Floats, Floats]:
    """Return KL's estimate q - log q - 1, q = pi_ref / pi, and its derivative by log pi; [B, T].

    GRPO (arXiv 2402.03300, equation 4), unbiased and never negative; called k3 elsewhere.
    """
    log_q = reference - logp
    return np.exp(log_q) - log_q - 1, 1 - np.exp(log_q)
