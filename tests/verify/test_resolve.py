import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import check_gold, resolve

RIGHT = "def verify_func(sample, timeout_score=0, **kwargs):\n    return {'reward': 1.0}\n"


def write(folder: Path, text: str = RIGHT, name: str = "score.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "why", "hint"),
    [
        ("maths", "no such verify function", "did you mean math?"),
        ("Judge", "no such verify function", "did you mean judge?"),
        ("os:system", "no such verify function", "your own as path.py:function"),
        ("score.py", "no such verify function", None),
        ("absent.py:verify_func", "there is no file absent.py", "looked in"),
        ("math.py:other", "there is no file math.py", "looked in"),
        (
            "score.py:verify_fun",
            "score.py does not define verify_fun",
            "the file defines verify_func",
        ),
    ],
)
def test_a_wrong_name_is_an_error_at_start_and_never_another_function(
    tmp_path: Path, name: str, why: str, hint: str | None
) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match=why) as caught:
        resolve(name, {}, None, tmp_path)
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "params", "why"),
    [
        ("math", {"fastpath": True}, "unknown parameter 'fastpath'"),
        ("math", {"fast_path": "no"}, "must be true or false"),
        ("exact", {"pattern": "x"}, "unknown parameter"),
        ("choice", {"x": 1}, "unknown parameter"),
        ("regex", {}, "needs a pattern"),
        ("regex", {"pattern": "("}, "is not a valid pattern"),
        ("regex", {"pattern": 5}, "must be text"),
        ("judge", {"criteria": 5}, "must be text"),
        ("math", {"fast_path": float("nan")}, "not plain values"),
        ("score.py:verify_func", {"timeout_score": 2}, r"in \[0, 1\]"),
        ("score.py:verify_func", {"timeout_score": True}, "must be a number"),
        ("score.py:verify_func", {"when": {1, 2}}, "not plain values"),
    ],
)
def test_an_unfit_parameter_is_an_error_at_start(
    tmp_path: Path, name: str, params: dict[str, Any], why: str
) -> None:
    write(tmp_path)
    with pytest.raises(ConfigError, match=why):
        resolve(name, params, None, tmp_path)


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def verify_func(:", "SyntaxError"),
        ("import absent_module", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("verify_func = 7", "not a function"),
        ("def verify_func():\n    pass", "cannot be called"),
        ("def verify_func(sample, *, must):\n    pass", "cannot be called"),
        ("async def verify_func(sample):\n    pass", "cannot be called"),
        ("from utu.utils import FileUtils", "utu.utils"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_at_start(
    tmp_path: Path, text: str, why: str
) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=why):
        resolve("score.py:verify_func", {}, None, tmp_path)


def test_an_async_function_without_llm_is_told_what_it_is_given(tmp_path: Path) -> None:
    write(tmp_path, "async def verify_func(sample):\n    return 1")
    with pytest.raises(ConfigError) as e:
        resolve("score.py:verify_func", {}, None, tmp_path)
    assert e.value.hint == (
        "an async function receives `llm`: add that parameter, or define it with `def`"
    )


def test_the_references_own_names_mean_the_built_ins_unless_the_file_is_there(
    tmp_path: Path,
) -> None:
    assert resolve("math.py:verify_func", {}, None, tmp_path).kind == "math"
    assert resolve("webwalker.py:verify_func", {}, None, tmp_path).kind == "judge"
    write(tmp_path, name="math.py")
    assert resolve("math.py:verify_func", {}, None, tmp_path).kind == "custom"


def test_a_file_is_looked_for_beside_the_config_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path / "here"))
    config = tmp_path / "here" / "config"
    config.mkdir()
    found = resolve("score.py:verify_func", {}, None, config).file
    assert found is not None
    assert found.path == tmp_path / "here" / "score.py"
    write(config)
    found = resolve("score.py:verify_func", {}, None, config).file
    assert found is not None
    assert found.path == config / "score.py"


@pytest.mark.parametrize("folder", ["verify", "utu/practice/verify"])
def test_a_file_is_looked_for_in_the_projects_folders_of_verify_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    project = tmp_path / "project"
    for name in (folder, "configs/eval"):
        (project / name).mkdir(parents=True)
    write(project / folder)
    write(project / folder, "import utu.utils", "math.py")
    monkeypatch.chdir(project)
    found = resolve("score.py:verify_func", {}, None, project / "configs/eval")
    assert found.file is not None
    assert found.file.path == (project / folder / "score.py").resolve()
    # The reference's own file is there too, in a checkout of it: its name means the built-in.
    assert resolve("math.py:verify_func", {}, None, project / "configs/eval").kind == "math"
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(ConfigError, match="there is no file score") as caught:
        resolve("score.py:verify_func", {}, None, project / "configs/eval")
    assert "including the subfolders verify/ and utu/practice/verify/" in str(caught.value.hint)


def test_a_config_elsewhere_does_not_take_a_file_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be a stranger's: not even one by the name of a built-in of the reference."""
    monkeypatch.chdir(write(tmp_path / "cloned"))
    (tmp_path / "cloned" / "math.py").write_text(RIGHT)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match=r"there is no file score\.py"):
        resolve("score.py:verify_func", {}, None, tmp_path / "mine")
    assert resolve("math.py:verify_func", {}, None, tmp_path / "mine").name == "math"


def test_files_of_the_same_name_are_different_modules(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        text = f"class Own:\n    pass\n{RIGHT}\nFOLDER = {folder!r}"
        write(tmp_path / folder, text)
        resolve("score.py:verify_func", {}, None, tmp_path / folder)
    own = [m for name, m in sys.modules.items() if name.startswith("grpo_practice_verify_")]
    folders = [m.FOLDER for m in own if str(m.__file__).startswith(str(tmp_path))]
    assert sorted(folders) == ["a", "b"]
    assert "score" not in sys.modules


def test_a_file_written_for_the_reference_loads_and_leaves_no_shim(tmp_path: Path) -> None:
    write(tmp_path, f"import helper\nfrom utu.db import EvaluationSample\n{RIGHT}")
    write(tmp_path, "x = 1", "helper.py")
    function = resolve("score.py:verify_func", {}, None, tmp_path)
    assert function.source is not None
    assert "utu" not in sys.modules
    assert "utu.db" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_the_identity_is_name_parameters_and_file(tmp_path: Path) -> None:
    def sha(name: str, timeout_s: float | None = None, **params: Any) -> bytes:
        return resolve(name, params, timeout_s, tmp_path).sha

    write(tmp_path)
    first = sha("score.py:verify_func")
    assert first == sha("score.py:verify_func", 9.0)
    write(tmp_path, RIGHT + "# changed\n")
    shas = {first, sha("score.py:verify_func"), sha("score.py:verify_func", timeout_score=0)}
    shas |= {sha("score.py:verify_func", a=1), sha("math"), sha("math", fast_path=False)}
    assert len(shas) == 6


def test_what_a_function_needs_is_known_before_the_run(tmp_path: Path) -> None:
    write(tmp_path, f"{RIGHT}\nasync def ask(sample, llm):\n    return {{'reward': 1}}\n")
    sync = resolve("score.py:verify_func", {}, None, tmp_path)
    asking = resolve("score.py:ask", {}, None, tmp_path)
    math, judge = resolve("math", {}, None, tmp_path), resolve("judge", {}, None, tmp_path)
    assert [f.is_judge for f in (sync, asking, math, judge)] == [False, True, False, True]
    assert [f.needs_answer for f in (sync, asking, math, judge)] == [False, False, True, False]
    assert [f.timeout_s for f in (sync, asking, math, judge)] == [2.0, 3600.0, 2.0, None]
    assert check_gold(sync, Sample("q")) is None
    assert check_gold(resolve("exact", {}, None, tmp_path), Sample("q", 0)) is None


def test_what_a_file_prints_when_it_is_loaded_stays_off_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, f"print('hello')\n{RIGHT}")
    resolve("score.py:verify_func", {}, None, tmp_path)
    assert capsys.readouterr().out == ""
