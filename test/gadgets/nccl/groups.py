# SPDX-License-Identifier: Apache-2.0
"""Groups of operations on communicators whose ranks are all in this process.

Runs one of the functions below, which waits for a line on stdin where it yields, after the text that it yields.
Prints "issued" when it has returned, and ends at a line.
"""

import argparse
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../../examples/collectives"))
from nccl import CUDA, NCCL  # noqa: E402


class Ranks:
    def __init__(self, args):
        self.args, self.size, self.cuda, self.nccl = args, args.ranks, CUDA(args.libcuda), NCCL(args.libnccl)
        self.buffer, self.stream = self.cuda.alloc(1 << 20), self.cuda.stream()
        self.comms = self.nccl.init_all([0] * self.size)

    def reduce(self):
        for comm in self.comms:
            self.nccl.all_reduce(self.buffer, self.buffer, 16, comm, self.stream)

    def exchange(self):
        """All to all, as PyTorch does it: to each peer a send and a receive."""
        for comm in self.comms:
            for peer in range(self.size):
                self.nccl.send(self.buffer, 16, peer, comm, self.stream)
                self.nccl.recv(self.buffer, 16, peer, comm, self.stream)

    def exchange_together(self):
        self.nccl.group_start()
        self.exchange()
        self.nccl.group_end()

    def ahead(self):
        """Twelve exchanges; each waits for the one before the last. Then all are waited for."""
        events = [self.cuda.event() for _ in range(12)]
        for n, event in enumerate(events):
            self.exchange_together()
            self.cuda.record(event, self.stream)
            if n == 2:
                yield "none is waited for"
            if n >= 2:
                self.cuda.event_synchronize(events[n - 2])
            if n == 2:
                yield "one is waited for"
        yield "ten are waited for"
        self.synchronize()

    def contexts(self):
        """The context is current since before an attach; then another one, and it again."""
        mine, other = self.cuda.context, CUDA(self.args.libcuda, device=1)
        self.cuda("cuCtxSetCurrent", mine)
        yield "made"
        self.reduce()
        self.cuda("cuCtxSetCurrent", mine)
        self.cuda.device_synchronize()
        yield "waited for a context that is known by now"
        self.reduce()
        other("cuCtxSetCurrent", other.context)
        other.device_synchronize()
        yield "waited for another context"
        self.cuda("cuCtxSynchronize_v2", mine)  # of CUDA 13: it need not be current

    def synchronize(self):
        self.cuda.synchronize(self.stream)

    def simulated(self):
        """Before and after a group that is only estimated, the same is issued."""
        for end in (self.nccl.group_end, self.nccl.group_simulate_end, self.nccl.group_end):
            self.nccl.group_start()
            self.exchange()
            self.reduce()
            end()
        self.reduce()
        self.synchronize()

    def failed(self):
        """NCCL issues nothing of a group in which it has refused a call."""
        self.reduce()
        self.nccl.group_start()
        self.reduce()
        for comm in self.comms:
            self.nccl("AllReduce", self.buffer, self.buffer, 16, 99, 0, comm, self.stream, allow=(4,))
            self.nccl("Send", self.buffer, 16, 7, self.size, comm, self.stream, allow=(4,))
        self.exchange()
        self.reduce()
        self.nccl("GroupEnd", allow=(4,))
        self.reduce()
        self.synchronize()

    def nested(self):
        """An estimate inside another group is only that one's end."""
        self.nccl.group_start()
        self.nccl.group_start()
        self.reduce()
        self.nccl.group_simulate_end()
        self.nccl.group_end()
        self.synchronize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--libcuda", required=True)
    parser.add_argument("--libnccl", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("what")
    args = parser.parse_args()
    for text in getattr(Ranks(args), args.what)() or ():
        print(text, flush=True)
        sys.stdin.readline()
    print("issued", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
