"""One owner says which models a run asks, and who answers where the config names none."""

import re
from pathlib import Path

import grpo_practice
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.provider import ModelConfig, ModelProvider
from grpo_practice.config.schema.runs import (
    DataSettings,
    EvalConfig,
    EvalData,
    PracticeConfig,
    PracticeSettings,
    VerifySpec,
)
from grpo_practice.config.schema.tools import SearchToolkit

SOURCES = Path(grpo_practice.__file__).parent
STUDENT, TEACHER, JUDGE, READER = (
    ModelConfig(model_provider=ModelProvider(model=name)) for name in ("s", "t", "j", "r")
)


def evaluation(verify: str, judge: ModelConfig | None = None, **agent: object) -> EvalConfig:
    made = AgentConfig.model_validate({"model": STUDENT, **agent})
    data = EvalData(dataset="tests")
    return EvalConfig(
        exp_id="e", agent=made, data=data, verify=VerifySpec(name=verify), judge_model=judge
    )


def practice(config: EvalConfig, **settings: object) -> PracticeConfig:
    return PracticeConfig(
        exp_id="e",
        practice=PracticeSettings.model_validate(settings),
        data=DataSettings(practice_dataset_name="questions"),
        evaluation=config,
    )


def test_judge_and_teacher_are_the_agents_model_by_default() -> None:
    config = practice(evaluation("judge"))
    assert config.models == {"student": STUDENT, "teacher": STUDENT, "judge": STUDENT}
    assert config.evaluation.models == {"student": STUDENT, "judge": STUDENT}


def test_models_named_are_the_ones_asked_and_a_judge_only_where_scoring_asks() -> None:
    named = practice(evaluation("score.py:check", JUDGE), teacher_model=TEACHER)
    assert named.models == {"student": STUDENT, "teacher": TEACHER, "judge": JUDGE}
    assert evaluation("math", JUDGE).models == {"student": STUDENT}


def test_a_search_toolkit_is_read_for_by_its_own_model_or_the_agents() -> None:
    kits = {
        "web": SearchToolkit(name="search", config_llm=READER),
        "plain": SearchToolkit(name="search"),
    }
    assert evaluation("math", toolkits=kits).readers == [READER, STUDENT]


def test_both_kinds_of_config_are_asked_alike() -> None:
    config = practice(evaluation("math"), select_dataset="choice")
    assert config.evaluation.evaluation is config.evaluation
    assert config.datasets == {
        "practice": "questions",
        "selection": "choice",
        "evaluation": "tests",
    }
    assert config.evaluation.datasets == {"evaluation": "tests"}
    assert (config.key("prices"), config.evaluation.key("prices")) == (
        "evaluation.prices",
        "prices",
    )


def test_nobody_else_works_out_which_models_are_asked() -> None:
    owned = re.compile(
        r"\.(teacher_model|judge_model)\b|isinstance\([\w.]+, \(?(Practice|Eval)Config"
    )
    users = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if owned.search(
            re.sub(r'[" ](practice|evaluation)\.\w+_model\.?"', "", path.read_text("utf-8"))
        )
    }
    # The loader fills the two fields in, and only practice has a concurrency of its own.
    allowed = {"config/schema/runs.py", "config/reading/load.py", "run/doctor/line.py"}
    assert users <= allowed, "ask config.teacher, config.judge or config.models instead"
