"""Which files of a repository are meant."""

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data.hub import Ref, parse_ref
from grpo_practice.data.hub_layout import files_of
from tests.data.hub.made import card


def found(ref: str, *files: str, readme: bytes = b"") -> tuple[str, list[str]]:
    return files_of(parse_ref(f"hf://o/n{ref}"), files, readme.decode())


def test_what_a_reference_says() -> None:
    assert parse_ref("hf://openai/gsm8k:main@test") == Ref("openai/gsm8k", "main", "test")
    assert parse_ref("hf://datasets/o/n") == Ref("o/n")
    assert parse_ref("hf://o/n@data/a.jsonl") == Ref("o/n", None, "data/a.jsonl")
    for wrong in ("hf://o", "hf://o/n/m", "hf://o/n@", "hf://o/n:@x", "hf://../n?x"):
        with pytest.raises(ConfigError, match="does not have the form hf://owner/name"):
            parse_ref(wrong)


def test_the_readme_says_which_files_a_split_has() -> None:
    readme = card(("train", "data/tr-*"), ("silver", "**/silver.jsonl"), ("gone", "x/*"))
    files = ("data/tr-1.jsonl", "data/tr-0.jsonl", "a/b/silver.jsonl", "data/test.jsonl")
    assert found("@train", *files, readme=readme) == (
        "train",
        ["data/tr-0.jsonl", "data/tr-1.jsonl"],
    )
    assert found("@silver", *files, readme=readme)[1] == ["a/b/silver.jsonl"]
    with pytest.raises(DataError, match="no split 'test'; it has train, silver"):
        found("@test", *files, readme=readme)


def test_configs_of_the_readme() -> None:
    head = """---
configs:
- config_name: main
  default: true
  data_files: main/*.csv
- config_name: other
  data_dir: other
  data_files:
  - split: test
    path: [a.csv, b.csv]
- config_name: by_name
  data_dir: third
---
"""
    files = ("main/x.csv", "other/b.csv", "other/a.csv", "third/test.csv", "third/train.csv")
    readme = head.encode()
    assert found("", *files, readme=readme) == ("train", ["main/x.csv"])
    assert found(":main", *files, readme=readme) == ("main/train", ["main/x.csv"])
    assert found(":other", *files, readme=readme) == ("other/test", ["other/a.csv", "other/b.csv"])
    assert found(":by_name@test", *files, readme=readme)[1] == ["third/test.csv"]


@pytest.mark.parametrize(
    "readme",
    [
        "---\nconfigs: [\n---\n",
        "---\nconfigs: 3\n---\n",
        "---\nconfigs: [3, {data_files: 3}, {data_files: [{split: train, path: 4}, 5]}]\n---\n",
        "---\nconfigs: [{config_name: [a], data_files: {train: {x: y}}}]\n---\n",
        "---\nconfigs: " + "[" * 1_000 + "\n---\n",
        "---\nconfigs: " + "[" * 300_000 + "\n---\n",
        "---\n!!python/object/apply:os.system [id]\n---\n",
        "---\nconfigs: [{data_files: " + "'" + "*a" * 40 + "*'}]\n---\n",
        "no head",
    ],
)
def test_a_readme_that_says_nothing_useful_leaves_it_to_the_names(readme: str) -> None:
    files = ("train.jsonl", "a" * 200 + ".jsonl")
    assert found("@train", *files, readme=readme.encode()) == ("train", ["train.jsonl"])


@pytest.mark.parametrize(
    ("ref", "files", "chosen"),
    [
        ("@test", "data/test-00001-of-00002.parquet data/test-00000-of-00002.parquet", "10"),
        ("@dev", "validation.jsonl test.jsonl", "0"),
        ("@validation", "dev.csv train.csv", "0"),
        ("@main", "data/main-00000-of-00001.parquet data/silver-00000-of-00001.parquet", "0"),
        (":main@test", "main/test-00000-of-00001.parquet socratic/test-0-of-1.parquet", "0"),
        (":en@train", "en/train/0000.parquet en/train/0001.parquet de/train/0000.parquet", "01"),
        ("", "AFM-WebAgent-RL.parquet README.md dataset_infos.json .x/y.jsonl", "0"),
        ("@train", "a.jsonl b.jsonl", "01"),
        ("@test", "my_test_set.jsonl extra.jsonl trainer.jsonl", "0"),
        ("@train", "train.jsonl train.parquet train.csv", "1"),
        ("@train", "train.jsonl.gz", "0"),
        ("@more/one.json", "train.jsonl more/one.json", "1"),
    ],
)
def test_the_names_say_which_files_a_split_has(ref: str, files: str, chosen: str) -> None:
    names = files.split()
    assert found(ref, *names)[1] == [names[int(i)] for i in chosen]


@pytest.mark.parametrize(
    ("ref", "files", "says", "hint"),
    [
        ("", "train.csv test.csv", "more than one split; it has test, train", "hf://o/n@SPLIT"),
        ("", "a/x.csv b/x.csv", "more than one config; it has a, b", "hf://o/n:CONFIG@SPLIT"),
        ("@train", "a.csv b.jsonl", "files in several formats: a.csv, b.jsonl", "hf://o/n@a.csv"),
        ("@test", "test-00000-of-00003.csv test-00002-of-00003.csv", "2 of the 3 files", ""),
        ("", "x.zip README.md", "no file in a supported format: .parquet, .jsonl", ""),
        ("", "load.py dataset_infos.json", "only a script", "refs/convert/parquet"),
    ],
)
def test_what_is_not_clear_is_an_error_that_names_the_choices(
    ref: str, files: str, says: str, hint: str
) -> None:
    with pytest.raises(DataError, match=says) as raised:
        found(ref, *files.split())
    assert hint in (raised.value.hint or "")
