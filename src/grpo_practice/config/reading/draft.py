"""Conversion of one composed config into a model, collecting all problems on the way."""

import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from grpo_practice.config.reading.compose import is_file
from grpo_practice.config.reading.endpoint import prepare
from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.interpolate import LITERAL, interpolate
from grpo_practice.config.reading.problems import (
    Problem,
    problems_of,
    raise_problems,
    section_at,
)
from grpo_practice.config.reading.published_keys import settle
from grpo_practice.config.reading.roles import Roles
from grpo_practice.config.reading.yaml_reader import Key, Tree, dump_yaml
from grpo_practice.config.redact import leaves, redact, secrets_in
from grpo_practice.config.schema.runs import REFERENCE_FILES, RunConfig, VerifySpec
from grpo_practice.config.trust.foreign import (
    Demand,
    programs_named,
    refusals,
    variables_named,
)
from grpo_practice.config.trust.keys import Keys
from grpo_practice.core.redact import REDACTED, redactor, url_secrets

M = TypeVar("M", bound=BaseModel)
ConfigKind = Literal["eval", "practice"]


@dataclass(frozen=True, slots=True)
class ComposedConfig:
    """A composed config and the source that it was read from."""

    tree: Tree
    path: Path | None
    base_dir: Path
    env: Environment

    @property
    def name(self) -> str:
        """Name of the config in error messages."""
        return str(self.path) if self.path else "the config"


class Draft:
    """A config between its composed tree and its model, with the problems found so far."""

    def __init__(self, source: ComposedConfig, tree: Tree, kind: ConfigKind) -> None:
        self.source = source
        self.tree = tree
        self.kind = kind
        self.problems: list[Problem] = []
        self.notices: list[str] = list(source.env.notices)
        self.data: dict[str, Any] = copy.deepcopy(tree.data)
        self.ignored = settle(self.data, kind, self.problems)
        self.keys = Keys(self.data, tree, source.env, self.problems)
        self.hidden = set[Key]()
        """Model provider sections whose API key was redacted when the config was stored."""
        self.evaluation: Key = ("evaluation",) if kind == "practice" else ()
        self._one_verify_key()
        self.stored: dict[str, Any] = {}
        self.demands = list[Demand]()

    def validate(self, model: type[M]) -> M:
        """Fill in variables and validate the data; raise a ConfigError with all problems so far."""
        self.stored = copy.deepcopy(self.data)  # the stored form keeps `${…}`, never its values
        # Do this after the copy, because a stored config keeps a judge that this verify function
        # does not call.
        self._leave_out_unused()
        # Do this before variables are filled in, because their names are gone afterwards.
        self.demands += variables_named(self.data)
        self._refuse_untrusted()
        for key, prefix in self._providers():
            if prepare(self.section(key), self.source.env, prefix, key, self.tree):
                self.hidden.add(key)
        values = interpolate(self.data, self.source.env, self.problems)
        redactor.know(secrets_in(values))
        self.problems += _hidden_values(values)
        # An unset variable would be reported a second time, as a text of the wrong type.
        unfilled = {p.key for p in self.problems}
        try:
            config = model.model_validate(values)
        except ValidationError as e:
            found = problems_of(e, model, values)
            self.problems += [p for p in found if p.key not in unfilled]
        self.check()
        return config

    def finish(self, config: RunConfig) -> None:
        """Check the programs, files and hosts that a config with resolved endpoints names.

        Raises:
            ConfigError: A third-party config names a program, a file or a key's host without the
                user's trust.
        """
        self.demands += programs_named(config)
        self._refuse_untrusted()
        self.keys.sends_values(self.stored, config, self.source.base_dir)
        self.check()

    def _refuse_untrusted(self) -> None:
        if refused := refusals(self.demands, self.tree):
            self.problems += refused
            self.check()

    def check(self) -> None:
        """Raise the problems collected so far, if any, as a ConfigError."""
        emptied = self.source.env.emptied
        found = [replace(p, hint=emptied(f"{p.text} {p.hint}") or p.hint) for p in self.problems]
        raise_problems(found, self.tree, self.source.name)

    def roles(self) -> Roles:
        """Return the resolver of this config's models."""
        return Roles(self.keys, self.hidden, self.notices)

    @property
    def asks(self) -> bool:
        """Whether the config requests something that only a trusted config may have."""
        return bool(self.demands) or any(map(self.keys.names_host, self._sections()))

    @property
    def has_key_of_others(self) -> bool:
        """Whether a third-party file supplies a hidden key, or the host for such a key.

        If the config were reloaded as the user's own, that host would receive a key from the
        environment instead.
        """
        return any(
            self.keys.of_others(key)
            and redact(section_at(self.stored, key), key).get("api_key") == REDACTED
            for key in self._sections()
        )

    def _sections(self) -> list[Key]:
        """Return the keys of all model provider sections."""
        return [key for key, _ in self._providers()]

    def refuse_secrets(self, config: BaseModel) -> None:
        """Raise ConfigError if a text that is stored in clear text contains a secret."""
        for key, text in _stored_in_clear(config.model_dump()):
            if redactor.holds(text):
                reason = "it contains a secret (an API key, a header, a part of a URL)"
                hint = "remove it, because this text is stored in plain text"
                if "extra_body" in key or "extra_args" in key:
                    hint = "send it in extra_headers, because the body of a request is stored"
                self.problems.append(Problem(key, reason, hint, private=True))
        self.check()

    def text(self) -> str:
        """Return the composed config as YAML, with variables not filled in and secrets hidden."""
        return dump_yaml(redactor.value(redact(self.stored)))

    def section(self, key: Key) -> dict[str, Any]:
        """Return the mapping at a key, or an empty mapping."""
        return section_at(self.data, key)

    def _providers(self) -> list[tuple[Key, str]]:
        """Return the keys of all model provider sections, each with the prefix of its variables."""
        at, last = self.evaluation, "model_provider"
        teacher: Key = ("practice", "teacher_model", last)
        tools: Key = (*at, "agent", "toolkits")
        return [
            ((*at, "agent", "model", last), "UTU_LLM"),
            ((*at, "judge_model", last), "JUDGE_LLM"),
            *([(teacher, "UTU_LLM")] if self.kind == "practice" else []),
            *(((*tools, name, "config_llm", last), "UTU_LLM") for name in self.section(tools)),
        ]

    def _leave_out_unused(self) -> None:
        """Drop a judge that is never called: it may name variables that are not set."""
        section = self.section(self.evaluation)
        if "judge_model" not in section or "verify" not in section:
            return
        try:
            asked = VerifySpec.model_validate(section["verify"]).may_ask
        except ValidationError:
            return
        if not asked and section.pop("judge_model") is not None:
            self.ignored.append("judge_model is ignored: this verify function calls no model")

    def _one_verify_key(self) -> None:
        """Convert `verify_filename` and `verify_func_name`, the published spelling, to `verify`."""
        section = self.section(self.evaluation)
        file = section.pop("verify_filename", None)
        func = section.pop("verify_func_name", None)
        if file is None and func is None:
            verify = section.get("verify")
            if isinstance(verify, dict) and isinstance(verify.get("name"), str):
                verify["name"] = self._from_here(verify["name"], "verify", "name")
            elif isinstance(verify, str):
                section["verify"] = self._from_here(verify, "verify")
            return
        if isinstance(file, str):
            file = self._from_here(file, "verify_filename")
        if section.get("verify") is not None:
            text = "duplicates verify_filename and verify_func_name"
            self.problems.append(Problem((*self.evaluation, "verify"), text, "keep one of them"))
        elif not isinstance(file, str) or not isinstance(func, str):
            key = "verify_func_name" if isinstance(file, str) else "verify_filename"
            text = "is missing: verify_filename and verify_func_name go together"
            self.problems.append(Problem((*self.evaluation, key), text))
            # A placeholder, so that validation does not report `verify` as missing, too.
            section["verify"] = "math"
        elif file in REFERENCE_FILES and not (self.source.base_dir / file).is_file():
            section["verify"] = dict(REFERENCE_FILES[file])
        else:
            section["verify"] = f"{file}:{func}"

    def _from_here(self, name: str, *key: str) -> str:
        """Return `path.py[:func]` relative to the config's folder.

        The name changes only if it comes from an included YAML file in another folder and the
        Python file is next to that YAML file.
        """
        place, here = self.tree.place((*self.evaluation, *key)), self.source.base_dir
        file, colon, func = name.rpartition(":") if ":" in name else (name, "", "")
        # A value from a flag or from a stored config has no folder.
        if self.source.path is None or place is None or place.line is None:
            return name
        folder = Path(place.file).resolve().parent
        if folder == here or Path(file).is_absolute() or not is_file(folder / file):
            return name
        return f"{os.path.relpath(folder / file, here)}{colon}{func}"


_NAMES = frozenset(
    {"exp_id", "name", "model", "dataset", "practice_dataset_name", "select_dataset"}
)
"""Keys whose text is stored in clear text because it is the name of a database row or of the model
that answered.
"""
_STORED_WITH = frozenset({"verify", "extra_body", "extra_args"})


def _stored_in_clear(values: Any) -> Iterator[tuple[Key, str]]:
    """Yield all texts that are stored in clear text, with their keys.

    These are names, texts for models, parameters of verify functions, and values sent in request
    bodies.
    """
    for key, value in leaves(values):
        last = next((part for part in reversed(key) if isinstance(part, str)), "")
        if isinstance(value, str) and (last in LITERAL | _NAMES or _STORED_WITH & {*key}):
            # `params` is not a key in YAML, where parameters are next to the function's name.
            yield tuple(p for p in key if isinstance(p, str) and p != "params"), value


def _hidden_values(values: Any) -> Iterator[Problem]:
    """Yield a problem for each secret that was hidden when stored and has no replacement."""
    for key, value in leaves(values):
        if isinstance(value, str) and (
            REDACTED in url_secrets(value)
            or (value == REDACTED and redact("text", key) == REDACTED)
        ):
            text = "was redacted when the config was stored"
            yield Problem(key, text, "set it with --set, or pass --config")
