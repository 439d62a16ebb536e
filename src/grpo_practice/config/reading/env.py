"""The environment a config may read: the process's, and the known names of a `.env` file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from grpo_practice.config.trust.word import Trust, user_trust
from grpo_practice.errors import ConfigError
from grpo_practice.redact import environment_secrets, redactor
from grpo_practice.text import is_loopback, is_web_address

PREFIXES = ("UTU_", "JUDGE_", "OPENAI_", "GRPO_PRACTICE_", "SERPER_", "JINA_", "HF_")
"""Names a `.env` may set; a `PATH` or `LD_PRELOAD` in one is not ours to load."""
PHOENIX = ("PHOENIX_ENDPOINT", "PHOENIX_PROJECT_NAME")
"""Names a `.env` may set, too, if this Phoenix is on this machine: traces hold questions."""

PROCESS = "the environment"
"""Origin of a variable that no file sets, as people read it."""
_NOBODY = Trust()


class Environment(dict[str, str]):
    """Variables by name, those of the process before those of the `.env` file; whom to trust."""

    def __init__(
        self,
        process: Mapping[str, str],
        dotenv: Mapping[str, str] | None = None,
        path: Path | None = None,
        notices: Sequence[str] = (),
        trust: Trust = _NOBODY,
        lines: Mapping[str, int] | None = None,
    ) -> None:
        """Put the two together, remembering which was which."""
        super().__init__({**(dotenv or {}), **process})
        self._process = frozenset(process)
        self.path = path
        self.notices = tuple(notices)
        self.trust = trust
        self._lines = lines or {}
        self._emptied = [n for n, text in (dotenv or {}).items() if text and process.get(n) == ""]

    def emptied(self, text: str | None = None) -> str | None:
        """Return a sentence on variables that `.env` sets and the process's environment empties.

        With a text, only variables that it names count. None without such a variable.
        """
        names = [name for name in self._emptied if text is None or name in text]
        said = [
            f"{name} is empty in the environment, which wins over {self.path}:{self._lines[name]}:"
            f" unset {name}"
            for name in names
        ]
        return "; ".join(said) or None

    def origin(self, name: str) -> str:
        """Say where a variable was set."""
        return PROCESS if name in self._process else str(self.path)

    def line(self, name: str) -> str:
        """Return where a variable was set: the file with its line, or the environment."""
        line = None if name in self._process else self._lines.get(name)
        return self.origin(name) if line is None else f"{self.path}:{line}"

    def together(self, url: str, key: str) -> bool:
        """Return whether both variables are from one place, or a folder that the user trusts."""
        places = {self.origin(url), self.origin(key)}
        return len(places) == 1 or self.trusts_dotenv

    @property
    def trusts_dotenv(self) -> bool:
        """Whether the `.env` file lies in a folder that the user trusts."""
        return self.path is not None and self.trust.folder_of(self.path)


def as_environment(env: Mapping[str, str]) -> Environment:
    """Return the mapping as an `Environment`; a plain one stands for the process's."""
    return env if isinstance(env, Environment) else Environment(env)


def read_environment(
    process: Mapping[str, str], cwd: Path | None = None, *, trust: Trust | None = None
) -> Environment:
    """Read the process's variables, and the known ones of the nearest `.env` of the project.

    The secrets among all of them are known to the redactor then, used or not.

    The search goes up from `cwd` and ends at the project's root: the nearest folder with `.git`
    or `pyproject.toml`, or `cwd` itself where there is none. Without a `trust` it is that of the
    process's user.

    Raises:
        ConfigError: There is a `.env` that cannot be read.
    """
    redactor.know(environment_secrets(process))
    path, trust = _find(cwd or Path.cwd()), trust or user_trust(process)
    if path is None:
        return Environment(process, trust=trust)
    from dotenv.parser import parse_stream

    try:
        readable_by_others = path.stat().st_mode & 0o077
        with path.open(encoding="utf-8-sig") as file:
            # Without interpolation: a `$` in a key is a `$`.
            bindings = [one for one in parse_stream(file) if one.key is not None]
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read {path}: {e}") from e
    values = {str(one.key): one.value for one in bindings}
    lines = dict[str, int]()
    for one in bindings:
        text = one.original.string  # with the blank lines before the variable
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
        notices.append(f"{path} can be read by others; chmod 600 keeps its keys to you")
    if len(known) < len(values):
        others = ", ".join(k for k in values if k not in known)
        only = f"{', '.join(PREFIXES)}, and the {PHOENIX[0]} of this machine"
        notices.append(f"{path}: not loaded: {others} (only {only})")
    if "UTU_DB_URL" in known and "GRPO_PRACTICE_DB" not in process:
        where = f"{path}:{lines['UTU_DB_URL']}"
        notices.append(
            f"{where}: UTU_DB_URL is not read: name the file with --db FILE or GRPO_PRACTICE_DB"
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
