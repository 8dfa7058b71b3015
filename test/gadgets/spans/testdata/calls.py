# SPDX-License-Identifier: Apache-2.0
"""Launches, copies and waits under spans that come and go, in several threads, and counts them.
Arguments: the driver, the publishing library, threads, spans of each. Prints what each span has done
as JSON, by its id, before "done"."""
import ctypes
import json
import os
import random
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../../examples/otel"), os.path.join(HERE, "../../../../examples/timeline")]
from context import Publisher  # noqa: E402
from gpu import Driver  # noqa: E402

ROUTES = ["/chat", "/summary", "/embed", "/" + "x" * 80]


class Worker(threading.Thread):
    def __init__(self, publisher, driver, seed, spans):
        super().__init__()
        self.publisher, self.driver, self.spans = publisher, driver, spans
        self.random = random.Random(seed)
        self.done = {}

    def run(self):
        context = ctypes.c_void_p()
        self.driver._cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.driver._cu.cuCtxSetCurrent(context)
        kernel, = self.driver.kernels("gemm")
        host, device = self.driver.pinned(1 << 20), self.driver.memory(1 << 20)
        for _ in range(self.spans):
            trace, span = "%032x" % (self.random.getrandbits(128) | 1), "%016x" % (self.random.getrandbits(64) | 1)
            attributes = {"other": "y" * self.random.randrange(200), "http.route": self.random.choice(ROUTES)}
            if self.random.random() < 0.2:
                del attributes["http.route"]
            with self.publisher.span(trace, span, attributes):
                self.work(span, trace, attributes.get("http.route", ""), kernel, host, device)
            self.work("", "", "", kernel, host, device)

    def work(self, span, trace, route, kernel, host, device):
        done = self.done.setdefault(span, {"trace": trace, "route": route, "launch": 0, "wait": 0, "copy": 0, "bytes": 0})
        for _ in range(self.random.randrange(1, 5)):
            self.driver.launch(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
            done["launch"] += 1
        for _ in range(self.random.randrange(3)):
            size = self.random.randrange(1, 1 << 20)
            self.driver.to_device(device, host, size, None)
            done["copy"] += 1
            done["bytes"] += size
        self.driver.synchronize(None)
        done["wait"] += 1


def main():
    driver, publisher = Driver(sys.argv[1]), Publisher(sys.argv[2], ["other", "http.route"])
    print("ready", flush=True)
    sys.stdin.readline()
    workers = [Worker(publisher, driver, seed, int(sys.argv[4])) for seed in range(int(sys.argv[3]))]
    for worker in workers:
        worker.start()
    sums = {}
    for worker in workers:
        worker.join()
        for span, done in worker.done.items():
            have = sums.setdefault(span, dict(done, launch=0, wait=0, copy=0, bytes=0))
            for name in ("launch", "wait", "copy", "bytes"):
                have[name] += done[name]
    print(json.dumps(sums), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
