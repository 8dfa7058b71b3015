# SPDX-License-Identifier: Apache-2.0
"""Pairs of cuMemAlloc_v2 and cuMemFree_v2 from Python stacks of an exact shape.

  workload.py LIBCUDA functions     pairs flat out at the depth that the last line
                                    of stdin names; prints "DEPTH NS" per pair
                                    every 20 ms
  workload.py LIBCUDA methods       the same in methods
  workload.py LIBCUDA new           the same in functions created every 20 ms
  workload.py LIBCUDA changing      the same in functions of a module that has a
                                    variable with another value at each pair
  workload.py LIBCUDA rows N RATE   N stacks that differ in a line, each of which
                                    holds an allocation, used in turn, RATE pairs/s
  workload.py LIBCUDA launches      as functions, with a cuLaunchKernel for a pair
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


def launch_arguments():
    module, kernel = ctypes.c_uint64(), ctypes.c_uint64()
    if cu.cuModuleLoadData(ctypes.byref(module), b"image") or cu.cuModuleGetFunction(
            ctypes.byref(kernel), module, b"bench_kernel"):
        sys.exit("workload: no kernel")
    one = ctypes.c_uint(1)
    return (kernel, ctypes.c_uint(80), one, one, ctypes.c_uint(128), one, one, ctypes.c_uint(0),
            ctypes.c_uint64(0), None, None)


def chain(depth, methods):
    """The source of functions or methods that call each other, the last of which has
    the loop, and the source of the call: `depth` frames with the one that calls."""
    call = "o{1}.f{0}(n)" if methods else "f{0}(n)"
    lines = []
    for i in range(2, depth + 1):
        body = LOOP if i == depth else [call.format(i + 1, (i + 1) // 2)]
        if methods and (i % 2 == 0):  # two to a class, as a layer has __call__ and forward
            lines += ["class C%d: pass" % (i // 2), "o%d = C%d()" % (i // 2, i // 2)]
        lines += ["def f%d(%sn):" % (i, "self, " if methods else "")] + ["    " + l for l in body]
        if methods:
            lines += ["C%d.f%d = f%d" % (i // 2, i, i)]
    return "\n".join(lines), "\n".join(LOOP) if depth == 1 else call.format(2, 1)


LOOP = ["for _ in range(n):", "    alloc(ref, 4096)", "    free(p)"]
if sys.argv[2] == "launches":
    LOOP[1:] = ["    launch(*args)"]
elif sys.argv[2] == "changing":
    LOOP[1:1] = ["    module['tick'] = _"]


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
    # None of this is in a function, so that a depth of 1 is possible.
    names = {"alloc": alloc, "free": free, "ref": ref, "p": p, "n": 0}
    names["module"] = names
    if sys.argv[2] == "launches":
        names.update(launch=cu.cuLaunchKernel, args=launch_arguments())
    while True:
        depth = int(os.read(0, 64).split()[-1])
        source, call = chain(depth - 1, sys.argv[2] == "methods")
        source, call = compile(source, "chain.py", "exec"), compile(call, "chain.py", "exec")
        exec(source, names)
        names["n"] = 1
        for _ in range(100 if depth > 1 else 0):  # as in a program that has run for a while
            exec(call, names)
        n = 200
        while not select.select([0], [], [], 0)[0]:
            names["n"] = n
            if sys.argv[2] == "new":
                exec(source, names)
            begin = time.perf_counter_ns()
            if depth == 1 and sys.argv[2] == "launches":
                launch, args = names["launch"], names["args"]
                for _ in range(n):
                    launch(*args)
            elif depth == 1:
                for _ in range(n):
                    alloc(ref, 4096)
                    free(p)
            else:
                exec(call, names)
            ns = (time.perf_counter_ns() - begin) / n
            n = max(50, int(20e6 / ns))
            print(depth, ns, flush=True)
