# SPDX-License-Identifier: Apache-2.0
"""Calls a libamdhip64 as told on its standard input: "alloc BYTES", "device N", "ask" (which
device), "free". Answers "ok RESULT"."""
import ctypes
import sys

hip = ctypes.CDLL(sys.argv[1])
held = []


def allocate(size):
    p = ctypes.c_void_p()
    result = hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(size))
    if not result:
        held.append(p)
    return result


print("ready", flush=True)
for line in sys.stdin:
    word, number = (line.split() + ["0"])[:2]
    if word == "alloc":
        answer = allocate(int(number))
    elif word == "device":
        answer = hip.hipSetDevice(int(number))
    elif word == "ask":
        answer = hip.hipGetDevice(ctypes.byref(ctypes.c_int()))
    elif word == "free":
        answer = hip.hipFree(held.pop())
    print("ok", answer, flush=True)
