"""The program of a worker process: it may hang, take memory or die, and nothing else is harmed."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from grpo_practice.errors import VerifyError
from grpo_practice.processes import isolate, limit_memory, renew_cpu_limit
from grpo_practice.types import Sample, Verdict
from grpo_practice.user_code import EvaluationSample, UserFunction
from grpo_practice.verify.math import Question
from grpo_practice.verify.user_function import raised, read_result

_function: Callable[..., Any] | None = None
_source: UserFunction | None = None


def start(secrets: frozenset[str], source: UserFunction | None) -> None:
    """Make a fresh process ready: its function loaded, then its memory limited."""
    global _function, _source
    isolate(secrets)
    if source is None:
        # A pool of another kind may have started first, so that nothing of this is preloaded: the
        # first answers would pay with a second of their two.
        from grpo_practice.verify import builtin, symbolic, warmup  # noqa: F401
    else:
        _function, _source = source.load(), source
    # Last: the limit is on top of what the process has by now, and imports need more than answers.
    limit_memory()


def ask_math(question: Question) -> bool | str:
    """Return whether the answer equals a gold, or why that cannot be told."""
    from grpo_practice.verify import symbolic

    read = False
    try:
        for gold in question.golds:
            symbolic.know(gold)
        # An answer's time is its own, whether or not the gold was read for another one before.
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
    name: str, sample: Sample, response: str, params: Mapping[str, Any]
) -> Verdict | str:
    """Return the verdict of a built-in, or the message of the VerifyError it deserves."""
    from grpo_practice.verify.builtin import BUILT_INS  # workers with a user's function need none

    try:
        verdict: Verdict = BUILT_INS[name].function(sample, response, **params)
    except Exception as e:  # noqa: BLE001 - a MemoryError is this answer's alone
        return f"verify {name} raised {type(e).__name__}: {e}"
    return verdict


def ask_custom(sample: EvaluationSample, params: Mapping[str, Any], where: str) -> Verdict | str:
    """Return the verdict of the user's function, or the message of the VerifyError it deserves."""
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
