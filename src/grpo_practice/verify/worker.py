"""The program of a worker process, which may hang, exhaust its memory or die without other harm."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpo_practice.core.errors import VerifyError
from grpo_practice.core.played import EvaluationSample
from grpo_practice.core.processes import isolate, limit_memory, renew_cpu_limit
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.core.user_code import UserFunction
from grpo_practice.verify.math import Comparison
from grpo_practice.verify.user_function import raised, read_result

_function: Callable[..., Any] | None = None
_source: UserFunction | None = None


def start(secrets: frozenset[str], source: UserFunction | None) -> None:
    """Prepare a fresh process: load its function, then limit its memory."""
    global _function, _source
    isolate(secrets)
    if source is None:
        # A pool of another kind may have started first without preloading this: the first answers
        # would lose one of their two seconds.
        from grpo_practice.verify import builtin, symbolic, warmup  # noqa: F401
    else:
        _function, _source = source.load(), source
    # Set it last: the limit adds to the memory in use now, and imports need more than answers.
    limit_memory()


def ask_math(question: Comparison) -> bool | str:
    """Return whether the answer equals a gold answer, or why the comparison failed."""
    from grpo_practice.verify import symbolic

    read = False
    try:
        for gold in question.golds:
            symbolic.know(gold)
        # The time limit is for the answer, whether or not its gold was already parsed.
        renew_cpu_limit()
        for gold in question.golds:
            equal = symbolic.matches(gold, question.said, question.boxes)
            if equal:
                return True
            read = read or equal is not None
    except MemoryError:
        return "the answer takes too much memory to compare"
    except BaseException as e:  # noqa: BLE001 - math-verify raises BaseException too
        return f"the answer cannot be compared: {type(e).__name__}"
    return False if read else "the answer cannot be read as mathematics"


def ask_built_in(
    name: str, sample: Sample, read: Sequence[Any], params: Mapping[str, Any]
) -> Verdict | str:
    """Return the verdict of a built-in, or the message for a VerifyError.

    `read`: the response, and for a built-in that reads the rollout its tool calls.
    """
    from grpo_practice.verify.builtin import (
        BUILT_INS,
    )  # workers for a user's function do not need it

    try:
        verdict: Verdict = BUILT_INS[name].function(sample, *read, **params)
    except Exception as e:  # noqa: BLE001 - a MemoryError concerns only this answer
        return f"verify {name} raised {type(e).__name__}: {e}"
    return verdict


def ask_custom(sample: EvaluationSample, params: Mapping[str, Any], where: str) -> Verdict | str:
    """Return the verdict of the user's function, or the message for a VerifyError."""
    assert _function is not None, "the worker was started without a function"
    assert _source is not None, "a function comes from a file"
    try:
        result = _function(sample, **params)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        return read_result(result, where)
    except VerifyError as e:
        return str(e)
    except BaseException as e:  # noqa: BLE001 - sys.exit() of a plug-in ends its answer only
        return raised(e, where, str(_source.path), _source.text)


async def _awaited(result: Any) -> Any:
    return await result
