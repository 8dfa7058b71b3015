#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launches kernels and graphs of the simulated driver, whose CUPTI library
(examples/simcupti) reports when they ran. Waits at each step for a line, and prints after it
how many listen.
"""
import argparse
import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../examples/timeline"))
import gpu  # noqa: E402


def check(result):
    assert result == 0, result


class Work:
    def __init__(self, path, shim):
        self.driver = gpu.Driver(path)
        self.cuda = ctypes.CDLL(path)
        self.shim = ctypes.CDLL(shim)
        self.returns = getattr(self.shim, "simcupti_runtime_returns", lambda: None)
        self.listeners = getattr(self.shim, "simcupti_listeners", lambda: -1)  # -1: unknown
        self.gemm, self.attention, self.early = self.driver.kernels("gemm", "attention", "early")
        self.streams = [self.driver.stream(), self.driver.stream()]
        self.exec = ctypes.c_void_p()

    def launch(self, kernel, blocks, stream):
        self.driver.launch(kernel, blocks, 1, 1, 64, 1, 1, 0, self.streams[stream], None, None)

    def capture(self, nodes):
        graph, stream = ctypes.c_void_p(), ctypes.c_void_p(self.streams[0])
        check(self.cuda.cuStreamBeginCapture_v2(stream, 1))
        for _ in range(nodes):
            self.launch(self.gemm, 1, 0)
        check(self.cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
        check(self.cuda.cuGraphInstantiateWithFlags(ctypes.byref(self.exec), graph, ctypes.c_ulonglong(0)))

    def forward(self):
        self.launch(self.gemm, 3, 0)
        self.returns()
        self.launch(self.attention, 11, 1)
        self.returns()

    def backward(self):
        self.launch(self.gemm, 7, 0)
        self.returns()

    def replay(self):
        check(self.cuda.cuGraphLaunch(self.exec, ctypes.c_void_p(self.streams[1])))
        self.returns()

    def run(self, steps):
        for _ in range(steps):
            self.forward()
            self.backward()
            self.replay()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--listen", action="store_true", help="there is another listener")
    args = parser.parse_args()
    work = Work(args.driver, args.shim)
    if args.listen:
        work.shim.simcupti_listen(1)
    for _ in range(5):
        work.launch(work.early, 2, 0)
        work.returns()
    work.capture(4)

    def step(action=None):
        print("listeners", work.listeners(), flush=True)
        sys.stdin.readline()
        if action:
            action()
            work.shim.simcupti_flush()

    step()  # no listener yet
    step(lambda: work.run(args.steps))
    step()
    step(lambda: work.run(args.steps))  # and no listener any more
    step()


if __name__ == "__main__":
    main()
