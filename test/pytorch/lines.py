# SPDX-License-Identifier: Apache-2.0
"""Tells the simulated driver, and the simulated NCCL, which line of Python each thread is on.

A trace function of Python sets the tag of the thread's calls at each line of all code, so
that the journals name a line for every call. That is independent of how a tracer reads
stacks. Threads that Python did not start, such as autograd's, keep tag 0.
"""
import ctypes
import itertools
import os
import sys
import threading

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


def trace(frame, event, _):
    if event == "return":  # also by an exception; the caller gets no event of its own
        if frame.f_back is None:
            set_tag(0)
        else:
            mark(frame.f_back)
    else:
        mark(frame)
    return trace


def follow(collectives=False):
    """Begins with the next line of the caller, in this thread and in those begun later.

    Call it after import torch, which would take five times as long.
    """
    global set_tag
    if collectives:
        set_tag = lambda tag: [setter(tag) for setter in setters]
    threading.settrace(trace)
    sys.settrace(trace)
    caller = sys._getframe(1)
    while caller:  # running frames are not traced otherwise
        caller.f_trace = trace
        caller = caller.f_back


def table():
    """The lines, by tag, as a row of ig-gpu has them."""
    return {tag: f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{line})"
            for (code, line), tag in list(numbers.items())}
