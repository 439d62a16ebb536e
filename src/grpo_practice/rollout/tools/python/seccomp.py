"""System calls that the kernel denies to code in `bwrap`, as a classic BPF program.

Namespaces alone do not contain everything. Without this filter (measured: bwrap 0.8, Linux 6.18),
code read a key from the user's session keyring, held memory beyond its limit (`shmget`,
`memfd_create`), opened `AF_VSOCK` sockets to the host of a virtual machine, used `userfaultfd` and
`io_uring`, and, if started by root, had all capabilities in a user namespace of its own. The filter
denies the calls that container engines deny by default to programs without capabilities, and
memory without a limit.
"""

import platform
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENOSYS, EPERM
from itertools import chain
from types import MappingProxyType

NEW_USER = 0x1000_0000
"""Flag that requests a user namespace."""
FAMILIES = (1, 2, 10, 16)
"""Allowed socket families: UNIX, IPv4, IPv6, netlink. Each belongs to a network namespace."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
"""Offsets in the data that the filter sees; for the first argument, the offset of its lower
half.
"""
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
NEWEST = 467
"""Newest system call that was reviewed; later ones are reported as nonexistent."""
PERSONAS = (0x0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Allowed arguments of `personality`: ordinary programs, 32-bit programs, and the query."""
_ABSENT = (425, 426, 427, 435)
"""`io_uring_setup`, `io_uring_enter`, `io_uring_register`, `clone3`: their arguments lie in memory,
which a filter cannot read. They are reported as nonexistent, so that libraries fall back to
`clone`.
"""
_NEW = (*range(428, 434), 438, 440, 442, 443, 447, 450, 467)
"""`open_tree`, `move_mount`, `fsopen`, `fsconfig`, `fsmount`, `fspick`; `pidfd_getfd`;
`process_madvise`; `mount_setattr`; `quotactl_fd`; `memfd_secret`; `set_mempolicy_home_node`;
`open_tree_attr`. New calls have the same number on all machines.
"""
REFUSED = MappingProxyType(
    {
        # Keys of the host's user: no namespace isolates them.
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        # Access to other namespaces and to other parts of the file tree.
        "setns": (308, 268),
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
        "open_by_handle_at": (304, 265),
        # Memory that is charged to no process and therefore has no limit.
        "shmget": (29, 194),
        "memfd_create": (319, 279),
        "msgget": (68, 186),
        "semget": (64, 190),
        # Memory and files of other processes.
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "kcmp": (312, 272),
        # Parts of the kernel that few programs need and that have often been vulnerable.
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "fanotify_init": (300, 262),
        "lookup_dcookie": (212, 18),
        "get_mempolicy": (239, 236),
        "set_mempolicy": (238, 237),
        "mbind": (237, 235),
        "migrate_pages": (256, 238),
        "move_pages": (279, 239),
        "modify_ldt": (154, None),
        "uselib": (134, None),
        "ustat": (136, None),
        "sysfs": (139, None),
        "_sysctl": (156, None),
        # Control of the machine itself.
        "syslog": (103, 116),
        "acct": (163, 89),
        "quotactl": (179, 60),
        "nfsservctl": (180, 42),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "reboot": (169, 142),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "create_module": (174, None),
        "get_kernel_syms": (177, None),
        "query_module": (178, None),
        "iopl": (172, None),
        "ioperm": (173, None),
        "vhangup": (153, 58),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "clock_adjtime": (305, 266),
    }
)
"""Older denied calls with their numbers on x86_64 and aarch64; None if the machine lacks the
call.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor architecture: its identifier and the numbers of its system calls."""

    architecture: int
    clone: int
    unshare: int
    sockets: tuple[int, int]
    """Numbers of `socket` and `socketpair`."""
    personality: int
    refused: tuple[int, ...]


def _refused(machine: int) -> tuple[int, ...]:
    """Return the numbers of all denied calls on a machine, given its position in `REFUSED`."""
    old = (numbers[machine] for numbers in REFUSED.values())
    return (*(number for number in old if number is not None), *_NEW)


MACHINES = MappingProxyType(
    {
        "x86_64": Machine(0xC000_003E, 56, 272, (41, 53), 135, _refused(0)),
        "aarch64": Machine(0xC000_00B7, 220, 97, (198, 199), 92, _refused(1)),
    }
)


def machine_filter() -> bytes:
    """Return the filter for this machine; empty if the machine is not supported."""
    machine = MACHINES.get(platform.machine()) if sys.maxsize > 2**32 else None
    return program(machine) if machine else b""


def program(machine: Machine) -> bytes:
    """Return the filter in the kernel's binary format."""
    load, forbid, allow = _step(_LOAD, _ARGUMENT), _error(EPERM), _step(_RETURN, _ALLOW)

    def one_of(values: Sequence[int]) -> list[bytes]:
        found = [_step(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
        return [load, *found, forbid, allow]

    steps = chain(
        [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, machine.architecture, 1, 0), _error(EPERM)],
        # Newer calls and, on x86_64, numbers from 0x4000_0000, which belong to the x32 ABI.
        [_step(_LOAD, _NUMBER), _step(_AT_LEAST, NEWEST + 1, 0, 1), _error(ENOSYS)],
        *(_when(number, _error(EPERM)) for number in machine.refused),
        *(_when(number, _error(ENOSYS)) for number in _ABSENT),
        *(
            _when(number, load, _step(_ANY_BIT, NEW_USER, 0, 1), forbid, allow)
            for number in (machine.clone, machine.unshare)
        ),
        *(_when(number, *one_of(FAMILIES)) for number in machine.sockets),
        _when(machine.personality, *one_of(PERSONAS)),
        [allow],
    )
    return b"".join(steps)


def _step(operation: int, value: int, then: int = 0, other: int = 0) -> bytes:
    """Encode one instruction; `then` and `other` are the jumps for a true and a false result."""
    return struct.pack("=HBBI", operation, then, other, value)


def _error(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _when(number: int, *steps: bytes) -> list[bytes]:
    """Return the steps guarded by the number of one system call; they must end with a return."""
    return [_step(_EQUAL, number, 0, len(steps)), *steps]
