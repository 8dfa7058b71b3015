# SPDX-License-Identifier: Apache-2.0
"""frozen: an engine and a worker that work until they are to wait for each other, and a
worker that goes on. Prints the ids of engine and workers; a line of input makes the first
worker and the engine wait."""

import multiprocessing
import os
import sys


def worker(requests, answers, other, engines):
    engines.close()
    while True:
        request = requests.get()
        if request == "wait":
            await_order(other)
        answers.put(request)


def await_order(other):
    return other.recv()


def counter():
    def one(n):
        return sum(range(n))

    def two(n):
        return one(n) + max(range(1, n))
    while True:
        one(50000)
        two(50000)
        sorted(range(50000))


def engine(requests, answers, process):
    asked = False
    while True:
        requests.put("wait" if asked else "work")
        answers.get()
        asked = asked or os.read(process, 1) != b"."


def main():
    second = multiprocessing.Process(target=counter)  # before the others' pipes exist
    second.start()
    requests, answers = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
    mine, its = multiprocessing.Pipe()
    first = multiprocessing.Process(target=worker, args=(requests, answers, its, mine))
    first.start()
    its.close()
    print(os.getpid(), first.pid, second.pid, flush=True)
    engine(requests, answers, sys.stdin.fileno())
    mine.close()  # never sent on


main()
