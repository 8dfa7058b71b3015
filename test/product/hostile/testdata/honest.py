# SPDX-License-Identifier: Apache-2.0
"""Known places, and more places than there is room for.

honest.py calls DRIVER PLACES EACH   waits for the GPU EACH times in each of so many functions
honest.py sleeps PLACES              a thread sleeps in each of so many functions
honest.py places THREADS             threads that are in another place each time they are sampled

Each prints "ready". `calls` waits for a line then, and prints "done"; all end with their input.
"""
import ctypes
import functools
import sys
import threading
import time


def function(number, call):
    """A function wait_NUMBER of its own that calls `call`."""
    namespace = {"call": call}
    exec(f"def wait_{number}():\n    call()\n", namespace)
    return namespace[f"wait_{number}"]


def calls(driver, places, each):
    cuda = ctypes.CDLL(driver)
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    functions = [function(n, cuda.cuCtxSynchronize) for n in range(int(places))]
    print("ready", flush=True)
    sys.stdin.readline()
    for f in functions:
        for _ in range(int(each)):
            f()
    print("done", flush=True)


def start(target, *args):
    threading.Thread(target=target, args=args, daemon=True).start()


def sleeps(places):
    for n in range(int(places)):
        start(function(n, functools.partial(time.sleep, 3600)))
    print("ready", flush=True)


def level(number, depth):
    """A stack for each number: which of two lines calls the next level is a bit."""
    if depth == 0:
        time.sleep(0.2)
    elif number & 1:
        level(number >> 1, depth - 1)
    else:
        level(number >> 1, depth - 1)


def walk(first, step):
    number = first
    while True:
        level(number, 16)
        number += step


def places(threads):
    for n in range(int(threads)):
        start(walk, n, int(threads))
    print("ready", flush=True)


{"calls": calls, "sleeps": sleeps, "places": places}[sys.argv[1]](*sys.argv[2:])
sys.stdin.read()
