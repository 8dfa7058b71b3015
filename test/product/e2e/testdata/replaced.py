#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with PyTorch in it that has put an allocator of its own in the place of
PyTorch's pool: each tensor is an allocation from the driver, and nothing is reported.

Each line on standard input takes ten tensors; "ready" and "done" are printed.
"""
import ctypes
import sys


def tensor(driver):
    p = ctypes.c_uint64()
    driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 20))  # line of tensor


ctypes.CDLL("libc10_cuda.so")
cu = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
if cu.cuInit(0) or cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cu.cuCtxSetCurrent(context):
    sys.exit("replaced: no device")
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(10):
        tensor(cu)
    print("done", flush=True)
