"""Keys of the published schema that are not ours: accepted and ignored, or refused with a way out.

A key that is not named here and is no field of a model is unknown.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from grpo_practice.config.reading.problems import Problem, dotted, section_at
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.config.schema.runs import is_data_file

KeyDecision = Literal["use", "ignore", "refuse"]
Decide = Callable[[Any, Mapping[str, Any]], KeyDecision]
"""Decision on a value, given the section it stands in."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Decision on a key of a section; the key's last part may end in `*`."""

    key: str
    decide: Decide
    say: str


def _ignore(_value: Any, _section: Mapping[str, Any]) -> KeyDecision:
    return "ignore"


def _neutral(*values: Any) -> Decide:
    """Use these values, refuse all others."""
    return lambda value, _: "use" if value in values else "refuse"


def _unless(*values: Any) -> Decide:
    """Ignore these values, which ask for nothing; refuse all others."""
    return lambda value, _: "ignore" if value in values else "refuse"


def _refuse(*values: str) -> Decide:
    """Refuse these values."""
    return lambda value, _: "refuse" if value in values else "use"


def _empty(value: Any, section: Mapping[str, Any]) -> KeyDecision:
    """Ignore what says nothing, refuse what asks for something."""
    return "ignore" if _says_nothing(value) else "refuse"


def _says_nothing(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_says_nothing(v) for v in value.values())
    return value in (None, "", [], False, "base", "dummy", "default", "none")


def _of_files(value: Any, section: Mapping[str, Any]) -> KeyDecision:
    data = section.get("data")
    file = is_data_file(data.get("dataset") if isinstance(data, dict) else None)
    return "use" if file or value is None else "ignore"


def _if_verified(value: Any, section: Mapping[str, Any]) -> KeyDecision:
    verified = any(section.get(k) for k in ("verify", "verify_filename", "verify_func_name"))
    return "ignore" if verified or value is None else "refuse"


_MANY_AGENTS = "belongs to agents made of several, which are not played here"
_RESPONSES = "belongs to the responses API, which is not used"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "practice": (
        Rule("preset", _empty, "names settings of the reference; write them out"),
        Rule("gate", _unless("none"), "is none: practice.select_dataset and --step best choose"),
    ),
    "evaluation": (
        Rule("db_url", _ignore, "results go to the file named by --db"),
        Rule("eval_method", _if_verified, "write `verify:` instead (math, exact, judge, …)"),
        Rule("data.question_field", _of_files, "only a dataset given as a file needs field names"),
        Rule("data.gt_field", _of_files, "only a dataset given as a file needs field names"),
    ),
    "agent": (
        Rule(
            "type",
            _refuse("orchestra", "orchestrator", "workforce"),
            "agents made of several are not played here; use `simple`",
        ),
        Rule(
            "agent.instructions",
            lambda value, _: "refuse" if isinstance(value, list | dict) else "use",
            "should be a text",
        ),
        Rule("runner", _ignore, "rollouts have one runner here"),
        Rule("context_manager", _empty, "is not supported; leave it out"),
        Rule("env", _empty, "is not supported; leave it out"),
        Rule("enabled_skills", _empty, "is not supported; leave it out"),
        Rule(
            "workers",  # a table of agents there, a number of processes here
            lambda value, _: "ignore" if isinstance(value, list | dict) else "use",
            _MANY_AGENTS,
        ),
        *(
            Rule(key, _ignore, _MANY_AGENTS)
            for key in ("planner_*", "workers_*", "reporter_*", "workforce_*", "orchestrator_*")
        ),
    ),
    "toolkit": (
        Rule("mode", _refuse("customized"), "give tools of your own by `mode: mcp`"),
        Rule(
            "env_mode",
            lambda value, _: "ignore" if value in (None, "local") else "refuse",
            "tools run here; `local` is the one way",
        ),
        Rule("customized_filepath", _empty, "give tools of your own by `mode: mcp`"),
        Rule("customized_classname", _empty, "give tools of your own by `mode: mcp`"),
        Rule("config.workspace_root", _ignore, "code runs without files of yours"),
        Rule(
            "config.search_engine",
            _refuse("baidu", "duckduckgo"),
            "use `google` (Serper) or `jina`",
        ),
        Rule("config.crawl_engine", _refuse("crawl4ai"), "use `jina` or `local`"),
        Rule(
            "mcp_*",
            lambda _, section: "ignore" if section.get("mode") == "builtin" else "use",
            "only a toolkit of `mode: mcp` has a server",
        ),
        Rule("mcp_transport", _refuse("sse"), "is superseded; use `streamable_http` or `stdio`"),
    ),
    "model": (
        Rule(
            "model_provider.type",
            _refuse("responses", "litellm"),
            "only `chat.completions` is spoken; most providers and proxies offer it",
        ),
        *(
            Rule(f"model_provider.{key}", _ignore, "is worked out when the config is read")
            for key in sorted(WORKED_OUT)
        ),
        Rule("model_settings.truncation", _ignore, _RESPONSES),
        Rule("model_settings.response_include", _ignore, _RESPONSES),
        Rule("model_settings.reasoning.summary", _ignore, _RESPONSES),
        Rule("model_settings.reasoning.generate_summary", _ignore, _RESPONSES),
        Rule("termination_max_tokens", _ignore, "transcripts are not cut while they are played"),
    ),
}

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
"""Per kind of config: where each section stands."""


def settle(
    data: dict[str, Any], kind: Literal["eval", "practice"], problems: list[Problem]
) -> list[str]:
    """Take out of `data` what is ignored or refused; a sentence for each ignored key."""
    ignored = []
    for prefix, name in SECTIONS[kind].items():
        for start in _places(data, tuple(prefix.split(".")) if prefix else ()):
            section = section_at(data, start)
            for rule in RULES[name] if section else ():
                for parent, key in list(_matches(section, rule.key)):  # a list: keys are deleted
                    full = (*start, *rule.key.split(".")[:-1], key)
                    decision = rule.decide(parent[key], section)
                    if decision == "refuse":
                        problems.append(Problem(full, rule.say))
                    elif decision == "ignore":
                        ignored.append(f"{dotted(full)} is ignored: {rule.say}")
                    if decision != "use":
                        del parent[key]
    return ignored


def _places(data: Any, pattern: Key) -> Iterator[Key]:
    """Yield the keys that a pattern stands for; `*` is any key of a mapping."""
    if "*" not in pattern:
        yield pattern
        return
    star = pattern.index("*")
    for name in list(section_at(data, pattern[:star])):
        yield from _places(data, (*pattern[:star], name, *pattern[star + 1 :]))


def _matches(section: dict[str, Any], pattern: str) -> Iterator[tuple[dict[str, Any], str]]:
    *above, last = pattern.split(".")
    parent = section_at(section, tuple(above))
    yield from ((parent, key) for key in parent if fnmatchcase(key, last))
