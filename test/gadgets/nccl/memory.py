# SPDX-License-Identifier: Apache-2.0
"""Communicators of one process on two devices, which take memory from the driver in all ways.

Prints {"ready": pid, "reused": whether a handle came again} and ends at a line on stdin. With
--wait it makes one communicator, prints {"made": pid}, and goes on at a line on stdin.
"""

import argparse
import ctypes
import json
import os
import sys
from ctypes import byref, c_int, c_size_t, c_void_p

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../../examples/collectives"))
from nccl import CUDA, NCCL, UniqueId  # noqa: E402


def begin(nccl, size, uid, rank):
    """In a group: NCCL makes it at the group's end."""
    comm = c_void_p()
    nccl("CommInitRank", byref(comm), c_int(size), UniqueId.from_buffer_copy(uid), c_int(rank))
    return comm


def reduce(nccl, cuda, *comms):
    if len(comms) > 1:
        nccl("GroupStart")
    for comm in comms:
        nccl.all_reduce(buffer, buffer, 1024, comm, cuda.stream())
    if len(comms) > 1:
        nccl("GroupEnd")


parser = argparse.ArgumentParser()
parser.add_argument("--libcuda", required=True)
parser.add_argument("--libnccl", required=True)
parser.add_argument("--wait", action="store_true")
args = parser.parse_args()
other, cuda, nccl = CUDA(args.libcuda, device=1), CUDA(args.libcuda, device=0), NCCL(args.libnccl)
buffer = cuda.alloc(3 << 20)
if args.wait:
    old = nccl.init(1, nccl.unique_id(), 0)
    print(json.dumps({"made": os.getpid()}), flush=True)
    sys.stdin.readline()
    other, cuda = CUDA(args.libcuda, device=1), CUDA(args.libcuda, device=0)  # shows which is which
    reduce(nccl, cuda, old)

gradients = nccl.init(1, nccl.unique_id(), 0, name="gradients")
plain = nccl.init(1, nccl.unique_id(), 0)
pair = nccl.unique_id()
nccl("GroupStart")
zero = begin(nccl, 2, pair, 0)
other("cuCtxSetCurrent", other.context)
one = begin(nccl, 2, pair, 1)
nccl("GroupEnd")
cuda("cuCtxSetCurrent", cuda.context)
all_ = (c_void_p * 2)()
nccl("CommInitAll", all_, c_int(2), (c_int * 2)(1, 0))
nccl.group_start()  # estimated, and not issued: it allocates nothing
nccl.all_reduce(buffer, buffer, 1024, gradients, cuda.stream())
nccl.group_simulate_end()
reduce(nccl, cuda, gradients)
reduce(nccl, cuda, gradients)
reduce(nccl, cuda, zero, one)  # one on each device
reduce(nccl, cuda, gradients, plain)  # on the same device: which one is unknown
cuda.alloc(5 << 20)
child = nccl.split(gradients, 0, 0)
reduce(nccl, cuda, child)
mine = [c_void_p(), c_void_p()]
for p in mine:
    nccl("MemAlloc", byref(p), c_size_t(3 << 20))
nccl("MemFree", mine[0])
nccl("CommDestroy", plain)
again = nccl.init(1, nccl.unique_id(), 0)
reduce(nccl, cuda, again)
print(json.dumps({"ready": os.getpid(), "reused": plain.value == again.value}), flush=True)
sys.stdin.readline()
