"""Output of code as a model reads it: its beginning and its end, whatever its size."""

from dataclasses import dataclass, field

MOST = 10 * 2**20
"""Maximum number of bytes that an execution may write; an execution that writes more is stopped."""
HEAD, TAIL = 8 * 1024, 4 * 1024
"""Bytes kept from the beginning and from the end of the output."""
STARTED = b"\x06"
"""First byte that a process sends once the code has started."""


@dataclass(slots=True)
class Written:
    """The beginning and the end of an output."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    count: int = 0

    def add(self, data: bytes) -> None:
        """Append data, and discard the middle of the output if it gets too long."""
        self.count += len(data)
        room = max(0, HEAD - len(self.head))
        self.head += data[:room]
        self.tail += data[room:]
        del self.tail[:-TAIL]

    def add_line(self, text: str) -> None:
        """Append the text on a new line."""
        before = self.tail or self.head
        self.add(b"\n" if before and not before.endswith(b"\n") else b"")
        self.add(text.encode())

    @property
    def flooded(self) -> bool:
        """True if the output exceeds the limit of an execution."""
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
    """Return the message for code that ran out of time."""
    return f"[stopped after {limit_s:g} s, its time limit]"


def joined(written: Written, ended: str) -> str:
    """Join the output and the reason why the execution was stopped, if it was."""
    if written.flooded:
        ended = f"[stopped: it wrote more than {MOST // 2**20} MiB]"
    return "\n".join(text for text in (written.text().strip("\n"), ended) if text)
