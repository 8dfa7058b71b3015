# SPDX-License-Identifier: Apache-2.0
"""Pairs of cuMemAlloc_v2 and cuMemFree_v2 from Python stacks of an exact shape.

  workload.py LIBCUDA depth         pairs flat out at the depth that the last line
                                    of stdin names; prints "DEPTH NS" per pair
                                    every 20 ms
  workload.py LIBCUDA rows N RATE   N stacks that differ in a line, each of which
                                    holds an allocation, used in turn, RATE pairs/s
  workload.py LIBCUDA once          one pair, then the end

Every frame is another function: a recursive one would flatter what the tracer
remembers of code objects.
"""
import ctypes
import os
import select
import sys
import time

cu = ctypes.CDLL(sys.argv[1])
context, p = ctypes.c_void_p(), ctypes.c_uint64()
if cu.cuInit(0) or cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
    sys.exit("workload: no device")
cu.cuCtxSetCurrent(context)
alloc, free = cu.cuMemAlloc_v2, cu.cuMemFree_v2
alloc.argtypes, free.argtypes = [ctypes.c_void_p, ctypes.c_size_t], [ctypes.c_uint64]
ref = ctypes.byref(p)


def chain(depth):
    """The source of a program whose loop runs in `depth` frames, module included."""
    lines = []
    for i in range(2, depth + 1):
        lines += ["def f%d(n):" % i]
        lines += ["    f%d(n)" % (i + 1)] if i < depth else ["    " + l for l in LOOP]
    lines += LOOP if depth == 1 else ["f2(n)"]
    return "\n".join(lines)


LOOP = ["for _ in range(n):", "    alloc(ref, 4096)", "    free(p)"]


def rows(count, rate):
    """Holds an allocation in each of `count` lines, and uses them in turn."""
    source = "\n".join("def f%d(): alloc(ref, 4096); free(p)\ndef g%d(): alloc(ref, 4096)" % (i, i)
                       for i in range(count))
    names = {"alloc": alloc, "free": free, "ref": ref, "p": p}
    exec(compile(source, "rows.py", "exec"), names)
    pairs = [names["f%d" % i] for i in range(count)]
    for i in range(count):
        names["g%d" % i]()
    done, begin = 0, time.perf_counter()
    while True:
        due = int((time.perf_counter() - begin) * rate)
        while done < due:
            pairs[done % count]()
            done += 1
        time.sleep(0.005)


if sys.argv[2] == "rows":
    rows(int(sys.argv[3]), float(sys.argv[4]))
elif sys.argv[2] == "once":
    alloc(ref, 4096)
    free(p)
else:
    # Nothing of this is in a function, so that a depth of 1 can be had.
    names = {"alloc": alloc, "free": free, "ref": ref, "p": p}
    while True:
        depth = int(os.read(0, 64).split()[-1])
        code, n = compile(chain(depth - 1), "chain.py", "exec"), 200
        while not select.select([0], [], [], 0)[0]:
            names["n"] = n
            begin = time.perf_counter_ns()
            if depth == 1:
                for _ in range(n):
                    alloc(ref, 4096)
                    free(p)
            else:
                exec(code, names)
            ns = (time.perf_counter_ns() - begin) / n
            n = max(50, int(20e6 / ns))
            print(depth, ns, flush=True)
