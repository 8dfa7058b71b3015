#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Out of memory with half of it kept for CUDA graphs, on the simulated PyTorch allocator.

Graphs are captured with activations of 96 MiB each, which come from a private pool: the
graphs' own, of which nothing is in use between two replays and nothing is released.
A batch then does not fit beside it, on a device of 1 GiB:

    SIMCUDA_CAPACITY=1GiB LD_LIBRARY_PATH=build/simcuda:build/simtorch examples/torch/graphs.py

A line on standard input starts it; "out of memory" is printed. After a second line the
graphs are deleted and the cache is given back: "fits".
"""
import ctypes
import sys

library = ctypes.CDLL("libc10_cuda.so")
library.simtorch_malloc.restype = ctypes.c_void_p
library.simtorch_malloc.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.simtorch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.simtorch_empty_cache.restype = ctypes.c_uint64
malloc, free = library.simtorch_malloc, library.simtorch_free
MIB = 1 << 20
PRIVATE, STREAM = 1, 0


def capture(layers):
    library.simtorch_begin_capture(0, PRIVATE, STREAM)
    held = [malloc(0, 96 * MIB) for _ in range(layers)]
    for pointer in held:
        free(0, pointer)
    library.simtorch_end_capture(0)


def next_batch():
    return malloc(0, 500 * MIB)


def main():
    malloc(0, MIB)
    print("ready", flush=True)
    sys.stdin.readline()
    capture(6)
    library.simtorch_empty_cache(0)
    if not next_batch():
        print("out of memory", flush=True)
    sys.stdin.readline()
    library.simtorch_release_pool(0, PRIVATE)
    library.simtorch_empty_cache(0)
    if next_batch():
        print("fits", flush=True)
    sys.stdin.read()


main()
