#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Out of memory with half of it unused: the pool's segments are cut up.

Sequences of two lengths are cached in turn and the short ones end. The rest of each
segment is too small for the next batch, on the simulated PyTorch allocator, with a
device of 1 GiB:

    SIMCUDA_CAPACITY=1GiB LD_LIBRARY_PATH=build/simcuda:build/simtorch examples/torch/fragments.py

A line on standard input starts it; "out of memory" is printed.
"""
import ctypes
import sys

library = ctypes.CDLL("libc10_cuda.so")
library.simtorch_malloc.restype = ctypes.c_void_p
library.simtorch_malloc.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.simtorch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
malloc, free = library.simtorch_malloc, library.simtorch_free
MIB = 1 << 20


def cache_sequences():
    """4 and 6 MiB in turn until the device is full: two of each fill a segment."""
    long, short = [], []
    while True:
        for size, to in ((4, short), (6, long)):
            pointer = malloc(0, size * MIB)
            if not pointer:
                return long, short
            to.append(pointer)


def next_batch():
    return malloc(0, 64 * MIB)


def main():
    malloc(0, MIB)
    print("ready", flush=True)
    sys.stdin.readline()
    long, short = cache_sequences()
    for pointer in short:
        free(0, pointer)
    if not next_batch():
        print("out of memory", flush=True)
    sys.stdin.read()


main()
