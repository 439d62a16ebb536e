"""Files of the user's and the modules beside them."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.user_code import UserFunction

FILE = """
import helpers
from parts.inner import PLACE

def early(sample):
    return helpers.NAME, PLACE

def late(sample):
    import helpers, parts.later
    from parts import inner
    from helpers import NAME
    return NAME, helpers.NAME, inner.PLACE, parts.later.NAME, parts.later.again()
"""
NAMES = ("helpers", "parts", "extra", "only_here")


@pytest.fixture(autouse=True)
def clean_table() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


def folder_of(parent: Path, name: str) -> Path:
    """A folder with a file of the user's and modules beside it, all of which say its name."""
    folder = parent / name
    (folder / "parts").mkdir(parents=True)
    (folder / "own.py").write_text(FILE)
    (folder / "helpers.py").write_text(f"import extra\nNAME = {name!r} + extra.SUFFIX\n")
    (folder / "extra.py").write_text("SUFFIX = '!'\n")
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "parts" / "inner.py").write_text(f"PLACE = 'inner of {name}'\n")
    (folder / "parts" / "later.py").write_text(
        "from helpers import NAME\n"
        "from .inner import PLACE\n"
        "def again():\n"
        "    import helpers\n"
        "    from . import inner\n"
        "    return helpers.NAME, inner.PLACE\n"
    )
    return folder


def loaded(folder: Path, name: str) -> Any:
    path = folder / "own.py"
    return UserFunction(path, name, path.read_text()).load()


def wanted(name: str) -> tuple[Any, ...]:
    said, inner = f"{name}!", f"inner of {name}"
    return (said, said, inner, said, (said, inner))


def test_files_of_two_folders_have_each_the_modules_beside_them(tmp_path: Path) -> None:
    one, two = folder_of(tmp_path, "one"), folder_of(tmp_path, "two")
    early = [loaded(folder, "early") for folder in (one, two)]
    late = [loaded(folder, "late") for folder in (one, two)]
    for _ in range(2):
        assert [function(None) for function in early] == [
            ("one!", "inner of one"),
            ("two!", "inner of two"),
        ]
        assert [function(None) for function in late] == [wanted("one"), wanted("two")]


def test_a_module_of_one_folder_is_loaded_once_though_another_had_its_name(tmp_path: Path) -> None:
    one, two = folder_of(tmp_path, "one"), folder_of(tmp_path, "two")
    (one / "helpers.py").write_text("NAME = []\n")
    (one / "own.py").write_text("def late(sample):\n import helpers\n return helpers.NAME\n")
    function, other = loaded(one, "late"), loaded(two, "late")
    first = function(None)
    assert first == []
    assert other(None) == wanted("two")
    assert function(None) is first


def test_what_another_folder_has_and_this_one_has_not_is_not_there(tmp_path: Path) -> None:
    one, two = folder_of(tmp_path, "one"), folder_of(tmp_path, "two")
    (one / "only_here.py").write_text("")
    for folder in (one, two):
        (folder / "own.py").write_text("def late(sample):\n import only_here\n return 1\n")
    functions = [loaded(folder, "late") for folder in (one, two)]
    assert functions[0](None) == 1
    with pytest.raises(ModuleNotFoundError, match="only_here"):
        functions[1](None)
    assert functions[0](None) == 1


@pytest.mark.long
def test_threads_of_two_folders_do_not_get_each_others_modules(tmp_path: Path) -> None:
    names = ("one", "two")
    functions = [loaded(folder_of(tmp_path, name), "late") for name in names]
    found = list[list[Any]]([[], []])
    together = threading.Barrier(2)

    def call(n: int) -> None:
        for _ in range(200):
            together.wait()
            found[n].append(functions[n](None))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[wanted(name)] * 200 for name in names]
