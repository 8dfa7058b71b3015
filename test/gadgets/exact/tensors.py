#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random workload of the exactness test of tensors.

Threads take blocks of several streams from the simulated allocator of PyTorch and give
them back, some while another stream uses them, through the Python stacks of routes.py,
blocks of one thread also from another one, and write down who did what (truth.py).

    tensors.py --c10-cuda build/simtorch/libc10_cuda.so --out DIR [--calls 100000]

With --graphs some of the blocks come from private pools, as while CUDA graphs are
captured; with --trim the cache is given back now and then.

With --hold the workload prints {"holding": [pid]} when all calls are made, and ends
when a line arrives on its standard input.
"""
import argparse
import json
import os
import random
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ctypes  # noqa: E402

import routes  # noqa: E402
import truth  # noqa: E402


def arguments():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--c10-cuda", required=True)
    a.add_argument("--out", required=True, help="directory for journals and truth files")
    a.add_argument("--calls", type=int, default=100000)
    a.add_argument("--threads", type=int, default=8)
    a.add_argument("--devices", type=int, default=2)
    a.add_argument("--streams", type=int, default=4, help="of each device")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--live", type=int, default=3000, help="blocks in use at once, about")
    a.add_argument("--graphs", action="store_true")
    a.add_argument("--trim", action="store_true")
    a.add_argument("--hold", action="store_true")
    return a.parse_args()


class Thread(threading.Thread):
    def __init__(self, options, driver, index, shared, lock):
        super().__init__()
        self.options, self.driver, self.shared, self.lock = options, driver, shared, lock
        self.rng = random.Random(options.seed * 1000 + index)
        self.routes = routes.routes(False)
        self.surprises = 0

    def call(self, fn, *args):
        return self.rng.choice(self.routes)(self.driver, fn, args)

    def stream(self):
        return self.rng.randrange(self.options.streams)

    def graphs(self):
        """Begins or ends a capture, or lets the graphs of a private pool go."""
        lib, device, private = self.driver.lib, self.rng.randrange(self.options.devices), self.rng.randrange(1, 4)
        what = self.rng.randrange(3)
        if what == 0:
            lib.simtorch_begin_capture(device, private, self.stream())
        elif what == 1:
            lib.simtorch_end_capture(device)
        else:
            lib.simtorch_release_pool(device, private)

    def run(self):
        lib = self.driver.lib
        for _ in range(self.options.calls // self.options.threads):
            if self.options.graphs and self.rng.random() < 0.05:
                self.graphs()
            if self.options.trim and self.rng.random() < 0.01:
                lib.simtorch_empty_cache(self.rng.randrange(self.options.devices))
            with self.lock:  # only this thread frees what it takes out here
                held = None
                if self.shared and self.rng.random() < len(self.shared) / self.options.live / 2:
                    held = self.shared.pop(self.rng.randrange(len(self.shared)))
            if held:
                if self.rng.random() < 0.2:  # a copy on another stream still reads it
                    lib.simtorch_record_stream(held[0], ctypes.c_void_p(held[1]), self.stream())
                if self.call(lib.simtorch_free, held[0], ctypes.c_void_p(held[1])):
                    self.surprises += 1
                continue
            device = self.rng.randrange(self.options.devices)
            size = int(2 ** self.rng.uniform(4, 21))
            pointer = self.call(lib.simtorch_malloc_on, device, ctypes.c_uint64(size), self.stream())
            if pointer:
                with self.lock:
                    self.shared.append((device, pointer))
                if self.rng.random() < 0.05:
                    lib.simtorch_synchronize(device, self.stream())
            else:
                self.surprises += 1


def main():
    options = arguments()
    driver = truth.Driver(options.c10_cuda, options.out, tag="simtorch_tag")
    driver.lib.simtorch_malloc.restype = ctypes.c_void_p
    driver.lib.simtorch_malloc_on.restype = ctypes.c_void_p
    driver.lib.simtorch_empty_cache.restype = ctypes.c_uint64
    lock, shared = threading.Lock(), []
    threads = [Thread(options, driver, i, shared, lock) for i in range(options.threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    surprises = sum(t.surprises for t in threads)
    # More than a device has: an OOM, after the cache was given back. It is the last report of each
    # pool: what is trimmed without one, the pool's totals do not have.
    for device in range(options.devices):
        if driver.lib.simtorch_malloc_on(device, ctypes.c_uint64(1 << 50), 0):
            surprises += 1
    if options.hold:
        print(json.dumps({"holding": [os.getpid()], "allocated": [
            driver.lib.simtorch_allocated(d) for d in range(options.devices)]}), flush=True)
        sys.stdin.readline()
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
