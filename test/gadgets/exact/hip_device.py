# SPDX-License-Identifier: Apache-2.0
"""A thread on device 1 from before attach allocates 1 KiB; a new thread, on device 0, 2 KiB;
the first one 4 KiB, when hipGetDevice has answered."""
import ctypes
import sys
import threading

hip = ctypes.CDLL(sys.argv[1])


def allocate(size):
    p = ctypes.c_void_p()
    if hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(size)):
        sys.exit("hipMalloc failed")


hip.hipSetDevice(1)
print("ready", flush=True)
sys.stdin.readline()
allocate(1 << 10)
other = threading.Thread(target=allocate, args=(1 << 11,))
other.start()
other.join()
hip.hipGetDevice(ctypes.byref(ctypes.c_int()))
allocate(1 << 12)
print("done", flush=True)
sys.stdin.readline()
