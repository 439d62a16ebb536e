"""The wait before a request is sent again."""

from tenacity import RetryCallState, wait_random_exponential

from grpo_practice.core.errors import EndpointError
from grpo_practice.core.events import RetryWaits
from grpo_practice.llm.retry_policy import Adapt, Retry, RetryDecision

_backoff = wait_random_exponential(multiplier=2, max=60)  # full jitter: 0 to 2, 4, 8 … 60 s


class AgainError(Exception):
    """A try that got no usable answer and is worth repeating."""

    def __init__(self, retry: Retry) -> None:
        super().__init__(str(retry.error))
        self.retry = retry


def wait_s(state: RetryCallState) -> float:
    """Return a random backoff; 0 if the endpoint asked for a wait, which `RateLimit` observes."""
    return _backoff(state) if _retry(state).after_s is None else 0.0


def wait_event(where: str, state: RetryCallState, deadline_s: float) -> RetryWaits:
    """Return the event for a wait that begins, with the host and port of the endpoint.

    `deadline_s`: the deadline that the try had.
    """
    retry = _retry(state)
    asked = retry.after_s is not None
    seconds = state.upcoming_sleep if retry.after_s is None else retry.after_s
    late = isinstance(retry.error, EndpointError) and retry.error.broken == "deadline"
    return RetryWaits(where, status_of(retry), seconds, asked, deadline_s if late else None)


def _retry(state: RetryCallState) -> Retry:
    error = state.outcome and state.outcome.exception()
    assert isinstance(error, AgainError)
    return error.retry


def status_of(decision: RetryDecision) -> int | None:
    """Return the HTTP status behind a decision, even if it was hidden in a 200."""
    error = None if isinstance(decision, Adapt) else decision.error
    return error.status if isinstance(error, EndpointError) else None
