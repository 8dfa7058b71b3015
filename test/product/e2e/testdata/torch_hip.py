# SPDX-License-Identifier: Apache-2.0
"""Tensors of a simulated PyTorch for ROCm: "tensor DEVICE BYTES" on standard input. Answers "ok"."""
import ctypes
import sys

pool = ctypes.CDLL(sys.argv[1])
pool.simtorch_malloc.restype = ctypes.c_void_p
pool.simtorch_malloc.argtypes = [ctypes.c_int, ctypes.c_uint64]
kept = []


def tensor(device, size):
    kept.append(pool.simtorch_malloc(device, size))


print("ready", flush=True)
for line in sys.stdin:
    tensor(*map(int, line.split()[1:]))
    print("ok", flush=True)
