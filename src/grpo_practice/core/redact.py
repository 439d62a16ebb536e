"""The secrets of this process, and the only code that replaces them with `***`.

Code that reads a secret from the environment, a config or an endpoint registers it with `redactor`.
Errors, stored rows, files and all output then pass through it, whatever their source.
"""

import base64
import html
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

REDACTED = "***"
SHORTEST_SECRET = 8
"""Minimum length of a secret, in characters.

Shorter ones (`EMPTY`, `ollama`, `1`) are placeholders; hiding such words would spoil answers.
"""

ROLLOUT_TOKEN = "gp-rollout-"
"""Prefix of the keys that programs inside rollouts get; even expired ones are hidden."""

_ROLLOUT_KEY = re.compile(rf"{ROLLOUT_TOKEN}[A-Za-z0-9_-]{{43}}")
_ROLLOUT_KEY_BYTES = re.compile(_ROLLOUT_KEY.pattern.encode())
_SCHEME = re.compile(r"\A(?:Bearer|Basic)\s+", re.IGNORECASE)
_UNESCAPED = re.compile(r"[A-Za-z0-9_.~-]+")
"""Characters that every notation leaves unchanged."""
_KEY_NAME = re.compile(
    r"(?:^|_)(?:API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PAT|PASS|AUTH|COOKIE|CREDENTIALS?)(?:_BASE|_?\d+)?$"
    r"|(?:PASSWORD|PASSWD|PASSPHRASE|_PWD)(?:_?\d+)?$",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk-|gsk_|hf_|xai-|nvapi-|pplx-|r8_|AIza)(?=\D*\d)[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?)"
)


def hide_rollout_keys(raw: bytes) -> bytes:
    """Redact the keys of rollouts in bytes that a program sends.

    Each rollout has a different key, so a request that contains one would never match a stored one.
    """
    return _ROLLOUT_KEY_BYTES.sub(REDACTED.encode(), raw)


class Redactor:
    """Replaces every secret it knows, also in the notations in which systems echo a secret.

    These are percent-encoding, escapes of JSON and HTML, and base64 at any offset in a longer text
    (as in Basic authentication). Secrets below `SHORTEST_SECRET` characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.known: frozenset[str]
        self._hidden: tuple[tuple[str, re.Pattern[str]], ...]
        self.forget()
        self.know(secrets)

    def forget(self) -> None:
        """Forget every secret, as in a new process."""
        self.known, self._hidden = frozenset(), ()

    def know(self, secrets: Iterable[str]) -> None:
        """Redact these secrets as well, with their Bearer tokens and percent-decoded forms."""
        given = set(secrets)
        given |= {_SCHEME.sub("", text) for text in given}
        given |= {unquote(text) for text in given}
        new = {text for text in given if len(text) >= SHORTEST_SECRET} - self.known
        if not new:
            return
        self.known |= new
        # A secret may be part of a longer one. If the shorter one were replaced
        # first, the rest of the longer one would stay readable.
        longest_first = sorted(self.known, key=lambda s: (-len(s), s))
        self._hidden = tuple(form for text in longest_first for form in _forms(text))

    def text(self, text: str) -> str:
        """Replace every secret in the text."""
        if len(text) < SHORTEST_SECRET:
            return text
        for sign, pattern in self._hidden:
            # A substring test is far cheaper than the regex, and few texts contain a secret.
            if sign in text:
                text = pattern.sub(REDACTED, text)
        return _ROLLOUT_KEY.sub(REDACTED, text) if ROLLOUT_TOKEN in text else text

    def suspects(self, text: str) -> bool:
        """Return False if neither the text nor any part of it can contain a secret."""
        return ROLLOUT_TOKEN in text or any(sign in text for sign, _ in self._hidden)

    def holds(self, text: str) -> bool:
        """Return True if the text contains a secret."""
        return self.text(text) != text

    def value(self, value: Any) -> Any:
        """Replace every secret in the strings of a JSON value, keys included."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.value(k): self.value(v) for k, v in value.items()}
            case list() | tuple():
                return [self.value(v) for v in value]
            case _:
                return value


redactor = Redactor()
"""Redactor of this process."""


def _forms(secret: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield regexes of the secret in all notations, each with a substring of all matches."""
    parts = re.findall(r"\\+|[^\\]", secret)
    yield _sign(secret), re.compile("".join(map(_spelt, parts)))
    raw = secret.encode("utf-8", "surrogatepass")
    # base64 encodes three bytes at a time, so the code of a secret depends on how many bytes of
    # other text share its first group: 0, 1 or 2. Only whole groups of the secret are matched.
    for before in range(3):
        # The bytes that share a group with the text before the secret are skipped.
        whole = raw[-before % 3 :]
        code = base64.b64encode(whole[: len(whole) // 3 * 3]).decode()
        for shown in {code, code.translate(str.maketrans("+/", "-_"))}:
            rest = "[A-Za-z0-9+/_-]{0,4}=*"
            yield _sign(shown), re.compile("".join(map(_spelt, shown)) + rest)


def _sign(text: str) -> str:
    return max(_UNESCAPED.findall(text), key=len, default="")


def _spelt(part: str) -> str:
    """Return a regex for all notations of one character, or of a sequence of backslashes.

    Each level of escaping doubles the backslashes; up to three levels are recognised.
    """
    if _UNESCAPED.fullmatch(part):
        return re.escape(part)
    char, times, code = part[0], len(part), ord(part[0])
    percent = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    escapes = [percent, rf"\\{{1,8}}u{code:04x}", f"&#0*{code};", f"&#x0*{code:x};"]
    for name in sorted({html.escape(char), json.dumps(char)[1:-1], ascii(char)[1:-1]} - {char}):
        slashed = name.startswith("\\")
        escapes.append((r"\\{1,8}" if slashed else "") + re.escape(name.lstrip("\\")))
    if char == "\\":
        return rf"(?:\\{{{times},{8 * times}}}|(?i:{percent}|&#92;|&#x5c;){{{times}}})"
    if char == " ":
        escapes.append(r"\+")
    return rf"(?:\\{{0,8}}{re.escape(char)}|(?i:{'|'.join(escapes)}))"


def key_shaped(text: str) -> list[str]:
    """Return the substrings that look like API keys of known providers, wherever pasted."""
    return _KEY.findall(text)


def environment_secrets(variables: Mapping[str, str]) -> set[str]:
    """Return the secrets in environment variables, found by name and in URLs and headers.

    Keys and passwords are found by the name of the variable. A value without a digit is a
    placeholder (`lm-studio`), unless a config uses it as a key.
    """
    named = {v for k, v in variables.items() if _KEY_NAME.search(k) and re.search(r"\d", v)}
    # As OpenTelemetry and others spell headers in a variable: `name=value,name=value`.
    for text in (v for k, v in variables.items() if k.endswith("_HEADERS")):
        named |= {pair.partition("=")[2].strip() for pair in text.split(",")} - {""}
    return named.union(*(url_logins(v) for v in variables.values() if "://" in v))


def variable_secrets(name: str, value: str) -> set[str]:
    """Return the secrets in a variable that a config passes to a program.

    A value counts as a secret by its name or its form, as does a password in a URL. Paths,
    addresses and words do not count: programs use them in their answers, and redaction would spoil
    these.
    """
    token = re.fullmatch(r"[\w.~+=-]{16,}", value) and re.search(r"\d", value)
    named = _KEY_NAME.search(name)
    return url_logins(value) | ({value} if token or (named and "://" not in value) else set())


def redact_url(url: str) -> str:
    """Hide user, password and query values of a URL; return any other text unchanged."""
    parts = _split(url)
    if parts is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{REDACTED}@{host}" if "@" in parts.netloc else host
    query = re.sub(r"(?<==)[^&;]+", REDACTED, parts.query)
    if "=" not in parts.query and parts.query:
        query = REDACTED
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def url_secrets(url: str) -> set[str]:
    """Return the login and the query values of a URL, as spelt in the URL."""
    parts = _split(url)
    if parts is None:
        return set()
    found = {pair.partition("=")[2] or pair for pair in parts.query.split("&")}
    return (url_logins(url) | found) - {""}


def url_logins(url: str) -> set[str]:
    """Return a URL's password, alone and with its user; a user without a password is a token."""
    parts = _split(url)
    login = parts.netloc.rpartition("@")[0] if parts else ""
    return {login, login.partition(":")[2]} - {""}


def _split(url: str) -> SplitResult | None:
    """Return the URL's parts; None if the text is not a single URL with a host."""
    if any(c.isspace() for c in url):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.netloc else None


class PrivateStream:
    """A text stream that redacts all text written to the stream that it wraps."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with its secrets redacted."""
        self._stream.write(redactor.text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines with their secrets redacted."""
        self._stream.writelines(map(redactor.text, lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hide_output() -> None:
    """Redact all output of this process from now on, tracebacks included."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrivateStream):
            setattr(sys, name, PrivateStream(stream))
