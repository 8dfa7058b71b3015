# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of an example, one process each, and hands them the unique ids."""

import argparse
import multiprocessing
import os
import sys

from nccl import CUDA, NCCL


def arguments(text, ranks):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--ranks", type=int, default=ranks)
    parser.add_argument("--steps", type=int, default=0, help="0: until it is stopped")
    parser.add_argument("--step-ms", type=float, default=50, help="time that a rank computes in a step")
    parser.add_argument("--libcuda", default=os.environ.get("LIBCUDA", "libcuda.so.1"))
    parser.add_argument("--libnccl", default=os.environ.get("LIBNCCL", "libnccl.so.2"))
    return parser


def _rank(run, args, rank, uid, ready):
    cuda = CUDA(args.libcuda, device=rank % 2)
    nccl = NCCL(args.libnccl)
    world = nccl.init(args.ranks, uid, rank, name="world")
    ready.release()
    run(args, rank, cuda, nccl, world)
    cuda.device_synchronize()
    nccl.destroy(world)


def start(run, args):
    """Runs run(args, rank, cuda, nccl, world) in every rank; prints `ready` with their
    pids when all have joined. The exit status is 1 when one has failed."""
    context = multiprocessing.get_context("spawn")
    ready, uid = context.Semaphore(0), NCCL(args.libnccl).unique_id()
    ranks = [context.Process(target=_rank, args=(run, args, r, uid, ready), daemon=True) for r in range(args.ranks)]
    for p in ranks:
        p.start()
    waiting = len(ranks)
    while waiting:
        if ready.acquire(timeout=0.5):
            waiting -= 1
        elif any(p.exitcode for p in ranks):
            sys.exit("a rank has failed")
    print("ready", *[p.pid for p in ranks], flush=True)
    for p in ranks:
        p.join()
    sys.exit(any(p.exitcode for p in ranks))
