"""What the kernel refuses to code in `bwrap`: the filter itself, and code that meets it."""

import errno
import platform
import struct

import pytest

from grpo_practice.tools.python import seccomp
from grpo_practice.tools.python.seccomp import MACHINES, program
from tests.tools.python.running import bwrap_works, opened, said

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
EVERYWHERE |= {"mount_setattr": 442, "pidfd_open": 434}
REFUSED = {"setns", "mount", "umount2", "pivot_root", "open_tree", "fsopen", "fspick"}
REFUSED |= {"mount_setattr", "shmget", "memfd_create"}


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

    def answer(call: str, argument: int = 0) -> int:
        return answered(program(machine), machine.architecture, calls[call], argument)

    for call in calls:
        absent = errno.ENOSYS if call in {"clone3", "io_uring_setup"} else ALLOWED
        if call != "socket":
            assert answer(call) == (errno.EPERM if call in REFUSED else absent), call
    threads, forks = 0x3D0F00, 0x1200011
    assert {answer("clone", threads), answer("clone", forks)} == {ALLOWED}
    for call in ("clone", "unshare"):
        assert answer(call, 0x1000_0000) == errno.EPERM
        assert answer(call, 0xFFFF_FFFF_1000_0011) == errno.EPERM
    families = [family for family in range(50) if answer("socket", family) == ALLOWED]
    assert families == [1, 2, 10, 16]
    assert answer("socket", (1 << 32) | 40) == errno.EPERM


def test_numbers_of_another_kind_of_program_are_refused() -> None:
    x86_64 = MACHINES["x86_64"]
    wide = answered(program(x86_64), x86_64.architecture, 0x4000_0000 | 272, 0x1000_0000)
    assert wide == errno.ENOSYS
    assert answered(program(x86_64), 0x4000_0003, 4) == errno.EPERM


def test_a_machine_that_is_not_known_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp.machine_filter() == b""


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
