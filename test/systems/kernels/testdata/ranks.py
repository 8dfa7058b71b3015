# SPDX-License-Identifier: Apache-2.0
"""Two ranks that share two communicators: 100 reductions from one line in the one, 10
broadcasts from another line in the other, named one.

ranks.py LIBCUDA LIBNCCL; prints {"ready": [pids]} when all is done, and ends at a line.
"""
import json
import multiprocessing
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../examples/collectives"))
from nccl import CUDA, NCCL  # noqa: E402

RANKS = 2


def step(nccl, buffer, comm, stream):
    nccl.all_reduce(buffer, buffer, 1024, comm, stream)


def publish(nccl, buffer, comm, stream):
    nccl.broadcast(buffer, buffer, 4096, 0, comm, stream)


def rank(libcuda, libnccl, ids, number, ready, end):
    cuda, nccl = CUDA(libcuda, device=number), NCCL(libnccl)
    buffer, stream = cuda.alloc(1 << 16), cuda.stream()
    world = nccl.init(RANKS, ids[0], number)
    weights = nccl.init(RANKS, ids[1], number, name="weights")
    for i in range(100):
        step(nccl, buffer, world, stream)
        if i % 10 == 0:
            publish(nccl, buffer, weights, stream)
    cuda.synchronize(stream)
    ready.release()
    end.wait()


def main():
    context = multiprocessing.get_context("spawn")
    ready, end = context.Semaphore(0), context.Event()
    nccl = NCCL(sys.argv[2])
    ids = [nccl.unique_id(), nccl.unique_id()]
    ranks = [context.Process(target=rank, args=(*sys.argv[1:3], ids, i, ready, end), daemon=True) for i in range(RANKS)]
    for p in ranks:
        p.start()
    waiting = RANKS
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


if __name__ == "__main__":
    main()
