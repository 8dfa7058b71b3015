# SPDX-License-Identifier: Apache-2.0
"""Does the same in each period of a sampler's clock: 50, 30 and 20 % of it in three
functions. On one CPU. Runs until its stdin ends, then prints the CPU time that each
used, in seconds, as JSON. Where it may, it runs before everything else on its CPU: who
waits for a CPU does not do the same in each period.

usage: lockstep.py HZ
"""
import json
import os
import select
import sys
import time

PERIOD = 10**9 // int(sys.argv[1])  # nanoseconds, as the kernel rounds it
used = {"half": 0.0, "third": 0.0, "fifth": 0.0}


def half(end, now=time.monotonic_ns):
    while now() < end:
        pass


def third(end, now=time.monotonic_ns):
    while now() < end:
        pass


def fifth(end, now=time.monotonic_ns):
    while now() < end:
        pass


def main():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass
    print("ready", flush=True)
    periods = 0
    while periods % 100 or not select.select([sys.stdin], [], [], 0)[0]:
        periods += 1
        # The clock of the kernel's timers.
        start = time.monotonic_ns() // PERIOD * PERIOD
        for f, end in (half, 0.5), (third, 0.8), (fifth, 1.0):
            began = time.thread_time()
            f(start + int(end * PERIOD))
            used[f.__name__] += time.thread_time() - began
    print(json.dumps(used), flush=True)


main()
