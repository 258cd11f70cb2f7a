"""Landlock through its three syscalls: file hierarchies, TCP ports, signal scope. Standard library only, no privilege.

Sources: landlock(7), linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_RULE_PATH, _RULE_PORT = 1, 2
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPES = 3  # abstract unix sockets and signals
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
READ_ONLY = EXECUTE | READ_FILE | READ_DIR
LIST_ONLY = READ_DIR
ABI_NETWORK, ABI_SCOPES = 4, 6


def _syscall(*arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result


def abi() -> int:
    """Version of Landlock in this kernel; 0 when it is absent or disabled."""
    try:
        return _syscall(_CREATE, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def _all_file_rights(version: int) -> int:
    """Every file right known to that version, so that what is not granted is denied."""
    bits = 13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16
    return (1 << bits) - 1


def restrict(
    *, read_only: Iterable[str], list_only: Iterable[str], writable: Iterable[str], bind_ports: Iterable[int] | None
) -> None:
    """Confine this process and its children for good. Paths that do not exist are skipped: they grant nothing.

    `list_only` may be listed (with everything below), not read. `bind_ports`: TCP ports that may be bound, and no
    connect at all; None leaves TCP alone. Raises OSError when Landlock is absent or too old for what is asked.
    """
    version = abi()
    if version == 0 or (bind_ports is not None and version < ABI_NETWORK):
        raise OSError(f"landlock: ABI {version} cannot restrict what is asked (network rules need {ABI_NETWORK})")
    rights = _all_file_rights(version)
    network = 0 if bind_ports is None else _BIND_TCP | _CONNECT_TCP
    attributes = struct.pack("=QQQ", rights, network, _SCOPES if version >= ABI_SCOPES else 0)
    size = 8 if version < ABI_NETWORK else 16 if version < ABI_SCOPES else 24
    ruleset = _syscall(_CREATE, attributes[:size], ctypes.c_size_t(size), 0)
    for paths, access in ((read_only, READ_ONLY), (list_only, LIST_ONLY), (writable, rights)):
        for path in paths:
            _allow_path(ruleset, path, access & rights)
    for port in bind_ports or ():
        _syscall(_ADD, ruleset, _RULE_PORT, struct.pack("=QQ", _BIND_TCP, port), 0)
    libc = ctypes.CDLL(None, use_errno=True)
    PR_SET_NO_NEW_PRIVS = 38
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _syscall(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        _syscall(_ADD, ruleset, _RULE_PATH, struct.pack("=Qi", access, descriptor), 0)
    finally:
        os.close(descriptor)
