# SPDX-License-Identifier: Apache-2.0
#
# Python that calls C that calls Python, and at last sleeps in C or works in Python: between.py LIBRARY
# sleeps|works.

import ctypes
import functools
import sys

library = ctypes.CDLL(sys.argv[1])
CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def innermost(_):
    if sys.argv[2] == "sleeps":
        library.doze()
    while True:
        sum(range(1000))


def inner(_):
    return functools.reduce(lambda a, b: innermost(b), [0, 1])


def middle(_):
    return library.crossing_bb(inner_callback, 0)


def outer():
    return library.crossing_a(middle_callback, 0)


inner_callback, middle_callback = CALL(inner), CALL(middle)
print("{}", flush=True)
outer()
