"""One spelling of every value that is hashed: canonical JSON, seeds, request hashes.

Stored runs rely on it: any change to the definition of the request hash must also change `gp1`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canon(value: object) -> bytes:
    """Return the canonical JSON of `value`: sorted keys, no spaces, UTF-8, NaN refused."""
    return _CANONICAL.encode(value).encode()


def digest(value: object) -> bytes:
    """Return the sha256 of the canonical JSON. Shape: [32] bytes."""
    return hashlib.sha256(canon(value)).digest()


def list_digest(texts: Iterable[str]) -> bytes:
    """Return `digest` of a list of plain words, such as hex hashes, without building the list."""
    # Spelt here as `canon` spells a list: a million hashes in one text would take 70 MB.
    state, before = hashlib.sha256(b"["), ""
    for text in texts:
        state.update(f'{before}"{text}"'.encode())
        before = ","
    state.update(b"]")
    return state.digest()


def text_sha(text: str) -> bytes:
    """Return the sha256 of a text as UTF-8. Shape: [32] bytes."""
    return hashlib.sha256(text.encode()).digest()


def clean(text: str) -> str:
    """Replace lone surrogates with U+FFFD, so that the text can be sent, hashed and stored."""
    # UTF-16 joins surrogate pairs into the characters they stand for; only lone ones are replaced.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Any) -> Any:
    """Apply `clean` to every string inside a JSON value, keys included."""
    match value:
        case str():
            return value if value.isascii() else clean(value)
        case dict():
            return {clean_json(k): clean_json(v) for k, v in value.items()}
        case list() | tuple():
            return [clean_json(v) for v in value]
        case _:
            return value


def derive_seed(
    run_seed: int, stage: str, sample_sha: str, epoch: int, attempt: int, r: int
) -> int:
    """Return the `seed` of a request: 31 bits that depend only on its position in the run.

    The branch, the step and the library have no influence, so that reruns and compared arms are
    paired. `r` is 0, or 1, 2, … for a deliberate resample.
    """
    text = f"{run_seed}|{stage}|{sample_sha}|{epoch}|{attempt}|{r}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


class Chain:
    """The hash of a request, updated per message, so that a turn only hashes its new messages.

    `Chain(head)` is h0; `add(message)` moves to h(i+1). Call B continues call A if B's chain passes
    through A's hash plus A's reply.
    """

    __slots__ = ("_state",)

    def __init__(self, head: Mapping[str, Any] | bytes) -> None:
        """Start at h0. `head` is `{model, params, tools}`; `tools` is absent if there are no tools.

        `head` may also be given as existing canonical JSON.
        """
        spelt = head if isinstance(head, bytes) else canon(head)
        self._state = hashlib.sha256(b"gp1\0" + spelt).digest()

    def add(self, message: Mapping[str, Any], spelt: bytes | None = None) -> bytes:
        """Add one message; return the new state. Shape: [32] bytes.

        `spelt`: the message's canonical JSON, if the caller already has it.
        """
        # Null keys are not hashed, so an existing spelling that contains one cannot be used.
        if spelt is None or None in message.values():
            spelt = canon(hashable(message))
        self._state = hashlib.sha256(self._state + spelt).digest()
        return self._state

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> list[bytes]:
        """Add each message; return the state after each one."""
        return [self.add(message) for message in messages]

    @property
    def state(self) -> bytes:
        """State h(n). The request's hash is its first 16 bytes."""
        return self._state


def hashable(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message in the form that is hashed: without null values, except for `content`."""
    return {k: v for k, v in message.items() if v is not None or k == "content"}
