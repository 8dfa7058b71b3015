#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop that leaks: a hook keeps each step's loss, and so its graph, alive.

Each tenth of a second a step allocates activations and frees them, and the closure
that is registered for logging keeps 1 MiB, on the simulated PyTorch allocator:

    LD_LIBRARY_PATH=build/simcuda:build/simtorch examples/torch/closure.py

Ends with its standard input.
"""
import ctypes
import sys
import threading
import time

library = ctypes.CDLL("libc10_cuda.so")
library.simtorch_malloc.restype = ctypes.c_void_p
library.simtorch_malloc.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.simtorch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
malloc, free = library.simtorch_malloc, library.simtorch_free
MIB = 1 << 20
hooks = []


def forward():
    held = [malloc(0, 4 * MIB) for _ in range(8)]
    for pointer in held:
        free(0, pointer)


def make_hook(step):
    loss = malloc(0, MIB)

    def log():
        return step, loss

    return log


def train():
    step = 0
    while True:
        forward()
        hooks.append(make_hook(step))
        step += 1
        time.sleep(0.1)


threading.Thread(target=train, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
