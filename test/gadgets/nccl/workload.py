# SPDX-License-Identifier: Apache-2.0
"""Ranks that call NCCL at random, all of them in the same order, as NCCL demands.

Prints {"ready": [pids]} when all is issued and waited for, and ends at a line on stdin.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../../examples/collectives"))
from nccl import CUDA, NCCL  # noqa: E402

TYPES = range(12)


class Rank:
    def __init__(self, args, rank, ids, device):
        self.args, self.rank, self.size = args, rank, args.ranks
        # What all do in common, and what each does differently.
        self.common, self.own = random.Random(args.seed), random.Random(args.seed * 1000 + rank)
        self.cuda = CUDA(args.libcuda, device=device)
        self.names = [NCCL(args.libnccl), NCCL(args.libnccl, prefix="pnccl")]
        self.streams = [self.cuda.stream(), self.cuda.stream()]
        self.events = [self.cuda.event() for _ in range(4)]
        self.buffer = self.cuda.alloc(1 << 20)
        n = self.names[0]
        self.world = (n.init(self.size, ids[0], rank), rank, self.size)
        self.named = (n.init(self.size, ids[1], rank, name="gradients"), rank, self.size)
        self.parts = []

    @property
    def nccl(self):
        return self.own.choice(self.names)

    def split(self):
        """Halves of the world; a part is a rank's view of its own half."""
        color, key = self.rank % 2, self.rank
        comm = self.nccl.split(self.world[0], color, key)
        self.parts.append((comm, self.rank // 2, len(range(color, self.size, 2))))

    def communicator(self):
        """The same for all ranks, parts by their colour; sizes differ, so roots are 0."""
        i = self.common.randrange(2 + len(self.parts))
        return self.parts[i - 2] if i >= 2 else (self.world, self.named)[i]

    def collective(self, stream):
        comm, _, size = self.communicator()
        count, dtype = self.common.randrange(1, 1 << 16), self.common.choice(TYPES)
        op, kind = self.common.randrange(5), self.common.randrange(9)
        root = self.common.randrange(1 << 16) % size if self.parts == [] else 0
        n, b = self.nccl, self.buffer
        if kind == 0:
            n.all_reduce(b, b, count, comm, stream, dtype, op)
        elif kind == 1:
            n.broadcast(b, b, count, root, comm, stream, dtype)
        elif kind == 2:
            n.bcast(b, count, root, comm, stream, dtype)
        elif kind == 3:
            n.reduce(b, b, count, root, comm, stream, dtype, op)
        elif kind == 4:
            n.all_gather(b, b, count, comm, stream, dtype)
        elif kind == 5:
            n.reduce_scatter(b, b, count, comm, stream, dtype, op)
        elif kind == 6:
            n.all_to_all(b, b, count, comm, stream, dtype)
        elif kind == 7:
            n.gather(b, b, count, root, comm, stream, dtype)
        else:
            n.scatter(b, b, count, root, comm, stream, dtype)

    def ring(self, stream):
        comm, rank, size = self.communicator()
        count = self.common.randrange(1, 1 << 16)
        n = self.nccl
        n.group_start()
        nested = self.own.random() < 0.5
        if nested:
            self.nccl.group_start()
        n.send(self.buffer, count, (rank + 1) % size, comm, stream)
        n.recv(self.buffer, count, (rank - 1) % size, comm, stream)
        if nested:
            self.nccl.group_end()
        n.group_end()

    def several(self, stream):
        self.nccl.group_start()
        for _ in range(self.common.randrange(1, 6)):
            self.collective(stream)
        self.nccl.group_end()

    def pair(self, stream):
        comm, rank, size = self.world
        peer = rank ^ 1
        if peer >= size:
            return
        if rank < peer:
            self.nccl.send(self.buffer, 5, peer, comm, stream)
        else:
            self.nccl.recv(self.buffer, 5, peer, comm, stream)

    def refused(self, stream):
        n = self.nccl
        n("AllReduce", self.buffer, self.buffer, 1, 99, 0, self.world[0], stream, allow=(4,))
        n("Send", self.buffer, 1, 7, self.size + 5, self.world[0], stream, allow=(4,))

    def memory(self, _):
        from ctypes import byref, c_size_t, c_void_p
        p = c_void_p()
        self.nccl("MemAlloc", byref(p), c_size_t(self.own.randrange(1, 1 << 20)))
        self.nccl("MemFree", p)

    def wait(self, stream):
        """Each rank in its own way; none waits for operations that others have not issued yet."""
        how = self.own.randrange(5)
        if how == 0:
            self.cuda.synchronize(stream)
        elif how == 1:
            event = self.own.choice(self.events)
            self.cuda.record(event, stream)
            self.cuda.event_synchronize(event)
        elif how == 2:
            event = self.own.choice(self.events)
            self.cuda.record(event, stream)
            while not self.cuda.event_done(event):
                time.sleep(0.001)
        elif how == 3:
            other = self.streams[0] if stream is self.streams[1] else self.streams[1]
            event = self.own.choice(self.events)
            self.cuda.record(event, stream)
            self.cuda.wait_event(other, event)
            self.cuda.synchronize(other)
        else:
            self.cuda.device_synchronize()

    def new_part(self, _):
        if len(self.parts) == 3:
            self.cuda.device_synchronize()
            self.nccl.destroy(self.parts.pop(0)[0])
        self.split()

    def run(self):
        steps = [(60, self.collective), (10, self.ring), (5, self.several), (5, self.pair),
                 (2, self.refused), (2, self.memory), (12, self.wait), (1, self.new_part)]
        weights, calls = zip(*steps)
        for _ in range(self.args.calls):
            stream = self.common.choice(self.streams)
            self.common.choices(calls, weights)[0](stream)
        self.cuda.device_synchronize()


def child(args, rank, ids, ready, end):
    Rank(args, rank, ids, device=rank % 2).run()
    ready.release()
    end.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--libcuda", required=True)
    parser.add_argument("--libnccl", required=True)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ready, end = context.Semaphore(0), context.Event()
    nccl = NCCL(args.libnccl)
    ids = [nccl.unique_id(), nccl.unique_id()]
    ranks = [context.Process(target=child, args=(args, r, ids, ready, end), daemon=True) for r in range(args.ranks)]
    for p in ranks:
        p.start()
    waiting = len(ranks)
    while waiting:
        if ready.acquire(timeout=0.5):
            waiting -= 1
        elif any(p.exitcode for p in ranks):
            sys.exit("a rank has failed")
    print(json.dumps({"ready": [p.pid for p in ranks]}), flush=True)
    sys.stdin.readline()
    end.set()
    for p in ranks:
        p.join()
    sys.exit(any(p.exitcode for p in ranks))


if __name__ == "__main__":
    main()
