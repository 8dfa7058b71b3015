# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training, as far as NCCL sees it: parameters are broadcast once; in each
step every rank computes, gradients are averaged bucket by bucket on a stream of their own
while the rest is computed, and the optimizer waits for all of them."""

import itertools
import random
import time

from nccl import FLOAT16
from ranks import arguments, start

BUCKETS = [1 << 22, 1 << 22, 1 << 20]  # elements


class Trainer:
    def __init__(self, args, rank, cuda, nccl, world):
        self.args, self.rank, self.cuda, self.nccl, self.world = args, rank, cuda, nccl, world
        self.compute, self.communication = cuda.stream(), cuda.stream()
        self.gradients = cuda.alloc(2 * sum(BUCKETS))
        self.ready, self.reduced = cuda.event(), cuda.event()
        self.random = random.Random(rank)

    def broadcast_parameters(self):
        self.nccl.broadcast(self.gradients, self.gradients, sum(BUCKETS), 0, self.world, self.communication, FLOAT16)
        self.cuda.synchronize(self.communication)

    def load_batch(self):
        time.sleep(self.args.step_ms / 5000 * self.random.uniform(0.5, 1.5))

    def backward(self, bucket):
        time.sleep(self.args.step_ms / 1000 / len(BUCKETS) * self.random.uniform(0.5, 1.5))
        self.cuda.record(self.ready, self.compute)

    def all_reduce(self, count):
        self.cuda.wait_event(self.communication, self.ready)
        self.nccl.all_reduce(self.gradients, self.gradients, count, self.world, self.communication, FLOAT16)

    def optimizer_step(self, number):
        self.cuda.record(self.reduced, self.communication)
        self.cuda.wait_event(self.compute, self.reduced)
        if self.rank == 0 or number % self.args.wait_every == 0:
            self.cuda.synchronize(self.compute)

    def checkpoint(self):
        if self.rank == 0:
            time.sleep(self.args.checkpoint_s)

    def step(self, number):
        self.load_batch()
        for count in BUCKETS:
            self.backward(count)
            self.all_reduce(count)
        self.optimizer_step(number)
        if self.args.checkpoint_every and number % self.args.checkpoint_every == 0:
            self.checkpoint()


def train(args, rank, cuda, nccl, world):
    trainer = Trainer(args, rank, cuda, nccl, world)
    trainer.broadcast_parameters()
    for number in itertools.islice(itertools.count(1), args.steps or None):
        trainer.step(number)


if __name__ == "__main__":
    parser = arguments(__doc__, ranks=3)
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps; 0: never")
    parser.add_argument("--checkpoint-s", type=float, default=2)
    parser.add_argument("--wait-every", type=int, default=1, help="steps after which ranks but the first, which reads the loss at each, wait for the GPU")
    start(train, parser.parse_args())
