# SPDX-License-Identifier: Apache-2.0
"""Calls mark(id) from many kinds of frames and writes what sys._getframe() says.

usage: workload.py MODE LIBRARY OUT SAMPLES FIRST_ID

One JSON object per line: {"id": …, "runtime": …, "frames": [[name, class, file, line], …]},
leaf first. Where class is empty, name is the qualname: from 3.11 on, and of methods.
"""
import ctypes
import functools
import inspect
import itertools
import json
import os
import random
import sys
import threading
import time

MODE, LIBRARY, OUT, SAMPLES, FIRST = sys.argv[1:6]
SAMPLES = int(SAMPLES)
QUALNAMES = sys.version_info >= (3, 11)

# A build without the lock is to be tested without it.
if os.environ.get("PYTHON_GIL") == "0":
    assert not sys._is_gil_enabled()

# Where the interpreter is, as the dynamic linker says.
RUNTIME = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))

library = ctypes.CDLL(LIBRARY)
library.mark.argtypes = [ctypes.c_ulong]
library.mark.restype = None
mark = library.mark
ids = itertools.count(int(FIRST))
out = open(OUT, "w")
lock = threading.Lock()
mine = threading.local()


def qualname(cls, code):
    """That of the method of cls with this code. Code in a function may have many."""
    for base in cls.__mro__ if not code.co_flags & inspect.CO_NESTED else []:
        found = base.__dict__.get(code.co_name)
        found = getattr(found, "fget", found)
        if getattr(found, "__code__", None) is code:
            return found.__qualname__
    return None


def describe(frame, line):
    code = frame.f_code
    if MODE == "names" and len(code.co_name) > 1000:
        # The end is what is kept; 10 MB in each row would be slow to compare.
        return [code.co_name[-1000:], "", code.co_filename[-1000:], line]
    if QUALNAMES:
        return [code.co_qualname, "", code.co_filename, line]
    if code.co_argcount > 0 and code.co_varnames[0] == "self" and "self" in frame.f_locals:
        cls = type(frame.f_locals["self"])
        name = qualname(cls, code)
        return [name or code.co_name, "" if name else cls.__name__, code.co_filename, line]
    return [code.co_name, "", code.co_filename, line]


def sample():
    frame = sys._getframe()
    rows = [describe(frame, frame.f_lineno + 9)]  # the line of mark(number)
    parent = frame.f_back
    while parent is not None:
        rows.append(describe(parent, parent.f_lineno or 0))
        parent = parent.f_back
    frame = parent = None
    number = next(ids)
    text = json.dumps({"id": number, "runtime": RUNTIME, "frames": rows})

    mark(number)
    with lock:
        out.write(text + "\n")
    mine.count = getattr(mine, "count", 0) + 1


def twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Base:
    def __init__(self, budget):
        self.budget = budget

    def step(self, depth):
        return go(depth - 1)

    @twice
    def decorated(self, depth):
        return self.step(depth)

    @classmethod
    def made(cls, depth):
        return cls(depth).step(depth)

    @staticmethod
    def plain(depth):
        return go(depth - 1)

    @property
    def value(self):
        return go(2)


class Derived(Base):
    def step(self, depth):
        return super().step(depth)

    def closed(self, depth):
        def inner():
            # `self` is a cell of closed().
            return self.budget and go(depth - 1)

        return inner()

    def reuse(self, depth):
        self = Base(depth)
        return self.step(depth)

    class Nested:
        def __call__(self, depth):
            return (
                go(
                    depth - 1
                )
            )

        def __lt__(self, other):
            go(1)
            return False

    def __del__(self):
        if self.budget == -1:
            go(1)


def nonself(this, depth):
    return go(depth - 1)


def selfless(self, depth):
    return go(depth - 1)


def generator(depth):
    yield 1
    yield go(depth - 1)


def delegating(depth):
    yield from generator(depth)


def comprehension(depth):
    return [go(depth - 1) for _ in range(1)]


def expression(depth):
    return sum(0 if go(depth - 1) else 0 for _ in range(1))


def callback(depth):
    return sorted([1], key=lambda item: go(depth - 1) or item)


def mapped(depth):
    return list(map(lambda item: go(depth - 1), [0]))


def reduced(depth):
    return functools.reduce(lambda a, b: go(depth - 1), [1, 2])


def compared(depth):
    return max(Derived.Nested(), Derived.Nested(), key=lambda item: go(depth - 1) or 0)


def many_arguments(depth, *args, first=1, **kwargs):
    return go(
        depth - 1,
    ) if args else many_arguments(
        depth,
        1,
        2,
        kwargs=first,
    )


def caught(depth):
    try:
        raise ValueError
    except ValueError:
        return go(depth - 1)
    finally:
        len("")


def within(depth):
    class Context:
        def __enter__(self):
            go(1)

        def __exit__(self, *args):
            go(1)

    with Context():
        return go(depth - 1)


def executed(depth):
    """Code that is made anew and freed at each call, of a new shape each time."""
    lines = "\n" * random.randrange(40)
    pad = "    x = 1\n" * random.randrange(12)
    scope = {"go": go, "depth": depth}
    source = "%sdef made():\n%s    return go(depth - 1)\nmade()\n" % (lines, pad)
    exec(compile(source, "<made %d>" % random.randrange(4), "exec"), scope)


def renamed(depth):
    """The same code under names of equal length, freed at once."""
    name = "made_%d" % random.randrange(10)
    scope = {"go": go, "depth": depth}
    kind = "K%d" % random.randrange(10)
    exec("class %s:\n def %s(self): return go(depth - 1)\n%s().%s()" % (kind, name, kind, name), scope)


def evaluated(depth):
    return eval("go(depth - 1)", {"go": go, "depth": depth})


def long_code():
    body = ["def long_code(depth, x=0):"]
    for i in range(700):
        body.append("    x = x + %d" % i)
        if i in (3, 300, 650):
            body.append("    if x %% 3 == %d: return go(depth - 1)" % (i % 3))
    body.append("    return go(depth - 1)")
    scope = {"go": go}
    exec(compile("\n".join(body), "/tmp/long.py", "exec"), scope)
    return scope["long_code"]


def named(name, file):
    scope = {"go": go}
    exec(compile("def %s(depth):\n\n    return go(depth - 1)" % name, file, "exec"), scope)
    return scope[name]


def sparse():
    """Lines far apart, backwards too: deltas of more than one byte."""
    gap = "\n" * 300
    source = "def sparse(depth):\n    x = (1 +%s      2)\n%s    return (%s go(depth - 1) or\n\n 3)" % (
        gap, gap, gap)
    scope = {"go": go}
    exec(compile(source, "sparse.py", "exec"), scope)
    return scope["sparse"]


def traced(depth):
    if threading.current_thread() is not threading.main_thread():
        return go(depth - 1)

    def tracer(frame, event, argument):
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        return traced_body(depth)
    finally:
        sys.settrace(old)


def traced_body(depth):
    x = 1

    return go(depth - x)


functions = [
    lambda depth: Base(depth).step(depth),
    lambda depth: Derived(depth).step(depth),
    lambda depth: Derived(depth).closed(depth),
    lambda depth: Derived(depth).reuse(depth),
    lambda depth: Derived(depth).decorated(depth),
    lambda depth: Derived.made(depth),
    lambda depth: Derived.plain(depth),
    lambda depth: Derived(depth).value,
    lambda depth: Derived.Nested()(depth),
    lambda depth: Derived(-1) and None,
    lambda depth: nonself(Base(0), depth),
    lambda depth: selfless(Derived(0), depth),
    lambda depth: selfless(7, depth),
    lambda depth: list(generator(depth)),
    lambda depth: list(delegating(depth)),
    comprehension, expression, callback, mapped, reduced, compared, many_arguments, caught,
    within, executed, renamed, evaluated, traced,
]


def prepare():
    functions.extend([
        long_code(),
        sparse(),
        named("caf\u00e9_latin", "/tmp/caf\u00e9.py"),
        named("\u0434\u043b\u0438\u043d\u0430", "/tmp/\u0434\u043b\u0438\u043d\u0430.py"),
        named("\U00020000wide", "/tmp/\U0001f40d.py"),
        named("n" * 127, "/" + "f" * 255),
        named("cut" + "n" * 128, "/cut" + "f" * 256),
        named("\u0434" * 65, "\U0001f40d" * 65),
    ])


def go(depth):
    if depth <= 0:
        return sample()
    if random.random() < 0.1:
        sample()
    random.choice(functions)(depth)


def run(samples, seed):
    random.seed(seed)
    mine.count = 0
    while mine.count < samples:
        go(random.randrange(1, 20))


def deep(depth):
    if depth:
        return deep(depth - 1)
    sample()


def child(function, offset):
    """Runs function in a fork, with ids and an output of its own."""
    global ids, out
    out.flush()
    pid = os.fork()
    if pid == 0:
        ids = itertools.count(int(FIRST) + offset)
        out = open("%s.%d" % (OUT, offset), "w")
        function()
        out.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


# Modes in files of their own: workload_FILE.py.
BESIDE = {mode: mode for mode in ("greenlet", "gevent", "asyncio", "reuse", "names", "starting", "foreign", "interpreters",
                                  "late", "measure", "long")}
BESIDE.update(reload="reuse", methods="reuse", inner="interpreters", ownlock="interpreters", successors="interpreters")

prepare()
if MODE == "mix":
    threads = [threading.Thread(target=run, args=(SAMPLES // 12, i)) for i in range(6)]
    for thread in threads:
        thread.start()
    run(SAMPLES // 2, 100)
    for thread in threads:
        thread.join()
    child(lambda: run(SAMPLES // 10, 200), 1 << 24)
elif MODE == "prefork":
    child(lambda: run(SAMPLES, 300), 1 << 24)
elif MODE == "deep":
    sys.setrecursionlimit(5000)
    for depth in (100, 126, 127, 128, 129, 400):
        deep(depth)
elif MODE == "exec":
    run(SAMPLES, 400)
    out.close()
    other = sys.argv[6]
    os.environ.pop("PYTHON_GIL", None)  # most know nothing of it
    os.execv(other, [other, __file__, "few", LIBRARY, OUT + ".exec", str(SAMPLES), str(1 << 25)])
elif MODE == "few":
    run(SAMPLES, 500)
elif MODE in BESIDE:
    # exec, so that functions are at module level here, too.
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workload_%s.py" % BESIDE[MODE])
    exec(compile(open(beside).read(), beside, "exec"))
elif MODE == "successor":
    name = "f%06d" % random.SystemRandom().randrange(10**6)
    named(name, "/tmp/%s.py" % name)(2)
elif MODE == "pretend":
    # What it publishes about itself at its start (3.13+).
    for place, word in zip((8, 16), sys.argv[6:8]):
        ctypes.c_uint64.from_address(RUNTIME + place).value = int(word, 0)
    mark(int(FIRST))
out.close()
