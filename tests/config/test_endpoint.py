from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.load import Loaded, load_eval, load_practice
from grpo_practice.config.schema.provider import ModelProvider
from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.core.errors import ConfigError
from tests.config.files import ENV, EVAL, MODEL_BASE, PRACTICE, agent_in, write

NEEDED = ["data.dataset=D", "verify=math"]
AT = "agent.model.model_provider"
OPENAI = {"OPENAI_API_KEY": "sk-openai-0000"}


def student(overrides: Sequence[str], env: Mapping[str, str]) -> ModelProvider:
    config = load_eval(None, [*NEEDED, *overrides], env).config
    return config.agent.model.model_provider


def judge(overrides: Sequence[str], env: Mapping[str, str]) -> Loaded[EvalConfig]:
    return load_eval(None, ["data.dataset=D", "verify=judge", *overrides], env)


def where(provider: ModelProvider) -> tuple[str, str, str | None]:
    return provider.model, provider.base_url, provider.key


def test_url_and_key_come_from_the_environment_together() -> None:
    found = student([], ENV)
    assert where(found) == ("student-1", "https://llm.example/v1", "sk-student-000")
    assert found.origin == "UTU_LLM_BASE_URL in the environment"


@pytest.mark.parametrize(
    ("overrides", "env", "key_origin"),
    [
        ([], ENV, "UTU_LLM_API_KEY in the environment"),
        ([f"{AT}.model=m"], OPENAI, "OPENAI_API_KEY in the environment"),
        ([f"{AT}.base_url=https://llm.example/v2"], ENV, "UTU_LLM_API_KEY in the environment"),
        ([f"{AT}.base_url=http://h/v1"], ENV, f"{AT}.api_key"),
        ([f"{AT}.base_url=http://h/v1", f"{AT}.api_key=own-key-0"], ENV, f"{AT}.api_key"),
        (
            [f"{AT}.base_url=http://h/v1", f"{AT}.api_key=${{oc.env:MY_KEY}}"],
            {**ENV, "MY_KEY": "mine-0000"},
            f"{AT}.api_key, from MY_KEY in the environment",
        ),
        ([f"{AT}.model=sim"], ENV, ""),
    ],
)
def test_a_key_knows_where_it_came_from(
    overrides: list[str], env: dict[str, str], key_origin: str
) -> None:
    assert student(overrides, env).key_origin == key_origin


def test_a_key_of_another_model_names_both() -> None:
    found = judge([f"judge_model.model_provider.base_url={ENV['UTU_LLM_BASE_URL']}"], ENV).config
    assert found.judge_model is not None
    assert found.judge_model.model_provider.key_origin == (
        "the agent (UTU_LLM_API_KEY in the environment)"
    )


def test_utu_comes_before_openai_and_openai_has_a_url_of_its_own() -> None:
    assert student([], {**ENV, **OPENAI}).key == "sk-student-000"
    found = student([f"{AT}.model=m"], OPENAI)
    assert where(found) == ("m", "https://api.openai.com/v1", "sk-openai-0000")
    other = student([f"{AT}.model=m"], {**OPENAI, "OPENAI_BASE_URL": "https://proxy.example/v1/"})
    assert other.base_url == "https://proxy.example/v1"


def test_a_url_of_the_config_gets_no_key_of_another_host() -> None:
    overrides = [f"{AT}.model=m", f"{AT}.base_url=http://localhost:8000/v1"]
    loaded = load_eval(None, [*NEEDED, *overrides], {**ENV, **OPENAI})
    assert loaded.config.agent.model.model_provider.key is None
    assert any("UTU_LLM_API_KEY is not sent to http://localhost:8000" in n for n in loaded.notices)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://llm.example:443/other", "sk-student-000"),
        ("https://api.openai.com/v1", "sk-openai-0000"),
        ("http://llm.example/v1", None),
        ("http://llm.example:443/v1", None),
        ("https://llm.example.evil/v1", None),
        ("https://llm.example:444/v1", None),
        ("https://llm.example@evil.example/v1", None),
    ],
)
def test_a_url_of_the_config_gets_the_key_of_the_same_host(url: str, key: str | None) -> None:
    assert student([f"{AT}.base_url={url}"], {**ENV, **OPENAI}).key == key


def test_a_key_alone_goes_to_the_host_it_came_with_or_nowhere() -> None:
    found = student([f"{AT}.model=m", f"{AT}.api_key=sk-openai-0000"], {**ENV, **OPENAI})
    assert found.base_url == "https://api.openai.com/v1"
    with pytest.raises(ConfigError, match="a key is sent only to the host named next to it"):
        student([f"{AT}.api_key=sk-other-00000"], {**ENV, **OPENAI})


def test_a_dotenv_cannot_send_the_users_openai_key_to_its_host() -> None:
    env = Environment(OPENAI, {"OPENAI_BASE_URL": "http://evil.example"}, Path("/repo/.env"))
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY .* OPENAI_BASE_URL in /repo/\.env"):
        student([f"{AT}.model=m"], env)
    assert student([f"{AT}.base_url=http://evil.example", f"{AT}.model=m"], env).key is None
    both = Environment(ENV | OPENAI, {"OPENAI_BASE_URL": "http://evil.example"}, Path("/r/.env"))
    assert student([], both).key == "sk-student-000"


def test_what_is_missing_is_named_with_the_way_out() -> None:
    with pytest.raises(
        ConfigError, match=r"agent\.model\.model_provider\.model: no model is named"
    ) as e:
        student([], {})
    assert "UTU_LLM_MODEL" in (e.value.hint or "")
    with pytest.raises(ConfigError, match="where is the model 'm' served") as e:
        student([f"{AT}.model=m"], {})
    assert "UTU_LLM_BASE_URL" in (e.value.hint or "")
    with pytest.raises(ConfigError, match="UTU_LLM_API_KEY is set, but UTU_LLM_BASE_URL is not"):
        student([f"{AT}.model=m"], {"UTU_LLM_API_KEY": "k"})


@pytest.mark.parametrize("env", [{}, ENV, {**ENV, "UTU_LLM_API_KEY": ""}, OPENAI])
@pytest.mark.parametrize("name", ["sim", "sim:hard"])
def test_a_sim_of_the_config_needs_and_uses_no_endpoint(name: str, env: dict[str, str]) -> None:
    found = student([f"{AT}.model={name}"], env)
    assert found.simulated
    assert where(found) == (name, "", None)


def test_a_sim_with_a_url_of_its_own_is_an_ordinary_endpoint() -> None:
    found = student([f"{AT}.model=sim", f"{AT}.base_url=http://localhost:1"], ENV)
    assert not found.simulated
    assert found.base_url == "http://localhost:1"
    served = student([], {"UTU_LLM_MODEL": "sim", "UTU_LLM_BASE_URL": "http://localhost:2"})
    assert served.base_url == "http://localhost:2"
    assert not served.simulated
    assert student([], {"UTU_LLM_MODEL": "sim"}).simulated
    served_env = {"UTU_LLM_MODEL": "sim", "UTU_LLM_BASE_URL": "http://localhost:2"}
    url_from = f"{AT}.base_url, from UTU_LLM_BASE_URL in the environment"
    assert student([f"{AT}.model=${{oc.env:UTU_LLM_MODEL}}"], served_env) == served.model_copy(
        update={"origin": url_from, "key_origin": f"{AT}.api_key"}
    )


NAMELESS = {name: value for name, value in ENV.items() if name != "UTU_LLM_MODEL"}


@pytest.mark.parametrize(
    ("model", "env", "simulated"),
    [
        ("sim", ENV, True),
        ("${oc.env:UTU_LLM_MODEL}", {"UTU_LLM_MODEL": "sim"}, True),
        ("${oc.env:UTU_LLM_MODEL}", {**ENV, "UTU_LLM_MODEL": "sim"}, False),
        ("${oc.env:UTU_LLM_MODEL,sim}", {**ENV, "UTU_LLM_MODEL": "sim"}, False),
        ("${oc.env:UTU_LLM_MODEL,sim}", NAMELESS, True),  # the config's word, not the environment's
    ],
)
def test_a_url_the_config_takes_from_the_environment_is_not_for_a_sim_it_names(
    tmp_path: Path, model: str, env: dict[str, str], simulated: bool
) -> None:
    path = write(tmp_path, {"e.yaml": "defaults: [/base@agent.model]\n", "base.yaml": MODEL_BASE})
    found = load_eval(path, [*NEEDED, f"{AT}.model={model}"], env).config.agent.model.model_provider
    assert found.simulated is simulated


@pytest.mark.parametrize("name", ["sim", "${oc.env:UTU_LLM_MODEL,sim}"])
@pytest.mark.parametrize("role", ["agent.model", "judge_model"])
def test_a_sim_that_a_config_names_is_built_in_in_every_role(name: str, role: str) -> None:
    env = {**NAMELESS, "JUDGE_LLM_BASE_URL": "http://localhost:3"}
    agent = [f"{AT}.model=m", f"{AT}.base_url=http://localhost:4"] if role != "agent.model" else []
    sets = [*NEEDED, "verify=judge", *agent, f"{role}.model_provider.model={name}"]
    config = load_eval(None, sets, env).config
    model = config.student if role == "agent.model" else config.judge
    assert model.model_provider.simulated


def test_the_origin_of_a_url_names_key_variable_and_file(tmp_path: Path) -> None:
    env = Environment({}, ENV, tmp_path / ".env")
    found = student([f"{AT}.base_url=${{oc.env:UTU_LLM_BASE_URL}}"], env)
    assert found.origin == f"{AT}.base_url, from UTU_LLM_BASE_URL in {tmp_path / '.env'}"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x/v1", "should be an http:// or https:// URL"),
        ("api.openai.com/v1", "has no scheme, and should start with http:// or https://"),
        ("localhost:83/v1", "has no scheme"),
        ("http://", "should be an http:// or https:// URL"),
        ("http://h:x/", "should be an http:// or https:// URL"),
        ("https://h/v1/chat/completions", "should end before /chat/completions"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        student([f"{AT}.model=m", f"{AT}.base_url={url}"], {})


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("url", ["127.0.0.1:8399/v1", "localhost:8399/v1"])
def test_a_variables_url_without_a_scheme_is_refused_before_its_key_is_routed(
    tmp_path: Path, url: str, apart: bool
) -> None:
    at, key = {"UTU_LLM_BASE_URL": url}, {"UTU_LLM_MODEL": "m", "UTU_LLM_API_KEY": "sk-x"}
    env = Environment(key, at, tmp_path / ".env") if apart else Environment(at | key)
    with pytest.raises(ConfigError, match=r"UTU_LLM_BASE_URL in .* has no scheme") as refused:
        student([], env)
    assert "trust" not in str(refused.value) + str(refused.value.hint)


def test_a_url_of_a_flag_or_an_agent_file_does_not_inherit_the_configs_key(tmp_path: Path) -> None:
    provider = "{model: m, base_url: 'https://c/v1', api_key: sk-config-key}"
    text = EVAL.replace("{model: sim}", provider)
    path = write(tmp_path, {"e.yaml": text})
    elsewhere, own = f"{AT}.base_url=https://other/v1", f"{AT}.api_key=sk-flag"

    def key(*flags: str, agent: Path | None = None) -> str | None:
        config = load_eval(path, flags, {}, agent=agent).config
        return config.agent.model.model_provider.key

    assert key(f"{AT}.base_url=https://c/v1") == "sk-config-key"
    assert key(elsewhere) is None
    assert key(elsewhere, own) == key(own, elsewhere) == "sk-flag"
    assert key(f"{AT}={{base_url: 'https://other/v1'}}") is None
    agent = write(tmp_path, {"a.yaml": "model: {model_provider: {model: n}}\n"})
    assert key(agent=agent) == "sk-config-key"
    agent.write_text("model: {model_provider: {base_url: 'https://other/v1'}}\n", "utf-8")
    assert key(agent=agent) is None


@pytest.mark.parametrize(
    "urls", ["[http://a/v1, http://b/v1]", "[http://a/v1]", "[]", "http://a/v1,http://b/v1"]
)
def test_several_urls_are_refused_with_the_alternative(urls: str) -> None:
    with pytest.raises(ConfigError, match=r"base_url.* one URL: .* load balancer"):
        student([f"{AT}.base_url={urls}", f"{AT}.api_key=sk-x"], ENV)


def test_the_judge_is_the_student_unless_told_otherwise() -> None:
    config = judge(["agent.model.model_settings.max_tokens=5"], ENV).config
    assert config.judge_model is not None
    assert config.judge_model.model_provider == config.agent.model.model_provider
    assert config.judge_model.model_settings.given() == {"temperature": 0.0}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"JUDGE_LLM_MODEL": "j"}, ("j", "https://llm.example/v1", "sk-student-000")),
        ({"JUDGE_LLM_BASE_URL": "http://j/v1"}, ("student-1", "http://j/v1", None)),
        (
            {"JUDGE_LLM_MODEL": "j", "JUDGE_LLM_BASE_URL": "http://j", "JUDGE_LLM_API_KEY": "k"},
            ("j", "http://j", "k"),
        ),
        ({"JUDGE_LLM_MODEL": "sim"}, ("sim", "", None)),
    ],
)
def test_the_judge_of_the_environment(
    env: dict[str, str], expected: tuple[str, str, str | None]
) -> None:
    found = judge([], {**ENV, **env}).config.judge_model
    assert found is not None
    assert where(found.model_provider) == expected


def test_the_judge_of_the_config_wins_and_has_its_own_settings() -> None:
    overrides = [
        "judge_model.model_provider.model=own",
        "judge_model.model_settings.max_tokens=99",
        "judge_model.model_params.temperature=0.2",
    ]
    found = judge(overrides, {**ENV, "JUDGE_LLM_MODEL": "j"}).config.judge_model
    assert found is not None
    assert where(found.model_provider) == ("own", "https://llm.example/v1", "sk-student-000")
    assert found.model_settings.given() == {"temperature": 0.2, "max_tokens": 99}


def test_the_teacher_is_the_student_without_its_sampling(tmp_path: Path) -> None:
    at = "evaluation.agent.model"
    overrides = [
        f"{at}.model_settings.temperature=0.9",
        f"{at}.model_settings.max_tokens=5",
        f"{at}.model_settings.extra_args={{timeout: 7}}",
        f"{at}.model_settings.extra_headers={{X: secret-header}}",
        f"{at}.model_params.top_p=0.5",
        "practice.rollout_temperature=0.8",
    ]
    path = write(tmp_path, {"p.yaml": PRACTICE})
    config = load_practice(path, overrides, {}).config
    teacher = config.practice.teacher_model
    assert teacher is not None
    assert teacher.model_provider.simulated
    assert teacher.model_settings.given() == {
        "temperature": 0.0,
        "top_p": 0.5,
        "extra_args": {"timeout": 7},
        "extra_headers": {"X": "secret-header"},
    }
    warmer = load_practice(path, [*overrides, f"{at}.model_params.temperature=0.3"], {}).config
    assert warmer.practice.teacher_model is not None
    assert warmer.practice.teacher_model.model_settings.temperature == 0.3


def test_a_teacher_of_its_own_uses_the_students_endpoint_unless_it_has_one(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE.replace("sim", "null")})
    at = "practice.teacher_model.model_provider"
    same = load_practice(path, [f"{at}.model=big"], ENV).config.practice.teacher_model
    assert same is not None
    assert where(same.model_provider) == ("big", "https://llm.example/v1", "sk-student-000")
    other = load_practice(path, [f"{at}.model=big", f"{at}.base_url=http://t"], ENV).config
    assert other.practice.teacher_model is not None
    assert where(other.practice.teacher_model.model_provider) == ("big", "http://t", None)


def test_an_exported_agent_uses_the_endpoint_of_the_environment(tmp_path: Path) -> None:
    text = "type: simple\nagent: {name: a, instructions: x}\nmodel: {model_provider: {model: m}}\n"
    path = write(tmp_path, {"a.yaml": text})
    assert where(agent_in(path, ENV).model.model_provider)[1:] == (
        "https://llm.example/v1",
        "sk-student-000",
    )


RESPONSES = {**ENV, "UTU_LLM_TYPE": "responses"}
SIM = "agent.model={model_provider: {model: '${oc.env:UTU_LLM_MODEL}'}}"


@pytest.mark.parametrize(
    ("overrides", "env", "api"),
    [
        ([], RESPONSES, "responses"),
        ([], ENV, "chat.completions"),
        ([], {**ENV, "UTU_LLM_TYPE": ""}, "chat.completions"),
        ([f"{AT}.type=${{oc.env:UTU_LLM_TYPE}}"], {**ENV, "UTU_LLM_TYPE": ""}, "chat.completions"),
        ([SIM], {**RESPONSES, "UTU_LLM_MODEL": "sim"}, "responses"),
        ([f"{AT}.type=chat.completions"], RESPONSES, "chat.completions"),
        # A URL of the config's own is not the one that the variable is about.
        ([f"{AT}.base_url=http://h/v1"], RESPONSES, "chat.completions"),
        ([f"{AT}.base_url=http://h/v1", f"{AT}.type=responses"], ENV, "responses"),
    ],
)
def test_the_api_comes_with_the_url(overrides: list[str], env: dict[str, str], api: str) -> None:
    assert student(overrides, env).type == api


@pytest.mark.parametrize(
    ("env", "api"),
    [
        ({}, "responses"),
        ({"JUDGE_LLM_MODEL": "j"}, "responses"),
        ({"JUDGE_LLM_MODEL": "j", "JUDGE_LLM_BASE_URL": "http://j/v1"}, "chat.completions"),
        ({"JUDGE_LLM_BASE_URL": "http://j/v1", "JUDGE_LLM_TYPE": "responses"}, "responses"),
    ],
)
def test_the_judge_speaks_the_api_of_its_url(env: dict[str, str], api: str) -> None:
    found = judge([], {**RESPONSES, **env}).config.judge_model
    assert found is not None
    assert found.model_provider.type == api


def test_an_api_that_is_none_is_refused_where_it_is_used() -> None:
    env = {**ENV, "UTU_LLM_TYPE": "litellm"}
    with pytest.raises(ConfigError, match="UTU_LLM_TYPE is 'litellm', but should be chat"):
        student([], env)
    assert student([f"{AT}.base_url=http://h/v1"], env).type == "chat.completions"
