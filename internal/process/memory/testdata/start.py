# SPDX-License-Identifier: Apache-2.0
"""Moves its arguments and its environment to a mapping of 64 GiB, as any process may. Prints "ready", or why it
cannot, and ends with its input."""
import ctypes
import os
import platform
import sys

SIZE = 64 << 30
PR_SET_MM, PR_SET_MM_MAP = 35, 14
PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE = 1, 2, 2, 0x20, 0x4000
BRK = {"x86_64": 12, "aarch64": 214}[platform.machine()]

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


class Map(ctypes.Structure):
    """struct prctl_mm_map"""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack",
        "arg_start", "arg_end", "env_start", "env_end", "auxv")] + [
        ("auxv_size", ctypes.c_uint32), ("exe_fd", ctypes.c_int32)]


def check(what, result):
    if result < 0:
        print(f"{what}: {os.strerror(ctypes.get_errno())}", flush=True)
        sys.exit()
    return result


def main():
    at = libc.mmap(None, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    ctypes.memset(at, ord("a"), 1 << 20)
    with open("/proc/self/stat", encoding="utf-8") as file:
        field = [0, 0, 0] + file.read().rsplit(")", 1)[1].split()
    moved = Map(*(int(field[n]) for n in (26, 27, 45, 46, 47)), libc.syscall(BRK, 0), int(field[28]),
                at, at + SIZE, at, at + SIZE, 0, 0, -1)
    check("prctl", libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(moved),
                              ctypes.c_ulong(ctypes.sizeof(moved)), 0))
    print("ready", flush=True)
    sys.stdin.read()


main()
