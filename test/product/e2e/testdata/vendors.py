# SPDX-License-Identifier: Apache-2.0
"""vendors.py LIBCUDA LIBHIP, either of which may be "-": for each line on its standard input, one
allocation of 1 MiB of each library's. Answers "ok RESULT"."""
import ctypes
import sys

cuda, hip = (path != "-" and ctypes.CDLL(path) for path in sys.argv[1:3])
if cuda:
    cuda.cuInit(0)
    context = ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)


def allocate(function):
    return function(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20))


print("ready", flush=True)
for _ in sys.stdin:
    result = allocate(cuda.cuMemAlloc_v2) if cuda else 0
    result = result or (allocate(hip.hipMalloc) if hip else 0)
    print("ok", result, flush=True)
