# SPDX-License-Identifier: Apache-2.0
"""Many threads that sleep, and what the interpreter itself says of their stacks.

usage: threads.py THREADS

Prints one JSON object per line: first {"truth": {TID: [[name, file, line], …]}},
innermost frame first; then, for each line "window SECONDS" on stdin, {"pause": the
longest time in seconds that a loop of the main thread was not running, "over":
{N: how often it was 2^N to 2^(N+1) microseconds}}, from 2^4 on. Ends at the end of
stdin. A third of the threads each sleeps in futex, poll and read.
"""
import ctypes
import json
import os
import random
import select
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
SYS_GETTID = {"x86_64": 186, "aarch64": 178}[os.uname().machine]
asleep = {}
never = threading.Lock()
never.acquire()
reader, writer = os.pipe()


def in_futex():
    never.acquire()


def in_poll():
    p = select.poll()
    p.register(reader, select.POLLERR)
    p.poll()


def in_read():
    os.read(reader, 1)


def left(depth, last):
    if depth == 0:
        return last()
    return right(depth - 1, last)


def right(depth, last):
    return (lambda: left(depth, last))()


class Sleeper(threading.Thread):
    def __init__(self, last, depth):
        super().__init__(daemon=True)
        self.last, self.depth = last, depth

    def run(self):
        self.tid = libc.syscall(SYS_GETTID)
        asleep[self.ident] = self.tid
        self.descend(self.depth)

    def descend(self, depth):
        if depth % 3 == 2:
            return self.descend(depth - 1)
        left(depth, self.last)


def name(frame):
    code = frame.f_code
    if hasattr(code, "co_qualname"):
        return code.co_qualname
    # Older code objects know no class: it is looked up by that of `self`.
    if code.co_argcount and code.co_varnames[0] == "self":
        for base in type(frame.f_locals["self"]).__mro__:
            found = base.__dict__.get(code.co_name)
            if getattr(found, "__code__", None) is code:
                return found.__qualname__
    return code.co_name


def stack(frame):
    frames = []
    while frame:
        frames.append([name(frame), frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames


def state(tid):
    with open("/proc/self/task/%d/stat" % tid) as f:
        return f.read().rsplit(") ", 1)[1][0]


def main(count):
    random.seed(1)
    for i in range(count):
        Sleeper((in_futex, in_poll, in_read)[i % 3], random.randrange(40)).start()
    while len(asleep) < count or any(state(tid) != "S" for tid in asleep.values()):
        time.sleep(0.05)
    time.sleep(0.2)
    now = sys._current_frames()
    print(json.dumps({"truth": {tid: stack(now[ident]) for ident, tid in asleep.items()}}), flush=True)
    for line in sys.stdin:
        end = time.perf_counter() + float(line.split()[1])
        pause, over, last = 0.0, {}, time.perf_counter()
        while last < end:
            t = time.perf_counter()
            away = t - last
            if away > 16e-6:
                n = int(away * 1e6).bit_length() - 1
                over[n] = over.get(n, 0) + 1
                pause = max(pause, away)
            last = t
        print(json.dumps({"pause": pause, "over": over}), flush=True)


main(int(sys.argv[1]))
