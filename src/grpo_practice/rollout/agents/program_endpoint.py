"""Checks, from the machine that runs a program, that the rollout's address is reachable."""

import json
from http.client import HTTPException
from time import perf_counter
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from grpo_practice.core.errors import AgentError
from grpo_practice.rollout.agents.program_context import ProgramContext

_LIMIT_S = 10.0


def begin(context: ProgramContext) -> None:
    """Report that the program begins, which starts the rollout's clock.

    The time a process needs to load the program, or to wait for its turn on a cluster, is not
    charged to the rollout.

    Raises:
        AgentError: The address is not reachable.
    """
    reach(context.base_url, context.api_key, context.model)


def reach(base_url: str, api_key: str, model: str) -> float:
    """Return the number of seconds that one request to `models` took.

    Raises:
        AgentError: No server answers at the address, or a different server does.
    """
    start = perf_counter()
    request = Request(f"{base_url}/models", headers={"Authorization": f"Bearer {api_key}"})
    try:
        # Without the environment's proxies, which programs do not receive either. Made for each
        # call, because an opener reads the trusted certificates when it is made (Python 3.12).
        with build_opener(ProxyHandler({})).open(request, timeout=_LIMIT_S) as answer:
            # Bounded, since any server may listen at the address.
            told = json.loads(answer.read(1_000_000))
        found = [row["id"] for row in told["data"]]
    except HTTPError as e:
        raise AgentError(f"another server answers there, with status {e.code}") from None
    except URLError as e:
        raise AgentError(str(getattr(e.reason, "verify_message", "") or e.reason)) from None
    except OSError as e:
        raise AgentError(str(e) or type(e).__name__) from None
    except (HTTPException, RecursionError):
        raise AgentError("another server answers there, and not over HTTP") from None
    except (ValueError, LookupError, TypeError):
        found = []
    if found != [model]:
        raise AgentError("another server answers there")
    return perf_counter() - start
