# SPDX-License-Identifier: Apache-2.0
"""Blocks of the simulated PyTorch allocator, from Python stacks of a depth.

  tensors.py LIBRARIES RATE DEPTH    RATE blocks/s, each freed at once; prints
                                     "DONE SECONDS NOW" every second: how many blocks
                                     so far, the thread's processor time, the time
  tensors.py … busy                  without pauses: between two blocks it computes for
                                     so long that alone it reaches about RATE

LIBRARIES is the directory with libc10_cuda.so; libcuda.so.1 is found by the loader. The
sizes are those of a server: from 512 bytes to 4 MiB.
"""
import ctypes
import random
import sys
import time

library = ctypes.CDLL(sys.argv[1] + "/libc10_cuda.so")
malloc, free = library.simtorch_malloc, library.simtorch_free
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_uint64]
free.argtypes = [ctypes.c_int, ctypes.c_void_p]
rate, depth = float(sys.argv[2]), int(sys.argv[3])
sizes = [int(2 ** random.Random(i).uniform(9, 22)) for i in range(4096)]


def work():
    begin = said = time.perf_counter()
    cpu = time.thread_time()
    done = 0
    while True:
        now = time.perf_counter()
        due = int((now - begin) * rate)
        while done < due:
            free(0, malloc(0, sizes[done & 4095]))
            done += 1
        if now - said >= 1:
            said = now
            print(done, time.thread_time() - cpu, now, flush=True)
        time.sleep(0.002)


def computes(n):
    for _ in range(n):
        pass


def busy():
    def timed(n, spins):
        begin = time.thread_time()
        for i in range(n):
            free(0, malloc(0, sizes[i & 4095]))
            computes(spins)
        return (time.thread_time() - begin) / n

    timed(20000, 100)  # the interpreter has seen the code, the pool has its segments
    bare = min(timed(5000, 0) for _ in range(5))
    loop = (min(timed(5000, 500) for _ in range(5)) - bare) / 500
    spins = max(0, int((1 / rate - bare) / loop))
    for _ in range(3):  # in the long run a processor is slower, and then it is not linear
        spins = max(0, spins + int((1 / rate - timed(20000, spins)) / loop))
    cpu, done = time.thread_time(), 0
    said = time.perf_counter()
    while True:
        for i in range(200):
            free(0, malloc(0, sizes[(done + i) & 4095]))
            computes(spins)
        done += 200
        now = time.perf_counter()
        if now - said >= 1:
            said = now
            print(done, time.thread_time() - cpu, now, flush=True)


# Each frame is another function, as in a model.
names = {"f%d" % depth: busy if "busy" in sys.argv[4:] else work}
for i in range(depth - 1, 1, -1):
    exec(compile("def f%d(): f%d()" % (i, i + 1), "chain.py", "exec"), names)
exec(compile("f2()", "chain.py", "exec"), names)
