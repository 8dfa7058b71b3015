#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of two kinds of requests, of which one costs 100 times as much as the other.

A request takes blocks of 512 KiB of the KV cache and launches a kernel for each: a chat one, a
summary 100. A chat gives its block back at its end. Of summaries the blocks stay, for a prefix that
never comes again: that is the fault. On the simulated PyTorch allocator:

    LD_LIBRARY_PATH=build/simcuda:build/simtorch examples/torch/requests.py

Each line on standard input is a request, "chat" or "summary", answered by "done" and its trace.
--every SECONDS makes nine chats and a summary in that time, again and again, for 40 seconds. With
--spans each request is a span of a trace of its own, which has the route and which the process
publishes (examples/otel).
"""
import argparse
import contextlib
import ctypes
import os
import sys
import time

library = ctypes.CDLL("libc10_cuda.so")
library.simtorch_malloc.restype = ctypes.c_void_p
library.simtorch_malloc.argtypes = [ctypes.c_int, ctypes.c_uint64]
library.simtorch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
BLOCK = 512 << 10


class KVCache:
    def __init__(self):
        self.prefixes = []

    def append(self, blocks):
        return [library.simtorch_malloc(0, BLOCK) for _ in range(blocks)]

    def free(self, blocks):
        for block in blocks:
            library.simtorch_free(0, block)


class Server:
    def __init__(self):
        self.cache = KVCache()

    def forward(self, blocks):
        for _ in blocks:
            library.simtorch_launch(0, 1)

    def chat(self):
        blocks = self.cache.append(1)
        self.forward(blocks)
        time.sleep(0.02)
        self.cache.free(blocks)

    def summary(self):
        blocks = self.cache.append(100)
        self.forward(blocks)
        self.cache.prefixes += blocks


class Traces:
    def __init__(self):
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path.insert(0, os.path.join(here, "../otel"))
        from context import Publisher
        self.publisher = Publisher(os.path.join(here, "../../build/otel/libpublisher.so"), ["http.method", "http.route"])

    def span(self, route):
        """A new trace, and its id."""
        self.id = os.urandom(16).hex()
        return self.publisher.span(self.id, os.urandom(8).hex(), {"http.method": "POST", "http.route": route})


class NoTraces:
    id = ""

    def span(self, route):
        return contextlib.nullcontext()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float)
    parser.add_argument("--spans", action="store_true")
    args = parser.parse_args()
    server, traces = Server(), Traces() if args.spans else NoTraces()

    def request(kind):
        with traces.span("/" + kind):
            getattr(server, kind)()

    server.chat()  # loads everything
    print("ready", flush=True)
    if args.every:
        end = time.monotonic() + 40
        while time.monotonic() < end:
            for _ in range(9):
                request("chat")
                time.sleep(args.every / 10)
            request("summary")
        return
    for line in sys.stdin:
        request(line.strip())
        print(*filter(None, ["done", traces.id]), flush=True)


if __name__ == "__main__":
    main()
