"""Code that an agent runs, in each backend: what the model reads of it, and what harms nobody."""

import json
import os
import re
import secrets
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGKILL
from typing import Any

import pytest

from tests.contract.clerk import Student, config, misses, played, turn
from tests.contract.command import Gp
from tests.contract.conftest import Start
from tests.contract.endpoint.server import serving
from tests.contract.machines import below, bwrap_works, call, kit, living, seconds
from tests.processes import until

NOTHING = "(no output: print what you want to know)"
SAID: dict[str, str] = {
    "print('a')\n6 * 7": "a\n42",
    "x = [1, 2]; x  # both": "[1, 2]",
    "(1 +\n 2)": "3",
    "print('a', end='')": "a",
    "None": NOTHING,
    "x = 1": NOTHING,
    "'é' + chr(0x1F600)": "'é😀'",
    "print('a\\0b')": "a\\x00b",
    "```python\n1 + 1\n```": "2",
    "```\n1\n2\n```": "2",
    "x = '''\n```python\n```'''\nx": "'\\n```python\\n```'",
    "": NOTHING,
    "# nothing": NOTHING,
    "x = '''\n'''\nx": "'\\n'",
    "a = 1; a\r\n": "1",
}
"""Code → all that the model reads."""
LINES = "def f(n):\n    return 1 / n\n\nprint('before')\nf(0)"
DEEP = "def f():\n    f()\n\nf()"
LONG = "print('first')\nprint('x' * 100_000)\nprint('last')"
HOLDS: dict[str, list[str]] = {
    "```python\n1": ["SyntaxError"],
    "```js\n1\n```": ["SyntaxError"],
    LINES: [
        "before\nTraceback (most recent call last):\n",
        'File "<code>", line 5, in <module>\n    f(0)\n',
        'File "<code>", line 2, in f\n    return 1 / n\n',
        "ZeroDivisionError: division by zero",
    ],
    "x = (1": ["SyntaxError", "line 1"],
    DEEP: ["maximum recursion depth exceeded"],
    LONG: ["first\nxxx", "[… 87,724 bytes left out …]", "xxx\nlast"],
    "list(range(300_000))": ["[0, 1, 2, ", "bytes left out", "299998, 299999]"],
}
"""Code → parts of what the model reads."""
STREAMS: dict[str, list[str]] = {
    "import os\nos.write(1, b'\\xff\\xfeok\\n')\nNone": ["\\xff\\xfeok"],
    "print('\\ud800')": ["\\ud800"],
    "input()": ["EOFError: EOF when reading a line"],
    "import sys\nsys.exit('bye')": ["bye"],
    "import sys\nsys.exit(3)": [NOTHING],
    "import os\nprint('a')\nos.close(1)\nos.close(2)": ["a"],
    "import os\nos.kill(os.getpid(), 11)": ["[the interpreter was killed by SIGSEGV]"],
    "import os\nprint('a')\nos._exit(9)": ["a"],
    "x = [open('/dev/null') for _ in range(10_000)]": ["OSError: [Errno 24]"],
    "open('big', 'wb').truncate(10 * 2**30)": ["OSError: [Errno 27]"],
    "import os, tempfile\nos.getcwd() == tempfile.gettempdir()": ["True"],
    "import numpy, sympy\nx = sympy.Symbol('x')\nsympy.factor(x**2 - 1), numpy.eye(2).sum()": [
        "((x - 1)*(x + 1), np.float64(2.0))"
    ],
    "from dataclasses import dataclass\nfrom multiprocessing import Pool\n"
    "@dataclass\nclass A:\n    x: 'int'\ndef f(n):\n    return A(n)\n"
    "with Pool(2) as pool:\n    print(pool.map(f, [1, 2]))\n"
    "import pickle, typing\npickle.loads(pickle.dumps(A(3))), typing.get_type_hints(A)": [
        "[A(x=1), A(x=2)]\n(A(x=3), {'x': <class 'int'>})"
    ],
}
"""The same, of CPython alone."""
VARIABLES = "import os, json\nprint(json.dumps(dict(os.environ)))"
OTHERS = "import glob\n[open(p, 'rb').read() for p in glob.glob('/proc/[0-9]/environ')]"
MODULES = (
    "asyncio, base64, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools,"
    " hashlib, itertools, json, math, random, re, time, typing"
)
MISSING = {
    f"import {MODULES}\n'ok'": "'ok'",
    **{f"import {name}": "ModuleNotFoundError" for name in ("numpy", "sympy", "socket")},
    "def g():\n    yield 1": "does not yet support",
    "x = 1\ndel x": "does not yet support",
    "class A: pass\nclass B(A): pass": "does not yet support",
    "class A:\n    @property\n    def x(self): return 1": "does not yet support",
}
"""Code that `monty` does not know → what it says."""
DETACHED = """
import os, sys, time
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3) if {quiet} else None  # the pipe closes as this becomes another program
        os.execv(sys.executable, ["python", "-c", "import time; time.sleep(700)", "{word}"])
    os._exit(0)
os.close(writer)
os.read(reader, 1)
{then}
"""
LATE = "[stopped after 3 s, its time limit]"
TIMES: dict[str, tuple[float, str]] = {
    "print('on')\nimport time\ntime.sleep(60)": (3, f"on\n{LATE}"),
    "print('on')\nwhile True: pass": (3, f"on\n{LATE}"),
    "1": (0, "Error: timeout must be greater than 0 seconds"),
}
"""Code → its time, and what the model reads."""
PROCESSES = 64
BOMB = """
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except OSError:
    print('refused')
print(made, 'made')
"""


def contained(said: str) -> bool:
    """Return True if the bomb was stopped, and had not made more children than are allowed."""
    found = re.search(r"refused\n(\d+) made", said)
    return int(found[1]) <= PROCESSES if found else "no attribute 'fork'" in said


@contextmanager
def attacks() -> Iterator[dict[str, tuple[str, Any]]]:
    """Yield name → code that means harm, and whether its result shows that it was held."""
    secret = secrets.token_hex(8)
    path = Path.home() / f".grpo-practice-attack-{secret[:4]}"
    flood = "for _ in range(500_000):\n    print('x' * 999)"
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path.write_text(secret)
        connect = f"socket.create_connection(('127.0.0.1', {server.server_address[1]}), 1).close()"
        try:
            yield {
                "bomb": (BOMB, contained),
                "memory": ("len([0] * (10**9 // 8))", lambda said: "MemoryError" in said),
                "home": (f"print(open({str(path)!r}).read())", lambda said: secret not in said),
                "network": (f"import socket\n{connect}\n'reached'", lambda s: "reached'" not in s),
                "flood": (flood, lambda said: "stopped: it wrote more than 10 MiB" in said),
            }
        finally:
            path.unlink()
            server.shutdown()


OPEN = {"home", "network"} | ({"bomb"} if os.geteuid() == 0 else set())
"""What `subprocess` does not hold; the kernel limits no processes of root."""


def assert_described(clerk: Student, backend: str) -> None:
    """Check what people and the model are told of the backend."""
    assert f"tools: execute_python_code ({backend}" in clerk.notices
    assert ("security boundary" in clerk.notices) is (backend == "subprocess")
    about = clerk.tools["execute_python_code"]
    has = f"the modules are {MODULES};" if backend == "monty" else "numpy, sympy"
    assert has in about["description"]
    assert about["parameters"]["required"] == ["code"]
    timeout = about["parameters"]["properties"]["timeout"]
    assert (timeout["default"], "at most 20" in timeout["description"]) == (30, True)


@pytest.mark.long_after(2)
@pytest.mark.parametrize("backend", ["monty", "bwrap", "subprocess"])
def test_the_model_reads_what_its_code_came_to_and_harm_is_held(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    if backend == "bwrap" and not bwrap_works():
        pytest.skip("bwrap does not work on this machine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    full = backend != "monty"
    word = f"outlives-{backend}-{os.getpid()}"
    texts = SAID | HOLDS | (STREAMS if full else {key: [want] for key, want in MISSING.items()})
    once = [VARIABLES, OTHERS] if full else []
    ends = dict(TIMES)
    if full:
        quiet = {"word": word, "quiet": True}
        ends[DETACHED.format(then="print('done')", **quiet)] = (15, "done")
        ends[DETACHED.format(then="time.sleep(60)", **quiet)] = (3, LATE)
        closed = "import os, time\nprint('a')\nos.close(1)\nos.close(2)\ntime.sleep(60)"
        ends[closed] = (3, f"a\n{LATE}")
    kills = DETACHED.format(word=word, then="os.kill(os.getppid(), 9)\ntime.sleep(60)", quiet=False)
    with attacks() as made:
        clerk = played(
            gp,
            kit(backend=backend, timeout_s=20, at_once=6),
            turn(*map(call, [*texts, *once])),
            turn(*(call(code, limit) for code, (limit, _) in ends.items())),
            turn(*(call(code) for name, (code, _) in made.items() if name != "bomb")),
            turn(call(made["bomb"][0])),
            turn(*([call(kills, 2)] if full else []), call("x"), call("x")),
        )
        results = iter(clerk.results)
        said = {code: next(results) for code in texts}
        assert misses(said, texts) == {}
        assert not re.search(r'File "(?!<code>)', said[LINES]), "a path of this machine"
        assert said[DEEP].count("\n") < 30
        if full:
            variables, others = json.loads(next(results)), next(results)
            assert variables.keys() - {"EXECUTION", "TMPDIR", "PWD", "LC_CTYPE"} == {
                *("HOME", "LANG", "PATH", "OMP_NUM_THREADS"),
                *("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
            }
            assert "sk-of-the-user" not in others
        said = {code: next(results) for code in ends}
        assert misses(said, {code: want for code, (_, want) in ends.items()}) == {}
        order = [name for name in made if name != "bomb"] + ["bomb"]
        got = {name: next(results) for name in order}
        held = {name for name, (_, is_held) in made.items() if is_held(got[name])}
        assert held == made.keys() - (OPEN if backend == "subprocess" else set()), got
    left = list(results)
    assert all("NameError" in text for text in left[-2:]), "a call knows nothing of those before"
    until(lambda: not living(word))
    assert_described(clerk, backend)


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "number"),
    [("bwrap", SIGKILL), ("monty", SIGKILL), ("subprocess", SIGKILL), ("subprocess", SIGINT)],
)
def test_what_code_has_started_ends_with_the_program(
    gp_process: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, number: int
) -> None:
    if backend == "bwrap" and not bwrap_works():
        pytest.skip("bwrap does not work on this machine")
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("TMPDIR", str(temp))
    word = f"killed-{backend}-{os.getpid()}-{number}"
    code = DETACHED.format(word=word, then="time.sleep(60)", quiet=True)
    if backend == "monty":
        code = "while True: pass"
    with serving(Student(turn(call(code)))) as server:
        config(
            {"toolkits": kit(backend=backend, timeout_s=2 if backend == "monty" else 60)},
            server.url,
        )
        started = gp_process("eval", "--config", "c.yaml")
        if backend == "monty":
            until(lambda: below(started.pid, "monty"), started)
            left = below(started.pid, "monty")
            os.kill(started.pid, number)
            until(lambda: not left & living("monty"))
            return
        until(lambda: living(word), started)
        assert bool(list(temp.glob("grpo*"))) == (backend == "subprocess")
        os.kill(started.pid, number)
        until(lambda: not living(word))
    until(lambda: not list(temp.glob("grpo*")))


def test_a_worker_that_crashes_costs_one_call(gp: Gp) -> None:
    def crash() -> None:
        until(lambda: any(seconds(pid) > 0.3 for pid in below(os.getpid(), "monty")))
        for pid in below(os.getpid(), "monty"):
            os.kill(pid, SIGKILL)

    killer = threading.Thread(target=crash)
    killer.start()
    clerk = played(gp, kit(at_once=1), turn(call("while True: pass")), turn(call("1 + 1")))
    killer.join()
    assert "the interpreter crashed" in clerk.results[0]
    assert clerk.results[1] == "2"
