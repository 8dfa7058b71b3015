#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server whose memory grows with each request, on the simulated PyTorch allocator.

Two devices, as with tensor parallelism: a request takes 26 MiB on one and 14 MiB on the
other for its part of the cache and never gives them back; its activations are given
back at its end. The driver sees segments only, allocated by the code that made the pool grow.

    LD_LIBRARY_PATH=build/simcuda:build/simtorch examples/torch/serve.py

Each line on standard input is a request, or "offload", which gives back a layer of each
device; "ready" and "done" are printed.
"""
import ctypes
import sys

MIB = 1 << 20


class KVCache:
    """One worker's blocks of keys and values."""

    def __init__(self, library, device, size):
        self.library, self.device, self.size = library, device, size
        self.blocks = {}

    def append(self, request):
        self.blocks[request] = self.library.simtorch_malloc(self.device, self.size)


class Engine:
    def __init__(self):
        # The functions represent torch.empty() and the end of a tensor.
        self.library = ctypes.CDLL("libc10_cuda.so")
        self.library.simtorch_malloc.restype = ctypes.c_void_p
        self.library.simtorch_malloc.argtypes = [ctypes.c_int, ctypes.c_uint64]
        self.library.simtorch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
        self.library.simtorch_copy.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
        self.library.simtorch_zero.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64]
        self.weights = [(device, self.load_layer(device)) for _ in range(4) for device in (0, 1)]
        self.caches = [KVCache(self.library, 0, 26 * MIB), KVCache(self.library, 1, 14 * MIB)]

    def load_layer(self, device):
        return self.library.simtorch_malloc(device, 40 * MIB)

    def offload(self):
        for _ in self.caches:
            self.library.simtorch_free(*self.weights.pop())

    def forward(self, layers):
        """Activations of a size that hardly ever fits the cached blocks."""
        for device in (0, 1):
            held = [self.library.simtorch_malloc(device, (3 + layer) * MIB) for layer in range(layers)]
            self.compute(device, held)
            for pointer in held:
                self.library.simtorch_free(device, pointer)

    def compute(self, device, held):
        """Work for activations: zeroes, a matrix and two more operators each, a copy."""
        self.library.simtorch_zero(device, held[0], MIB)
        for layer, pointer in enumerate(held):
            for is_matrix in (1, 0, 0):
                self.library.simtorch_launch(device, is_matrix)
            if layer:
                self.library.simtorch_copy(device, pointer, held[layer - 1], MIB)

    def generate(self, request):
        self.forward(4)
        for cache in self.caches:
            cache.append(request)
        self.forward(6)


def main():
    engine = Engine()
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        if line.strip() == "offload":
            engine.offload()
        else:
            engine.generate(number)
        print("done", flush=True)


if __name__ == "__main__":
    main()
