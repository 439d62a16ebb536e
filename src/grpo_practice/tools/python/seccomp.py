"""System calls that the kernel refuses to code in `bwrap`, as a program of classic BPF.

Namespaces do not hold it all: who is no one may still make a user namespace and be root in that,
and some sockets, such as those to a virtual machine's host, belong to no network namespace.
"""

import platform
import struct
import sys
from dataclasses import dataclass
from errno import ENOSYS, EPERM
from itertools import chain
from types import MappingProxyType

NEW_USER = 0x1000_0000
"""The flag that asks for a user namespace."""
FAMILIES = (1, 2, 10, 16)
"""The sockets that code may have: UNIX, IPv4, IPv6, netlink. Each is of a network namespace."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
"""Offsets in what the filter sees; of the first argument the lower half."""
_ALLOW, _ERROR = 0x7FFF_0000, 0x0005_0000
_ABSENT = (435, 425)
"""`clone3`, `io_uring_setup`: what is asked of them lies in memory, where a filter cannot look.
Said not to exist, so that a library takes `clone`."""
_MOUNTS = (*range(428, 434), 442, 467)
"""`open_tree`, `move_mount`, `fsopen`, `fsconfig`, `fsmount`, `fspick`; `mount_setattr`;
`open_tree_attr`. New calls have one number everywhere."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of processor: how the kernel calls it, and the numbers of its system calls."""

    architecture: int
    clone: int
    unshare: int
    socket: int
    refused: tuple[int, ...]
    """`setns`, `mount`, `umount2`, `pivot_root`; `shmget` and `memfd_create`, as the memory that
    they give counts for no process, and so has no limit."""
    most: int = 2**32 - 1
    """Numbers from here on are those of another kind of program, with numbers of its own."""


MACHINES = MappingProxyType(
    {
        "x86_64": Machine(
            0xC000_003E, 56, 272, 41, (308, 165, 166, 155, 29, 319), most=0x4000_0000
        ),
        "aarch64": Machine(0xC000_00B7, 220, 97, 198, (268, 40, 39, 41, 194, 279)),
    }
)


def machine_filter() -> bytes:
    """Return the filter for this machine; empty where none is known."""
    machine = MACHINES.get(platform.machine()) if sys.maxsize > 2**32 else None
    return program(machine) if machine else b""


def program(machine: Machine) -> bytes:
    """Return the filter, as the kernel reads it."""
    refused = (*machine.refused, *_MOUNTS)
    load, forbid, allow = _step(_LOAD, _ARGUMENT), _error(EPERM), _step(_RETURN, _ALLOW)
    known = (_step(_EQUAL, family, len(FAMILIES) - i, 0) for i, family in enumerate(FAMILIES))
    steps = chain(
        [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, machine.architecture, 1, 0), _error(EPERM)],
        [_step(_LOAD, _NUMBER), _step(_AT_LEAST, machine.most, 0, 1), _error(ENOSYS)],
        *(_when(number, _error(EPERM)) for number in refused),
        *(_when(number, _error(ENOSYS)) for number in _ABSENT),
        *(
            _when(number, load, _step(_ANY_BIT, NEW_USER, 0, 1), forbid, allow)
            for number in (machine.clone, machine.unshare)
        ),
        _when(machine.socket, load, *known, forbid, allow),
        [allow],
    )
    return b"".join(steps)


def _step(operation: int, value: int, then: int = 0, other: int = 0) -> bytes:
    """Return one instruction; `then` and `other` count those skipped if it is true, and if not."""
    return struct.pack("=HBBI", operation, then, other, value)


def _error(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _when(number: int, *steps: bytes) -> list[bytes]:
    """Return the steps, for one system call; they must return."""
    return [_step(_EQUAL, number, 0, len(steps)), *steps]
