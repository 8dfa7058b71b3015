# SPDX-License-Identifier: Apache-2.0
"""Retains the contexts of GPU 0 and 1 on a processor on which two other processes run all the time, and
those of MOVED others in a thread that is moved to another processor again and again."""
import ctypes
import os
import sys
import time

processors = sorted(os.sched_getaffinity(0))
first, second = processors[0], processors[-1]
parent = os.getpid()
for processor in (first, first, second, second):
    read, write = os.pipe()
    if os.fork() == 0:
        os.sched_setaffinity(0, {processor})
        os.write(write, b"x")
        while os.getppid() == parent:
            pass
        os._exit(0)
    os.read(read, 1)
os.sched_setaffinity(0, {first})
driver, context = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
print("ready", flush=True)
sys.stdin.readline()
for device in range(2):
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
driver.move(first, second)
for device in range(2, 2 + int(sys.argv[2])):
    began = time.thread_time()
    while time.thread_time() - began < 0.004:
        pass
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
print("ready", flush=True)
sys.stdin.readline()
