#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of a pool that no tensor uses: by rounding, and in segments that a few blocks keep.

An index has thousands of entries of 520 bytes, which take a block of 1,024 each. Of every ten
batches the first is cached and the others are freed: it keeps a segment of 20 MiB alone. On the
simulated PyTorch allocator:

    LD_LIBRARY_PATH=build/simcuda:build/simtorch examples/torch/waste.py

A line on standard input makes the process allocate, the next one frees everything. Each is
answered by a line. --after SECONDS allocates then instead, and ends 30 seconds later.
"""
import ctypes
import sys
import time

library = ctypes.CDLL("libc10_cuda.so")
for function in library.simtorch_malloc, library.simtorch_raw_alloc:
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.simtorch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
malloc, free = library.simtorch_malloc, library.simtorch_free
MIB = 1 << 20
ENTRIES, SEGMENTS = 10000, 12


class Index:
    def __init__(self):
        self.entries = []

    def add(self):
        self.entries.append(malloc(0, 520))


def next_batch():
    return malloc(0, 2 * MIB - 100)


def cache_batch(cache):
    cache.append(malloc(0, 2 * MIB - 100))


def workspace():
    """As a library in C++ does that asks the allocator for bytes, and for no tensor."""
    return library.simtorch_raw_alloc(0, 12 * MIB)


def work():
    index, cache, held = Index(), [], [workspace()]
    for _ in range(SEGMENTS):
        cache_batch(cache)
        held += [next_batch() for _ in range(9)]
    for pointer in held[1:]:
        free(0, pointer)
    for _ in range(ENTRIES):
        index.add()
    return index.entries + cache + held[:1]


def main():
    free(0, malloc(0, MIB))
    library.simtorch_empty_cache(0)
    print("ready", flush=True)
    if sys.argv[1:2] == ["--after"]:
        time.sleep(float(sys.argv[2]))
        held = work()
        time.sleep(30)
        return
    sys.stdin.readline()
    held = work()
    print("allocated", flush=True)
    sys.stdin.readline()
    for pointer in held:
        free(0, pointer)
    print("freed", flush=True)
    sys.stdin.read()


main()
