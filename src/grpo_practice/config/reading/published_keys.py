"""Keys in the published schema that this program lacks: ignored, or refused with a remedy.

A key that is neither listed here nor a field of a model is unknown. Each table is grouped by kind
of section; the last part of a key may end in `*`.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from grpo_practice.config.reading.problems import Problem, dotted, section_at
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.core.text import is_data_file

_MANY_AGENTS = "belongs to multi-agent setups, which are not supported"
_OWN_TOOLS = "provide your own tools with `mode: mcp`"
_UNSUPPORTED = "is not supported; leave it out"

IGNORED: Mapping[str, Mapping[str, str]] = {
    "evaluation": {"db_url": "results go to the file named by --db"},
    "agent": {
        "runner": "there is only one runner",
        **dict.fromkeys(
            ("planner_*", "workers_*", "reporter_*", "workforce_*", "orchestrator_*"), _MANY_AGENTS
        ),
    },
    "toolkit": {"config.workspace_root": "code runs without access to your files"},
    "model": {
        **{
            f"model_provider.{k}": "is determined when the config is read"
            for k in sorted(WORKED_OUT)
        },
        "model_settings.truncation": "no endpoint is asked to shorten a conversation",
        "model_settings.response_include": "encrypted reasoning is always requested if it exists",
        "model_settings.reasoning.generate_summary": "is deprecated; use `reasoning.summary`",
        "termination_max_tokens": "transcripts are not truncated during a rollout",
    },
}
"""Ignored keys, each with the reason."""
REFUSED_UNLESS_EMPTY: Mapping[str, Mapping[str, str]] = {
    "practice": {
        "preset": "names settings of the reference; write them out",
        "gate": "is not supported: use practice.select_dataset and --step best",
    },
    "evaluation": {"eval_method": "write `verify:` instead (math, exact, judge, …)"},
    "agent": {
        "context_manager": _UNSUPPORTED,
        "env": _UNSUPPORTED,
        "enabled_skills": _UNSUPPORTED,
    },
    "toolkit": {
        "env_mode": "tools run on this machine; only `local` is supported",
        "customized_filepath": _OWN_TOOLS,
        "customized_classname": _OWN_TOOLS,
    },
}
"""Keys that are refused if they request something and ignored otherwise, each with a remedy."""
REFUSED: Mapping[str, Mapping[str, tuple[tuple[object, ...], str]]] = {
    "agent": {
        "type": (
            ("orchestra", "orchestrator", "workforce"),
            "multi-agent setups are not supported; use `simple`",
        ),
        "agent.instructions": ((list, dict), "should be a string"),
    },
    "toolkit": {
        "mode": (("customized",), _OWN_TOOLS),
        "config.search_engine": (("baidu", "duckduckgo"), "use `google` (Serper) or `jina`"),
        "config.crawl_engine": (("crawl4ai",), "use `jina` or `local`"),
        "mcp_transport": (("sse",), "is deprecated; use `streamable_http` or `stdio`"),
    },
    "model": {
        "model_provider.type": (
            ("litellm",),
            "use `chat.completions` or `responses`; LiteLLM's proxy offers both",
        ),
    },
}
"""Values, or types of values, that are refused, each with a remedy."""

_OF_EVAL = {
    "": "evaluation",
    "judge_model": "model",
    "agent": "agent",
    "agent.model": "model",
    "agent.toolkits.*": "toolkit",
    "agent.toolkits.*.config_llm": "model",
}
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "eval": _OF_EVAL,
    "practice": {
        "practice": "practice",
        "practice.teacher_model": "model",
        **{f"evaluation.{k}".rstrip("."): v for k, v in _OF_EVAL.items()},
    },
}
"""Locations of sections, by kind of config."""


def settle(
    data: dict[str, Any], kind: Literal["eval", "practice"], problems: list[Problem]
) -> list[str]:
    """Remove ignored and refused keys from `data`; return a message for each ignored key."""
    ignored = list[str]()
    for start, name in _sections(data, kind):
        section = section_at(data, start)
        # Do this before looking at refused keys, because `eval_method` next to `verify:` is only
        # ignored.
        unused = {**IGNORED.get(name, {}), **_unused(name, section)}
        for key, _, why in _taken(section, unused):
            ignored.append(f"{dotted((*start, *key))} is ignored: {why}")
        for key, value, why in _taken(section, REFUSED_UNLESS_EMPTY.get(name, {})):
            if _says_nothing(value):
                ignored.append(f"{dotted((*start, *key))} is ignored: {why}")
            else:
                problems.append(Problem((*start, *key), why))
        for pattern, (refused, why) in REFUSED.get(name, {}).items():
            *above, last = pattern.split(".")
            value = section_at(section, tuple(above)).get(last)
            if value in refused or type(value) in refused:
                problems += [
                    Problem((*start, *k), why) for k, *_ in _taken(section, {pattern: why})
                ]
    return ignored


def _unused(name: str, section: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the keys that other keys in their section make useless, each with the reason."""
    match name:
        case "evaluation":
            data = section_at(section, ("data",))
            fields = () if is_data_file(data.get("dataset")) else ("question_field", "gt_field")
            why = "only a dataset given as a file needs field names"
            found = {f"data.{k}": why for k in fields if data.get(k) is not None}
            if any(section.get(k) for k in ("verify", "verify_filename", "verify_func_name")):
                found["eval_method"] = REFUSED_UNLESS_EMPTY["evaluation"]["eval_method"]
            return found
        case "agent" if isinstance(section.get("workers"), list | dict):
            return {"workers": _MANY_AGENTS}  # a table of agents in the reference, a number here
        case "toolkit" if section.get("mode") == "builtin":
            return {"mcp_*": "only a toolkit of `mode: mcp` has a server"}
        case _:
            return {}


def _says_nothing(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_says_nothing(v) for v in value.values())
    return value in (None, "", [], False, "base", "dummy", "default", "local", "none")


def _sections(data: Any, kind: Literal["eval", "practice"]) -> Iterator[tuple[Key, str]]:
    """Yield the key of each section with its kind; `*` matches any key of a mapping."""
    for pattern, name in SECTIONS[kind].items():
        above, star, rest = pattern.partition(".*")
        key: Key = tuple(above.split(".")) if above else ()
        for one in list(section_at(data, key)) if star else ():
            yield (*key, one, *rest.split(".")[1:]), name
        if not star:
            yield key, name


def _taken(section: Any, patterns: Mapping[str, str]) -> Iterator[tuple[Key, Any, str]]:
    """Remove matching keys from a section; yield each with its value and the pattern's text."""
    for pattern, text in patterns.items():
        *above, last = pattern.split(".")
        parent = section_at(section, tuple(above))
        # A list, because the loop removes keys from `parent`.
        for name in [name for name in parent if fnmatchcase(name, last)]:
            yield (*above, name), parent.pop(name), text
