# SPDX-License-Identifier: Apache-2.0
"""300 launches of a kernel from one line, and 100 copies from another."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../examples/timeline"))
from gpu import Driver  # noqa: E402


def decode(driver, kernel, stream):
    driver.launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, None, None)


def load(driver, device, host, stream):
    driver.to_device(device, host, 4096, stream)


def main():
    driver = Driver(sys.argv[1])
    kernel, = driver.kernels("gemm_bf16")
    device, host, stream = driver.memory(4096), driver.pinned(4096), driver.stream()
    for i in range(300):
        decode(driver, kernel, stream)
        if i < 100:
            load(driver, device, host, stream)
    driver.synchronize(stream)
    print('{"done": 1}', flush=True)
    sys.stdin.readline()


main()
