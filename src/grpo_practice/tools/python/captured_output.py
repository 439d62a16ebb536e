"""Output of code, as a model reads it: beginning and end, however much it is."""

from dataclasses import dataclass, field

MOST = 10 * 2**20
"""Bytes that an execution may write; it is stopped beyond."""
HEAD, TAIL = 8 * 1024, 4 * 1024
"""Bytes that are kept of the beginning and of the end."""
STARTED = b"\x06"
"""The first byte from a process in which the code has begun."""


@dataclass(slots=True)
class Written:
    """The beginning and the end of what is written."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    count: int = 0

    def add(self, data: bytes) -> None:
        """Keep what there is room for."""
        self.count += len(data)
        room = max(0, HEAD - len(self.head))
        self.head += data[:room]
        self.tail += data[room:]
        del self.tail[:-TAIL]

    def add_line(self, text: str) -> None:
        """Keep the text, on a line of its own."""
        before = self.tail or self.head
        self.add(b"\n" if before and not before.endswith(b"\n") else b"")
        self.add(text.encode())

    @property
    def flooded(self) -> bool:
        """True when it is more than an execution may write."""
        return self.count > MOST

    def text(self) -> str:
        """Decode the output; escape invalid bytes and NULs."""
        left_out = self.count - len(self.head) - len(self.tail)
        if not left_out:
            return _shown(self.head + self.tail)
        return f"{_shown(self.head)}\n[… {left_out:,} bytes left out …]\n{_shown(self.tail)}"


def _shown(data: bytes | bytearray) -> str:
    return data.decode(errors="backslashreplace").replace("\0", "\\x00")


def out_of_time(limit_s: float) -> str:
    """Return what is said of code that had no more time."""
    return f"[stopped after {limit_s:g} s, the time it had]"


def joined(written: Written, ended: str) -> str:
    """Join what was written, and how it ended where that is not of itself."""
    if written.flooded:
        ended = f"[stopped: it wrote more than {MOST // 2**20} MiB]"
    return "\n".join(text for text in (written.text().strip("\n"), ended) if text)
