# SPDX-License-Identifier: Apache-2.0
"""Known places, and more places than there is room for.

honest.py calls DRIVER PLACES EACH   waits for the GPU EACH times in each of so many functions
honest.py kernels DRIVER PLACES EACH launches a kernel of its own EACH times in each of so many functions
honest.py names DRIVER COUNT         launches so many kernels once, each in a function of its own
honest.py sleeps PLACES              a thread sleeps in each of so many functions
honest.py collectives DRIVER NCCL EACH   issues and waits for EACH collectives of a communicator of one rank, and a send
honest.py communicators DRIVER NCCL N    creates so many communicators, each with a stream, a collective and a send
honest.py operations NCCL PEERS N SIZES  sends to so many peers, and issues collectives of so many sizes on N communicators
honest.py places THREADS             threads that are in another place each time they are sampled

Each prints "ready". `calls`, `kernels`, `collectives` and `operations` wait for a line then, and print "done"; all
end with their input.
"""
import ctypes
import functools
import os
import sys
import threading
import time


def function(number, call, name="wait"):
    """A function wait_NUMBER of its own that calls `call`."""
    namespace = {"call": call}
    exec(f"def {name}_{number}():\n    call()\n", namespace)
    return namespace[f"{name}_{number}"]


def initialised(driver):
    cuda = ctypes.CDLL(driver)
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda


def run(functions, each):
    print("ready", flush=True)
    sys.stdin.readline()
    for f in functions:
        for _ in range(int(each)):
            f()
    print("done", flush=True)


def calls(driver, places, each):
    cuda = initialised(driver)
    run([function(n, cuda.cuCtxSynchronize) for n in range(int(places))], each)


def launches(driver):
    """A function that makes one which launches a kernel, for its name."""
    cuda, module = initialised(driver), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(b"image")) == 0

    def launch(name):
        kernel = ctypes.c_void_p()
        assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, ctypes.c_char_p(name.encode())) == 0
        return functools.partial(cuda.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)

    return launch


def kernels(driver, places, each):
    launch = launches(driver)
    run([function(n, launch(f"kernel_{n}")) for n in range(int(places))], each)


def names(driver, count):
    launch = launches(driver)
    functions = [function(n, launch(f"other_kernel_{n}"), "other") for n in range(int(count))]
    print("ready", flush=True)
    sys.stdin.readline()
    for f in functions:
        f()


def world(driver, library):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../examples/collectives"))
    from nccl import CUDA, NCCL  # noqa: PLC0415

    return CUDA(driver), NCCL(library)


def issue(cuda, nccl, count=1):
    """Collectives of a communicator of its own, on a stream of its own, each waited for, and a send to itself."""
    comm, stream, memory = nccl.init(1, nccl.unique_id(), 0), cuda.stream(), cuda.alloc(1024)
    for _ in range(count):
        nccl.all_reduce(memory, memory, 16, comm, stream)
        cuda.synchronize(stream)
    nccl.group_start()
    nccl.send(memory, 16, 0, comm, stream)
    nccl.recv(memory, 16, 0, comm, stream)
    nccl.group_end()
    cuda.synchronize(stream)


def collectives(driver, library, each):
    cuda, nccl = world(driver, library)
    print("ready", flush=True)
    sys.stdin.readline()
    issue(cuda, nccl, int(each))
    print("done", flush=True)


def communicators(driver, library, count):
    cuda, nccl = world(driver, library)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(count)):
        issue(cuda, nccl)


def operations(library, peers, communicators, sizes):
    nccl = ctypes.CDLL(library)
    print("ready", flush=True)
    sys.stdin.readline()
    one = ctypes.c_size_t(1)
    for peer in range(int(peers)):
        nccl.ncclSend(None, one, 0, peer, ctypes.c_void_p(1), None)
    for number in range(int(communicators)):
        for size in range(int(sizes)):
            nccl.ncclAllReduce(None, None, ctypes.c_size_t(1 << size), 0, 0, ctypes.c_void_p(2 + number), None)
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


{"calls": calls, "sleeps": sleeps, "places": places, "kernels": kernels, "names": names, "collectives": collectives,
 "communicators": communicators, "operations": operations}[sys.argv[1]](*sys.argv[2:])
sys.stdin.read()
