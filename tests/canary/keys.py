"""Keys that look like real ones, and the search for any piece of them in what a command left."""

import base64
import contextlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

STUDENT = "sk-proj-Qz7Lq0xAbK4vTn_92RwYhUeJ8sD-Fc31"
"""The student's key, in the environment."""
HEADER = "Hd+9r/Xk==wq%27Zt&Vb4e"
"""A header's value, full of characters that need escaping."""
LOGIN = "nU5pQ+w2kM9yL/cA"
"""The password in the teacher's URL."""
DOTENV = "gsk_J3mV8bN5xC2zA7sD9fG4hJ6k"
"""The judge's key, in `.env`."""
UNUSED = "sk-ant-api03-Wd8Kr5Ty2Uq7Pz4Mv9Xc"
"""A key of the environment that no configuration uses."""
PASTED = "sk-or-v1-6f1c9e0b7d3a58e24b0c7f91"
"""A key that stands in no variable: it was pasted where none belongs."""
ALL = {
    "student": STUDENT,
    "header": HEADER,
    "login": LOGIN,
    "dotenv": DOTENV,
    "unused": UNUSED,
    "pasted": PASTED,
}
PIECE = 10
"""So many characters of a key in a row are a leak."""
TEACHER = "teacher"
"""The user of the teacher's URL."""


def _in_base64(key: str) -> Iterator[str]:
    for before in range(3):
        code = base64.b64encode(b"\0" * before + key.encode()).decode().rstrip("=")
        yield code[(before * 8 + 5) // 6 : -1]


def _pieces(key: str) -> set[bytes]:
    texts = {key, quote(key, safe=""), quote(key, safe="").lower(), *_in_base64(key)}
    return {t[i : i + PIECE].encode() for t in texts for i in range(max(1, len(t) - PIECE + 1))}


PIECES = {name: _pieces(key) for name, key in ALL.items()}


def keys_in(data: bytes) -> set[str]:
    """The names of the keys of which a piece is in these bytes."""
    return {name for name, pieces in PIECES.items() if any(piece in data for piece in pieces)}


@dataclass
class Search:
    """Everywhere a key may have gone, searched; what was found, and how much was looked at."""

    places: dict[str, int] = field(default_factory=dict)
    """Kind of place → how many were searched."""
    size: int = 0
    """Bytes looked at."""
    hits: list[str] = field(default_factory=list)

    def look(self, kind: str, where: str, data: bytes) -> None:
        self.places[kind] = self.places.get(kind, 0) + 1
        self.size += len(data)
        self.hits += [f"{where}: {name}" for name in sorted(keys_in(data))]

    def files(self, folder: Path, written: Iterable[Path]) -> None:
        """All files below a folder, except those that the person wrote."""
        for path in sorted(set(folder.rglob("*")) - set(written)):
            self.hits += [f"name of {path.name}: {n}" for n in keys_in(path.name.encode())]
            if not path.is_file():
                continue
            data = path.read_bytes()
            self.look(_kind(path), str(path.name), data)
            self.look(f"{_kind(path)}, decompressed", str(path.name), b"\n".join(_streams(data)))
            if data.startswith(b"SQLite format 3"):
                self.look("rows", f"{path.name}, rows", b"\n".join(_rows(path)))


def _kind(path: Path) -> str:
    name = path.name
    for end in ("-wal", "-shm", ".lock"):
        if name.endswith(end):
            return f"database{end}"
    return "database" if ".db" in name or ".bak" in name else path.suffix or "file"


def _streams(data: bytes) -> Iterator[bytes]:
    """What stands compressed in the bytes, as far as it can be read."""
    at = data.find(b"\x78\x01")
    while at >= 0:
        with contextlib.suppress(zlib.error):
            yield zlib.decompressobj().decompress(data[at : at + 65_536])
        at = data.find(b"\x78\x01", at + 2)


def _rows(path: Path) -> Iterator[bytes]:
    """Every value of every row, decompressed."""
    db = sqlite3.connect(path)
    db.text_factory = bytes
    try:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (name,) in names:
            for row in db.execute(f'SELECT * FROM "{name.decode()}"'):
                yield from map(_plain, row)
    finally:
        db.close()


def _plain(value: object) -> bytes:
    if isinstance(value, bytes):
        with contextlib.suppress(zlib.error):
            return zlib.decompress(value)
        return value
    return str(value).encode()
