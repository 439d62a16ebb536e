"""Scores one response: directly, on the event loop, or in a worker that can be killed."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from grpo_practice.core import user_code
from grpo_practice.core.calls import Chat
from grpo_practice.core.errors import ConfigError, GrpoPracticeError, VerifyError
from grpo_practice.core.fences import Fences
from grpo_practice.core.played import EvaluationSample, PlayedRollout
from grpo_practice.core.processes import CannotStartError, Pool, TimedOutError, WorkerDiedError
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify import math, user_function, worker
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.judge import BlockingJudge, JudgeClient, judged
from grpo_practice.verify.resolve import TIMEOUT_S, VerifyFunction

T = TypeVar("T")

BY_CLOCK = 10
"""Maximum wall-clock seconds that a worker gets per second of processor time."""
_WARMUP = "grpo_practice.verify.warmup"  # by name, because importing it takes a second
CACHED = 1_024
"""Maximum number of outcomes kept; the oldest is dropped first."""

_Key = tuple[tuple[str, ...], str, tuple[str, ...]]
_Outcome = bool | str


class Verifier:
    """Scores responses with one verify function; owns the workers that this may need."""

    def __init__(self, function: VerifyFunction, fences: Fences | None = None) -> None:
        """Score with this function; a run passes the fences for its judge's prompts."""
        self.function = function
        self._fences = fences or Fences.with_new_key()
        file = None if function.in_process else function.file
        self._pool = Pool(
            worker.start,
            file,
            workers=2,
            # Ten times as much wall time, so that no verdict depends on the load of the machine.
            timeout_s=BY_CLOCK * (function.timeout_s or TIMEOUT_S),
            cpu_s=function.timeout_s or TIMEOUT_S,
            preload=[worker.__name__] if file else [worker.__name__, _WARMUP],
        )
        self._starting: asyncio.Task[Any] | None = None
        """Task that starts the workers while answers are already being scored."""
        self._results = ResultCache()
        self._output = ExitStack()

    async def __aenter__(self) -> Self:
        # A function passed as an object keeps its owner's stdout; one from a file does not.
        if self.function.in_process and self.function.file is not None:
            self._output.enter_context(user_code.STDOUT_TO_STDERR.entered())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._output.close()
        if self._starting is not None:  # a thread starts them, and cannot be stopped
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._pool.close()

    async def start(self) -> None:
        """Start the workers if answers may need them; raise ConfigError if they cannot start.

        Workers for a built-in function, which is known to work, start in the background, because
        starting them takes as long as everything else before the first request.
        """
        if self.function.runs not in ("math", "worker"):
            return
        if self.function.built_in is not None:
            self._starting = asyncio.create_task(self._pool.start())
            return
        try:
            await self._pool.start()
        except CannotStartError as e:
            raise ConfigError(f"the verify workers cannot start: {e}", hint=e.hint) from e

    async def __call__(
        self,
        sample: Sample,
        response: str,
        judge: Chat | None,
        rollout: PlayedRollout | None = None,
    ) -> Verdict:
        """Score a response; `rollout` is None if no stored rollout gave it.

        Raises:
            VerifyError: The function raised, was killed, or returned no reward; or it needs a gold
                answer and the sample has none.
            JudgeError: The judge could not be reached, or gave no grade.
            ConfigError: The function needs a judge, and none is configured; or it needs a rollout.
        """
        function = self.function
        if function.needs_answer and not gold_texts(sample.answer):
            raise VerifyError(f"verify {function.name}: the sample has no answer to compare with")
        if function.needs_rollout and rollout is None:
            raise without_rollout(function.name)
        match function.runs:
            case "loop":
                assert function.built_in is not None, "only a built-in runs on the loop itself"
                verdict: Verdict = function.built_in.function(sample, response, **function.params)
                return verdict
            case "math":
                return await self._math(sample, response)
            case "judge":
                assert function.rubric is not None, "resolve() compiles the judge's prompt"
                chat = self._judge_or_raise(judge)
                shown = rollout if function.rubric.shows_rollout else None
                read = (response, shown.turns() if shown is not None else ())
                return await judged(function.rubric, sample, read, chat, self._fences)
            case "worker":
                return await self._in_worker(sample, response, rollout)
            case "process":
                return await self._in_process(sample, response, judge, rollout)

    async def _math(self, sample: Sample, response: str) -> Verdict:
        """Compare mathematically; an answer that takes too much time or memory is wrong.

        Raises:
            VerifyError: The machine is too busy to compare, or the worker was killed from outside.
        """
        golds = gold_texts(sample.answer)
        found = math.at_once(golds, response, fast_path=self.function.params.get("fast_path", True))
        if isinstance(found, Verdict):
            return found
        equal = await self._results.get(found, partial(self._compared, found))
        if isinstance(equal, str):
            return math.wrong(golds, equal, found.said)
        return Verdict(1.0, extracted=found.said) if equal else math.differs(golds, found.said)

    async def _compared(self, question: math.Comparison) -> bool | str:
        """Return whether the answer equals a gold answer, or why the answer itself fails."""
        limit_s = self.function.timeout_s or TIMEOUT_S
        try:
            return await self._run(worker.ask_math, question)
        except TimedOutError as e:
            if e.by_clock:
                raise VerifyError(
                    f"comparing the answer did not get {limit_s:g} s of processor time within"
                    f" {BY_CLOCK * limit_s:g} s: this machine is too busy"
                ) from e
            return f"comparing it took longer than {limit_s:g} s"
        except WorkerDiedError as e:
            if not e.crashed:
                raise VerifyError(
                    f"something ended the worker that compares the answer: {e}"
                ) from e
            return f"comparing it ended its worker ({e})"

    async def _in_process(
        self, sample: Sample, response: str, chat: Chat | None, rollout: PlayedRollout | None
    ) -> Verdict:
        """Return the verdict of the user's function in this process, within its time limit."""
        llm = JudgeClient(self._judge_or_raise(chat)) if self.function.asks_judge else None
        view = user_function.view(sample, response, rollout)
        waits = None if llm is None or user_code.is_async(self._own) else BlockingJudge(llm)
        try:
            async with asyncio.timeout(self.function.timeout_s):
                outcome = await self._call(view, waits or llm)
        except TimeoutError:
            return self._out_of_time()
        finally:
            if waits is not None:
                waits.close()
        if llm is not None and llm.failure is not None:
            # If the function caught the judge's failure, it made its reward up: do not count it.
            raise llm.failure
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _call(
        self, view: EvaluationSample, llm: JudgeClient | BlockingJudge | None
    ) -> Verdict | GrpoPracticeError:
        """Return the verdict, or an error that represents the function's exception."""
        function = self._own
        params = self._given if llm is None else {**self._given, "llm": llm}
        try:
            if user_code.is_async(function):
                result = await function(view, **params)
            else:
                result = await user_code.in_thread(partial(function, view, **params))
            if inspect.isawaitable(result):
                result = await result
            return user_function.read_result(result, self._where)
        except GrpoPracticeError as e:
            return e
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as e:  # noqa: BLE001 - sys.exit() of a plug-in ends its answer only
            # Created here, inside the timeout: the function's own
            # TimeoutError must not be taken for our deadline.
            file = self.function.file
            code = getattr(function, "__code__", None)
            path = str(file.path) if file else getattr(code, "co_filename", None)
            text = file.text if file else None
            error = VerifyError(user_function.raised(e, self._where, path, text))
            error.__cause__ = e
            return error

    async def _in_worker(
        self, sample: Sample, response: str, rollout: PlayedRollout | None
    ) -> Verdict:
        function = self.function
        if function.built_in is not None:
            read: tuple[Any, ...] = (response,)
            if function.built_in.reads_rollout:
                assert rollout is not None, "__call__ checks it"
                read = (response, [use for turn in rollout.turns() for use in turn.tool_calls])
            work = partial(worker.ask_built_in, function.kind, sample, read, dict(function.params))
        else:
            view = user_function.view(sample, response, rollout)
            work = partial(worker.ask_custom, view, self._given, self._where)
        try:
            outcome = await self._run(work)
        except TimedOutError as e:
            return self._out_of_time(by_clock=e.by_clock)
        except WorkerDiedError as e:
            raise VerifyError(f"{self._where} ended its worker: {e}") from e
        if isinstance(outcome, str):
            raise VerifyError(outcome)
        return outcome

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return await self._pool.run(work, *args)
        except CannotStartError as e:
            raise VerifyError(f"the verify workers cannot start: {e}", hint=e.hint) from e

    def _out_of_time(self, *, by_clock: bool = False) -> Verdict:
        function, limit_s = self.function, self.function.timeout_s or TIMEOUT_S
        clock = f" of processor time, and {BY_CLOCK * limit_s:g} s by the clock" if by_clock else ""
        reason = f"{self._where} took longer than {limit_s:g} s{clock}"
        if function.timeout_score is None:
            raise VerifyError(reason)
        return Verdict(function.timeout_score, reason)

    def _judge_or_raise(self, chat: Chat | None) -> Chat:
        if chat is None:
            raise ConfigError(f"verify {self.function.name} needs a judge, but none is configured")
        return chat

    @property
    def _own(self) -> Callable[..., Any]:
        function = self.function.in_process
        assert function is not None, "resolve() keeps a function that runs in this process"
        return function

    @property
    def _where(self) -> str:
        function = self.function
        if function.file is not None:
            return function.file.where
        shown = f" {dict(function.params)}" if function.built_in and function.params else ""
        return f"verify {function.name}{shown}"

    @property
    def _given(self) -> Mapping[str, Any]:
        score = self.function.timeout_score
        given = dict(self.function.params)
        return given if score is None else {**given, "timeout_score": score}


def without_rollout(name: str) -> ConfigError:
    """Return the error for a function that scores the actions of an agent, if no agent plays."""
    return ConfigError(
        f"verify {name} scores what an agent did in a rollout, and here there is only a text",
        hint=f"score a rollout: grpo-practice eval --verify {name}; --rejudge for stored rollouts",
    )


class _Turn:
    """Lock for callers with the same question: one caller compares, the others wait."""

    def __init__(self) -> None:
        self.lock, self.tried = asyncio.Lock(), False


class ResultCache:
    """The outcomes of recent comparisons, and the comparisons in progress.

    The attempts at a question often end in the same answer, and at about the same time.
    """

    def __init__(self) -> None:
        self._outcomes: dict[_Key, _Outcome] = {}
        # Weak references: a turn is dropped with the last caller that waits for it.
        self._turns: WeakValueDictionary[_Key, _Turn] = WeakValueDictionary()

    async def get(
        self, question: math.Comparison, compare: Callable[[], Awaitable[_Outcome]]
    ) -> _Outcome:
        """Return the outcome of `compare` for this question, new or cached.

        Only one caller at a time compares a question. A reason why the answer is wrong applies to
        every equal answer; an exception from `compare` applies only to this caller.
        """
        key = (tuple(question.golds), question.said, tuple(question.boxes))
        turn = self._turns.setdefault(key, _Turn())
        async with turn.lock:
            if key in self._outcomes:
                return self._outcomes[key]
            if not turn.tried:
                turn.tried = True
                try:
                    outcome = await compare()
                except asyncio.CancelledError:
                    # This caller was cancelled without an outcome: the next
                    # caller becomes the first.
                    turn.tried = False
                    raise
                # Keep reasons as well: otherwise an answer near the time limit could be wrong once
                # and right the next time.
                if len(self._outcomes) >= CACHED:
                    del self._outcomes[next(iter(self._outcomes))]
                self._outcomes[key] = outcome
                return outcome
        # Outside the lock: after a first failure, the others compare concurrently.
        return await compare()
