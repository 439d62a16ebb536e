"""A config means the same however often it is stored and read again."""

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from grpo_practice.config import (
    PracticeConfig,
    load_eval,
    load_practice,
    show,
)
from grpo_practice.config.identity import identity_of
from grpo_practice.config.reading.compose import override
from grpo_practice.config.reading.yaml_reader import Tree, parse_yaml, plain
from grpo_practice.core.errors import ConfigError
from tests.config.files import stored_eval, stored_practice
from tests.properties.texts import BROKEN, HARD, TEXTS, nested

NAMES = TEXTS.map(lambda text: text[:200] or "n")
MANY = st.integers(1, 9)
SHARE = st.floats(0, 1)
FREE = nested(st.none() | st.booleans() | st.integers() | st.floats(-1e300, 1e300) | TEXTS, TEXTS)
SETTINGS = {
    "temperature": SHARE | st.integers(0, 2),
    "top_p": SHARE,
    "max_tokens": MANY,
    "verbosity": TEXTS,
    "store": st.booleans(),
    "extra_body": st.dictionaries(TEXTS.map("x{}".format), FREE, max_size=3),
}
PRACTICE = {
    "epochs": MANY,
    "batch_size": MANY,
    "grpo_n": st.integers(2, 9),
    "rollout_temperature": SHARE,
    "task_timeout": st.floats(1e-9, 1e9),
    "shuffle_data": st.booleans(),
    "seed": st.integers(),
    "agent_objective": TEXTS,
    "learning_objective": TEXTS,
    "given_ground_truth": st.booleans(),
    "max_failed_share": SHARE,
}


def some(keys: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


CONFIGS = st.fixed_dictionaries(
    {
        "exp_id": st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,20}\Z")
        | st.sampled_from(["1e3", "010", "yes", "12", "null", "2024-01-01", "1.5", "true"]),
        "practice": some(PRACTICE),
        "data": st.just({"practice_dataset_name": "train"}),
        "evaluation": st.fixed_dictionaries(
            {
                "verify": st.just("math")
                | st.fixed_dictionaries({"name": st.just("regex"), "pattern": TEXTS}),
                "agent": st.fixed_dictionaries(
                    {
                        "agent": some({"name": NAMES, "instructions": TEXTS}),
                        "model": st.fixed_dictionaries(
                            {"model_provider": st.just({"model": "sim"})},
                            optional={"model_settings": some(SETTINGS)},
                        ),
                    }
                ),
            },
            optional={"pass_k": MANY, "seed": st.integers(), "batch_size": MANY},
        ),
    }
)
LITERAL = ("instructions", "agent_objective", "learning_objective")


def written(value: Any) -> Any:
    r"""The value as a person writes it, who means every text as it stands: `${` as `\${`."""
    match value:
        case str():
            return value.replace("${", r"\${")
        case dict():
            return {k: v if k in LITERAL else written(v) for k, v in value.items()}
        case list():
            return [written(v) for v in value]
        case _:
            return value


def meant(config: PracticeConfig, data: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(what the config holds, what was written), for each key that was."""
    agent, told = config.evaluation.agent, data["evaluation"]["agent"]
    settings = told["model"].get("model_settings", {})
    return [
        (config.exp_id, data["exp_id"]),
        *((getattr(config.practice, k), v) for k, v in data["practice"].items()),
        *((getattr(agent.agent, k), v) for k, v in told["agent"].items()),
        *((getattr(agent.model.model_settings, k), v) for k, v in settings.items()),
    ]


FEW = settings(max_examples=settings().max_examples // 3)  # a config takes its time


@FEW
@given(CONFIGS)
@example(
    {
        "exp_id": "1e3",
        "practice": {"agent_objective": "${oc.env:NOT_SET} ${ \x85 '\"", "seed": 10**30},
        "data": {"practice_dataset_name": "train"},
        "evaluation": {
            "verify": {"name": "regex", "pattern": r"\${(.)}"},
            "agent": {
                "agent": {"name": "${x}", "instructions": "a: b\n\n - 12:30\r\n\u2028"},
                "model": {"model_provider": {"model": "sim"}, "model_settings": {"top_p": 1e-7}},
            },
        },
    }
)
def test_a_config_is_what_was_written_also_when_it_was_stored(data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.yaml"
        path.write_text(yaml.safe_dump(written(data)), "utf-8")
        first = load_practice(path, [], {})
        for held, told in meant(first.config, data):
            assert held == told
        again = stored_practice(first.text, Path(folder), {})
        evaluation = load_eval(path, ["data.dataset=D"], {})
        stored = stored_eval(first.text, Path(folder), {}, ["data.dataset=D"])
        path.write_text(show(first.config, first.text), "utf-8")
        shown = load_practice(path, [], {})
    assert again.config == first.config
    assert again.text == first.text
    assert identity_of(again.config) == identity_of(first.config)
    assert stored.config == evaluation.config
    assert identity_of(stored.config) == identity_of(evaluation.config)
    assert shown.config == first.config
    event("a variable's sign" if "${" in str(data) else "plain")


@given(TEXTS)
def test_a_value_of_set_in_quotes_is_that_text(text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    if any(c in text for c in "\n\r\x85\u2028\u2029\t") or not text.isprintable():
        return
    tree = override(Tree({}), [f"agent.name={quoted}"])
    assert tree.data == {"agent": {"name": text}}


@given(
    BROKEN | st.lists(st.sampled_from([*HARD, "[", "{", ": ", "\n", ",", "&a [*a]"])).map("".join)
)
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    said = ""
    try:
        found = parse_yaml(text, "f.yaml")
    except ConfigError as e:
        said = str(e)
    if said:
        assert said.startswith("f.yaml")
    else:
        assert all(isinstance(key, str) for key in found.data)
    event("refused" if said else "read")


@given(st.text("0123456789.eE+-_ ", max_size=12) | st.integers().map(str))
def test_a_plain_number_is_that_number_or_the_text(text: str) -> None:
    value = plain(text)
    if isinstance(value, int | float):
        assert value == type(value)(text)
    else:
        assert value == text or (value, text) == (None, "")
    event(type(value).__name__)


@given(
    st.lists(
        st.sampled_from(["seed=", "exp_id=", "a.b.c=", "verify=", "=", "..=", "agent="]), max_size=2
    ),
    BROKEN | st.sampled_from(["9" * 5_000, "[" * 500, "{a: &a [*a]}", "9.0e999", '"\\ud800"']),
)
def test_any_set_is_taken_or_refused_in_a_sentence(keys: list[str], value: str) -> None:
    try:
        load_eval(None, ["data.dataset=D", "verify=exact", *(key + value for key in keys)], {})
    except ConfigError as e:
        event("refused")
        str(e).encode("utf-8", "backslashreplace")
    else:
        event("taken")
