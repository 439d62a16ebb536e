from pathlib import Path

import pytest

from grpo_practice.config.reading.compose import compose, override
from grpo_practice.config.reading.yaml_reader import Position, Tree
from grpo_practice.core.errors import ConfigError
from tests.config.files import write


def test_an_entry_lands_under_its_key_relative_to_the_including_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "configs",
        {
            "practice/p.yaml": "defaults: [/eval/e@evaluation, _self_]\nexp_id: p\n",
            "eval/e.yaml": "# @package _global_\n"
            "defaults:\n  - /agents/a@agent\n  - _self_\npass_k: 2\n",
            "agents/a.yaml": "# @package agent\nname: a\n",
        },
    )
    tree = compose(path)
    assert tree.data == {"evaluation": {"agent": {"name": "a"}, "pass_k": 2}, "exp_id": "p"}
    place = tree.place(("evaluation", "agent", "name"))
    assert place is not None
    assert place.shown.endswith("agents/a.yaml:2")


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        ("[/x@k, _self_]", {"a": "self", "b": "x", "l": [3], "n": 1}),
        ("[/x@k]", {"a": "self", "b": "x", "l": [3], "n": 1}),
        ("[_self_, /x@k]", {"a": "x", "b": "x", "l": [1, 2], "n": 1}),
        ("[/x@k, /y@k, _self_]", {"a": "self", "b": "y", "l": [3], "n": 1}),
        ("[/y@k, /x@k, _self_]", {"a": "self", "b": "x", "l": [3], "n": 1}),
    ],
)
def test_entries_merge_in_order_mappings_deeply_and_lists_whole(
    tmp_path: Path, defaults: str, expected: object
) -> None:
    path = write(
        tmp_path,
        {
            "p.yaml": f"defaults: {defaults}\nk: {{a: self, l: [3], n: 1}}\n",
            "x.yaml": "{a: x, b: x, l: [1, 2]}",
            "y.yaml": "{b: y}",
        },
    )
    assert compose(path).data["k"] == expected


def test_the_nearest_parent_folder_wins_then_configs_then_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "lib/deep/p.yaml": "defaults: [/x@k, /z@m, /model/base@model]\n",
        "lib/x.yaml": "{from: parent}",
        "x.yaml": "{from: far}",
        "configs/x.yaml": "{from: configs}",
        "configs/z.yaml": "{from: configs}",
    }
    data = compose(write(tmp_path, files)).data
    assert data["k"] == {"from": "parent"}
    assert data["m"] == {"from": "configs"}
    assert "model_provider" in data["model"]


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ("[eval/x@k]", "'eval/x@k' is not supported"),
        ("[/x]", "'/x' is not supported"),
        ("[override /x@k]", "is not supported"),
        ("[optional /x@k]", "is not supported"),
        ("[{model: base}]", "is not supported"),
        ("[/../x@k]", "is not supported"),
        ("[/.config/gh/hosts@k]", "is not supported"),
        ("[/x/.y@k]", "is not supported"),
        ("[/nothing@k]", r"p\.yaml:1: there is no file /nothing.yaml"),
        ("[_self_, _self_]", "appears twice"),
        ("/x@k", "should be a list"),
        ("[/p@k]", "include each other"),
    ],
)
def test_any_other_form_of_an_entry_is_an_error_that_names_it(
    tmp_path: Path, defaults: str, said: str
) -> None:
    path = write(tmp_path, {"p.yaml": f"defaults: {defaults}\n", "x.yaml": "a: 1"})
    with pytest.raises(ConfigError, match=said):
        compose(path)


SECRETS = {"home/secrets.yaml": "token: hunter2\n"}


@pytest.mark.parametrize("where", ["home/dl", "home/dl/configs/agents", "home/work"])
def test_nothing_is_included_from_outside_the_projects_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    files = {f"{where}/a.yaml": "defaults: [/secrets@extra]\n", **SECRETS}
    write(tmp_path, files)
    (tmp_path / "home/work").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "home/work")
    for foreign in (False, True):
        with pytest.raises(ConfigError, match=r"no file /secrets\.yaml") as e:
            compose(tmp_path / where / "a.yaml", foreign=foreign)
        assert "into a folder called configs" in str(e.value.hint)


@pytest.mark.parametrize("own", ["other/own.yaml", "other/configs/eval/own.yaml"])
def test_a_config_from_elsewhere_includes_its_own_configs_and_none_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    files = {
        own: "defaults: [/x@mine, /model/base@model]\n",
        "other/configs/x.yaml": "{from: other}",
        "cloned/configs/model/base.yaml": "{from: cloned}",
        "cloned/configs/planted.yaml": "{from: cloned}",
    }
    path = write(tmp_path, files)
    monkeypatch.chdir(tmp_path / "cloned")
    data = compose(path).data
    assert data["mine"] == {"from": "other"}
    assert "model_provider" in data["model"]
    path.write_text("defaults: [/planted@agent]")
    with pytest.raises(ConfigError, match="no file /planted") as e:
        compose(path)
    assert "cloned" not in str(e.value.hint)
    assert str(e.value.hint).count("other/configs,") == 1


@pytest.mark.parametrize("home", ["home", "home/me", "home/me/work"])
def test_a_working_folder_that_has_the_home_in_it_is_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    here = tmp_path / "home"
    (here / "me/work/deep").mkdir(parents=True)
    (here / "hosts.yaml").write_text("token: 1")
    config = here / "me/work/deep/a.yaml"
    config.write_text("defaults: [/hosts@agent]")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    assert compose(config).data == {"agent": {"token": 1}}
    monkeypatch.setenv("HOME", str(tmp_path / home))
    with pytest.raises(ConfigError, match="no file /hosts"):
        compose(config)


def test_an_agents_file_includes_configs_and_nothing_that_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "a.yaml": "defaults: [/secrets@extra]\n",
        "secrets.yaml": "token: hunter2\n",
        "configs/agents/b.yaml": "defaults: [/model/m@model, /model/base@more]\n",
        "configs/model/m.yaml": "temperature: 0\n",
    }
    write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    assert compose(tmp_path / "a.yaml").data["extra"] == {"token": "hunter2"}
    with pytest.raises(ConfigError, match=r"no file /secrets\.yaml"):
        compose(tmp_path / "a.yaml", foreign=True)
    data = compose(tmp_path / "configs/agents/b.yaml", foreign=True).data
    assert data["model"] == {"temperature": 0}
    assert "model_provider" in data["more"]


@pytest.mark.parametrize("foreign", [False, True])
def test_a_link_to_a_file_outside_is_not_followed(tmp_path: Path, foreign: bool) -> None:
    write(tmp_path, {"p/configs/a.yaml": "defaults: [/x@extra]\n", **SECRETS})
    (tmp_path / "p/configs/x.yaml").symlink_to(tmp_path / "home/secrets.yaml")
    with pytest.raises(ConfigError, match=r"x\.yaml is a link to a file outside"):
        compose(tmp_path / "p/configs/a.yaml", foreign=foreign)


@pytest.mark.parametrize(
    "text",
    [
        "agent: {model: {model_provider: {base_url: http://h/v1, api_key: '***'}}}",
        "agent: {model: {model_settings: {extra_headers: {X: '***'}}}}",
    ],
)
def test_what_hides_a_key_is_none(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, {"p.yaml": f"\n{text}\n"})
    with pytest.raises(ConfigError, match=r"p\.yaml:2: agent\.model\.\S+ is \*\*\*") as e:
        compose(path, foreign=True)
    assert "oc.env" in str(e.value.hint)


def test_what_hides_a_key_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match=r"--set a\.api_key: a\.api_key is \*\*\*"):
        override(Tree({}), ["a.api_key=***"])


def test_a_key_with_dots_is_a_place_further_down(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": "defaults: [/x@a.b.c]\n", "x.yaml": "k: 1"})
    tree = compose(path)
    assert tree.data == {"a": {"b": {"c": {"k": 1}}}}
    place = tree.place(("a", "b", "c", "k"))
    assert place is not None
    assert place.shown == f"{tmp_path / 'x.yaml'}:1"


def test_files_nested_too_deeply_are_an_error(tmp_path: Path) -> None:
    chain = {f"f{i}.yaml": f"defaults: [/f{i + 1}@k]\n" for i in range(20)}
    with pytest.raises(ConfigError, match="more than 16 deep"):
        compose(write(tmp_path, {**chain, "f20.yaml": "a: 1"}))
    assert compose(tmp_path / "f6.yaml").data["k"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3), ("a.b=0.5", 0.5), ("a.b=true", True), ("a.b=null", None), ("a.b=", None),
        ("a.b=no", "no"), ("a.b=x=y", "x=y"), ("a.b=a: b", "a: b"), ("a.b=a #b", "a #b"),
        ("a.b='010'", "010"), ("a.b=[1, x]", [1, "x"]), ("a.b={x: 1}", {"x": 1}),
    ],
)  # fmt: skip
def test_set_reads_its_value_as_a_yaml_scalar(text: str, value: object) -> None:
    data = override(Tree({"a": {"c": 1}}), [text]).data
    assert data == {"a": {"b": value, "c": 1}}


@pytest.mark.parametrize("text", ["a.b", "=1", "a..b=1", "a b=1", ".a=1"])
def test_set_without_a_key_and_a_value_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="not of the form key=value"):
        override(Tree({}), [text])


def test_a_name_that_is_no_name_is_refused_once() -> None:
    with pytest.raises(ConfigError, match="'a b/c' cannot be the name of an experiment"):
        override(Tree({}), ["exp_id=a b/c"])


def test_a_mapping_that_set_makes_has_its_place() -> None:
    tree = override(Tree({"a": {}}, {("a",): Position("p.yaml", 1)}), ["a.b.c=1"])
    shown = [place.shown for key in (("a", "b"), ("a",)) if (place := tree.place(key))]
    assert shown == ["--set a.b.c", "p.yaml:1"]


def test_set_through_a_single_value_is_an_error() -> None:
    with pytest.raises(ConfigError, match="a is a single value"):
        override(Tree({"a": 1}), ["a.b=2"])
    assert override(Tree({"a": None}), ["a.b.c=2"]).data == {"a": {"b": {"c": 2}}}


def test_set_never_changes_the_tree_it_is_given() -> None:
    tree = Tree({"a": {"b": 1}})
    override(tree, ["a.b=2", "a.c=3"])
    assert tree.data == {"a": {"b": 1}}


def test_a_verify_override_replaces_the_older_spelling() -> None:
    tree = Tree({"evaluation": {"verify_filename": "a.py", "verify_func_name": "f"}})
    assert override(tree, ["evaluation.verify=math"]).data == {"evaluation": {"verify": "math"}}
