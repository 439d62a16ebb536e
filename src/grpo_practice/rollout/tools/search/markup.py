"""Conversion of a page's bytes to text for a model.

Pages are hostile input. A library that makes a single pass parses the tags; the standard library's
parser takes quadratic time (52 s for 40 KB of `<a `), and so do libraries that build a tree, for
deeply nested elements.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from justhtml import stream

from grpo_practice.core.processes import isolate, limit_memory

if TYPE_CHECKING:
    from justhtml.parser.stream import StreamEvent

# Every repeat is bounded, and only the first 4 KB are searched: with `\s*` on both sides of an
# optional part, a page of 4 KB took seconds.
META = re.compile(
    rb"""<meta\b[^>]{0,200}?charset\s{0,8}=[\s"']{0,8}([a-z0-9_:.-]{1,40})""", re.IGNORECASE
)
"""Charset declared in the page itself."""
_SPACE = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" *\n *(?:\n *)+")
_NO_TEXT = re.compile(r"\[ ?\]\([^)\s]{0,500}\)")
"""A link without text."""

_UNSEEN = frozenset(
    ["script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"]
)
_BLOCK = frozenset(
    [
        *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div"),
        *("dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr"),
        *("legend", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody"),
        *("tfoot", "thead", "title", "tr", "ul"),
    ]
)
_BEFORE = {**{f"h{n}": "\n\n" + "#" * n + " " for n in range(1, 7)}, "li": "\n- ", "br": "\n"}
_AFTER = {**{f"h{n}": "\n\n" for n in range(1, 7)}, "td": " | ", "th": " | ", "li": "\n"}
_NOT_SVG = (_BLOCK - {"title"}) | {"a"} | set(_BEFORE) | set(_AFTER)
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-?8859-?\d+|windows-?125\d|cp125\d|koi8-[ru]"
    r"|gbk|gb2312|gb18030|big5|shift[-_]jis|euc-(jp|kr)|iso-2022-jp|macintosh"
)
"""Accepted charsets; pages use no others, and some of Python's codecs are slow or execute their
input.
"""


def decoded(data: bytes, charset: str | None) -> str:
    """Decode by the byte order mark, the header or the page's own declaration, else as UTF-8."""
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(name, "replace").removeprefix("\ufeff")
    said = META.search(data[:4096])
    for named in (charset, said and said[1].decode("ascii")):
        name = (named or "").strip(" \"'").lower()
        if _CHARSETS.fullmatch(name):
            # As browsers do: pages declared as Latin-1 are written in Windows-1252.
            latin = re.fullmatch(r"us-ascii|ascii|latin-?1|iso-?8859-?1", name)
            try:
                return data.decode("cp1252" if latin else name, "replace")
            except LookupError:
                continue
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        # The size limit may have cut the body inside a character; the text before it is UTF-8.
        cut_in_a_character = e.start >= len(data) - 3
        return data.decode("utf-8" if cut_in_a_character else "cp1252", "replace")


def page_text(
    data: bytes, charset: str | None, url: str, chars: int, is_markup: bool
) -> tuple[str, bool]:
    """Return at most `chars` characters of a page's text, and whether that is all of it."""
    text = decoded(data, charset)
    return readable(text, url, chars) if is_markup else (text[:chars], len(text) <= chars)


def readable(page: str, url: str, chars: int) -> tuple[str, bool]:
    """Return a page's title, headings, paragraphs and links as text, and whether it is complete.

    The text ends soon after `chars` characters; the page's links are relative to `url`.
    """
    parts, size, whole = list[str](), 0, True
    for part in _parts(page, url):
        parts.append(part)
        size += len(part.strip())
        if size > chars:
            whole = False
            break
    # Cut before matching the patterns: a page's text may be far longer than the part kept.
    text = _NO_TEXT.sub("", _SPACE.sub(" ", "".join(parts)[: 4 * chars]))
    text = _LINES.sub("\n\n", text).strip()
    return (text, True) if whole else (text[:chars], False)


def start_worker(secrets: frozenset[str]) -> None:
    """Prepare a worker process for `page_text`: isolated and with limited memory."""
    isolate(secrets)
    limit_memory()


def _parts(page: str, url: str) -> Iterator[str]:
    """Yield the visible text of the page with its Markdown marks, in order."""
    link = ""
    for event in _seen(page):
        match event:
            case ("text", str(text)):
                yield re.sub(r"\s+", " ", text)
            case ("start", ("a", dict(attributes))):
                yield f"]({link})" if link else ""
                link = _link(attributes.get("href") or "", url)
                yield "[" if link else ""
            case ("start", (str(name), dict())):
                yield _BEFORE.get(name, "\n\n" if name in _BLOCK else "")
            case ("end", "a"):
                yield f"]({link})" if link else ""
                link = ""
            case ("end", str(name)):
                yield _AFTER.get(name, "\n\n" if name in _BLOCK else "")
            case ("comment" | "doctype", _):
                pass


def _seen(page: str) -> Iterator["StreamEvent"]:
    """Yield tags and texts, without elements that a browser would not show."""
    unseen = ""
    for event in stream(page):
        name = event[1][0] if event[0] == "start" else event[1]
        # `<svg/>` has no end tag: as in a browser, HTML tags end it as well.
        if unseen == "svg" and event[0] in ("start", "end") and name in _NOT_SVG:
            unseen = ""
        if event[0] == "end" and unseen and name == unseen:
            unseen = ""
        elif event[0] == "start" and not unseen and name in _UNSEEN:
            unseen = str(name)
        elif not unseen:
            yield event


def _link(href: str, url: str) -> str:
    """Return the absolute address of a link; '' if it is not a page."""
    try:
        to = urljoin(url, href[:4096].strip())
    except ValueError:
        return ""
    return to if to.startswith(("http://", "https://")) and len(to) <= 500 else ""
