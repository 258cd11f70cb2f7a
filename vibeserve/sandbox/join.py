"""`python join.py PID CPUS PARENT -- ARGV...`: run ARGV inside the network namespace of process PID.

A child program: standard library only, run by path, replaced by ARGV. The mount namespace stays the caller's, so the
load generator sees the evaluator's files while its sockets live where the walled server's do. PID 0 joins nothing;
CPUS is a comma-separated list, or `-` to keep the affinity. ARGV is killed when PARENT (its thread that started this
program) ends: a poll of a server that is gone would never end. A parent outside of this pid namespace is 0 and is not
waited for: what starts a command in a container ends at once, and hands it on. Exit 125 when the namespace cannot be
joined.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # kept across execve
_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_NS_GET_USERNS = 0xB701  # ioctl_ns(2): the user namespace that owns this namespace


def _setns(descriptor: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def enter_network(pid: int) -> None:
    """Move this process into the network namespace of `pid`; through its owning user namespace when not privileged."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(network, _CLONE_NEWNET)
    except PermissionError:
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        _setns(owner, _CLONE_NEWUSER)
        _setns(network, _CLONE_NEWNET)
        os.close(owner)
    finally:
        os.close(network)


def main(arguments: list[str]) -> None:
    separator = arguments.index("--")
    pid, cpus, parent = arguments[:separator]
    argv = arguments[separator + 1 :]
    if parent != "0":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(128 + signal.SIGKILL)
    try:
        if pid != "0":
            enter_network(int(pid))
        if cpus != "-":
            os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    except OSError as error:
        sys.stderr.write(f"cannot join the network of process {pid}: {error}\n")
        sys.exit(125)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
