"""System calls refused to this process and its children, as a sandbox refuses them (seccomp).

Imports the standard library. `forbid` cannot be undone: call it in a program of its own. Source:
seccomp(2), the kernel's classic BPF.
"""

from __future__ import annotations

import ctypes
import platform
import struct

# x86-64, 64-bit Arm
_NUMBERS = {
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "memfd_create": (319, 279),
    "eventfd2": (290, 19),
    "fcntl": (72, 25),
    "kill": (62, 129),
}
_SEAL = 1033  # F_ADD_SEALS, a command of fcntl
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x50000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


def forbid(number: int, *calls: str) -> None:
    """Refuse system calls with an errno from now on; "seal": F_ADD_SEALS alone.

    Raises:
        OSError: the system knows no filters.
    """
    machine = ("x86_64", "aarch64").index(platform.machine())
    code = [_step(_LOAD, 0)]
    for call in calls:
        is_seal = call == "seal"
        code.append(_step(_JUMP_EQUAL, _NUMBERS["fcntl" if is_seal else call][machine], is_seal))
        if is_seal:
            code += [_step(_LOAD, 24), _step(_JUMP_EQUAL, _SEAL, False)]
        code.append(_step(_RETURN, _ERRNO | number))
        if is_seal:
            code.append(_step(_LOAD, 0))
    code.append(_step(_RETURN, _ALLOW))
    program = ctypes.create_string_buffer(b"".join(code))
    header = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "this system takes no seccomp filter")


def _step(code: int, value: int, is_seal: bool = False) -> bytes:
    """One instruction; a comparison that fails skips what belongs to the call."""
    skipped = 3 if is_seal else 1
    return struct.pack("HBBI", code, 0, skipped if code == _JUMP_EQUAL else 0, value)
