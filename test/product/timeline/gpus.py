# SPDX-License-Identifier: Apache-2.0
"""Works on two devices of the simulated driver: launches, and short-lived memory.

Prints ready, then holds a little memory now and then until a line on stdin; then
nothing, and as much as the arguments request; then prints ready again and waits for its end.
"""
import argparse
import ctypes
import random
import select
import sys
import time
from ctypes import byref, c_char_p, c_size_t, c_uint, c_uint64


class Device:
    def __init__(self, cuda, ordinal):
        self.cuda, self.held = cuda, []
        self.context, self.stream, module, self.kernel = c_uint64(), c_uint64(), c_uint64(), c_uint64()
        assert cuda.cuDevicePrimaryCtxRetain(byref(self.context), ordinal) == 0
        self.enter()
        assert cuda.cuStreamCreate(byref(self.stream), 1) == 0
        assert cuda.cuModuleLoadData(byref(module), c_char_p(b"image")) == 0
        assert cuda.cuModuleGetFunction(byref(self.kernel), module, c_char_p(b"kernel")) == 0

    def enter(self):
        assert self.cuda.cuCtxSetCurrent(self.context) == 0

    def launch(self):
        one = c_uint(1)
        assert self.cuda.cuLaunchKernel(self.kernel, one, one, one, one, one, one, c_uint(0), self.stream, None, None) == 0
        assert self.cuda.cuCtxSynchronize() == 0

    def hold(self, size):
        pointer = c_uint64()
        assert self.cuda.cuMemAlloc_v2(byref(pointer), c_size_t(size)) == 0
        self.held.append(pointer)

    def drop(self):
        assert self.cuda.cuMemFree_v2(self.held.pop(random.randrange(len(self.held)))) == 0

    def work(self):
        self.enter()
        self.launch()
        if self.held and random.random() < 0.45:
            self.drop()
        else:
            self.hold(random.randrange(1, 1 << 20))


def requested():
    return select.select([sys.stdin], [], [], 0)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--journal", help="not used: the driver has one")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    random.seed(6)
    cuda = ctypes.CDLL(args.driver)
    cuda.cuInit(0)
    print("ready", flush=True)
    sys.stdin.readline()
    devices = [Device(cuda, n) for n in range(2)]
    print("ready", flush=True)
    while not requested():
        for d in devices:
            d.enter()
            d.hold(4096)
        time.sleep(0.15)
        for d in devices:
            d.enter()
            d.drop()
        time.sleep(0.15)
    sys.stdin.readline()
    for n in range(args.steps):
        random.choice(devices).work()
        time.sleep(0.01)
    time.sleep(0.3)  # so that everything is read once more
    cuda.simcuda_flush()
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
