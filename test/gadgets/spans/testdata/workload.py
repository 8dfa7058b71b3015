# SPDX-License-Identifier: Apache-2.0
"""As workload.c, from Python: the publishing library is loaded by ctypes, as an
extension is by an import. Arguments: the driver, the library, threads, calls."""
import ctypes
import random
import sys
import threading


class Record(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("trace_id", ctypes.c_uint8 * 16), ("span_id", ctypes.c_uint8 * 8),
                ("valid", ctypes.c_uint8), ("flags", ctypes.c_uint8),
                ("attributes_bytes", ctypes.c_uint16)]


def span(driver, library, rng, calls):
    """A span, and what is allocated for it."""
    number = rng.getrandbits(64) or 1
    record = Record((ctypes.c_uint8 * 16)(*[7] * 16),
                    (ctypes.c_uint8 * 8)(*number.to_bytes(8, "big")), 1)
    library.publish(ctypes.byref(record))
    driver.simcuda_tag(ctypes.c_uint64(number))
    held = [allocate(driver, rng) for _ in range(calls)]
    library.publish(None)
    driver.simcuda_tag(ctypes.c_uint64(0))
    held.append(allocate(driver, rng))
    for pointer in held[::2]:
        driver.cuMemFree_v2(pointer)


def allocate(driver, rng):
    pointer = ctypes.c_uint64()
    driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(rng.randrange(1, 1 << 20)))
    return pointer


def worker(driver, library, seed, calls):
    rng = random.Random(seed)
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    for _ in range(calls // 10):
        span(driver, library, rng, 9)


def main():
    driver, library = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
    driver.cuInit(0)
    print("ready", flush=True)
    sys.stdin.readline()
    threads = [threading.Thread(target=worker, args=(driver, library, seed, int(sys.argv[4])))
               for seed in range(int(sys.argv[3]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("done", flush=True)
    sys.stdin.readline()


main()
