#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A workload that does what its standard input says, one step per line, and
answers each with one line, so that a test knows what was done and when.

    load PATH             dlopen the driver, start it and make device 0 current
    alloc NAME N BYTES    N allocations, made by the function NAME below; kept
    free NAME N           give back the latest N of NAME
    retain DEVICE         retain the primary context of a device
    use DEVICE            the same, and make it current
    nothing               free nothing: a call that only cuda_alloc probes, and that no row has
    churn BYTES           allocate and free until the next step
    map PATH...           map files executable and readable, as a loader would
    spawn PATH            fork a child that loads the driver, makes one allocation
                          and ends; before this process has loaded it, because
                          the driver does not survive a fork

The answer is "ok" and what the driver said: the number of refused calls. The
end of the input ends the process, with what it holds. Each function has a tag,
its position in NAMES, so that the driver's journal identifies the holders.
"""
import ctypes
import mmap
import os
import select
import sys

cu = None


def weights(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of weights


def kv_cache(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of kv_cache


def encoder_cache(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of encoder_cache


def activations(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of activations


def logits(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of logits


def workspace(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of workspace


def staging(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of staging


def embeddings(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of embeddings


def gradients(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of gradients


def optimizer(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of optimizer


def adapters(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of adapters


def prompts(p, size):
    return cu.cuMemAlloc_v2(p, size)  # line of prompts


NAMES = (weights, kv_cache, encoder_cache, activations, logits, workspace, staging,
         embeddings, gradients, optimizer, adapters, prompts)


class Server:
    """Between the steps and the functions, so that a stack has a middle."""

    def __init__(self):
        self.held = {f.__name__: [] for f in NAMES}

    def alloc(self, name, count, size):
        index = [f.__name__ for f in NAMES].index(name)
        cu.simcuda_tag(ctypes.c_uint64(index + 1))
        refused = 0
        for _ in range(count):
            p = ctypes.c_uint64()
            if NAMES[index](ctypes.byref(p), ctypes.c_size_t(size)):
                refused += 1
            else:
                self.held[name].append(p)
        return refused

    def free(self, name, count):
        return sum(1 for _ in range(count) if cu.cuMemFree_v2(self.held[name].pop()))

    def churn(self, size):
        refused = 0
        while not select.select([sys.stdin], [], [], 0.0005)[0]:
            refused += self.alloc("activations", 10, size) + self.free("activations", 10)
        return refused


def load(path):
    global cu
    cu = ctypes.CDLL(path)
    context = ctypes.c_void_p()
    return sum(1 for result in (
        cu.cuInit(0),
        cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cu.cuCtxSetCurrent(context)) if result)


def retain(device):
    context = ctypes.c_void_p()
    refused = cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)  # line of retain
    return context, int(refused != 0)


def use(device):
    context, refused = retain(device)
    return refused or cu.cuCtxSetCurrent(context)


mapped = []


def map_files(paths):
    for path in paths:
        with open(path, "rb") as f:
            mapped.append(mmap.mmap(f.fileno(), 1, prot=mmap.PROT_READ | mmap.PROT_EXEC))
    return 0


def spawn(server, path):
    pid = os.fork()
    if pid == 0:
        os._exit(load(path) + server.alloc("weights", 1, 4096))
    return os.waitpid(pid, 0)[1]


def main():
    server = Server()
    while True:
        words = os.read(0, 4096).decode().split()  # unbuffered, for select()
        if not words:
            return
        step, rest = words[0], words[1:]
        if step == "load":
            refused = load(rest[0])
        elif step == "alloc":
            refused = server.alloc(rest[0], int(rest[1]), int(rest[2]))
        elif step == "free":
            refused = server.free(rest[0], int(rest[1]))
        elif step == "nothing":
            refused = int(cu.cuMemFree_v2(ctypes.c_uint64(0)) != 0)
        elif step == "retain":
            refused = retain(int(rest[0]))[1]
        elif step == "use":
            refused = use(int(rest[0]))
        elif step == "churn":
            print("ok churning", flush=True)
            refused = server.churn(int(rest[0]))
        elif step == "map":
            refused = map_files(rest)
        elif step == "spawn":
            refused = spawn(server, rest[0])
        elif step == "stop":
            refused = 0
        print("ok", refused, flush=True)


main()
