# SPDX-License-Identifier: Apache-2.0
"""Holds memory and launches kernels from known lines, and counts them by line.

It reads one command per line, and answers each with a line of JSON. Python's standard library
is enough; the driver is opened by ctypes.
"""
import collections
import json
import sys

try:
    import ctypes
except ImportError:
    ctypes = None

PROGRAM = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry kit_python() { ret; }
"""

lines = collections.Counter()


def count(amount):
    """Counts for the line that called."""
    frame = sys._getframe(1)
    name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
    lines["%s (workload.py:%d)" % (name, frame.f_lineno)] += amount


def check(result, what):
    if result:
        raise RuntimeError("%s: %d" % (what, result))


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context, self.module, self.function = (ctypes.c_void_p() for _ in range(3))
        check(self.cuda.cuInit(0), "cuInit")
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0), "cuDevicePrimaryCtxRetain")
        check(self.cuda.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")
        check(self.cuda.cuModuleLoadData(ctypes.byref(self.module), PROGRAM), "cuModuleLoadData")
        check(self.cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"kit_python"), "cuModuleGetFunction")
        self.pointers = [ctypes.c_uint64() for _ in range(64)]

    def weights(self, layers):
        for i in range(layers):
            check(self.cuda.cuMemAlloc_v2(ctypes.byref(self.pointers[i]), ctypes.c_size_t(2 << 20)), "alloc"); count(2 << 20)

    def cache(self):
        check(self.cuda.cuMemAlloc_v2(ctypes.byref(self.pointers[32]), ctypes.c_size_t(12345)), "alloc"); count(12345)

    def decode(self, tokens):
        for _ in range(tokens):
            check(self.cuda.cuLaunchKernel(self.function, 1, 1, 1, 1, 1, 1, 0, None, None, None), "launch"); count(1)


def main():
    driver = None
    for command in sys.stdin:
        answer = {"result": 0}
        lines.clear()
        try:
            if ctypes is None:
                answer = {"result": -2, "error": "this Python has no ctypes"}
            elif command.strip() == "init":
                driver = Driver()
            elif command.strip() == "hold":
                driver.weights(5)
                driver.cache()
            elif command.strip() == "launch":
                driver.decode(17)
        except Exception as e:  # the kit reports it
            answer = {"result": 1, "error": "%s: %s" % (type(e).__name__, e)}
        answer["lines"] = json.dumps(lines)
        print(json.dumps(answer), flush=True)


main()
