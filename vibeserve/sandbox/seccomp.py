"""A small seccomp filter, assembled here: classic BPF over the syscall number and its arguments. Standard library only.

Both tiers load it (bubblewrap takes the program through a descriptor). It closes what namespaces and Landlock leave
open: widening one's CPU affinity, io_uring (whose operations pass every other filter), tracing, new namespaces, clocks.
Sources: seccomp(2), linux/filter.h, linux/seccomp.h, syscall numbers of asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_LD, _JEQ, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS, _ASK = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _SOCK_STREAM, _SOCK_SEQPACKET, _TYPE_MASK = 1, 2, 10, 16, 1, 5, 0xF

# name -> (x86_64, aarch64)
# fmt: off
_SYSCALLS: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "perf_event_open": (298, 241), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "migrate_pages": (256, 238),
}
# being told of what others do: files that everybody reads are opened when a server, a scorer or a client starts
_TOLD: dict[str, tuple[int | None, int | None]] = {"inotify_init": (253, None), "inotify_init1": (294, 26)}
# what a namespace would keep apart: System V and POSIX queues, priorities of the user's other processes
_SHARED = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181), "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
# what Landlock does not restrict (landlock(7)): a watch on a file that cannot be opened, attributes of any file
_BY_PATH: dict[str, tuple[int | None, int | None]] = {
    "inotify_add_watch": (254, 27), "fanotify_init": (300, 262), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469), "chown": (92, None),
    "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
}
# the same, but linkers, copies and unpackers change modes and times of what they have just written: no effect, no error
_MODES_AND_TIMES: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
}
_SIGNALS = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
}
# fmt: on
_CLONE, _CLONE3, _SOCKET, _PRLIMIT, _SETAFFINITY = (56, 220), (435, 435), (41, 198), (302, 261), (203, 122)
_SETSCHEDULER = (144, 119)
_FCNTL, _IOCTL, _TIMER_CREATE = (72, 25), (16, 29), (222, 107)
_FCNTL_DENIED = {"F_SETOWN": 8, "F_SETSIG": 10, "F_SETOWN_EX": 15, "F_SETLEASE": 1024, "F_NOTIFY": 1026}
"""leases and notices of other processes' opens; signals of one's choice, such as SIGCONT, for what a descriptor does"""
_IOCTL_DENIED = {"FIOSETOWN": 0x8901, "SIOCSPGRP": 0x8902}
_CONNECT, _SOCKETPAIR, _PRCTL, _SECCOMP = (42, 203), (53, 199), (157, 167), (317, 277)
_PR_SET_DUMPABLE = 4
_SENDS = {"sendto": ((44, 206), 3), "sendmsg": ((46, 211), 2), "sendmmsg": ((307, 269), 3)}
"""name -> (numbers, which argument holds the flags)"""
_MSG_FASTOPEN = 0x20000000  # connects on its way, past Landlock's rule on connect(2)
_AUDIT_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def is_supported() -> bool:
    """Whether the syscall numbers of this machine's architecture are known."""
    return os.uname().machine in _AUDIT_ARCH


def _instruction(code: int, value: int, *, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


def _return_errno(code: int) -> bytes:
    return _instruction(_RET, _ERRNO | code)


_RELOAD = _instruction(_LD, _NUMBER)


def _if_number(number: int, body: bytes) -> bytes:
    """Run `body` (which returns, or falls through with the number reloaded) when the syscall is `number`."""
    return _instruction(_JEQ, number, jump_false=len(body) // 8) + body


def _argument(index: int) -> bytes:
    return _instruction(_LD, _ARGUMENTS + 8 * index)


def _socket_rule(*, local_sockets: bool, asks: bool) -> bytes:
    """Allow streams of the internet families, AF_UNIX whole with `local_sockets`, and unix streams where every connect
    is asked for; everything else is EACCES."""
    allow, refuse = _instruction(_RET, _ALLOW), _return_errno(errno.EACCES)
    body = _argument(0)
    if local_sockets:
        body += _instruction(_JEQ, _AF_UNIX, jump_false=1) + allow
    if asks:
        body += _instruction(_JEQ, _AF_UNIX, jump_true=2)
    body += _instruction(_JEQ, _AF_INET, jump_true=1) + _instruction(_JEQ, _AF_INET6, jump_false=5)
    # protocol must be 0 or IPPROTO_TCP: Landlock's port rules do not cover MPTCP
    body += _argument(1) + _instruction(_AND, _TYPE_MASK) + _instruction(_JEQ, _SOCK_STREAM, jump_false=2)
    body += _argument(2) + _instruction(_JGE, 7, jump_true=0, jump_false=1)
    return body + refuse + allow


_PAIR_RULE = (
    _argument(1)
    + _instruction(_AND, _TYPE_MASK)
    + _instruction(_JEQ, _SOCK_STREAM, jump_true=2)
    + _instruction(_JEQ, _SOCK_SEQPACKET, jump_true=1)
    + _return_errno(errno.EACCES)
)


# a timer may send SIGCONT, which undoes a stop. Its signal stands behind a pointer, which no filter can read; without
# one it is SIGALRM, which alarm(2) sends, too. The process ends, and so it is told: no server needs such a timer
_TIMER_RULE = (
    _argument(1)
    + _instruction(_JEQ, 0, jump_false=3)
    + _instruction(_LD, _ARGUMENTS + 8 + 4)
    + _instruction(_JEQ, 0, jump_false=1)
    + _instruction(_RET, _ALLOW)
    + _instruction(_RET, _KILL_PROCESS)
)
# of a network of one's own: other families, such as AF_VSOCK, are not kept apart by it
_FAMILY_RULE = (
    _argument(0)
    + _instruction(_JEQ, _AF_UNIX, jump_true=4)
    + _instruction(_JEQ, _AF_INET, jump_true=3)
    + _instruction(_JEQ, _AF_INET6, jump_true=2)
    + _instruction(_JEQ, _AF_NETLINK, jump_true=1)
    + _return_errno(errno.EACCES)
)


def program(
    *,
    own_namespaces: bool,
    own_network: bool = True,
    local_sockets: bool = False,
    signals_scoped: bool = True,
    asks_connects: bool = False,
    is_measured: bool = True,
) -> bytes:
    """The filter as an array of `struct sock_filter`.

    `own_namespaces` (tier A): System V memory, files and signals are left to the namespaces, and so are sockets of the
    internet's families, unix and netlink with `own_network`. Otherwise only TCP sockets, plus AF_UNIX with
    `local_sockets`; modes and times of files keep what they are; without Landlock's signal scope no signal can be sent
    at all. With `asks_connects` a listener decides on every connect(2) (`connects`): the filter must be loaded by
    `load_with_listener`. `is_measured`: no watches on files, and a timer with a signal of its own ends the process.
    """
    arch, column = _AUDIT_ARCH[os.uname().machine]
    code = _instruction(_LD, _ARCH) + _instruction(_JEQ, arch, jump_true=1) + _instruction(_RET, _KILL_PROCESS)
    code += _instruction(_LD, _NUMBER)
    if column == 0:  # the x32 ABI has numbers of its own
        code += _instruction(_JGE, 0x40000000, jump_false=1) + _return_errno(errno.ENOSYS)
    denied: list[int | None] = [numbers[column] for numbers in _SYSCALLS.values()]
    # success without effect: OpenMP runtimes that pin their threads go on, on the CPUs they were given, and ZeroMQ
    # aborts the process when it is refused a scheduling class
    ignored: list[int | None] = [_SETAFFINITY[column], _SETSCHEDULER[column]]
    if is_measured:
        denied += [numbers[column] for numbers in _TOLD.values()]
    if not own_namespaces:
        denied += [numbers[column] for numbers in (*_SHARED.values(), *_BY_PATH.values())]
        denied += [] if signals_scoped else [numbers[column] for numbers in _SIGNALS.values()]
        ignored += [numbers[column] for numbers in _MODES_AND_TIMES.values()]
    for group, answer in ((denied, errno.EPERM), (ignored, 0)):
        code += b"".join(_if_number(number, _return_errno(answer)) for number in group if number is not None)
    code += _conditional_rules(column)
    if is_measured:
        code += _if_number(_TIMER_CREATE[column], _TIMER_RULE)
    if own_namespaces and own_network:
        code += b"".join(_if_number(each[column], _FAMILY_RULE + _RELOAD) for each in (_SOCKET, _SOCKETPAIR))
    else:
        code += _network_rules(column, local_sockets=local_sockets, asks=asks_connects)
    return code + _instruction(_RET, _ALLOW)


def _conditional_rules(column: int) -> bytes:
    """New namespaces, other processes' limits, leases, signals of descriptors: denied by what the arguments say."""
    # glibc falls back to clone, whose flags can be read here
    code = _if_number(_CLONE3[column], _return_errno(errno.ENOSYS))
    flags = _argument(0) + _instruction(_JSET, _NAMESPACE_FLAGS, jump_false=1) + _return_errno(errno.EPERM)
    code += _if_number(_CLONE[column], flags + _RELOAD)
    others = _argument(0) + _instruction(_JEQ, 0, jump_true=1) + _return_errno(errno.EPERM)
    code += _if_number(_PRLIMIT[column], others + _RELOAD)
    for number, commands in ((_FCNTL[column], _FCNTL_DENIED), (_IOCTL[column], _IOCTL_DENIED)):
        body = _argument(1)
        for command in commands.values():
            body += _instruction(_JEQ, command, jump_false=1) + _return_errno(errno.EPERM)
        code += _if_number(number, body + _RELOAD)
    return code


def _network_rules(column: int, *, local_sockets: bool, asks: bool) -> bytes:
    """On a network that is not the tree's own."""
    code = _if_number(_SOCKET[column], _socket_rule(local_sockets=local_sockets, asks=asks))
    if not local_sockets:
        # a datagram can be sent from a pair to any socket file of the host
        code += _if_number(_SOCKETPAIR[column], _PAIR_RULE + _RELOAD)
    if asks:
        code += _if_number(_CONNECT[column], _instruction(_RET, _ASK))
        # success without effect: the listener could not read the address of a process that makes itself undumpable
        option = _argument(0) + _instruction(_JEQ, _PR_SET_DUMPABLE, jump_false=1) + _return_errno(0)
        code += _if_number(_PRCTL[column], option + _RELOAD)
    for numbers, place in _SENDS.values():
        flags = _argument(place) + _instruction(_JSET, _MSG_FASTOPEN, jump_false=1) + _return_errno(errno.EPERM)
        code += _if_number(numbers[column], flags + _RELOAD)
    return code


def load(filter_program: bytes) -> None:
    """Install the filter on this process for good; needs no_new_privs set before. Raises OSError."""
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    descriptor = struct.pack("HxxxxxxP", len(filter_program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, descriptor, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot install the seccomp filter: {os.strerror(code)}")


def load_with_listener(filter_program: bytes) -> int:
    """The same; returns the descriptor at which the filter's questions arrive (seccomp_unotify(2))."""
    buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
    descriptor = struct.pack("HxxxxxxP", len(filter_program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    SECCOMP_SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
    number = _SECCOMP[_AUDIT_ARCH[os.uname().machine][1]]
    listener = int(libc.syscall(number, SECCOMP_SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE, descriptor))
    if listener < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot install the seccomp filter with its listener: {os.strerror(code)}")
    return listener
