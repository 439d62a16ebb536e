"""A page's bytes as text that a model can read.

The standard library's HTML parser takes time with the square of a page that is made for it (52 s
for 40 KB of `<a `), and a page is hostile text. What is here passes over the page once.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urljoin

_TAG = re.compile(r"""<(/?)([a-zA-Z][a-zA-Z0-9]*+)((?>[^>"']++|"[^"]*+"|'[^']*+')*+)>""")
_BARE = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*+)([^>]*+)>")
"""A tag of a page whose quotation marks are not in order."""
_FAILURES = 8
"""Tags without an end, each looked for to the end of the page, until a page is such a one."""
_HREF = re.compile(r"""\bhref\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s"'>]++)""", re.IGNORECASE)
_META = re.compile(rb"""<meta\b[^>]{0,200}?charset\s*=\s*["']?\s*([a-z0-9_:.-]+)""", re.IGNORECASE)
_LONG_NUMBER = re.compile(r"&#\d{8,}+;?")
_SPACE = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" *\n *(?:\n *)+")
_NO_TEXT = re.compile(r"\[ ?\]\([^)\s]{0,500}\)")
"""A link without a text."""

_UNSEEN = frozenset(
    ["script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"]
)
_RAW = frozenset(["script", "style", "textarea", "iframe"])
"""Where no tag is read but the closing one."""
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
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-?8859-?\d+|windows-?125\d|cp125\d|koi8-[ru]"
    r"|gbk|gb2312|gb18030|big5|shift[-_]jis|euc-(jp|kr)|iso-2022-jp|macintosh"
)
"""Others are not used for pages, and some of Python's are slow or run what they read."""


def decoded(data: bytes, charset: str | None) -> str:
    """The bytes as text, by the mark at their beginning, the header, the page's own word, UTF-8."""
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(name, "replace").removeprefix("\ufeff")
    said = _META.search(data[:4096])
    for named in (charset, said and said[1].decode("ascii")):
        name = (named or "").strip(" \"'").lower()
        if _CHARSETS.fullmatch(name):
            latin = re.fullmatch(r"us-ascii|ascii|latin-?1|iso-?8859-?1", name)
            try:
                return data.decode("cp1252" if latin else name, "replace")
            except LookupError:
                continue
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        cut_in_a_character = e.start >= len(data) - 3
        return data.decode("utf-8" if cut_in_a_character else "cp1252", "replace")


def readable(page: str, url: str, chars: int) -> tuple[str, bool]:
    """The page's title, headings, paragraphs and links as text, and whether that is all.

    It ends soon after `chars` characters; `url` is what the page's links are relative to.
    """
    parts, size, whole = list[str](), 0, True
    for part in _parts(page, url):
        parts.append(part)
        size += len(part.strip())
        if size > chars:
            whole = False
            break
    text = _NO_TEXT.sub("", _SPACE.sub(" ", "".join(parts)[: 4 * chars]))
    text = _LINES.sub("\n\n", text).strip()
    return (text, True) if whole else (text[:chars], False)


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    closes: bool
    attributes: str


def _parts(page: str, url: str) -> Iterator[str]:
    """What is seen of the page, in order."""
    unseen, link = "", ""
    for token in _tokens(page):
        if isinstance(token, str):
            yield "" if unseen else _text(token)
        elif unseen:
            unseen = "" if token.closes and token.name == unseen else unseen
        elif token.name in _UNSEEN:
            unseen = "" if token.closes or token.attributes.endswith("/") else token.name
        elif token.name == "a":
            yield f"]({link})" if link else ""
            link = "" if token.closes else _link(token.attributes, url)
            yield "[" if link else ""
        else:
            yield (_AFTER if token.closes else _BEFORE).get(
                token.name, "\n\n" if token.name in _BLOCK else ""
            )


def _tokens(page: str) -> Iterator[str | _Tag]:
    """Texts and tags. Each step goes on behind all that it has looked at."""
    at, failures = 0, 0
    while at < len(page):
        start = page.find("<", at)
        if start != at:
            yield page[at : start if start >= 0 else len(page)]
        if start < 0:
            return
        tag = (_TAG if failures < _FAILURES else _BARE).match(page, start)
        if tag is None:
            failures += page[start + 1 : start + 3].lstrip("/")[:1].isalpha()
            at = _behind(page, start)
            if at == start + 1:
                yield "<"
            continue
        at, name = tag.end(), tag[2].lower()
        yield _Tag(name, bool(tag[1]), tag[3])
        if name in _RAW and not tag[1]:
            end = re.compile(f"</{name}", re.IGNORECASE).search(page, at)
            at = end.start() if end else len(page)


def _behind(page: str, start: int) -> int:
    """Where it goes on after a `<` that begins no tag: behind a comment, or the character."""
    if page.startswith("<!--", start):
        return _after(page, "-->", start)
    begins = page[start + 1 : start + 2]
    return _after(page, ">", start) if begins.isalpha() or begins in tuple("!?/") else start + 1


def _after(page: str, mark: str, start: int) -> int:
    end = page.find(mark, start)
    return len(page) if end < 0 else end + len(mark)


def _text(raw: str) -> str:
    """The characters that a piece of a page stands for, its line breaks mere space."""
    if "&" in raw:
        raw = html.unescape(_LONG_NUMBER.sub("\ufffd", raw))
    return re.sub(r"\s+", " ", raw)


def _link(attributes: str, url: str) -> str:
    """Where a link leads; '' when that is no page."""
    found = _HREF.search(attributes[:4096])
    if found is None:
        return ""
    try:
        to = urljoin(url, _text(found[1].strip("\"'")).strip())
    except ValueError:
        return ""
    return to if to.startswith(("http://", "https://")) and len(to) <= 500 else ""
