"""Environment variables of a config, from the process and, for known names, from a `.env` file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from grpo_practice.config.trust.word import Trust, user_trust
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import environment_secrets, redactor
from grpo_practice.core.text import is_loopback, is_web_address

PREFIXES = ("UTU_", "JUDGE_", "OPENAI_", "GRPO_PRACTICE_", "SERPER_", "JINA_", "HF_")
"""Prefixes of the names that a `.env` file may set. A `PATH` or `LD_PRELOAD` in such a file is
ignored.
"""
PHOENIX = ("PHOENIX_ENDPOINT", "PHOENIX_PROJECT_NAME")
"""Variables that a `.env` file may set only for a Phoenix on this machine, because traces contain
questions.
"""

PROCESS = "the environment"
"""Origin of a process variable, as shown to the user."""
_NOBODY = Trust()


class Environment(dict[str, str]):
    """Variables by name, with trusted files and hosts; process variables override `.env`."""

    def __init__(
        self,
        process: Mapping[str, str],
        dotenv: Mapping[str, str] | None = None,
        path: Path | None = None,
        notices: Sequence[str] = (),
        trust: Trust = _NOBODY,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        """Combine both sources, remembering the origin of each variable."""
        super().__init__({**(dotenv or {}), **process})
        self._process = frozenset(process)
        self.path = path
        self.notices = tuple(notices)
        self.trust = trust
        self._lines = lines or {}
        # `export KEY=` silently hides a key in `.env`, which is hard to find.
        self._emptied = [n for n, text in (dotenv or {}).items() if text and process.get(n) == ""]

    def emptied(self, text: str | None = None) -> str | None:
        """Return a notice about variables that `.env` sets and the process sets to empty.

        If a text is given, only variables that it mentions count. Returns None if there are no such
        variables.
        """
        names = [name for name in self._emptied if text is None or name in text]
        said = [
            f"{name} is empty in the environment, which overrides {self.path}:{self._lines[name]}:"
            f" unset {name}"
            for name in names
        ]
        return "; ".join(said) or None

    def origin(self, name: str) -> str:
        """Return the origin of a variable: the environment or the `.env` file."""
        return PROCESS if name in self._process else str(self.path)

    def line(self, name: str) -> str:
        """Return the origin of a variable; for a `.env` file, with the line number."""
        line = None if name in self._process else self._lines.get(name)
        return self.origin(name) if line is None else f"{self.path}:{line}"

    def together(self, url: str, key: str) -> bool:
        """Return whether both variables share an origin, or the user trusts the `.env` folder."""
        places = {self.origin(url), self.origin(key)}
        return len(places) == 1 or self.trusts_dotenv

    @property
    def trusts_dotenv(self) -> bool:
        """Whether the `.env` file is in a folder that the user trusts."""
        return self.path is not None and self.trust.folder_of(self.path)


def as_environment(env: Mapping[str, str]) -> Environment:
    """Return the mapping as an `Environment`; a plain mapping counts as the process's variables."""
    return env if isinstance(env, Environment) else Environment(env)


def read_environment(
    process: Mapping[str, str], cwd: Path | None = None, *, trust: Trust | None = None
) -> Environment:
    """Read the process's variables, and the known names from the project's nearest `.env` file.

    All secrets among the variables are registered with the redactor, whether they are used or not.

    The search goes up from `cwd` and ends at the project's root: the nearest folder with `.git` or
    `pyproject.toml`, or `cwd` itself if no such folder exists. `trust` defaults to the trust of the
    process's user.

    Raises:
        ConfigError: A `.env` file cannot be read.
    """
    redactor.know(environment_secrets(process))
    path, trust = _find(cwd or Path.cwd()), trust or user_trust(process)
    if path is None:
        return Environment(process, trust=trust)
    # Imported late, because most commands find no `.env` file.
    from dotenv.parser import parse_stream

    try:
        readable_by_others = path.stat().st_mode & 0o077
        with path.open(encoding="utf-8-sig") as file:
            # python-dotenv's interpolation is bypassed, because a key may contain `$`.
            bindings = [one for one in parse_stream(file) if one.key is not None]
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {path}: {e}") from e
    values = {str(one.key): one.value for one in bindings}
    lines = dict[str, int]()
    for one in bindings:
        text = one.original.string  # includes the blank lines before the variable
        blank = text[: len(text) - len(text.lstrip())].count("\n")
        lines[str(one.key)] = one.original.line + blank
    given = {k: v for k, v in values.items() if v is not None}
    redactor.know(environment_secrets(given))
    url = given.get(PHOENIX[0], "")
    local = is_web_address(url) and is_loopback(urlsplit(url).hostname or "")
    names = (*PREFIXES, *(PHOENIX if local else ()))
    known = {k: v for k, v in given.items() if k.startswith(names)}
    notices = []
    if readable_by_others and known:
        notices.append(f"{path} can be read by other users; chmod 600 keeps its keys private")
    if len(known) < len(values):
        others = ", ".join(k for k in values if k not in known)
        only = f"{', '.join(PREFIXES)}, and the {PHOENIX[0]} of this machine"
        notices.append(f"not loaded from {path}: {others} (only {only} are loaded)")
    if "UTU_DB_URL" in known and "GRPO_PRACTICE_DB" not in process:
        where = f"{path}:{lines['UTU_DB_URL']}"
        notices.append(
            f"{where}: UTU_DB_URL is ignored: name the file with --db FILE or GRPO_PRACTICE_DB"
        )
    found = Environment(process, known, path, notices, trust, lines)
    found.notices += tuple(filter(None, [found.emptied()]))
    return found


def project(cwd: Path) -> Path:
    """Return the project's root: the nearest folder with `.git` or `pyproject.toml`, else `cwd`."""
    folders = [cwd, *cwd.parents]
    return next(
        (f for f in folders if (f / ".git").exists() or (f / "pyproject.toml").exists()), cwd
    )


def _find(cwd: Path) -> Path | None:
    root = project(cwd)
    for folder in [cwd, *cwd.parents]:
        if (folder / ".env").is_file():
            return folder / ".env"
        if folder == root:
            return None
    return None
