# SPDX-License-Identifier: Apache-2.0
"""Retains the contexts of GPU 0 and 1 on a processor on which two other processes run all the time."""
import ctypes
import os
import sys

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
parent = os.getpid()
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"x")
        while os.getppid() == parent:
            pass
        os._exit(0)
    os.read(read, 1)
driver, context = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
print("ready", flush=True)
sys.stdin.readline()
for device in range(2):
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
print("ready", flush=True)
sys.stdin.readline()
