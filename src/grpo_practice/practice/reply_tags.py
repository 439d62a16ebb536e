"""Parses the tag form of a reply, `<lessons><lesson …>text</lesson></lessons>` or similar.

This is not an XML parser, because the text in the tags is unescaped: it contains `x < 3`, `&` and
LaTeX. At most `TAG_CHARS` characters are scanned per tag, so the work is linear in the reply's
length.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from grpo_practice.core.fences import REPLY_TAG
from grpo_practice.practice.reply_form import Form, Item

TAG_CHARS = 1500
"""Maximum length of a tag's attributes, in characters; one may contain an experience's text."""
CHILDREN = 40
"""Maximum number of `<` in an item that are examined as child elements."""

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
# Require the semicolon, or `R&D` and `a&nothing` would be changed (`&not` is an old HTML
# entity).
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
    """Consecutive items, with or without their wrapper."""

    form: Form
    wrapped: bool
    end: int
    """Offset of the end of the last tag that belongs to the block."""
    items: list[Item] = field(default_factory=list)
    closed: bool = False
    """True if the wrapper is closed, so that nothing is missing."""
    unfinished: bool = False
    """True if the last item is never closed."""
    empty: bool = True
    """False if a closed wrapper without items contains other text."""

    @property
    def readable(self) -> bool:
        """True if the block has items or explicitly states that there are none."""
        return bool(self.items) or (self.closed and self.empty)

    def add(self, text: str, opened: _Tag, until: int, end: int) -> None:
        """Add the item whose text extends from its opening tag to `until`."""
        fields = _fields(self.form, opened.attributes, text[opened.end : until])
        self.items.append(Item(self.form, len(self.items), fields, text[opened.start : end]))
        self.end = end


def blocks(text: str, form: Form) -> list[Block]:
    """Return the blocks in a reply, in order; in a wrapper, the next tag closes an open item."""
    found, block = list[Block](), Block(form, wrapped=False, end=0)
    opened: _Tag | None = None
    for tag in _tags(text, form):
        if opened and (block.wrapped or (tag.closing and tag.name == opened.name)):
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
    """Return the fields of an item: its attributes, its child elements and its text."""
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
    """Unescape the entities in a text once: `&amp;lt;` becomes `&lt;`.

    If a text contains a literal `<` or `&`, it was not escaped, so its entities are part of its
    subject and are left alone.
    """
    if "<" in text or "&" in _ENTITY.sub("", text):
        return text
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
