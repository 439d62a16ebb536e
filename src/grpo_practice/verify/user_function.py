"""Calls a user's verify function: builds its sample, and reads the verdict from its result."""

import linecache
from collections.abc import Mapping
from numbers import Real
from typing import Any

from grpo_practice.core import user_code
from grpo_practice.core.errors import VerifyError
from grpo_practice.core.hashing import clean
from grpo_practice.core.played import EvaluationSample, PlayedRollout, PlayedTurn
from grpo_practice.core.redact import redactor
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.answers import gold_texts


def view(sample: Sample, response: str, rollout: PlayedRollout | None = None) -> EvaluationSample:
    """Return the sample and rollout for a verify function; a list of gold answers stays a list.

    Without a rollout, the trajectory is the question and the response, so that a function that
    reads the last turn can be tried on any answer.
    """
    if rollout is None:
        said = (("user", sample.question), ("assistant", response))
        rollout = PlayedRollout("ok", 0.0, lambda: [PlayedTurn(*turn) for turn in said])
    golds = gold_texts(sample.answer)
    answer = golds if isinstance(sample.answer, list) else (golds[0] if golds else None)
    # Copy meta: the function may change it, and attempts share their sample.
    return EvaluationSample(
        sample.question,
        answer,
        response,
        sample.source,
        sample.level,
        dict(sample.meta),
        rollout.turns(),
        rollout.outcome,
        rollout.seconds,
    )


def read_result(result: Any, where: str) -> Verdict:
    """Return the verdict from a function's result, with secrets in its texts redacted.

    Raises:
        VerifyError: The result is neither a number in [0, 1], nor a bool, nor a dict
            `{"reward": a number in [0, 1], "reasoning": text or None}`; the message names the
            function and the value.
    """
    # Real instead of float: NumPy's numbers are Real, but not all of them are floats.
    if isinstance(result, bool | Real):
        result = {"reward": float(result)}
    if not isinstance(result, Mapping) or "reward" not in result:
        wanted = "a number in [0, 1], a bool, or a dict with 'reward'"
        raise VerifyError(f"{where} returned {_short(result)}, not {wanted}")
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


def raised(error: BaseException, where: str, file: str | None, text: str | None = None) -> str:
    """Return a message about the error that a function raised, with the line in its file.

    `text` is the file's content when it was run; None reads the file from the disk.
    """
    line = user_code.line_of(error, file)
    shown = ""
    if line is not None and file is not None:
        known = text.splitlines()[line - 1 : line] if text else [linecache.getline(file, line)]
        shown = f" (line {line}: {_cut(redactor.text(''.join(known).strip()))})"
    return f"{where} raised {type(error).__name__}: {error}{shown}"


def _short(value: Any) -> str:
    try:
        text = redactor.text(repr(value))
    except Exception as e:  # noqa: BLE001 - the repr is the user's code, too
        text = f"<{type(value).__name__} whose repr raised {type(e).__name__}>"
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
