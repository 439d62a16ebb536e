"""Text from the web in a prompt: fenced under its site's name, and found again by it."""

import re
from collections.abc import Iterator

from grpo_practice.fences import CODE, Fences

_BEGIN = re.compile(rf"^<<<web (\S+) ({CODE})\n", re.MULTILINE)


def web_fenced(fences: Fences, body: str, domain: str) -> str:
    """Fence the text so that it cannot close the fence, under the site it is from."""
    return fences.around(body, f"web {domain}")


def web_texts(text: str) -> Iterator[tuple[str, str]]:
    """Yield (site, text) for each fence in a tool's result; a cut-off one reaches to the end."""
    # The search goes on behind a fence: one inside is a page that speaks for another site.
    at = 0
    while begin := _BEGIN.search(text, at):
        end = text.find(f"\n{begin[2]}>>>", begin.end())
        stop = len(text) if end < 0 else end
        yield begin[1], text[begin.end() : stop]
        at = stop
