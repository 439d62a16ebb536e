from pathlib import Path

import pytest

from grpo_practice.config.reading.compose import packaged_configs
from grpo_practice.config.reading.discover import find_config
from grpo_practice.core.errors import ConfigError
from tests.config.files import write


def test_the_path_as_typed_comes_first(tmp_path: Path) -> None:
    write(tmp_path, {"math.yaml": "", "configs/math.yaml": ""})
    assert find_config("math.yaml", "practice", tmp_path) == tmp_path / "math.yaml"
    absolute = str(tmp_path / "configs" / "math.yaml")
    assert find_config(absolute, "eval", tmp_path) == Path(absolute)


@pytest.mark.parametrize("name", ["x", "x.yaml"])
@pytest.mark.parametrize("command", ["practice", "eval"])
@pytest.mark.parametrize("place", ["configs/practice", "configs/eval", "configs"])
def test_a_name_is_found_in_the_configs_folder(
    tmp_path: Path, name: str, command: str, place: str
) -> None:
    path = write(tmp_path, {f"{place}/x.yaml": ""})
    assert find_config(name, command, tmp_path) == path  # type: ignore[arg-type]


def test_the_project_comes_before_the_package(tmp_path: Path) -> None:
    shipped = find_config("math", "practice", tmp_path)
    assert shipped == packaged_configs() / "math.yaml"
    own = write(tmp_path, {"configs/eval/math.yaml": ""})
    assert find_config("math", "practice", tmp_path) == own


def test_a_name_may_have_folders(tmp_path: Path) -> None:
    found = find_config("math/math_AIME24", "eval", tmp_path)
    assert found == packaged_configs() / "eval/math/math_AIME24.yaml"


@pytest.mark.parametrize("other", ["eval/x.yaml", "x.yaml", "practice/x"])
def test_two_hits_in_one_place_are_an_error_naming_both(tmp_path: Path, other: str) -> None:
    write(tmp_path / "configs", {"practice/x.yaml": "", other: ""})
    with pytest.raises(ConfigError, match=r"practice/x.* and .*x") as e:
        find_config("x", "practice", tmp_path)
    assert str(tmp_path / "configs" / other) in str(e.value)


def test_a_name_nobody_has_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no config math_AIME42") as e:
        find_config("math_AIME42", "eval", tmp_path)
    assert "math/math_AIME2" in (e.value.hint or "")


def test_a_name_never_leaves_the_configs_folder(tmp_path: Path) -> None:
    write(tmp_path, {"secret.yaml": "", "work/configs/eval/y.yaml": ""})
    with pytest.raises(ConfigError, match="there is no config"):
        find_config("../../secret", "eval", tmp_path / "work")


def test_a_config_beside_the_user_is_suggested_first(tmp_path: Path) -> None:
    (tmp_path / "practice.yaml").write_text("exp_id: e\n", "utf-8")
    for wrong, hint in (("practise.yaml", "did you mean practice.yaml?"), ("x", "practice.yaml")):
        with pytest.raises(ConfigError) as refused:
            find_config(wrong, "practice", tmp_path)
        assert hint in str(refused.value.hint)
