"""Text from the web in a prompt: put in a fence that names its site, and extracted again."""

import re
from collections.abc import Iterator

from grpo_practice.core.fences import CODE, Fences

_BEGIN = re.compile(rf"^<<<web (\S+) ({CODE})\n", re.MULTILINE)


def web_fenced(fences: Fences, body: str, domain: str) -> str:
    """Put the text in a fence that it cannot close and that names its site."""
    return fences.around(body, f"web {domain}")


def web_texts(text: str) -> Iterator[tuple[str, str]]:
    """Yield (site, text) for each fence in a tool's result; a truncated one extends to the end."""
    # Continue after the fence: a fence inside it is a page that impersonates another site.
    at = 0
    while begin := _BEGIN.search(text, at):
        end = text.find(f"\n{begin[2]}>>>", begin.end())
        stop = len(text) if end < 0 else end
        yield begin[1], text[begin.end() : stop]
        at = stop
