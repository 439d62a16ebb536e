"""A verify function of the user's own, called with a sample; its result read as a verdict."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

from grpo_practice.canonical import clean
from grpo_practice.errors import VerifyError
from grpo_practice.redact import redactor
from grpo_practice.types import Sample, Verdict
from grpo_practice.user_code import EvaluationSample
from grpo_practice.verify.answers import gold_texts


def view(sample: Sample, response: str) -> EvaluationSample:
    """Return sample and response as a verify function sees them; a list of golds stays a list."""
    golds = gold_texts(sample.answer)
    answer = golds if isinstance(sample.answer, list) else (golds[0] if golds else None)
    # A copy of meta: the function may change it, and attempts share their sample.
    return EvaluationSample(
        sample.question, answer, response, sample.source, sample.level, dict(sample.meta)
    )


def read_result(result: Any, where: str, *, plain: bool = False) -> Verdict:
    """Return the verdict a function returned, secrets in its texts replaced.

    `plain`: whether a bare number or bool is a reward, too.

    Raises:
        VerifyError: It is not `{"reward": a number in [0, 1], "reasoning": text or None}`; the
            message names the function and the value.
    """
    if plain and isinstance(result, bool | Real):
        result = {"reward": float(result)}
    if not isinstance(result, Mapping) or "reward" not in result:
        raise VerifyError(f"{where} returned {_short(result)}, not a dict with 'reward'")
    value = result["reward"]
    number = isinstance(value, Real) and not isinstance(value, bool)
    reward = float(value) if number and 0 <= value <= 1 else None  # also refuses NaN
    if reward is None:
        raise VerifyError(f"{where} returned the reward {_short(value)}, not a number in [0, 1]")
    texts = []
    for key in ("reasoning", "extracted"):
        text = result.get(key)
        if text is not None and not isinstance(text, str):
            raise VerifyError(f"{where} returned the {key} {_short(text)}, not text or None")
        texts.append(redactor.text(clean(text)) if text else None)
    return Verdict(reward, *texts)


def _short(value: Any) -> str:
    try:
        text = redactor.text(repr(value))
    except Exception as e:  # noqa: BLE001 - the repr is the user's too
        text = f"<{type(value).__name__} whose repr raised {type(e).__name__}>"
    return text if len(text) <= 200 else text[:200] + "…"
