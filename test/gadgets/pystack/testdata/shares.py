# SPDX-License-Identifier: Apache-2.0
"""Three functions that use 50, 30 and 20 % of the CPU time. Runs until its stdin
ends, then prints what each really used, in seconds, as JSON."""
import json
import select
import sys
import time

used = {"half": 0.0, "third": 0.0, "fifth": 0.0}


def half():
    n = 0
    for i in range(50000):
        n += i
    return n


def third():
    n = 0
    for i in range(30000):
        n += i
    return n


def fifth():
    n = 0
    for i in range(20000):
        n += i
    return n


def main():
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for f in (half, third, fifth):
            began = time.process_time()
            f()
            used[f.__name__] += time.process_time() - began
    print(json.dumps(used), flush=True)


main()
