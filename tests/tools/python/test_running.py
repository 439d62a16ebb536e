"""What a model reads of its code, wherever it runs."""

import asyncio
import json
import os
import re
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.errors import ConfigError
from grpo_practice.tools import Tool, ToolError
from grpo_practice.tools.python import cpython as cpython_module
from grpo_practice.tools.python import unfenced
from grpo_practice.tools.python.captured_output import HEAD, MOST, TAIL, Written, joined
from grpo_practice.tools.toolbox import OUTPUT_BYTES, capped
from tests.tools.python.running import ALL, CPYTHON, living, opened, said, until


@pytest.fixture(params=ALL)
async def tool(request: pytest.FixtureRequest) -> AsyncIterator[Tool]:
    async with opened(request.param, timeout_s=20) as tool:
        yield tool


@pytest.fixture(params=CPYTHON)
async def cpython(request: pytest.FixtureRequest) -> AsyncIterator[Tool]:
    async with opened(request.param, timeout_s=20) as tool:
        yield tool


async def test_the_model_reads_prints_the_last_value_or_the_traceback(tool: Tool) -> None:
    for code, text in {
        "print('a')\n6 * 7": "a\n42",
        "x = [1, 2]; x  # both": "[1, 2]",
        "(1 +\n 2)": "3",
        "print('a', end='')": "a",
        "None": "(no output: print what you want to know)",
        "x = 1": "(no output: print what you want to know)",
        "'é' + chr(0x1F600)": "'é😀'",
        "print('a\\0b')": "a\\x00b",
        "```python\n1 + 1\n```": "2",
        "": "(no output: print what you want to know)",
        "# nothing": "(no output: print what you want to know)",
        "x = '''\n'''\nx": "'\\n'",
    }.items():
        assert await said(tool, code) == text, code


async def test_a_traceback_has_the_model_s_own_lines_and_no_path(tool: Tool) -> None:
    text = await said(tool, "def f(n):\n    return 1 / n\n\nprint('before')\nf(0)")
    assert text.startswith("before\nTraceback (most recent call last):\n")
    assert 'File "<code>", line 5, in <module>\n    f(0)\n' in text
    assert 'File "<code>", line 2, in f\n    return 1 / n\n' in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert not re.search(r'File "(?!<code>)', text)
    wrong = await said(tool, "x = (1")
    assert "SyntaxError" in wrong
    assert "line 1" in wrong
    deep = await said(tool, "def f():\n    f()\n\nf()")
    assert deep.endswith("maximum recursion depth exceeded")
    assert deep.count("\n") < 30


async def test_a_call_knows_nothing_of_the_calls_before(tool: Tool) -> None:
    await said(tool, "x = 1")
    assert "NameError" in await said(tool, "x")


async def test_what_is_too_long_keeps_its_beginning_and_its_end(tool: Tool) -> None:
    text = await said(tool, "print('first')\nprint('x' * 100_000)\nprint('last')")
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast")
    assert "[… 87,724 bytes left out …]" in text
    assert capped(text) == text
    assert "OSError" not in await said(tool, "print('é' * 9000)")


async def test_the_time_is_the_model_s_but_never_more_than_the_config_s() -> None:
    async with opened("monty", timeout_s=0.5) as tool:
        for asked in ({"timeout": 0.3}, {"timeout": 600}, {}):
            limit = f"{min(asked.get('timeout', 600), 0.5):g}"
            text = await said(tool, "print('on')\nwhile True: pass", **asked)
            assert text == f"on\n[stopped after {limit} s, the time it had]"
        with pytest.raises(ToolError, match="timeout should be more than 0"):
            await said(tool, "1", timeout=0)
        with pytest.raises(ToolError, match="timeout should be more than 0"):
            await said(tool, "1", timeout=float("nan"))


async def test_code_that_sleeps_is_stopped_in_time(tool: Tool) -> None:
    text = await said(tool, "print('on')\nimport time\ntime.sleep(60)", timeout=1.5)
    assert text == "on\n[stopped after 1.5 s, the time it had]"


async def test_as_many_run_at_once_as_the_config_says(tool: Tool) -> None:
    assert tool.slots is not None
    async with opened("monty", at_once=3) as three:
        assert three.slots is not None
        assert three.slots._value == 3


async def test_code_that_plays_with_its_streams_is_read_as_far_as_it_can_be(
    cpython: Tool,
) -> None:
    for code, text in {
        "import os\nos.write(1, b'\\xff\\xfeok\\n')\nNone": "\\xff\\xfeok",
        "print('\\ud800')": "\\ud800",
        "input()": "EOFError: EOF when reading a line",
        "import sys\nsys.exit('bye')": "bye",
        "import sys\nsys.exit(3)": "(no output: print what you want to know)",
        "import os\nprint('a')\nos.close(1)\nos.close(2)": "a",
        "import os\nos.kill(os.getpid(), 11)": "[the interpreter was killed by SIGSEGV]",
        "import os\nprint('a')\nos._exit(9)": "a",
        "x = [open('/dev/null') for _ in range(10_000)]": "OSError: [Errno 24]",
        "open('big', 'wb').truncate(10 * 2**30)": "OSError: [Errno 27]",
    }.items():
        assert text in await said(cpython, code), code


async def test_code_that_closes_its_output_and_sleeps_has_its_time_and_no_more(
    cpython: Tool,
) -> None:
    code = "import os, time\nprint('a')\nos.close(1)\nos.close(2)\ntime.sleep(60)"
    assert await said(cpython, code, timeout=2) == "a\n[stopped after 2 s, the time it had]"


async def test_classes_and_processes_work_as_in_a_script(cpython: Tool) -> None:
    code = (
        "from dataclasses import dataclass\nfrom multiprocessing import Pool\n"
        "@dataclass\nclass A:\n    x: 'int'\ndef f(n):\n    return A(n)\n"
        "with Pool(2) as pool:\n    print(pool.map(f, [1, 2]))\n"
        "import pickle, typing\npickle.loads(pickle.dumps(A(3))), typing.get_type_hints(A)"
    )
    assert await said(cpython, code) == "[A(x=1), A(x=2)]\n(A(x=3), {'x': <class 'int'>})"


async def test_numpy_and_sympy_are_there_and_named(cpython: Tool) -> None:
    assert "numpy, sympy" in cpython.description
    code = "import numpy, sympy\nx = sympy.Symbol('x')\nsympy.factor(x**2 - 1), numpy.eye(2).sum()"
    assert await said(cpython, code) == "((x - 1)*(x + 1), np.float64(2.0))"


async def test_nothing_of_our_environment_is_seen(
    cpython: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    code = "import os, json\nprint(json.dumps(dict(os.environ)))"
    seen = json.loads(await said(cpython, code))
    assert seen.keys() - {"EXECUTION", "TMPDIR", "PWD", "LC_CTYPE"} == {
        *("HOME", "LANG", "PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    code = "import glob\n[open(p, 'rb').read() for p in glob.glob('/proc/[0-9]/environ')]"
    assert "sk-of-the-user" not in await said(cpython, code)
    assert (
        await said(cpython, "import os, tempfile\nos.getcwd() == tempfile.gettempdir()") == "True"
    )


DETACHED = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3) if {quiet} else None  # the pipe closes as this becomes another program
        os.execv(sys.executable, ["python", "-c", "import time; time.sleep(60)", "{word}"])
    os._exit(0)
os.close(writer)
os.read(reader, 1)
{then}
"""


@pytest.mark.parametrize(
    ("then", "limit_s", "end"),
    [("print('done')", 15, "done"), ("time.sleep(60)", 2, "[stopped after 2 s, the time it had]")],
)
async def test_what_detaches_itself_does_not_outlive_the_call(
    cpython: Tool, then: str, limit_s: float, end: str
) -> None:
    word = f"outlives-{cpython.version}-{len(end)}-{os.getpid()}"
    code = DETACHED.format(word=word, then=then, quiet=True)
    assert await said(cpython, code, timeout=limit_s) == end
    await until(lambda: not living(word))


async def test_code_that_kills_who_watches_it_leaves_nothing(cpython: Tool) -> None:
    word = f"killer-{cpython.version}-{os.getpid()}"
    then = "os.kill(os.getppid(), 9)\ntime.sleep(60)"
    code = DETACHED.format(word=word, then=then, quiet=False)
    assert await said(cpython, code, timeout=2)
    await until(lambda: not living(word))


@pytest.mark.parametrize("times", [1, 2])
async def test_a_call_that_is_cancelled_leaves_nothing(
    cpython: Tool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[Process]()

    async def spawned(*args: Any) -> Process:
        started.append(await spawn(*args))
        return started[-1]

    spawn = cpython_module._spawned
    monkeypatch.setattr(cpython_module, "_spawned", spawned)
    word = f"cancelled-{cpython.version}-{times}-{os.getpid()}"
    code = DETACHED.format(word=word, then="time.sleep(60)", quiet=True)
    call = asyncio.create_task(said(cpython, code))
    await until(lambda: living(word))
    for _ in range(times):
        call.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [process.returncode is None for process in started] == [False], "its end was noticed"
    await until(lambda: not living(word))


def test_only_a_fence_around_all_of_it_is_taken_off() -> None:
    assert unfenced("```python\na\n```\n") == "a"
    assert unfenced("```\na\nb\n```") == "a\nb"
    for whole in ("a", "```python\na", "x = '''\n```python\n```'''", "```js\na\n```"):
        assert unfenced(whole) == whole


def test_what_is_kept_of_a_flood_is_small() -> None:
    written = Written()
    for _ in range(200):
        written.add(b"y" * 2**16)
    assert written.flooded
    assert len(written.head) == HEAD
    assert len(written.tail) == TAIL
    text = joined(written, "")
    assert text.endswith(f"\n[stopped: it wrote more than {MOST // 2**20} MiB]")
    assert len(text.encode()) < OUTPUT_BYTES


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"backend": "docker"}, "needs an image"),
        ({"backend": "bwrap", "image": "python"}, "has no use for image"),
        ({"python": "python3"}, "monty has no use for python"),
        ({"backend": "docker", "image": "a", "python": "b"}, "docker has no use for python"),
    ],
)
def test_a_key_of_another_backend_is_refused(config: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PythonConfig.model_validate(config)


async def test_an_interpreter_of_the_config_is_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "py").symlink_to("/usr/bin/env")
    with pytest.raises(ConfigError, match=r"\./py is no Python"):
        async with opened("subprocess", tmp_path, python="./py"):
            pass
