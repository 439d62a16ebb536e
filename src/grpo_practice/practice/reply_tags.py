"""Reads the tag form of a reply: `<lessons><lesson …>text</lesson></lessons>` and its like.

No XML parser: text stands in the tags as it is, with `x < 3`, `&` and LaTeX in it. Every tag costs
a look at `TAG_CHARS` characters at most, so that the work is linear in the reply's length.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_practice.fences import REPLY_TAG
from grpo_practice.practice.reply_form import Form, Item

TAG_CHARS = 1500
"""The most characters of a tag's attributes; one may hold the text of an experience."""
CHILDREN = 40
"""The most `<` of an item that is looked through for elements inside it."""

_TAG = re.compile(REPLY_TAG, re.IGNORECASE)
_REST = re.compile(r"""((?:"[^"\n]*"|'[^'\n]*'|[^<>\uff1c\uff1e])*+)[>\uff1e]""")
_ATTRIBUTE = re.compile(
    r"""([A-Za-z_]+)\s*[=\uff1d]\s*"""
    r"""(?:"([^"]*)"|'([^']*)'|[“”„]([^“”]*)[“”]|([^\s"'=/\uff0f]+(?:[ ,;]+P\d+)*))""",
    re.IGNORECASE,
)
_CHILD = re.compile(
    r"<(text|content|experience|finding|problem|op|id|from)\s*>(.*?)</\s*\1\s*>", re.I | re.S
)
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)]]>\s*", re.S)
# Without the semicolon, `R&D` and `a&nothing` would be changed (`&not` is an entity of old HTML).
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z]{2,31});", re.IGNORECASE)
_NOTHING = re.compile(
    r"[\W_]*(?:none|nothing|empty|n/a|no (?:new )?(?:lessons?|operations?))?[\W_]*"
)


class _Tag(NamedTuple):
    name: str
    closing: bool
    alone: bool
    """True for `<…/>`."""
    attributes: str
    start: int
    end: int


@dataclass(slots=True)
class Block:
    """Items that stand together, in their wrapper or without one."""

    form: Form
    wrapped: bool
    end: int
    """Offset at which the last tag ends that was taken."""
    items: list[Item] = field(default_factory=list)
    closed: bool = False
    """True when the wrapper is closed: nothing is missing."""
    unfinished: bool = False
    """True when the last item is never closed."""
    empty: bool = True
    """True unless there is text between the tags of a closed wrapper without items."""

    @property
    def readable(self) -> bool:
        """True when it has items, or says that there are none."""
        return bool(self.items) or (self.closed and self.empty)

    def add(self, text: str, opened: _Tag, until: int, end: int) -> None:
        """Take the item whose text stands between its opening tag and `until`."""
        fields = _fields(self.form, opened.attributes, text[opened.end : until])
        self.items.append(Item(self.form, len(self.items), fields, text[opened.start : end]))
        self.end = end


def blocks(text: str, form: Form) -> list[Block]:
    """Return the blocks of a reply, in order. In a wrapper, the next tag ends an item left open."""
    found, block = list[Block](), Block(form, wrapped=False, end=0)
    opened: _Tag | None = None
    for tag in _tags(text, form):
        if opened and (block.wrapped if tag.name != opened.name or not tag.closing else True):
            block.add(text, opened, tag.start, tag.end if tag.closing else tag.start)
        opened = None
        if tag.name == form.item:
            if tag.alone:
                block.add(text, tag, tag.end, tag.end)
            elif not tag.closing:
                opened = tag
            continue
        found.append(block)
        if tag.closing:
            block.empty = _NOTHING.fullmatch(text[block.end : tag.start].lower()) is not None
            block.closed, block.end = True, tag.end
        block = Block(form, wrapped=not tag.closing, end=tag.end, closed=tag.alone)
        if tag.alone:
            found.append(block)
            block = Block(form, wrapped=False, end=tag.end)
    block.unfinished = opened is not None
    return [b for b in [*found, block] if b.wrapped or b.items]


def _tags(text: str, form: Form) -> Iterator[_Tag]:
    for match in _TAG.finditer(text):
        rest = _REST.match(text, match.end(), match.end() + TAG_CHARS)
        name = match[2].lower()
        if rest is None or name not in (form.wrapper, form.item):
            continue
        attributes = rest[1].rstrip()
        alone = attributes.endswith(("/", "\uff0f"))
        yield _Tag(name, bool(match[1]), alone, attributes, match.start(), rest.end())


def _fields(form: Form, attributes: str, content: str) -> dict[str, object]:
    """Return the fields of an item: its attributes, elements inside it, and its text."""
    fields: dict[str, object] = {
        name.lower(): _unescaped("".join(values)).strip()
        for name, *values in _ATTRIBUTE.findall(attributes)
    }
    if content.count("<") <= CHILDREN and _CHILD.match(content.lstrip()):
        fields |= {name.lower(): _unescaped(text).strip() for name, text in _CHILD.findall(content)}
        content = _CHILD.sub("", content)
    verbatim = _CDATA.fullmatch(content)
    text = verbatim[1] if verbatim else _unescaped(content)
    return {**fields, form.text: text} if text.strip() else fields


def _unescaped(text: str) -> str:
    """Replace the entities in a text, once: `&amp;lt;` is `&lt;`.

    A text that holds a `<` or `&` as it is was not escaped: an entity in it is what it is about.
    """
    if "<" in text or "&" in _ENTITY.sub("", text):
        return text
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
