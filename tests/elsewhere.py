"""The tests on a stand-in for macOS, which is a Linux without what only Linux has.

It takes away `/proc`, all of loopback but 127.0.0.1 and ::1, programs that macOS lacks or has in
another dialect, functions and constants of Python that exist on Linux alone, and limits on memory.
The temporary folder has a long path, through a symbolic link. Needs `unshare` and `ip`. It cannot
show what macOS does in its own way, such as file names that ignore case.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

MISSING = {
    *("bwrap", "docker", "flock", "ip", "nsenter", "podman", "setsid", "timeout", "unshare"),
    *("chromium", "date", "sed", "stat"),  # those of macOS know other options
}
"""Programs that are not on the PATH."""
PS = """#!/bin/sh
exec {unshare} --mount sh -c 'mount --bind {folder}/proc /proc; exec {ps} "$@"' ps "$@"
"""
"""The program `ps`, which on Linux needs `/proc`."""
SPACE = """
set -e
mkdir "$1/proc" && mount --rbind /proc "$1/proc"
mount -t tmpfs none /proc && mkdir /proc/self && ln -s "$1/proc/self/fd" /proc/self/fd
mount --bind "$1/path" "$2" && shift
ip link set lo up && ip address del 127.0.0.1/8 dev lo && ip address add 127.0.0.1/32 dev lo
shift && export PATH="$1" && shift && exec "$@"
"""
"""Arguments: a folder to work in, the file that leads Python here, the PATH, and the command."""
CUSTOMS = """
import os, select, sys

vars(select).pop("epoll", None)  # before `socket` asks for it
import ctypes, fcntl, resource, signal, socket, sysconfig, time, types

def lacks(module, *names):
    for name in [n for n in vars(module) if n.startswith(names)]:
        delattr(module, name)

lacks(os, "sched_", "pidfd_", "posix_fa", "fdatasync", "pipe2", "memfd_", "eventfd", "splice")
lacks(os, "copy_file_range", "getrandom", "getxattr", "setxattr", "listxattr", "removexattr")
lacks(os, "setres", "getres", "setns", "unshare", "CLONE_", "SCHED_", "O_TMPFILE", "O_PATH")
lacks(os, "O_DIRECT", "GRND_", "MFD_", "EFD_", "waitid", "plock")
os.O_DIRECTORY = 0o200000  # macOS has it
lacks(select, "epoll", "EPOLL")
lacks(resource, "prlimit", "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RT")
lacks(signal, "sigtimedwait", "sigwaitinfo", "SIGPWR", "SIGSTKFLT", "SIGRT", "SIGPOLL", "pidfd_")
lacks(socket, "AF_NETLINK", "AF_VSOCK", "AF_PACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "VMADDR_")
lacks(socket, "SO_PEERCRED", "SO_BINDTODEVICE", "SO_DOMAIN", "SO_PROTOCOL", "SO_PASSCRED")
lacks(socket, "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_QUICKACK", "TCP_CORK", "SO_MARK")
lacks(fcntl, "F_OFD_", "F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_SETSIG", "F_GETSIG", "F_NOTIFY")
lacks(fcntl, "F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_", "F_SETLEASE", "F_GETLEASE", "DN_")
lacks(time, "CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid")
name = sysconfig._get_sysconfigdata_name()
sysconfig._get_sysconfigdata_name = lambda: name
sys.platform = "darwin"
proxies = sys.modules["_scproxy"] = types.ModuleType("_scproxy")
proxies._get_proxies, proxies._get_proxy_settings = dict, lambda: {"exclude_simple": False}
class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)
ctypes.CDLL = Library
limit = resource.setrlimit
def setrlimit(which, limits):
    if which == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    limit(which, limits)
resource.setrlimit = setrlimit
"""
"""Runs in every Python process of this environment, before anything else."""


def main(words: list[str]) -> int:
    """Run pytest with these words, or with those of `make test`, and return its exit code."""
    folder = Path(tempfile.mkdtemp(prefix="elsewhere-"))
    try:
        folder.chmod(0o755)
        real = folder / "private/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T"
        real.mkdir(parents=True)
        (folder / "var").symlink_to("private/var")
        (folder / "customs.py").write_text(CUSTOMS)
        (leads,) = Path(sysconfig.get_path("purelib")).glob("*grpo_practice*.pth")
        customs = f"import os; exec(open({str(folder / 'customs.py')!r}).read(), {{}})"
        (folder / "path").write_text(f"{leads.read_text()}\n{customs}\n")
        temporary = str(folder / "var" / real.relative_to(folder / "private/var"))
        env = os.environ | {"TMPDIR": temporary, "PYTEST_DEBUG_TEMPROOT": temporary}
        env |= {"HOME": str(real)}
        alone = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["-r"])]
        script = [*alone, "sh", "-c", SPACE, "elsewhere", str(folder), str(leads), programs(folder)]
        words = words or ["-n", "auto", "--dist", "worksteal", "-m", "not long"]
        command = [*script, sys.executable, "-m", "pytest", "-q", *words]
        return subprocess.run(command, env=env, check=False).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def programs(folder: Path) -> str:
    """Return a PATH of one folder with links to all programs but those that are missing."""
    made = folder / "bin"
    made.mkdir()
    given = {"unshare": shutil.which("unshare"), "ps": shutil.which("ps"), "folder": folder}
    (made / "ps").write_text(PS.format(**given))
    (made / "ps").chmod(0o755)
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = made / program.name
            if program.name not in MISSING and not os.path.lexists(link):
                link.symlink_to(program)
    return str(made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
