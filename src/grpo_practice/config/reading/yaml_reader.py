"""YAML text as plain values, with the position of each key.

This reader is stricter than YAML 1.1, which turns `no` into False, `010` into 8 and `12:30` into
750: only `true`, `false`, `null` and decimal numbers are converted. Everything else stays text,
including numbers that are too large.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import clean
from grpo_practice.core.redact import key_shaped, redactor
from grpo_practice.core.text import nearest_file

Key = tuple[str | int, ...]
"""Path to a value: `("practice", "epochs")`."""

MAX_BYTES = 1 << 20
# PyYAML composes nodes recursively, and Python limits the stack to 1,000 frames.
MAX_DEPTH = 64
MAX_NODES = 20_000
"""Maximum number of keys, values and collections in a document."""
MAX_REPEATED = 1_000
"""Maximum number of nodes that aliases may add to a document."""
MAX_DIGITS = 640
"""Maximum length of an integer; Python's own limit for parsing an integer can be set as low as
this.
"""

_SCALARS = {
    "tag:yaml.org,2002:null": re.compile(r"~|null|Null|NULL|"),
    "tag:yaml.org,2002:bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0|[1-9][0-9]*)"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    ),
}
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_MAPPING = "tag:yaml.org,2002:map"
_SEQUENCE = "tag:yaml.org,2002:seq"


@dataclass(frozen=True, slots=True)
class Position:
    """A file (or a flag) and a line in it."""

    file: str
    line: int | None = None
    brought_by: Path | None = None
    """Third-party file, such as an agent's, that supplied the value; None for the user's own
    values.
    """
    trusted: bool = True
    """Whether the value may name programs, files and variables, whatever its source."""

    @property
    def shown(self) -> str:
        """`math.yaml:12`, or only the file if there is no line."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Tree:
    """A mapping of plain values, with the position of each key."""

    data: dict[str, Any]
    places: Mapping[Key, Position] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    """Keys above `data` in the file, if the tree is only a part of the file."""

    def place(self, key: Key) -> Position | None:
        """Return the position of the key, of the first key below it, or of its nearest parent."""
        if key and key not in self.places:
            # `--set a.b.c=1` makes `a.b`, which has no position of its own.
            below = (at for one, at in self.places.items() if one[: len(key)] == key)
            if (found := next(below, None)) is not None:
                return found
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key)

    def at(self, name: str) -> "Tree":
        """Return the mapping under a key as a tree; an empty tree if there is no mapping."""
        part = self.data.get(name)
        places = {k[1:]: p for k, p in self.places.items() if k[:1] == (name,)}
        return Tree(part if isinstance(part, dict) else {}, places, (*self.prefix, name))


class _Loader(yaml.SafeLoader):
    """Composer of nodes; `_SCALARS` alone decides the type of a plain scalar."""

    # Must be defined here: otherwise PyYAML copies the resolvers of YAML 1.1 into this class.
    yaml_implicit_resolvers = {}  # noqa: RUF012 - the name PyYAML looks up
    _ours = {**_SCALARS, _MERGE: re.compile("<<")}  # noqa: RUF012

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name
        self.depth = self.nodes = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # Check before composing, which is recursive and would overflow the stack.
        if self.depth == MAX_DEPTH and self.check_event(yaml.CollectionStartEvent):
            event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
            where = _at(self.name, event)
            raise ConfigError(f"{where}: nested more than {MAX_DEPTH} deep")
        # Check while reading: 80,000 keys take seconds, mostly in PyYAML's scanner.
        self.nodes += 1
        if self.nodes > MAX_NODES:
            where = _at(self.name, self.peek_event())  # type: ignore[no-untyped-call]
            raise ConfigError(f"{where}: more than {MAX_NODES:,} values, too many for a config")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern in _Loader._ours.items():
    # Anchor at the end: PyYAML calls match(), which accepts a prefix.
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern.pattern})\Z"), None)


def plain(text: str) -> Any:
    """Parse the text as a plain YAML scalar: None, a bool, an int, a float, or the text itself."""
    for tag, pattern in _SCALARS.items():
        if pattern.fullmatch(text):
            return _scalar(tag, text)
    return text


def _scalar(tag: str, text: str) -> Any:
    match tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text) if len(text) <= MAX_DIGITS else text
        case "float":
            return float(text) if math.isfinite(float(text)) else text
        case _:
            return clean(text)


def read_yaml(path: Path) -> Tree:
    """Read the mapping in a file.

    Raises:
        ConfigError: The file cannot be read, is too large, or is not a YAML mapping.
    """
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a text file that a person wrote.

    Raises:
        ConfigError: The file cannot be read, is too large, or is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():  # reading a pipe may block forever
            raise ConfigError(f"{path} is not a regular file")
        with path.open("rb") as file:
            # Do not rely on st_size, because a file may grow, and files in /proc report 0 bytes.
            raw = file.read(MAX_BYTES + 1)
    except OSError as e:
        hint = nearest_file(path) or f"looked in {path.parent.resolve()}"
        raise ConfigError(f"cannot read {path}: {e.strerror}", hint=hint) from e
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES >> 20} MiB, too large for a config")
    try:
        # utf-8-sig, because a byte-order mark would otherwise become part of the first key.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw[: e.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}:{line}: the file is not UTF-8", hint="save the file as UTF-8"
        ) from e


def parse_yaml(text: str, name: str) -> Tree:
    """Parse a mapping; an empty text is an empty mapping. Error messages call the text `name`.

    Raises:
        ConfigError: The text is not YAML, has a duplicate key, a tag, a cycle, or too much nesting
            or repetition, or is not a mapping.
    """
    # Register secrets before parsing, because parser errors quote the text.
    redactor.know(key_shaped(text))  # anything that looks like a key
    value, places = parse_document(text, name)
    if value is None:
        return Tree({})
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise ConfigError(f"{name}: a config is a mapping of keys, not {kind}")
    return Tree(value, places)


def parse_value(text: str, name: str) -> Any:
    """Parse a single YAML value in brackets or quotes; raise the errors of `parse_yaml`."""
    return parse_document(text, name)[0]


def parse_document(text: str, name: str) -> tuple[Any, dict[Key, Position]]:
    """Parse any YAML value; return it with the position of each key. Errors: see `parse_yaml`."""
    try:
        loader = _Loader(text, name)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        _check_repeats(node, name)  # before merge keys duplicate nodes
        reader = _Reader(name, loader)
        return reader.value(node, ()), reader.places
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        colon = (e.problem or "").endswith(("but got ':'", "mapping values are not allowed here"))
        hint = "put a text that contains a colon between quotes" if colon else None
        raise ConfigError(f"{where}: not valid YAML: {e.problem or e.context}", hint=hint) from e
    except (yaml.YAMLError, ValueError) as e:
        raise ConfigError(f"{name}: not valid YAML: {e}") from e


def _check_repeats(root: yaml.Node, name: str) -> None:
    """Raise ConfigError for cyclic aliases and for aliases that expand the document too much."""
    sizes: dict[int, int] = {}
    """Number of nodes below each node, itself included; 0 while they are being counted."""

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = 0
            inner = node.value if isinstance(node, yaml.CollectionNode) else ()
            if isinstance(node, yaml.MappingNode):
                inner = chain.from_iterable(node.value)
            sizes[id(node)] = 1 + sum(map(size, inner))
        elif not sizes[id(node)]:
            raise ConfigError(f"{_at(name, node)}: this alias contains itself")
        return sizes[id(node)]

    if size(root) - len(sizes) > MAX_REPEATED:
        raise ConfigError(f"{name}: aliases repeat more than {MAX_REPEATED:,} nodes")


def _at(name: str, part: yaml.Node | yaml.Event) -> str:
    mark = part.start_mark
    return f"{name}:{mark.line + 1}" if mark else name


class _Reader:
    """Converter of a document's nodes to plain values; it records the line of each key."""

    def __init__(self, name: str, loader: _Loader) -> None:
        self.name = name
        self.loader = loader
        self.places: dict[Key, Position] = {}

    def value(self, node: yaml.Node, key: Key) -> Any:
        self.places.setdefault(key, Position(self.name, node.start_mark.line + 1))
        if isinstance(node, yaml.ScalarNode):
            if node.tag not in (*_SCALARS, _TEXT, _MERGE):
                raise self.error(node, f"the tag {node.tag!r} is not allowed in a config")
            return _scalar(node.tag, node.value)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQUENCE:
            return [self.value(child, (*key, i)) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
            return self.mapping(node, key)
        raise self.error(node, f"the tag {node.tag!r} is not allowed in a config")

    def mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        # Check before expanding merge keys: a key that overrides a merged one is not a duplicate.
        seen: dict[str, int] = {}
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode) or name.tag not in (_TEXT, _MERGE):
                raise self.error(name, "a key must be text", "put it in quotes")
            if name.value in seen:
                first = f"first on line {seen[name.value]}"
                raise self.error(name, f"the key {name.value!r} appears twice ({first})")
            seen[name.value] = name.start_mark.line + 1
        self.loader.flatten_mapping(node)
        out = {}
        for name, child in node.value:
            text = clean(name.value)
            self.places[(*key, text)] = Position(self.name, name.start_mark.line + 1)
            out[text] = self.value(child, (*key, text))
        return out

    def error(self, node: yaml.Node, text: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{_at(self.name, node)}: {text}", hint=hint)


_BREAKS = frozenset("\x85\u2028\u2029\ufeff")
"""Characters that survive only in double quotes."""


class _Dumper(yaml.SafeDumper):
    """Dumper that writes multi-line texts as literal blocks."""

    def text(self, text: str) -> yaml.ScalarNode:
        """Represent the text, quoting everything that could be a number in some version of YAML."""
        plain_start = text[:1].isalpha() or text[:1] in ("$", "/")
        style = '"' if _BREAKS & set(text) or not plain_start else None
        # A literal block keeps instructions readable, but cannot hold the characters in `_BREAKS`.
        style = "|" if "\n" in text and not style else style
        return self.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _Dumper.text)


def dump_yaml(value: Any) -> str:
    """Dump the value as YAML that loads as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
