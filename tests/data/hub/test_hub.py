"""Through the real client library, against a hub on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data.download import DownloadOptions, DownloadResult, download
from tests.data.hub import made
from tests.data.hub.server import Hub, Trouble

TOKEN = "hf_A1b2C3d4E5f6G7h8I9j0"
ROW = b'{"question": "1+1?", "answer": "2"}\n'


def get(what: str, **wanted: Any) -> DownloadResult:
    return download(what, cast(DownloadOptions, wanted), tell=lambda text: None)


def refused(what: str, **wanted: object) -> DataError:
    with pytest.raises(DataError) as raised:
        get(what, **wanted)
    return raised.value


def questions(found: DownloadResult) -> list[str]:
    return [sample.question for sample in found.samples]


def test_aime_is_read_as_it_stands(client: Hub) -> None:
    repo = client.add(made.REPOS["AIME24"], made.aime([("1+1?", "002"), ("2+2?", "4")]))
    found = get("AIME24")
    assert [(s.question, s.answer, s.source) for s in found.samples] == [
        ("1+1?", "002", "AIME24"),
        ("2+2?", "4", "AIME24"),
    ]
    assert found.origin == f"hf://HuggingFaceH4/aime_2024@{repo.sha}/train"
    assert found.notes == []
    assert client.fetched() == ["README.md", "data/train-00000-of-00001.parquet"]


@pytest.mark.parametrize("name", list(made.REPOS))
def test_another_seed_is_another_order_of_the_same_rows(client: Hub, name: str) -> None:
    several = [(f"{i}?", str(i)) for i in range(17)]
    levels = ["easy"] * 4 + ["medium"] * 7 + ["hard"] * 6
    client.add(made.REPOS["AIME24"], made.aime(several))
    client.add(made.REPOS["AIME25"], made.aime(several))
    client.add(made.REPOS["DAPO-Math-17k"], made.dapo(several))
    client.add(made.REPOS["AFM_web_RL"], made.afm((q, [a]) for q, a in several))
    walk = [(q, a, level) for (q, a), level in zip(several, levels, strict=True)]
    client.add(made.REPOS["WebWalkerQA"], made.webwalker(walk))
    published, other, again = get(name), get(name, seed=7), get(name, seed=7)
    assert questions(other) == questions(again) != questions(published)
    assert {s.sha for s in other.samples} == {s.sha for s in published.samples}


def test_the_four_others_of_the_catalogue(client: Hub) -> None:
    client.add(made.REPOS["AIME25"], made.aime([("3+3?", "6")]))
    client.add(made.REPOS["DAPO-Math-17k"], made.dapo([("a", "1"), ("b", "2"), ("a", "3")]))
    client.add(made.REPOS["AFM_web_RL"], made.afm([("one", ["x"]), ("two", ["x", "y"])]))
    levels = ["easy"] * 4 + ["medium"] * 7 + ["hard"] * 6
    client.add(made.REPOS["WebWalkerQA"], made.webwalker([(f"{v}?", "x", v) for v in levels]))
    assert questions(get("AIME25")) == ["3+3?"]
    dapo = get("DAPO-Math-17k")
    assert sorted((s.question, s.answer) for s in dapo.samples) == [("a", "3"), ("b", "2")]
    assert dapo.notes[0] == "1 of 3 rows repeat a problem: each problem is kept once"
    [afm] = get("AFM_web_RL").samples
    assert (afm.question, afm.answer, afm.meta, afm.source) == ("one", "x", {"id": 1}, "AFM_web_RL")
    web = get("WebWalkerQA", limit=11)
    assert [s.level for s in web.samples] == levels[:11]
    assert web.samples[0].meta["root_url"] == "https://example.org/"
    assert web.notes[-1] == "the first 11 of 17 rows kept"
    with pytest.raises(ConfigError, match="--map, --shape, --template, --gold and"):
        get("AIME25", mapping={"question": "answer"})
    with pytest.raises(ConfigError, match="no dataset 'aime24' to download") as raised:
        get("aime24")
    assert str(raised.value.hint).startswith("did you mean AIME24?")


def test_shards_come_in_order_and_the_last_only_when_they_are_needed(client: Hub) -> None:
    files = {
        f"data/test-{i:05}-of-00003.parquet": made.parquet(
            [{"question": f"q{i}{j}", "answer": str(j), "image": b"\0"} for j in range(2)]
        )
        for i in range(3)
    }
    client.add("o/n", files | {"data/train-00000-of-00001.parquet": b"never read", "x.py": b""})
    assert questions(get("hf://o/n@test", limit=3)) == ["q00", "q01", "q10"]
    assert client.fetched() == list(files)[:2]
    client.asked.clear()
    whole = get("hf://o/n@test")
    assert questions(whole) == ["q00", "q01", "q10", "q11", "q20", "q21"]
    assert "columns left out: 'image' (binary)" in whole.notes
    assert client.fetched() == list(files)[2:]  # the others are in the cache
    client.asked.clear()
    client.repos["o/n"].files["new"] = b"another commit"
    client.repos["o/n"].files["data/test-00000-of-00003.parquet"] = made.parquet(
        [{"question": "new", "answer": "1"}]
    )
    assert questions(get("hf://o/n@test", limit=1)) == ["new"]
    assert client.fetched() == ["data/test-00000-of-00003.parquet"]
    assert sorted(questions(get("hf://o/n@test", seed=1))) == ["new", "q10", "q11", "q20", "q21"]
    assert questions(get("hf://o/n@test", seed=1)) != sorted(questions(get("hf://o/n@test")))


def test_a_commit_once_named_is_that_commit_for_ever(client: Hub) -> None:
    old = client.add("o/n", {"train.jsonl": ROW}).sha
    first = get("hf://o/n")
    client.repos["o/n"].files["train.jsonl"] = ROW.replace(b"1+1", b"9+9")
    assert questions(get("hf://o/n")) == ["9+9?"]
    again = get("hf://o/n", revision=old)  # from the cache: this hub has only the newest
    assert questions(again) == questions(first) == ["1+1?"]
    assert again.origin == f"hf://o/n@{old}/train"


def test_a_revision_may_be_a_branch_with_slashes(client: Hub) -> None:
    file = {"main/test/0000.parquet": made.parquet([{"question": "1+1?", "answer": "2"}])}
    repo = client.add("o/n", file, refs=("refs/convert/parquet",))
    found = get("hf://o/n:main@test", revision="refs/convert/parquet")
    assert questions(found) == ["1+1?"]
    assert found.origin == f"hf://o/n@{repo.sha}/main/test"
    assert "has no revision 'main'" in str(refused("hf://o/n:main@test"))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("test.jsonl", ROW * 1),
        ("test.json", ROW),
        ("test.json", b"[" + ROW + b"]"),
        ("test.json", b'{\n "canary": "x",\n "examples": [' + ROW + b"]\n}\n"),
        ("test.csv", b"question,answer\n1+1?,2\n"),
        ("test.parquet", None),  # made in the test: pyarrow takes long to import
    ],
)
def test_every_format(client: Hub, name: str, body: bytes | None) -> None:
    client.add("o/n", {name: body or made.parquet([{"question": "1+1?", "answer": "2"}])})
    [sample] = get("hf://o/n@test").samples
    assert (sample.question, sample.answer) == ("1+1?", "2")


def test_2_20_a_script_is_never_fetched_and_never_run(client: Hub, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = f"open({str(ran)!r}, 'w')\n".encode()
    client.add("o/script", {"script.py": script, "README.md": made.card(("train", "*.py"))})
    error = refused("hf://o/script@train")
    assert "such scripts are never run" in str(error)
    assert "refs/convert/parquet" in str(error.hint)
    client.add("o/both", {"both.py": script, "train.jsonl": ROW, "x.pkl": b"\x80", "x.pt": b""})
    assert questions(get("hf://o/both")) == ["1+1?"]
    for file in ("both.py", "x.pkl", "x.pt"):
        assert f"has no split '{file}'" in str(refused(f"hf://o/both@{file}"))
    assert not ran.exists()
    assert client.fetched() == ["README.md", "train.jsonl"]


def test_a_file_that_would_leave_the_cache_is_not_there(client: Hub) -> None:
    names = ("../../evil.jsonl", "/tmp/evil.jsonl", "a/../../../evil.jsonl")
    client.add("o/n", dict.fromkeys(names, ROW) | {"train.jsonl": ROW})
    for name in names:
        assert f"has no split '{name}'" in str(refused(f"hf://o/n@{name}"))


def test_what_the_hub_refuses_is_said_with_the_way_out(
    client: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.add("o/gated", {"train.jsonl": ROW}, gated=True, token=TOKEN)
    client.add("o/private", {"train.jsonl": ROW}, token=TOKEN)
    gated = refused("hf://o/gated")
    assert "is gated" in str(gated)
    assert "accept its terms at" in str(gated.hint)
    assert "HF_TOKEN" in str(gated.hint)
    for name in ("o/private", "o/none"):
        error = refused(f"hf://{name}")
        assert "does not exist, or is private" in str(error)
        assert "HF_TOKEN" in str(error.hint)
    client.add("o/n", {"train.jsonl": ROW})
    assert "has no revision 'v9'" in str(refused("hf://o/n", revision="v9"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("o/gated", "o/private"):
        assert questions(get(f"hf://{name}")) == ["1+1?"]


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (Trouble(429), "too many requests"),
        (Trouble(429, at="/tree/"), "too many requests"),
        (Trouble(401), "the hub refuses the token"),
        (Trouble(418, at="/api/"), "answered 418: told to fail; ***"),
        (Trouble(503), "answered 503: told to fail"),
        (Trouble(500, at="/cdn/"), "answered 500"),
        (Trouble(0, at="/cdn/", cut=True), "peer closed connection"),
    ],
)
def test_trouble_is_said_and_no_token_with_it(
    client: Hub, monkeypatch: pytest.MonkeyPatch, trouble: Trouble, says: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    client.add("o/n", made.aime([("1+1?", "2")]))
    client.trouble.append(trouble)
    error = refused("hf://o/n")
    assert says in str(error)
    assert error.hint
    assert TOKEN not in f"{error}{error.hint}"
    client.trouble.clear()
    assert questions(get("hf://o/n")) == ["1+1?"]
    assert ("cdn", TOKEN) not in client.tokens  # files lie on another host
    assert ("api", TOKEN) in client.tokens


def test_a_download_that_was_cut_goes_on(client: Hub) -> None:
    client.add("o/n", made.aime([("1+1?", "2")]))
    client.trouble.append(Trouble(0, at="/cdn/", cut=True, times=2))
    assert questions(get("hf://o/n")) == ["1+1?"]


def test_offline_the_cache_is_enough_and_nothing_is_asked(
    client: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    client.add("o/n", made.aime([("1+1?", "2")]))
    client.add("o/two", {f"{s}.jsonl": ROW for s in ("train", "test")})
    online, _ = get("hf://o/n"), get("hf://o/two@test")
    client.asked.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = get("hf://o/n")
    assert (offline.samples, offline.origin) == (online.samples, online.origin)
    assert "this is the newest cached version" in offline.notes[-1]
    for error in (refused("hf://o/none"), refused("hf://o/two@train")):
        assert "is missing from the cache or incomplete there, and HF_HUB_OFFLINE is set" in str(
            error
        )
        assert "unset HF_HUB_OFFLINE once" in str(error.hint)
    assert client.asked == []


def test_a_hub_that_is_down_leaves_the_cache_and_that_is_said(client: Hub) -> None:
    client.add("o/n", {"train.jsonl": ROW})
    get("hf://o/n")
    client.trouble.append(Trouble(503))
    found = get("hf://o/n")
    assert questions(found) == ["1+1?"]
    assert "did not answer" in found.notes[-1]


@pytest.mark.parametrize(("missing", "extra"), [("huggingface_hub", "hub"), ("pyarrow", "parquet")])
def test_a_missing_extra_is_named(
    client: Hub, monkeypatch: pytest.MonkeyPatch, missing: str, extra: str
) -> None:
    client.add("o/n", made.aime([("1+1?", "2")]))
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError) as raised:
        get("hf://o/n")
    assert raised.value.hint == f"pip install 'grpo-practice[{extra}]'"


def test_a_socks_proxy_without_what_it_takes_is_an_error_with_a_way_out(
    client: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import close_session

    close_session()  # the library keeps one, with the proxies of its time
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    error = refused("hf://o/n")
    assert "SOCKS proxy" in str(error)
    assert "ALL_PROXY" in str(error.hint)


@pytest.mark.long
def test_the_command(server: Hub, cache: Path, tmp_path: Path) -> None:
    server.add(made.REPOS["AIME24"], made.aime([("1+1?", "2"), ("2+2?", "x y")]))

    def gp(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        src = str(Path(__file__).parents[3] / "src")
        base = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        env = base | server.env(cache) | {"PYTHONPATH": src} | more
        return subprocess.run(
            [sys.executable, "-m", "grpo_practice", "data", *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
        )

    ran = gp("download", "AIME24")
    lines = ran.stdout.splitlines()
    assert lines[0] == "AIME24 (revision 1) holds 2 rows"
    assert lines[1].startswith("  from hf://HuggingFaceH4/aime_2024@")
    assert lines[-1] == "next: grpo-practice eval --model sim --dataset AIME24 --verify math"
    assert ran.stderr.splitlines()[0].startswith("HuggingFaceH4/aime_2024: data/train-00000")
    assert len(ran.stderr.splitlines()) == 1  # no progress bar where no terminal is

    document = json.loads(gp("download", "AIME24", "--json", HF_HUB_OFFLINE="1").stdout)
    assert document["schema"] == "grpo-practice.upload/1"
    assert (document["new"], document["dataset"]["n"]) == (False, 2)
    assert document["dataset"]["origin"].startswith("hf://HuggingFaceH4/aime_2024@")

    server.trouble.append(Trouble(418))
    ran = gp("download", "AIME25", HF_TOKEN=TOKEN, HF_HUB_VERBOSITY="debug")
    assert ran.returncode == 4
    assert "told to fail; ***" in ran.stderr
    assert TOKEN not in ran.stdout + ran.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (cache / "hub") in [parent for path in files for parent in path.parents]
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


def test_nothing_of_the_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, grpo_practice.cli.data, grpo_practice.data.download;"
        "print([m for m in ('huggingface_hub', 'pyarrow', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
