"""What the kernel refuses to code in `bwrap`: the filter itself, and code that meets it."""

import ctypes
import errno
import platform
import struct
import subprocess
import sys
from collections.abc import Iterable

import pytest

from grpo_practice.rollout.tools.python import seccomp
from grpo_practice.rollout.tools.python.seccomp import MACHINES, program
from tests.contract.machines import bwrap_works
from tests.rollout.tools.python.running import opened, said

needs_filter = pytest.mark.skipif(
    not bwrap_works() or not seccomp.machine_filter(),
    reason="no bwrap that works, or no filter for it",
)
ALLOWED = 0
NAMES = [
    *("clone", "unshare", "socket", "setns", "mount", "umount2", "pivot_root", "shmget"),
    *("memfd_create", "read", "execve", "mmap"),
]
NUMBERS = {
    "x86_64": (56, 272, 41, 308, 165, 166, 155, 29, 319, 0, 59, 9),
    "aarch64": (220, 97, 198, 268, 40, 39, 41, 194, 279, 63, 221, 222),
}
EVERYWHERE = {"clone3": 435, "io_uring_setup": 425, "open_tree": 428, "fsopen": 430, "fspick": 433}
EVERYWHERE |= {"mount_setattr": 442, "pidfd_open": 434, "memfd_secret": 447, "pidfd_getfd": 438}
EVERYWHERE |= {"io_uring_enter": 426, "io_uring_register": 427, "open_tree_attr": 467}
EVERYWHERE |= {"futex_waitv": 449, "made_later": 468}
ABSENT = {"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "made_later"}
REFUSED = {"setns", "mount", "umount2", "pivot_root", "open_tree", "fsopen", "fspick"}
REFUSED |= {"mount_setattr", "shmget", "memfd_create", "memfd_secret", "pidfd_getfd"}
REFUSED |= {"open_tree_attr"}
MORE = {
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "chroot": (161, 51),
    "syslog": (103, 116),
    "msgget": (68, 186),
    "semget": (64, 190),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
}
"""Further refused calls, by the kernel's own tables for x86_64 and aarch64."""
USED = {
    "x86_64": (1, 3, 5, 10, 11, 13, 32, 39, 60, 61, 62, 72, 96, 157, 202, 203, 228, 230, 257, 302),
    "aarch64": (64, 57, 80, 226, 215, 134, 23, 172, 93, 260, 129, 25, 169, 167, 98, 122, 113, 115),
}
"""Calls that each program makes: files, memory, signals, processes, clocks, locks."""


def answered(filter_: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """The error that the kernel would answer; 0 is none."""
    seen = struct.pack("=IIQ6Q", number, architecture, 0, argument, *[0] * 5)
    steps = list(struct.iter_unpack("=HBBI", filter_))
    at = value = 0
    while True:
        operation, then, other, constant = steps[at]
        at += 1
        match operation:
            case 0x20:
                value = struct.unpack_from("=I", seen, constant)[0]
            case 0x06:
                assert constant & 0xFFFF_0000 in {0x7FFF_0000, 0x0005_0000}
                return int(constant & 0xFFFF)
            case 0x15:
                at += then if value == constant else other
            case 0x35:
                at += then if value >= constant else other
            case 0x45:
                at += then if value & constant else other
            case _:
                raise AssertionError(operation)


@pytest.mark.parametrize("name", MACHINES)
def test_it_refuses_what_it_should_and_nothing_else(name: str) -> None:
    machine = MACHINES[name]
    calls = dict(zip(NAMES, NUMBERS[name], strict=True)) | EVERYWHERE
    calls |= {call: numbers[list(MACHINES).index(name)] for call, numbers in MORE.items()}

    def answer(call: str, argument: int = 0) -> int:
        return answered(program(machine), machine.architecture, calls[call], argument)

    for call in calls:
        absent = errno.ENOSYS if call in ABSENT else ALLOWED
        if call != "socket":
            assert answer(call) == (errno.EPERM if call in REFUSED | set(MORE) else absent), call
    for number in USED[name]:
        assert answered(program(machine), machine.architecture, number) == ALLOWED, number
    threads, forks = 0x3D0F00, 0x1200011
    assert {answer("clone", threads), answer("clone", forks)} == {ALLOWED}
    for call in ("clone", "unshare"):
        assert answer(call, 0x1000_0000) == errno.EPERM
        assert answer(call, 0xFFFF_FFFF_1000_0011) == errno.EPERM
    families = [family for family in range(50) if answer("socket", family) == ALLOWED]
    assert families == [1, 2, 10, 16]
    assert answer("socket", (1 << 32) | 40) == errno.EPERM


@pytest.mark.parametrize("name", MACHINES)
def test_arguments_decide_where_a_call_is_needed(name: str) -> None:
    machine = MACHINES[name]
    pair, personality = {"x86_64": (53, 135), "aarch64": (199, 92)}[name]

    def allowed(number: int, arguments: Iterable[int]) -> list[int]:
        filter_, kind = program(machine), machine.architecture
        return [n for n in arguments if answered(filter_, kind, number, n) == ALLOWED]

    assert allowed(pair, range(50)) == [1, 2, 10, 16]
    # Setting it may turn off where programs lie in memory (0x40000), or what they may execute.
    assert allowed(personality, (0, 0xFFFF_FFFF, 0x4_0000, 0x40_0000)) == [0, 0xFFFF_FFFF]


def test_numbers_of_another_kind_of_program_are_refused() -> None:
    x86_64 = MACHINES["x86_64"]
    wide = answered(program(x86_64), x86_64.architecture, 0x4000_0000 | 272, 0x1000_0000)
    assert wide == errno.ENOSYS
    assert answered(program(x86_64), 0x4000_0003, 4) == errno.EPERM


def test_a_machine_that_is_not_known_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp.machine_filter() == b""


INSTALLED = """
import ctypes, errno, platform, subprocess, sys, threading
filter_ = bytes.fromhex(sys.argv[1])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]
steps = ctypes.create_string_buffer(filter_, len(filter_))
program = Program(len(filter_) // 8, ctypes.addressof(steps))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit("the kernel takes no filter: " + errno.errorcode[ctypes.get_errno()])
add_key = {"x86_64": 248, "aarch64": 217}[platform.machine()]
given = [(b"user", b"name", b"x", 1, -3), (b"user", b"name", None, -3), (0, -3, 0)]
for number, arguments in zip(range(add_key, add_key + 3), given):
    print(libc.syscall(number, *arguments), errno.errorcode[ctypes.get_errno()])
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", "print('process')"], check=True)
"""


@pytest.mark.skipif(
    not (seccomp.machine_filter() and hasattr(ctypes.CDLL(None), "prctl")), reason="no filter here"
)
def test_the_kernel_refuses_the_keyring_and_runs_threads_and_processes() -> None:
    command = [sys.executable, "-u", "-c", INSTALLED, seccomp.machine_filter().hex()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "takes no filter" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.split("\n")[:-1] == [*["-1 EPERM"] * 3, "thread", "process"], done.stderr


@needs_filter
async def test_code_gets_no_other_namespace_network_or_memory() -> None:
    code = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
for flags in (0x10000000, 0x10000000 | 0x20000):
    print(libc.unshare(flags), errno.errorcode[ctypes.get_errno()])
print(libc.setns(0, 0), errno.errorcode[ctypes.get_errno()])
print(libc.shmget(0, 4096, 0o1600), errno.errorcode[ctypes.get_errno()])
print(libc.memfd_create(b'x', 0), errno.errorcode[ctypes.get_errno()])
for family in (socket.AF_VSOCK, socket.AF_INET, socket.AF_UNIX):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError as e:
        print(family.name, errno.errorcode[e.errno])
folder = '/proc/self/fd/'
held = [folder + fd for fd in os.listdir(folder) if int(fd) > 2]
[os.readlink(fd) for fd in held if os.path.exists(fd)], open('/proc/self/oom_score_adj').read()
"""
    async with opened("bwrap") as tool:
        assert (await said(tool, code)).splitlines() == [
            *(*["-1 EPERM"] * 5, "AF_VSOCK EPERM"),
            "(['/dev/null'], '1000\\n')",
        ]


@needs_filter
async def test_threads_and_processes_work_as_before() -> None:
    code = """
import multiprocessing.shared_memory, os, subprocess, sys, threading
from concurrent.futures import ProcessPoolExecutor
for method in ('fork', 'forkserver'):
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        print(list(pool.map(abs, [-1, -2])))
thread = threading.Thread(target=print, args=('thread',))
thread.start()
thread.join()
print(subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True, text=True).stdout)
print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]))
print(os.system('exit 0'))
shared = multiprocessing.shared_memory.SharedMemory(create=True, size=100)
shared.close()
shared.unlink()
"""
    async with opened("bwrap") as tool:
        text = await said(tool, code, timeout=30)
        assert text.split() == ["[1,", "2]", "[1,", "2]", "thread", "3", "0", "0"]
