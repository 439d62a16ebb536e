"""The user's trust in files, folders and hosts that come from other people.

The trust is stored in the user's config folder, never in a project, because a project may come from
other people too.
"""

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.config.reading.yaml_reader import parse_yaml
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import digest
from grpo_practice.core.text import is_loopback

HOSTS = "GRPO_PRACTICE_TRUST_HOSTS"
"""Process variable with comma-separated hosts that may receive any key."""
OWN = "a run of mine"
"""Source recorded for the config of one of the user's own runs or exports."""
ANNOUNCED = "announced"
"""File beside the trusted texts with a hash for each key, address and run that was announced."""
_PORTS = {"http": 80, "https": 443}


def text_digest(data: Mapping[str, Any], folder: Path) -> str:
    """Return the hash that identifies a config used from this folder.

    The folder is included because programs in a config are named relative to it.
    """
    return digest({"config": data, "folder": ascii(str(folder.resolve()))}).hex()


def stored_digest(text: str, folder: Path) -> str:
    """Return the hash that identifies a stored or exported config."""
    return text_digest(parse_yaml(text, "the stored config").data, folder)


def host_of(url: str) -> str:
    """Return scheme, host and port of a URL; the scheme's default port is omitted."""
    parts = urlsplit(url)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{name}{port}"


def host_typed(typed: str) -> str:
    """Return scheme, host and port of a host as a person types it.

    The scheme defaults to https, or to http for a host on this machine.

    Raises:
        ConfigError: The text is not a host.
    """
    url = typed if "://" in typed else f"https://{typed}"
    try:
        here = is_loopback(urlsplit(url).hostname or "")
        host = host_of(f"http://{typed}" if here and url != typed else url)
    except ValueError as e:
        raise ConfigError(f"{typed} is not a valid host: {e}") from e
    if not host.startswith("http") or not urlsplit(url).hostname:
        raise ConfigError(f"{typed} is not a valid host", hint="for example --host api.example.com")
    return host


def typed_host(url: str) -> str:
    """Return a URL's host in the form a person types after `--trust-host`."""
    host = host_of(url)
    short = host.partition("://")[2]
    return short if host_typed(short) == host else host


@dataclass(frozen=True, slots=True)
class Trust:
    """Everything that the user trusts, from this command's options and from earlier commands."""

    kept: Path | None = None
    """File that stores the trust; None stores nothing."""
    files: frozenset[Path] = frozenset()
    """Resolved files passed with `--trust`."""
    hosts: tuple[str, ...] = ()
    """Hosts passed with `--trust-host`."""
    any_key: tuple[str, ...] = ()
    """Hosts from the environment variable, which may receive any key."""

    def given(self, files: Sequence[Path], hosts: Sequence[str]) -> "Trust":
        """Return a copy with this command's files and hosts; raise ConfigError for a folder."""
        for file in files:
            if file.is_dir():
                raise ConfigError(
                    f"{file} is a folder, but --trust takes one file",
                    hint=f"grpo-practice trust {shlex.quote(str(file))} trusts everything in it",
                )
        return replace(self, files=frozenset(file.resolve() for file in files), hosts=tuple(hosts))

    def folder_of(self, path: Path) -> bool:
        """Return whether the file is in a trusted folder."""
        here = path.resolve()
        return any(here.is_relative_to(r["folder"]) for r in self._records("folder"))

    def text(self, key: str, path: Path, *, imported: bool = False) -> bool:
        """Return whether the config in this file is trusted; remember a file given by `--trust`.

        `imported`: the file contains it, but does not vouch for it, in whatever folder it is.
        """
        if any(r["sha256"] == key for r in self._records("sha256")):
            return True
        if self.folder_of(path) and not imported:
            return True
        if path.resolve() not in self.files:
            return False
        with suppress(ConfigError):  # trusted now; if it cannot be stored, --trust is needed again
            self.remember([key], path)
        return True

    def host(self, url: str, variable: str) -> bool:
        """Return whether this host may receive this variable's key; remember a `--trust-host`."""
        host = host_of(url)
        if host in map(host_typed, self.any_key):
            return True
        if {"host": host, "variable": variable} in self._records("host"):
            return True
        if host not in map(host_typed, self.hosts):
            return False
        with suppress(ConfigError):
            self.remember_host(host, variable)
        return True

    def remember(self, keys: Iterable[str], path: Path | None) -> None:
        """Remember that these configs are trusted."""
        at = str(path.resolve()) if path else OWN
        self._add([{"sha256": key, "of": at} for key in dict.fromkeys(keys)])

    def remember_host(self, typed: str, variable: str) -> None:
        """Remember that this variable's key may go to a host, written as for `--trust-host`.

        Raises:
            ConfigError: The text is not a host, or cannot be remembered.
        """
        self._add([{"host": host_typed(typed), "variable": variable}])

    def remember_folder(self, folder: Path) -> None:
        """Remember that every file in this folder is trusted.

        Raises:
            ConfigError: The folder contains the user's home, or cannot be remembered.
        """
        home = Path.home().resolve()
        if home.is_relative_to(folder.resolve()):
            raise ConfigError(
                f"{folder.resolve()} contains all your files, and files that others may put there",
                hint="trust the folder of one project, or one file",
            )
        self._add([{"folder": str(folder.resolve())}])

    def announced(self) -> frozenset[str]:
        """Return the keys of all announcements that were made; empty if they cannot be read."""
        with suppress(OSError, UnicodeDecodeError):
            if self.kept is not None:
                return frozenset(self.kept.with_name(ANNOUNCED).read_text("utf-8").split())
        return frozenset()

    def announce(self, key: str) -> None:
        """Remember that an announcement was made; if it cannot be stored, it is made again."""
        if self.kept is not None:
            with suppress(OSError):
                _append(self.kept.with_name(ANNOUNCED), f"{key}\n")

    def all(self) -> list[dict[str, str]]:
        """Return all remembered records, oldest first."""
        return list(self._records())

    def _records(self, kind: str = "") -> Iterator[dict[str, str]]:
        if self.kept is None:
            return
        try:
            # Read the file each time, because another command may have added a line meanwhile.
            lines = self.kept.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(
                f"cannot read {self.kept}, which lists what you trust: {e}",
                hint="repair it, or move it away and trust your files and hosts again",
            ) from e
        for n, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                known = {"folder", "sha256", "host"} & record.keys()
                whole = known and all(isinstance(value, str) for value in record.values())
            except (ValueError, AttributeError, RecursionError):
                whole = False
            # Stop instead of skipping, because a damaged line must not silently change what is
            # trusted.
            if not whole or ("host" in record and "variable" not in record):
                raise ConfigError(
                    f"{self.kept}:{n}: not a valid entry",
                    hint="remove the line",
                )
            if not kind or kind in record:
                yield record

    def _add(self, records: Sequence[dict[str, str]]) -> None:
        """Store records that are new; a text is stored only once, whichever file it was in."""
        known = [{**record, "of": ""} for record in self._records()]
        records = [record for record in records if {**record, "of": ""} not in known]
        if self.kept is None or not records:
            return
        # Begin with a newline, because an editor may have left the last line unterminated.
        text = "".join(f"{json.dumps(record)}\n" for record in records)
        try:
            _append(self.kept, f"\n{text}")
        except OSError as e:
            raise ConfigError(
                f"cannot save what you trust in {self.kept}: {e.strerror}",
                hint="set XDG_CONFIG_HOME to another folder",
            ) from e


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A single write in append mode, so that two commands cannot interleave their lines.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def user_trust(process: Mapping[str, str]) -> Trust:
    """Return the trust of this process's user; `.env` files cannot change it."""
    any_key = tuple(h.strip() for h in process.get(HOSTS, "").split(",") if h.strip())
    folder = Path(process.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():  # a relative path would be inside the project
        folder = Path()
        with suppress(RuntimeError):  # no home folder
            folder = Path.home() / ".config"
    kept = folder / "grpo-practice" / "trusted.jsonl" if folder.is_absolute() else None
    # `process` must be the process environment; otherwise a project's `.env` could trust itself.
    return Trust(kept, any_key=any_key)
