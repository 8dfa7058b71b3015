# SPDX-License-Identifier: Apache-2.0
"""Keeps one CPU busy, 50 Python frames deep, and accounts for itself.

usage: workload.py FILE

FILE, which is mapped, has numbers of 8 bytes: the work done, then for
each function of SHARES the CPU time in it, in seconds. Runs until it is killed.
"""
import mmap
import random
import struct
import sys
import time

# Ten functions on the innermost frame, and each one's share of the work.
SHARES = {"f20": 20, "f17": 17, "f14": 14, "f12": 12, "f10": 10, "f08": 8, "f07": 7, "f05": 5, "f04": 4, "f03": 3}
DEPTH = 50

source = "".join(
    "def %s(n):\n    x = 0\n    for i in range(n):\n        x += i\n    return x\n\n" % name for name in SHARES)
# <module>, d00 … d46, work() and the innermost one.
last = DEPTH - 4
source += "".join("def d%02d():\n    return %s()\n\n" % (i, "d%02d" % (i + 1) if i < last else "work") for i in range(last + 1))


def work():
    clock, shuffle, pack = time.thread_time, random.Random(1).shuffle, struct.pack_into
    functions = [(globals()[name], 1500 * share) for name, share in SHARES.items()]
    order = list(range(len(functions)))
    used, done = [0.0] * len(functions), 0
    while True:
        # No fixed order: nothing here is periodic.
        shuffle(order)
        for i in order:
            function, n = functions[i]
            began = clock()
            function(n)
            used[i] += clock() - began
            done += n
            pack("<d%dd" % len(used), shared, 0, done, *used)


with open(sys.argv[1], "r+b") as f:
    f.truncate(8 * (1 + len(SHARES)))
    shared = mmap.mmap(f.fileno(), 0)
exec(compile(source, __file__ + ":generated", "exec"))
print("ready", flush=True)
d00()
