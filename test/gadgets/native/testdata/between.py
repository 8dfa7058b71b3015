# SPDX-License-Identifier: Apache-2.0
#
# Python that calls C that calls Python: at random, seeded. Below it all, C allocates. Each stack is
# printed as the program knows it: its own frames, and between them the functions of C, leaf first.

import collections
import ctypes
import functools
import random
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])
CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
assert library.between_open(sys.argv[2].encode()) == 0
crossings = [library.crossing_a, library.crossing_bb, library.crossing_ccc]
known = collections.Counter()
lock = threading.Lock()


def name(frame):
    return getattr(frame.f_code, "co_qualname", frame.f_code.co_name)


class Walk:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.passed = []  # (how many Python frames there were, function of C)
        self.callback = CALL(self.step)  # not called by a frame of Python's

    def frames(self):
        frame, names = sys._getframe(1), []
        while frame:
            names.append(name(frame))
            frame = frame.f_back
        return names

    def cross(self, depth):
        function = self.random.choice(crossings)
        self.passed.append((len(self.frames()), function.__name__))
        function(self.callback, depth)
        self.passed.pop()
        return 0

    def nested(self, depth):
        return self.step(depth)

    def ordered(self, depth):
        return sorted([1], key=lambda _: self.step(depth))[0] * 0

    def reduced(self, depth):
        return functools.reduce(lambda a, b: self.step(depth), [0, 1])

    def mapped(self, depth):
        return list(map(self.step, [depth]))[0]

    def generated(self, depth):
        def generate():
            yield self.step(depth)

        return sum(generate())

    def attribute(self, depth):
        walk = self

        class Late:
            def __getattr__(self, _):
                return walk.step(depth)

        return Late().value

    def executed(self, depth):
        scope = {"walk": self, "depth": depth}
        exec("def inner():\n    return walk.step(depth)\ninner()", scope)
        return 0

    def step(self, depth):
        if depth <= 0:
            frames = self.frames()
            stack, passed = ["leaf"], list(self.passed)
            for i, frame in enumerate(frames):
                while passed and passed[-1][0] == len(frames) - i:
                    stack.append(passed.pop()[1])
                stack.append(frame)
            result = library.leaf()
            with lock:
                known[" ".join(stack)] += 1
            return result
        return self.random.choice([
            self.cross, self.cross, self.nested, self.ordered, self.reduced, self.mapped, self.generated,
            self.attribute, self.executed,
        ])(depth - 1)


def work(seed, calls):
    walk = Walk(seed)
    assert library.between_thread() == 0
    for i in range(calls):
        assert walk.step(i % 7) == 0
        if i % 8 == 0:
            time.sleep(0.002)  # rules are loaded meanwhile


print("ready", flush=True)
sys.stdin.readline()
maps = open("/proc/self/maps").read()
work(1, 100)
print("warm", flush=True)
sys.stdin.readline()
known.clear()
threads = [threading.Thread(target=work, args=(seed, int(sys.argv[3]))) for seed in (2, 3)]
for t in threads:
    t.start()
work(4, int(sys.argv[3]))
for t in threads:
    t.join()
for stack, count in known.items():
    print(count, stack)
print("end")
for line in maps.splitlines():
    if sys.argv[1] in line:
        print("at", line, flush=True)
        break
sys.stdin.readline()
