r"""Expansion of `${oc.env:NAME}` and `${oc.env:NAME,default}` in config values.

Nothing else is expanded. OmegaConf's own resolver is not used because it refuses any text with an
unpaired `${` (LaTeX in instructions), refuses a URL with `=` as a default, and reads only the
process environment.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from grpo_practice.config.reading.problems import Problem
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.base import EnvText

_FORM = re.compile(r"\\\$\{|\$\{([^${}]*)\}|\$\{")
_ENV = re.compile(r"\s*oc\.env\s*:\s*([A-Za-z_]\w*)\s*(?:,(.*))?", re.DOTALL)

LITERAL = frozenset({"instructions", "agent_objective", "learning_objective"})
r"""Keys whose text is taken literally, except that `\\\${` means `${`: see `escaped`."""

_ESCAPED = re.compile(r"(?<!\\)((?:\\{4})*)\\{3}\$\{")
_DOLLAR_BRACE = re.compile(r"(\\*)\$\{")

_USUAL = {"UTU_LLM_TYPE": "chat.completions", "JUDGE_LLM_TYPE": "chat.completions"}
"""Values of variables that have a fixed default when unset."""


def variables(value: object) -> list[str]:
    """Return the environment variables that a raw config value refers to."""
    bodies = (m[1] for m in _FORM.finditer(str(value)) if m[1] is not None)
    return [found[1] for body in bodies if (found := _ENV.fullmatch(body))]


def variable(value: object) -> str | None:
    """Return the variable that makes up the whole raw value; None if the value is anything else."""
    whole = _FORM.fullmatch(str(value))
    found = _ENV.fullmatch(whole[1] or "") if whole else None
    return found[1] if found else None


def escaped(text: str) -> str:
    r"""Escape a literal text so that this tool and the reference implementation read it alike.

    The reference resolves a loaded file twice, and each time `\${` becomes `${`. Therefore, n
    backslashes before a `${` become 4n + 3 in the file.
    """
    return _DOLLAR_BRACE.sub(lambda m: "\\" * (4 * len(m[1]) + 3) + "${", text)


def unescaped(text: str) -> str:
    r"""Return the value of a literal text; a `${` that is not escaped stays as it is."""
    return _ESCAPED.sub(lambda m: "\\" * (len(m[1]) // 4) + "${", text)


def interpolate(value: Any, env: Mapping[str, str], problems: list[Problem], key: Key = ()) -> Any:
    """Replace every `${oc.env:…}` in the value; add a problem for each variable without a value."""
    match value:
        case dict():
            return {
                k: unescaped(v)
                if k in LITERAL and isinstance(v, str)
                else interpolate(v, env, problems, (*key, k))
                for k, v in value.items()
            }
        case list():
            return [interpolate(v, env, problems, (*key, i)) for i, v in enumerate(value)]
        case str() if "${" in value:
            return _text(value, env, lambda text, hint: problems.append(Problem(key, text, hint)))
        case _:
            return value


def _text(
    raw: str, env: Mapping[str, str], refuse: Callable[[str, str | None], None]
) -> str | None:
    missing = object()

    def one(body: str) -> object:
        found = _ENV.fullmatch(body)
        if found is None:
            refuse(
                f"${{{body}}} is not supported",
                r"only ${oc.env:NAME} and ${oc.env:NAME,default} are; write \${ for a literal ${",
            )
            return ""
        name, default = found[1], found[2]
        value = env.get(name, _USUAL.get(name) if default is None else _default(default))
        if value is None and default is None:
            refuse(f"the environment variable {name} is not set", f"set {name}, or add it to .env")
            return ""
        return missing if value is None else value

    whole = _FORM.fullmatch(raw)
    # A value that is nothing but a variable may become null; inside a text, null becomes "".
    if whole is not None and whole[1] is not None:
        value = one(whole[1])
        return None if value is missing else EnvText(value)

    def part(found: re.Match[str]) -> str:
        if found[0] == "\\${":
            return "${"
        if found[1] is None:
            refuse("an unclosed ${", r"write \${ for a literal ${")
            return ""
        value = one(found[1])
        return "" if value is missing else str(value)

    # A single pass, so that the value of a variable is never expanded itself.
    return EnvText(_FORM.sub(part, raw))


def _default(text: str) -> str | None:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return None if text in ("null", "") else text
