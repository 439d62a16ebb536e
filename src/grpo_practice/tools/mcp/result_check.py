"""A tool's structured result against the schema that its server lists for it.

Server and schema are somebody else's, and a few bytes of schema can keep a validator busy for ever
(`^(a+)+$`, a `$ref` to itself, `anyOf` in `anyOf`): each check runs in a process that is killed at
its limit, or when the call is cancelled.
"""

from typing import Any

from grpo_practice.processes import (
    CannotStartError,
    Pool,
    TimedOutError,
    WorkerDiedError,
    isolate,
    limit_memory,
)

CHECK_S = 5.0
"""Seconds of one check; one of 100 KB takes some milliseconds."""
WORKERS = 2
_LONGEST_COMPLAINT = 300
"""Characters of what is said of a result that does not fit."""


class UnfitError(Exception):
    """The result does not fit the schema, or cannot be checked."""


class ResultChecker:
    """Checks results, in workers that start with the first of them."""

    def __init__(self) -> None:
        self._pool = Pool(
            start_worker, workers=WORKERS, timeout_s=CHECK_S, preload=[start_worker.__module__]
        )

    async def check(self, content: object, schema: dict[str, Any]) -> None:
        """Raise UnfitError unless the content fits the schema, or if that cannot be found out."""
        try:
            complaint = await self._pool.run(complaint_about, content, schema)
        except TimedOutError as e:
            raise UnfitError(f"the check against its schema takes more than {CHECK_S:g} s") from e
        except (WorkerDiedError, MemoryError, RecursionError) as e:
            raise UnfitError("the check against its schema needs too much memory") from e
        except CannotStartError as e:
            raise UnfitError(f"no worker starts that could check it: {e}") from e
        if complaint is not None:
            raise UnfitError(complaint)

    async def close(self) -> None:
        """End the workers."""
        await self._pool.close()


def start_worker(secrets: frozenset[str]) -> None:
    """Make a process ready in which `complaint_about` may be killed."""
    isolate(secrets)
    import jsonschema  # noqa: F401 - here, so that its import is no part of a check's time

    limit_memory()


def complaint_about(content: object, schema: dict[str, Any]) -> str | None:
    """Return how the content does not fit, or why the schema is none; None where it fits."""
    from jsonschema import SchemaError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
        # An empty registry: by default a `$ref` to an address would be fetched from there.
        error = best_match(kind(schema, registry=Registry()).iter_errors(content))
    except (SchemaError, Unresolvable) as e:
        return f"invalid schema: {_line(str(e))}"
    return None if error is None else f"invalid structured content: {_line(error.message)}"


def _line(text: str) -> str:
    return text.partition("\n")[0][:_LONGEST_COMPLAINT]
