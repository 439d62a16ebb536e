"""A mapping written as YAML that every loader reads in the same way."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from typing_extensions import override

from grpo_practice.core.foreign_text import respell, unseen

_WORD = re.compile("[A-Za-z][A-Za-z0-9_.-]*")


def to_document(value: Mapping[str, Any]) -> str:
    """Return the mapping as a YAML document; no text in it can act as syntax or end it."""
    body = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return respell(body, _spelt)


def _spelt(char: str) -> str:
    """Return the YAML escape of a character, which is valid only in double quotes."""
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


class _Dumper(yaml.SafeDumper):
    """Dumper that writes words plain, multi-line texts as literal blocks, and the rest in quotes.

    The meaning of a text then does not depend on a YAML version's rules for numbers, dates or line
    breaks.
    """

    @override
    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that repeated values are written in full, without aliases."""
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        """Represent a text in the only style that all loaders read in the same way."""
        style: str | None = '"'
        if _WORD.fullmatch(text):
            style = None
        elif "\n" in text and not any(map(unseen, text)):
            style = "|"  # the emitter itself quotes what no block can hold, as spaces before breaks
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.text)
