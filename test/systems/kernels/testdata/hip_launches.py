# SPDX-License-Identifier: Apache-2.0
"""Registers a kernel with a libamdhip64, launches it 300 times from one line, and copies 100
times from another. Waits for a line before, and before its end."""
import ctypes
import sys


class Dim3(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in "xyz"]


def decode(hip, kernel):
    hip.hipLaunchKernel(kernel, Dim3(4, 2, 1), Dim3(64, 1, 1), None, ctypes.c_size_t(0), None)


def load(hip, device, host):
    hip.hipMemcpyHtoD(device, host, ctypes.c_size_t(4096))


def main():
    hip = ctypes.CDLL(sys.argv[1])
    print('{"ready": 1}', flush=True)
    sys.stdin.readline()
    kernel, name = ctypes.c_uint64(0x5000), b"_ZN2at6native10vectorizedEPfi"
    getattr(hip, "__hipRegisterFunction")(None, kernel, name, name, 0, None, None, None, None, None)
    device, host = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    hip.hipMalloc(ctypes.byref(device), ctypes.c_size_t(4096))
    for i in range(300):
        decode(hip, kernel)
        if i < 100:
            load(hip, device, host)
    print('{"done": 1}', flush=True)
    sys.stdin.readline()


main()
