"""A verify function tried on answers whose worth is known."""

from collections.abc import Sequence
from time import monotonic

from grpo_practice.errors import ConfigError, StepError
from grpo_practice.types import Sample
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.verifier import Verifier

OTHER_FORMS = "they were tried bare and in \\boxed{}; grpo-practice verify tries other forms"
"""Hint for golds that a function does not take for right: it may want a form of its own."""
_RIGHT = 1 - 1e-9
_GOLD = "a gold"


class Trial:
    """Tries answers on a verify function, and keeps what went wrong and what was slow."""

    def __init__(self, verifier: Verifier) -> None:
        """Try the function of an open verifier; it asks no judge."""
        self._verify = verifier
        self._scored = False
        self.errors = dict[str, str]()
        """First error of the function, by kind of answer."""
        self.slowest = (0.0, "")
        """Seconds of the slowest answer, and its kind."""

    async def warm_up(self) -> None:
        """Start the workers, so that their start is not counted as the time of an answer."""
        await self.is_right(Sample("What is x plus x?", "2x"), boxed("x + x"), "")
        self._scored, self.errors, self.slowest = False, {}, (0.0, "")

    async def takes_gold(self, sample: Sample) -> bool:
        """Return whether the sample's own gold counts as right."""
        return await self.accepts(sample, gold_of(sample), _GOLD)

    async def takes_any_gold(self, samples: Sequence[Sample]) -> bool:
        """Return whether the gold of any sample counts as right; try no more after the first.

        Raises:
            ConfigError: The function raised for every answer.
        """
        for sample in samples:
            if await self.takes_gold(sample):
                return True
        self.check_scored()
        return False

    def check_scored(self) -> None:
        """Raise ConfigError if the function raised for every gold that was tried."""
        if not self._scored and _GOLD in self.errors:
            hint = "it raised for every gold: mend it; an answer that it cannot read gets 0"
            raise ConfigError(self.errors[_GOLD], hint=hint)

    async def accepts(self, sample: Sample, answer: str, kind: str) -> bool:
        """Return whether the answer counts as right, bare or boxed."""
        bare = await self.is_right(sample, answer, kind)
        return bare or await self.is_right(sample, boxed(answer), kind)

    async def is_right(self, sample: Sample, response: str, kind: str) -> bool:
        """Return whether the response gets the full reward; an error is kept, and is a no."""
        started = monotonic()
        try:
            verdict = await self._verify(sample, response, None)
        except StepError as e:
            self.errors.setdefault(kind, str(e))
            return False
        finally:
            self.slowest = max(self.slowest, (monotonic() - started, kind))
        self._scored = True
        return verdict.reward >= _RIGHT


def gold_of(sample: Sample) -> str:
    """Return the first of the sample's golds, of which there is one at least."""
    return gold_texts(sample.answer)[0]


def boxed(answer: str) -> str:
    r"""Return the answer as a model is usually told to give it: in `\boxed{}`."""
    return f"The answer is \\boxed{{{answer}}}."
