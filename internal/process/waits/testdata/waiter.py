# SPDX-License-Identifier: Apache-2.0
"""waiter: a parent and a child that wait for each other, or for nothing, in the way that the
first argument names. The parent prints the child's id once it exists."""

import ctypes
import mmap
import multiprocessing
import os
import select
import socket
import sys
import threading
import time


def pipes():
    a, b = os.pipe(), os.pipe()
    return (lambda: os.read(a[0], 1)), (lambda: os.read(b[0], 1)), (a[1], b[0]), (b[1], a[0])


def queues():
    a, b = multiprocessing.Semaphore(0), multiprocessing.Semaphore(0)
    return a.acquire, b.acquire, (), ()


def unix(wait):
    a, b = socket.socketpair()
    return (lambda: wait(a)), (lambda: wait(b)), (b.fileno(),), (a.fileno(),)


def tcp():
    server = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(server.getsockname())
    b, _ = server.accept()
    server.close()
    return (lambda: a.recv(1)), (lambda: b.recv(1)), (b.fileno(),), (a.fileno(),)


def epoll(s):
    e = select.epoll()
    e.register(s, select.EPOLLIN)
    e.poll()


def polled(s):
    p = select.poll()
    p.register(s, select.POLLIN)
    p.poll()


def futex():
    """A futex in memory that only these two share."""
    shared = mmap.mmap(-1, 4096)
    word = ctypes.c_int.from_buffer(shared)
    libc = ctypes.CDLL(None)
    number = {"x86_64": 202, "aarch64": 98}[os.uname().machine]

    def wait():
        libc.syscall(ctypes.c_long(number), ctypes.byref(word), ctypes.c_int(0), ctypes.c_int(0), None)
    return wait, wait, (), ()


def server():
    a, b = socket.socketpair()
    listens = socket.create_server(("127.0.0.1", 0))

    def both():
        p = select.poll()
        p.register(a, select.POLLIN)
        p.register(listens, select.POLLIN)
        p.poll()
    return both, (lambda: b.recv(1)), (b.fileno(),), (a.fileno(), listens.fileno())


WAYS = {
    "server": server,
    "pipe": pipes, "semaphore": queues, "futex": futex, "tcp": tcp,
    "unix": lambda: unix(lambda s: s.recv(1)), "poll": lambda: unix(polled),
    "epoll": lambda: unix(epoll),
    "select": lambda: unix(lambda s: select.select([s], [], [])),
}


def locked(timeout=-1):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=timeout)


def main(way):
    if way == "child":
        pid = os.fork()
        if not pid:
            time.sleep(1000)
        print(pid, flush=True)
        os.waitpid(pid, 0)
    elif way == "lock":
        print(0, flush=True)
        locked()
    elif way == "timed":
        print(0, flush=True)
        locked(1000)
    elif way == "sleep":
        print(0, flush=True)
        time.sleep(1000)
    else:
        mine, its, close, child_closes = WAYS[way]()
        pid = os.fork()
        for fd in close if pid else child_closes:
            os.close(fd)
        if pid:
            print(pid, flush=True)
        (mine if pid else its)()


main(sys.argv[1])
