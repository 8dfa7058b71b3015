#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a pair of cuMemAlloc_v2 and cuMemFree_v2 for a Python program at a given
stack depth, with and without a tracer: the price of the stack shows in the
difference between depths. Prints ns per pair for each repeat, and the best.
"""
import argparse
import ctypes
import sys
import time


def measure(alloc, free, p, size, pairs, rate):
    ref = ctypes.byref(p)
    if not rate:
        begin = time.perf_counter_ns()
        for _ in range(pairs):
            alloc(ref, size)
            free(p)
        return (time.perf_counter_ns() - begin) / pairs
    spent, begin = 0, time.perf_counter()
    for i in range(pairs):
        wait = begin + i / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        since = time.perf_counter_ns()
        alloc(ref, size)
        free(p)
        spent += time.perf_counter_ns() - since
    return spent / pairs


def descend(depth, *args):
    if depth > 1:
        return descend(depth - 1, *args)
    return measure(*args)


def main():
    a = argparse.ArgumentParser(description="time of an allocation and its free, in ns")
    a.add_argument("--libcuda", default="libcuda.so.1")
    a.add_argument("--depth", type=int, default=10, help="Python frames above the calls")
    a.add_argument("--pairs", type=int, default=100000)
    a.add_argument("--rate", type=float, default=0, help="pairs per second; 0: flat out")
    a.add_argument("--size", type=int, default=4096)
    a.add_argument("--repeats", type=int, default=3)
    o = a.parse_args()
    sys.setrecursionlimit(o.depth + 1000)
    cu = ctypes.CDLL(o.libcuda)
    context = ctypes.c_void_p()
    if cu.cuInit(0) or cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        sys.exit("bench: no device")
    cu.cuCtxSetCurrent(context)
    alloc, free = cu.cuMemAlloc_v2, cu.cuMemFree_v2
    alloc.argtypes, free.argtypes = [ctypes.c_void_p, ctypes.c_size_t], [ctypes.c_uint64]
    results = []
    for _ in range(o.repeats):
        ns = descend(o.depth, alloc, free, ctypes.c_uint64(), o.size, o.pairs, o.rate)
        print("%.0f ns per pair, depth %d" % (ns, o.depth), flush=True)
        results.append(ns)
    print("best: %.0f ns per pair" % min(results))


if __name__ == "__main__":
    main()
