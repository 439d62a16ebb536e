"""Validation of a tool's structured result against the schema that its server lists.

Server and schema are untrusted, and a few bytes of schema can keep a validator busy forever
(`^(a+)+$`, a `$ref` to itself, `anyOf` in `anyOf`), so each check runs in a process that is killed
when the time limit is reached or the call is cancelled.
"""

from typing import Any

from grpo_practice.core.processes import (
    CannotStartError,
    Pool,
    TimedOutError,
    WorkerDiedError,
    isolate,
    limit_memory,
)

CHECK_S = 5.0
"""Maximum seconds for one check; 100 KB take a few milliseconds."""
WORKERS = 2
_LONGEST_COMPLAINT = 300
"""Maximum length of the message about an invalid result, in characters."""


class UnfitError(Exception):
    """The result does not match the schema, or cannot be checked."""


class ResultChecker:
    """Validates results in worker processes, which start with the first check."""

    def __init__(self) -> None:
        self._pool = Pool(
            start_worker, workers=WORKERS, timeout_s=CHECK_S, preload=[start_worker.__module__]
        )

    async def check(self, content: object, schema: dict[str, Any]) -> None:
        """Raise UnfitError if the content does not match the schema or cannot be checked."""
        try:
            complaint = await self._pool.run(complaint_about, content, schema)
        except TimedOutError as e:
            raise UnfitError(f"the check against its schema takes more than {CHECK_S:g} s") from e
        except (WorkerDiedError, MemoryError, RecursionError) as e:
            raise UnfitError("the check against its schema needs too much memory") from e
        except CannotStartError as e:
            raise UnfitError(f"no worker process could be started to check it: {e}") from e
        if complaint is not None:
            raise UnfitError(complaint)

    async def close(self) -> None:
        """End the workers."""
        await self._pool.close()


def start_worker(secrets: frozenset[str]) -> None:
    """Prepare a worker process for `complaint_about`: isolated and with limited memory."""
    isolate(secrets)
    import jsonschema  # noqa: F401 - imported before a check's time starts

    limit_memory()


def complaint_about(content: object, schema: dict[str, Any]) -> str | None:
    """Return the error in the content or in the schema; None if the content matches."""
    from jsonschema import SchemaError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
        # An empty registry: by default, a `$ref` to a URL would be fetched.
        error = best_match(kind(schema, registry=Registry()).iter_errors(content))
    except (SchemaError, Unresolvable) as e:
        return f"invalid schema: {_line(str(e))}"
    return None if error is None else f"invalid structured content: {_line(error.message)}"


def _line(text: str) -> str:
    return text.partition("\n")[0][:_LONGEST_COMPLAINT]
