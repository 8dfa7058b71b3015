# SPDX-License-Identifier: Apache-2.0
"""The few calls of the CUDA driver that the workloads of this folder make, by ctypes:
of the real driver, or of the simulated one (examples/simcuda).

Calls are ctypes functions and not methods, so that they add no Python frame of their
own: a timeline names the method that wanted them.
"""
import ctypes
import json
import sys
import time

# A kernel that does nothing, for a real GPU; the simulated driver reads no code.
PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry rms_norm() { ret; }
.visible .entry gemm_bf16() { ret; }
.visible .entry flash_attention() { ret; }
"""


class Driver:
    def __init__(self, path=None):
        self._cu = ctypes.CDLL(path or "libcuda.so.1")
        self._call("cuInit", ctypes.c_uint(0))
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self._call("cuCtxSetCurrent", context)
        pointer, size = ctypes.c_uint64, ctypes.c_size_t
        self.to_device = self._function("cuMemcpyHtoDAsync_v2", pointer, ctypes.c_void_p, size, ctypes.c_void_p)
        self.to_host = self._function("cuMemcpyDtoHAsync_v2", ctypes.c_void_p, pointer, size, ctypes.c_void_p)
        self.synchronize = self._function("cuStreamSynchronize", ctypes.c_void_p)
        u = ctypes.c_uint
        self.launch = self._function("cuLaunchKernel", ctypes.c_void_p, u, u, u, u, u, u, u,
                                     ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def _call(self, name, *args):
        check(getattr(self._cu, name)(*args), getattr(self._cu, name), args)

    def _function(self, name, *types):
        f = getattr(self._cu, name)
        f.argtypes = types
        f.errcheck = check
        return f

    def memory(self, nbytes):
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        return pointer.value

    def pinned(self, nbytes):
        pointer = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(nbytes), ctypes.c_uint(0))
        return pointer.value

    def stream(self):
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))  # CU_STREAM_NON_BLOCKING
        return stream.value

    def kernels(self, *names):
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        found = []
        for name in names:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
            found.append(function.value)
        return found


def check(result, function, args):
    if result:
        raise RuntimeError("%s failed with CUDA error %d" % (function.__name__, result))
    return args


class Journal:
    """A journal of the workload, as JSON lines: the truth for tests."""

    def __init__(self, path):
        self._file = open(path, "w") if path else None

    def note(self, name, start, **more):
        if self._file:
            json.dump(dict(name=name, start_ns=start, end_ns=now(), **more), self._file)
            self._file.write("\n")

    def close(self):
        if self._file:
            self._file.close()


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def wait_for_tracer():
    """Prints ready, and continues at a line on standard input, if that is a pipe."""
    if not sys.stdin.isatty():
        print("ready", flush=True)
        sys.stdin.readline()
