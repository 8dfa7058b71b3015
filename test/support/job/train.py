# SPDX-License-Identifier: Apache-2.0
"""A data-parallel training loop and a pipeline of inference stages, on any NCCL.

Prints {"pids": [...]} when all ranks have loaded their libraries, goes on at a line on
stdin, and ends at the next one.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import queue
import random
import signal
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../../examples/collectives"))
from nccl import CUDA, NCCL, Config, UniqueId  # noqa: E402

IN_PROGRESS = 7


class NonBlocking(NCCL):
    """Calls return at once, and the program asks until they are done, as PyTorch does if it is so configured."""

    def __call__(self, name, *args, allow=(0, IN_PROGRESS)):
        return super().__call__(name, *args, allow=allow)

    def init(self, size, uid, rank, name):
        comm, config = ctypes.c_void_p(), Config(name)
        config.blocking = 0
        self("CommInitRankConfig", ctypes.byref(comm), ctypes.c_int(size), UniqueId.from_buffer_copy(uid), ctypes.c_int(rank), ctypes.byref(config))
        return self.settle(comm)

    def settle(self, comm):
        state = ctypes.c_int(IN_PROGRESS)
        while state.value == IN_PROGRESS:
            time.sleep(0.001)
            self("CommGetAsyncError", comm, ctypes.byref(state))
        if state.value:
            raise RuntimeError("communicator: %d" % state.value)
        return comm

    def all_reduce(self, send, recv, count, comm, stream):
        super().all_reduce(send, recv, count, comm, stream)
        self.settle(comm)

    def broadcast(self, send, recv, count, root, comm, stream):
        super().broadcast(send, recv, count, root, comm, stream)
        self.settle(comm)


class Relay(threading.Thread):
    """Issues the collectives of a rank, in the order in which it is given them."""

    def __init__(self, cuda):
        super().__init__(daemon=True)
        self.cuda, self.calls = cuda, queue.Queue()

    def run(self):
        self.cuda("cuCtxSetCurrent", self.cuda.context)
        while True:
            function, *args = self.calls.get()
            function(*args)
            self.calls.task_done()


class Rank:
    def __init__(self, args, rank):
        self.args, self.rank, self.step = args, rank, 0
        self.random = random.Random(rank)
        self.cuda, self.nccl = CUDA(args.libcuda, device=rank if args.own_device else 0), (NonBlocking if args.nonblocking else NCCL)(args.libnccl)
        self.stream, self.buffer = self.cuda.stream(), self.cuda.alloc(1 << 20)

    def join(self, uid):
        self.world = self.nccl.init(self.args.ranks, uid, self.rank, name=self.args.name or self.args.story)

    def synchronize(self):
        self.cuda.synchronize(self.stream)

    def compute(self):
        time.sleep(self.args.step * self.random.uniform(0.8, 1.2))

    def stop_before(self, operation):
        """As kill -STOP at this line."""
        if self.args.stop == operation and self.rank == 1 and self.step == 40:
            os.kill(os.getpid(), signal.SIGSTOP)

    def train(self):
        """Gradients of a few buckets, then the optimizer."""
        self.compute()
        self.stop_before("broadcast")
        self.nccl.broadcast(self.buffer, self.buffer, 64, 0, self.world, self.stream)
        if self.args.inside and self.rank == 1 and self.step == 40:
            self.never_return()
        for bucket in range(self.args.buckets):
            is_odd = self.args.differ and self.rank == 1 and self.step == 40 and bucket == 1
            self.nccl.all_reduce(self.buffer, self.buffer, (1 << 16) + is_odd, self.world, self.stream)
        self.synchronize()

    def never_return(self):
        """Calls of a group return at its end."""
        self.nccl.group_start()
        self.nccl.all_reduce(self.buffer, self.buffer, 1 << 16, self.world, self.stream)
        threading.Event().wait()

    def load_batch(self):
        self.compute()
        if self.args.stall and self.rank == 1 and self.step == 40:
            threading.Event().wait()

    def train_by_relay(self):
        """The same, with another thread for NCCL."""
        self.load_batch()
        for _ in range(3):
            self.relay.calls.put((self.nccl.all_reduce, self.buffer, self.buffer, 1 << 16, self.world, self.stream))
        self.relay.calls.put((self.synchronize,))
        self.relay.calls.join()

    def train_in_halves(self):
        """Even and odd ranks have a communicator each, beside the one of all."""
        if self.step == 0:
            self.half = self.nccl.split(self.world, self.rank % 2, self.rank)
        self.compute()
        self.nccl.all_reduce(self.buffer, self.buffer, 1 << 16, self.world, self.stream)
        self.stop_before("half")
        self.nccl.all_reduce(self.buffer, self.buffer, 1 << 10, self.half, self.stream)
        self.synchronize()

    def infer(self):
        """One stage: commands come by broadcast, activations from the previous stage."""
        self.stop_before("broadcast")
        self.nccl.broadcast(self.buffer, self.buffer, 16, 0, self.world, self.stream)
        self.synchronize()
        if self.rank > 0:
            self.stop_before("recv")
            self.nccl.recv(self.buffer, 1 << 12, self.rank - 1, self.world, self.stream)
            self.synchronize()
        self.compute()
        if self.rank < self.args.ranks - 1:
            self.nccl.send(self.buffer, 1 << 12, self.rank + 1, self.world, self.stream)
            self.synchronize()

    def run(self):
        work = {"training": self.train, "relay": self.train_by_relay, "halves": self.train_in_halves, "pipeline": self.infer}[self.args.story]
        if self.args.story == "relay":
            self.relay = Relay(self.cuda)
            self.relay.start()
        while True:
            work()
            self.step += 1
            if self.args.checkpoint and self.step % self.args.checkpoint == 0:
                self.checkpoint()

    def checkpoint(self):
        time.sleep(2 * self.random.random())


def work(args, rank, uid, main):
    r = Rank(args, rank)
    main.send("loaded")
    main.recv()  # go
    if args.absent and rank == 1:
        threading.Event().wait()
    r.join(uid)
    r.run()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--story", choices=("training", "relay", "halves", "pipeline"), default="training")
    parser.add_argument("--name", help="of the communicator; default: the story")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--step", type=float, default=0.02, help="seconds, give or take a fifth")
    parser.add_argument("--stop", choices=("recv", "broadcast", "half"), help="rank 1 stops before that, in its 40th step")
    parser.add_argument("--stall", action="store_true", help="rank 1 waits for its 40th batch for ever (relay)")
    parser.add_argument("--absent", action="store_true", help="rank 1 does not join")
    parser.add_argument("--inside", action="store_true", help="rank 1 enters a collective in its 40th step and never returns (training)")
    parser.add_argument("--differ", action="store_true", help="rank 1 reduces one element more, in the second bucket of its 41st step (training)")
    parser.add_argument("--buckets", type=int, default=3, help="all-reduces of a step (training)")
    parser.add_argument("--checkpoint", type=int, default=0, help="every so many steps, each rank for itself, up to 2 s")
    parser.add_argument("--own-device", action="store_true", help="each rank uses a device of its own, as NCCL itself requires")
    parser.add_argument("--nonblocking", action="store_true", help="the communicator does not block (training)")
    parser.add_argument("--libcuda", default="libcuda.so.1")
    parser.add_argument("--libnccl", default="libnccl.so.2")
    args = parser.parse_args()
    uid = NCCL(args.libnccl).unique_id()
    context = multiprocessing.get_context("spawn")
    # Pipes, and no barrier, whose semaphores would stay in /dev/shm when the job is killed.
    pipes = [context.Pipe() for _ in range(args.ranks)]
    ranks = [context.Process(target=work, args=(args, n, uid, pipes[n][1]), daemon=True) for n in range(args.ranks)]
    for r in ranks:
        r.start()
    for mine, theirs in pipes:
        theirs.close()
        mine.recv()
    print(json.dumps({"pids": [r.pid for r in ranks]}), flush=True)
    sys.stdin.readline()
    for mine, _ in pipes:
        mine.send("go")
    sys.stdin.readline()
    for r in ranks:
        r.kill()


if __name__ == "__main__":
    main()
