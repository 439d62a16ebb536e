"""`docs/json.md` names the keys of the golden documents, all of them and no others."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.contract.golden import FOLDER

PAGE = (FOLDER.parents[2] / "docs" / "json.md").read_text("utf-8")
SHARED = "Shared keys"
_ROW = re.compile(r"^\| (`.+?`) \| (.+) \|$", re.MULTILINE)
_PART = re.compile(r"\[\w+\]\(#(\w+)\)")


def sections() -> dict[str, dict[str, str]]:
    """Return heading → key → meaning; `x.y` is the key `y` of the object, or objects, at `x`."""
    parts = re.split(r"^#{2,3} (.+)\n", PAGE, flags=re.MULTILINE)[1:]
    found = dict[str, dict[str, str]]()
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        rows = _ROW.findall(text)
        found[heading] = {key: told for keys, told in rows for key in re.findall(r"`(.+?)`", keys)}
    return found


class Reading:
    """Which keys of the page the golden documents have, and which of theirs it lacks."""

    def __init__(self) -> None:
        self.page = sections()
        self.seen = dict[str, set[str]]()
        self.lacking = set[str]()

    def document(self, document: Mapping[str, Any]) -> None:
        section: str = document["schema"]
        own = self.page.get(section, {})
        self.seen.setdefault(section, set())
        for key, value in document.items():
            described = key in own or any(name.startswith(f"{key}.") for name in own)
            self.value(section if described else SHARED, key, value)

    def value(self, section: str, path: str, value: Any) -> None:
        """Follow a value, in the table or in the part that its row links."""
        entries = [
            e for e in (value if isinstance(value, list) else [value]) if isinstance(e, dict)
        ]
        told = self.page.get(section, {}).get(path)
        if told is not None:
            self.seen.setdefault(section, set()).add(path)
        elif not entries:
            self.lacking |= set() if self._deeper(section, path) else {f"{section}: {path}"}
        if told is not None and told.startswith("map: "):
            return
        part = _PART.search(told or "")
        for entry in entries:
            for key, inner in entry.items():
                self.value(part[1] if part else section, key if part else f"{path}.{key}", inner)

    def _deeper(self, section: str, path: str) -> bool:
        """Return whether the page describes keys below this one, which is empty here."""
        return any(name.startswith(f"{path}.") for name in self.page.get(section, {}))


def test_the_page_has_the_keys_of_the_golden_documents_and_no_others() -> None:
    reading = Reading()
    for file in sorted(Path(FOLDER).iterdir()):
        reading.document(json.loads(file.read_text("utf-8")))
    assert reading.lacking == set(), "docs/json.md does not say what these keys mean"
    unknown = {
        f"{section}: {key}"
        for section, rows in reading.page.items()
        for key in rows.keys() - reading.seen.get(section, set())
    }
    assert unknown == set(), "no golden document has these keys of docs/json.md"
