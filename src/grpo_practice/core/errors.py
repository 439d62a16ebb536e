"""Every error this program raises on purpose, and the exit code each one ends with.

GrpoPracticeError          exit 1   base; carries an optional `hint`
├── RunFailedError         exit 1   too many rollouts failed, a merge failed, or nothing was learnt
├── ConfigError            exit 2   the YAML, a flag, or a referenced file is wrong
│   └── FingerprintError   exit 2   a run would continue with a different identity; carries the diff
├── EndpointRefusedError   exit 3   the endpoint refuses all requests, or nothing answers there
├── DataError              exit 4   a dataset row cannot become a Sample
├── DeclinedError          exit 1   a person was asked to confirm and did not
├── LockedError            exit 5   another process or thread is writing this run
├── PausedError            exit 6   a cap was reached, or no comparison of a step was usable
├── StoreError             exit 7   the database is full, read-only, corrupt, locked or newer
├── StoppedError           exit 128 + signal: 129, 130 or 143
├── PrunedError            recorded, never fatal: a trial of a search is not worth more steps
└── StepError              recorded, never fatal on its own: one rollout or one model call
    ├── EndpointError      one request got no usable answer, after all retries
    ├── ContextOverflowError   the request is longer than the model's context
    ├── ContentFilterError     the provider's filter withheld the answer
    ├── AgentError         the agent or one of its tools raised
    ├── VerifyError        the verify function raised or returned a bad reward
    ├── JudgeError         the judge could not be called, or gave no verdict
    └── ReplyError         the model answered, but not in the form that the stage requires
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from signal import Signals
from typing import Any, Literal

from grpo_practice.core.redact import redactor


class GrpoPracticeError(Exception):
    """Base class of all expected failures. The constructor redacts secrets in message and hint.

    The message is one sentence that names the fault; the hint names the next command or change.
    """

    exit_code = 1
    kind = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(redactor.text(message))
        self.hint = redactor.text(hint) if hint else hint
        if self.hint:
            # For errors that nobody catches: Python prints the notes below the traceback.
            self.add_note(f"hint: {self.hint}")


class RunFailedError(GrpoPracticeError):
    """The run as a whole cannot continue; everything paid for is stored."""

    kind = "run_failed"


class ConfigError(GrpoPracticeError):
    """The configuration, a flag or a file it names cannot be used as written."""

    exit_code = 2
    kind = "config"


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """A key with a different value than at the start of the run."""

    key: str
    was: object
    now: object


class FingerprintError(ConfigError):
    """The run was started with a different identity; `diff` lists the differences."""

    kind = "fingerprint"

    def __init__(self, message: str, diff: list[ChangedKey], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.diff = diff


ConnectionFault = Literal["tls", "proxy", "connect", "cut", "deadline", "oversize"]
"""Ways in which a request fails to get a complete HTTP response.

`tls`: no secure connection; `proxy`: the proxy refused or does not exist; `connect`: nothing
answers at that address; `cut`: an established connection broke; `deadline`: our own limit for one
request ended it; `oversize`: the reply is larger than our limit, and the rest was not read.
"""


class EndpointRefusedError(GrpoPracticeError):
    """The endpoint refuses all our requests, or nothing answers there.

    `broken`: how the connection broke; None for an HTTP response.
    """

    exit_code = 3
    kind = "endpoint"

    def __init__(
        self, message: str, *, hint: str | None = None, broken: ConnectionFault | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.broken = broken


class DataError(GrpoPracticeError):
    """A dataset, or a row in a dataset, cannot be used."""

    exit_code = 4
    kind = "data"


class DeclinedError(GrpoPracticeError):
    """A person was asked for confirmation and did not agree."""

    kind = "declined"


class LockedError(GrpoPracticeError):
    """This run is already being written by another process, or another thread of this process."""

    exit_code = 5
    kind = "locked"


class PausedError(GrpoPracticeError):
    """A cap was reached, or no comparison was usable; everything paid for is stored.

    `go_on`: the command that continues the run, if it is known.
    """

    exit_code = 6
    kind = "paused"

    def __init__(self, message: str, *, hint: str | None = None, go_on: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.go_on = redactor.text(go_on) if go_on else go_on


class StoreError(GrpoPracticeError):
    """The database cannot be used in its current state."""

    exit_code = 7
    kind = "store"


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A batch that an endpoint is answering."""

    text: str
    """Sentence that describes it."""
    cancel: Callable[[], Coroutine[Any, Any, None]]
    """Function that cancels it; answers that exist already can still be read."""


class StoppedError(GrpoPracticeError):
    """A signal ended the command cleanly; all answers received so far are stored."""

    kind = "interrupted"

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {Signals(number).name}")
        # As a shell reports a process that a signal has ended.
        self.exit_code = 128 + number
        self.unanswered = 0
        """Number of requests still in flight when the command stopped waiting for them."""
        self.batches: Sequence[UnderWay] = ()
        """Batches that endpoints are still answering."""


class PrunedError(GrpoPracticeError):
    """A trial of a hyperparameter search did worse than others and is not trained further."""

    kind = "pruned"


class StepError(GrpoPracticeError):
    """One unit of work failed; the run records it and continues."""

    kind = "step"


class EndpointError(StepError):
    """One request got no usable answer.

    Args:
        message: Description of the failure, in the endpoint's own words.
        maybe_paid: True if the endpoint may have billed the request (bytes of a reply arrived, or a
            complete request timed out).
        tries: Number of times it was sent.
        status: The last HTTP status, if any.
        broken: How the connection broke; None for an HTTP response.
    """

    kind = "provider"

    def __init__(
        self,
        message: str,
        *,
        maybe_paid: bool = False,
        tries: int = 1,
        status: int | None = None,
        broken: ConnectionFault | None = None,
    ) -> None:
        super().__init__(message)
        self.broken = broken
        self.maybe_paid = maybe_paid
        self.tries = tries
        self.status = status


class ContextOverflowError(EndpointError):
    """The request is longer than the model's context window.

    `limit`: size of the window in tokens, if the endpoint reports it.
    """

    kind = "context_overflow"

    def __init__(
        self, message: str, *, status: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(message, status=status)
        self.limit = limit


class ReplyTooLargeError(EndpointError):
    """The reply is larger than the limit, and the rest of it was not read."""

    kind = "reply_too_large"


class ContentFilterError(EndpointError):
    """The provider's content filter withheld the answer."""

    kind = "content_filter"


class AgentError(StepError):
    """The agent or one of its tools raised."""

    kind = "agent"


class VerifyError(StepError):
    """The verify function raised, was killed, or returned a reward outside [0, 1]."""

    kind = "verify"


class JudgeError(StepError):
    """The judge could not be called, or gave no verdict."""

    kind = "judge"


ReplyFailure = Literal["unreadable", "empty", "cut", "refused", "content_filter"]
"""Kinds of unusable replies: `cut` by the token limit, `refused` by the model."""


class ReplyError(StepError):
    """The model replied in a form that the stage cannot parse."""

    kind: ReplyFailure = "unreadable"

    def __init__(
        self, message: str, *, hint: str | None = None, kind: ReplyFailure = "unreadable"
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


def is_transient(status: int) -> bool:
    """Return True for an HTTP status after which the same request may succeed later."""
    return status in (408, 409, 425, 429) or status >= 500


def unanswered(error: StepError | None) -> bool:
    """Return True for a stage that failed because a request got no answer.

    A new request may get an answer, whereas a reply that cannot be parsed would be replayed.
    """
    return error is not None and not isinstance(error, ReplyError)


@contextmanager
def boundary(error: type[StepError], what: str) -> Iterator[None]:
    """Convert any exception that escapes the block to the error type of this boundary.

    Our own errors keep their type: a `StepError` already has its cause attributed, and a
    `ConfigError` must stop the run. Cancellation is never converted.
    """
    try:
        yield
    except GrpoPracticeError:
        raise
    except Exception as e:
        raise error(f"{what}: {type(e).__name__}: {e}") from e
