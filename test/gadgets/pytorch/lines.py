# SPDX-License-Identifier: Apache-2.0
"""Tells the simulated driver, and the simulated NCCL, which line of Python each thread is on.

Python's own monitoring (PEP 669) sets the tag of the thread's calls at each line of all
code, so that the journals name a line for every call. That is independent of how a tracer
reads stacks. Where a thread runs no Python, as autograd's mostly do not, its tag is 0.
"""
import atexit
import ctypes
import itertools
import os
import sys

# PyDLL: a call that gave the GIL away at each line would change what threads do.
setters = []
for library, function in (("libcuda.so.1", "simcuda_tag"), ("libnccl.so.2", "simnccl_tag")):
    setter = ctypes.PyDLL(library)[function]
    setter.argtypes, setter.restype = [ctypes.c_uint64], None
    setters.append(setter)
set_tag = setters[0]

numbers = {}  # (code, line) -> tag
unused = itertools.count(1)


def mark(frame):
    key = (frame.f_code, frame.f_lineno)
    tag = numbers.get(key)
    if tag is None:
        tag = numbers.setdefault(key, next(unused))
    set_tag(tag)


def at(*_):
    mark(sys._getframe(1))


def left(*_):
    """The frame ends, by a value or an exception: the caller goes on in the middle of a line."""
    caller = sys._getframe(1).f_back
    if caller is None:
        set_tag(0)
    else:
        mark(caller)


def follow(collectives=False):
    """Begins now, in all threads, autograd's too where they run Python.

    Call it after import torch, which would take five times as long.
    """
    global set_tag
    if collectives:
        set_tag = lambda tag: [setter(tag) for setter in setters]
    monitoring, events = sys.monitoring, sys.monitoring.events
    monitoring.use_tool_id(monitoring.DEBUGGER_ID, "lines")
    for event in (events.LINE, events.PY_START, events.PY_RESUME, events.PY_THROW):
        monitoring.register_callback(monitoring.DEBUGGER_ID, event, at)
    for event in (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND):
        monitoring.register_callback(monitoring.DEBUGGER_ID, event, left)
    monitoring.set_events(monitoring.DEBUGGER_ID, events.LINE | events.PY_START | events.PY_RESUME | events.PY_THROW |
                          events.PY_RETURN | events.PY_YIELD | events.PY_UNWIND)
    atexit.register(monitoring.set_events, monitoring.DEBUGGER_ID, 0)  # what follows has no modules


written = 0


def write():
    """Appends the lines since the last call to PID.lines beside the journals."""
    global written
    new = list(numbers.items())[written:]
    written += len(new)
    with open(f"{os.environ['SIMCUDA_JOURNAL']}/{os.getpid()}.lines", "a") as f:
        for (code, line), tag in new:
            print(tag, f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{line})", sep="\t", file=f)
