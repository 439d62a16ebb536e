"""The two tools that a model calls, and the web text in their results."""

import asyncio
from collections.abc import Callable
from functools import cache
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from yarl import URL

from grpo_practice.core.calls import Address, Chat, Message, Reply, Scope
from grpo_practice.core.errors import ContentFilterError, ContextOverflowError
from grpo_practice.core.fences import Fences
from grpo_practice.core.prompts.files import FOLDER, Prompt, load_prompt
from grpo_practice.core.text import CHARS_PER_TOKEN, strip_think
from grpo_practice.rollout.tools import Output, Tool, ToolError
from grpo_practice.rollout.tools.function import tool_of
from grpo_practice.rollout.tools.search.engines import ReadPage, Search
from grpo_practice.rollout.tools.search.fence import PREFACE, clipped, from_web, neutral
from grpo_practice.rollout.tools.search.page import Banned, SearchHit, WebPage, domain_of

SLOTS = ("url", "query", "page", "label", "cut")
MOST_RESULTS = 20
_SIZE = 15 * 1024
"""Maximum size of a result in bytes; below the toolbox's limit, so that a fence is never cut."""


def search_tool(
    find: Search, banned: Banned, cost_micro: int | None, fences: Fences, **more: Any
) -> Tool:
    """Return the tool `search`."""

    async def search(query: str, num_results: int = 5) -> Output:
        """Search the web. Each result has a title, a URL and a piece of the page's text.

        Args:
            query: What to search for, as in a search engine.
            num_results: Most results; 5 is enough for most questions, 20 is the most.
        """
        if not query.strip():
            raise ToolError("the query is empty")
        found = await find(query, max(1, min(num_results, MOST_RESULTS)))
        return Output(results(found, banned, fences), cost_micro)

    return tool_of(search, **more)


def results(found: list[SearchHit], banned: Banned, fences: Fences) -> str:
    """Return results for a model, each in its own fence, as many as fit."""
    parts, size = [PREFACE], len(PREFACE)
    for result in found:
        url = URL(result.url)
        if url in banned:
            continue
        title, snippet = clipped(result.title, 300), clipped(result.snippet, 1500)
        text = f"{' '.join(title.split())}\n{result.url}\n{snippet}".strip()
        part = f"{len(parts)}.\n{from_web(fences, text, domain_of(url))}"
        size += len(part.encode()) + 2
        if size > _SIZE:
            break
        parts.append(part)
    return "\n\n".join(parts) if len(parts) > 1 else "Nothing was found."


def web_qa_tool(
    read: ReadPage,
    ask: Callable[[Scope], Chat],
    cost_micro: int | None,
    fences: Fences,
    **more: Any,
) -> Tool:
    """Return the tool `web_qa`."""
    # Weak: a lock is dropped with the last call that holds it, however many pages a run reads.
    asking = WeakValueDictionary[tuple[Address, str, str], asyncio.Lock]()

    async def web_qa(url: str, query: str, at: Scope) -> Output:  # noqa: D417 - `at` is not shown
        """Read a web page and have a question answered from it.

        Args:
            url: The page, http:// or https://.
            query: What to find out from it, as a full question.
        """
        if not query.strip():
            raise ToolError("the query is empty")
        page = await read(url)
        # One request for concurrent identical questions: the second finds the first in the ledger.
        lock = asking.setdefault((at.address, page.url, query), asyncio.Lock())
        start = monotonic()
        async with lock:
            reply = await _read_with_model(ask(at), question(page, query, fences))
        waited_s = monotonic() - start - reply.seconds  # negative for a stored reply
        text = (strip_think(reply.content) or "").strip()
        if not text:
            raise ToolError("no answer was found on the page; ask a different question")
        return Output(answered(page, text, fences), cost_micro, waited_s)

    return tool_of(web_qa, **more)


async def _read_with_model(chat: Chat, messages: list[Message]) -> Reply:
    """Return the reading model's reply.

    Raises:
        ToolError: The model did not reply, for a reason that is not the agent's fault.
    """
    try:
        return await chat(messages)
    except ContextOverflowError as e:
        raise ToolError("the page is too long for the model that reads it") from e
    except ContentFilterError as e:
        raise ToolError("the answer from the page was withheld by a filter") from e


def question(page: WebPage, query: str, fences: Fences) -> list[Message]:
    """Return the prompt of the reading model."""
    if not page.text.strip():
        raise ToolError("the page has no text")
    return prompt().render(
        fences,
        url=neutral(page.url),
        query=query,
        page=neutral(page.text),
        label=f"web {domain_of(URL(page.url))}",
        cut="" if page.whole else f"{len(page.text) // CHARS_PER_TOKEN:,} tokens or so",
    )


@cache
def prompt() -> Prompt:
    """Load the prompt of the reading model."""
    return load_prompt(FOLDER / "web_qa.md", SLOTS)


def answered(page: WebPage, answer: str, fences: Fences) -> str:
    """Return the answer for the agent; it comes from the page, so it is fenced like the page."""
    text = f"{page.url}\n\n{clipped(neutral(answer), _SIZE - 4096)}"
    parts = [PREFACE, from_web(fences, text, domain_of(URL(page.url)))]
    if not page.whole:
        parts.append("Only the beginning of the page was read.")
    return "\n\n".join(parts)
