#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokens, one in each step: tokens to the GPU, the layers' kernels, the new token
back. The next step waits for it.
"""
import argparse
import ctypes
import functools
import time

import gpu

NORM, GEMM, ATTENTION = "rms_norm", "gemm_bf16", "flash_attention"


class Model:
    def __init__(self, driver, layers):
        self.driver, self.layers = driver, layers
        self.norm, self.gemm, self.attention = driver.kernels(NORM, GEMM, ATTENTION)

    def forward(self, stream):
        for _ in range(self.layers):
            self.driver.launch(self.norm, 32, 1, 1, 256, 1, 1, 0, stream, None, None)
            self.driver.launch(self.attention, 64, 8, 1, 128, 1, 1, 48 << 10, stream, None, None)
            self.driver.launch(self.gemm, 128, 16, 1, 256, 1, 1, 32 << 10, stream, None, None)


class Engine:
    def __init__(self, driver, layers, batch):
        self.driver, self.batch = driver, batch
        self.model = Model(driver, layers)
        self.stream = driver.stream()
        self.nbytes = 8 * batch
        self.host = ctypes.create_string_buffer(self.nbytes)
        self.tokens = driver.memory(self.nbytes)

    def upload(self):
        self.driver.to_device(self.tokens, ctypes.addressof(self.host), self.nbytes, self.stream)

    def sample(self):
        self.driver.to_host(ctypes.addressof(self.host), self.tokens, self.nbytes, self.stream)
        self.driver.synchronize(self.stream)

    def run(self, steps, pause, rate, journal):
        begun, calls = time.monotonic(), 0
        for number in range(steps):
            for name, method in (("Engine.upload", self.upload),
                                 ("Model.forward", functools.partial(self.model.forward, self.stream)),
                                 ("Engine.sample", self.sample)):
                start = gpu.now()
                method()
                journal.note(name, start, step=number)
            calls += 3 * self.model.layers + 3
            if rate:
                pause = max(begun + calls / rate - time.monotonic(), 0)
            time.sleep(pause)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pause", type=float, default=0.002, help="seconds between steps: what the scheduler takes")
    parser.add_argument("--rate", type=float, default=0, help="pause as long as it takes for so many calls per second")
    parser.add_argument("--driver", help="path of libcuda.so.1")
    parser.add_argument("--journal", help="write what was done and when to this file")
    args = parser.parse_args()
    journal = gpu.Journal(args.journal)
    driver = gpu.Driver(args.driver)
    gpu.wait_for_tracer()  # before it resolves kernels by their names
    engine = Engine(driver, args.layers, args.batch)
    engine.run(args.steps, args.pause, args.rate, journal)
    journal.close()
    gpu.wait_for_tracer()


if __name__ == "__main__":
    main()
