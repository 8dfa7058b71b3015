# SPDX-License-Identifier: Apache-2.0
"""Inference on a model distributed over ranks, as far as NCCL sees it: the prompt is
broadcast, each rank computes its layers and sends the result to the next, and the
last one's result goes to the host."""

import itertools
import time

from nccl import FLOAT16
from ranks import arguments, start

PROMPT, HIDDEN = 4096, 1 << 20  # elements


class Stage:
    def __init__(self, args, rank, cuda, nccl, world):
        self.args, self.rank, self.cuda, self.nccl, self.world = args, rank, cuda, nccl, world
        self.stream = cuda.stream()
        self.buffer = cuda.alloc(2 * HIDDEN)

    def receive_prompt(self):
        self.nccl.broadcast(self.buffer, self.buffer, PROMPT, 0, self.world, self.stream, FLOAT16)

    def receive_activations(self):
        if self.rank > 0:
            self.nccl.recv(self.buffer, HIDDEN, self.rank - 1, self.world, self.stream, FLOAT16)
            self.cuda.synchronize(self.stream)

    def compute_layers(self):
        time.sleep(self.args.step_ms / 1000 / self.args.ranks)

    def send_activations(self):
        if self.rank < self.args.ranks - 1:
            self.nccl.send(self.buffer, HIDDEN, self.rank + 1, self.world, self.stream, FLOAT16)

    def copy_to_host(self):
        self.cuda.synchronize(self.stream)

    def request(self):
        self.receive_prompt()
        self.receive_activations()
        self.compute_layers()
        self.send_activations()
        self.copy_to_host()


def serve(args, rank, cuda, nccl, world):
    stage = Stage(args, rank, cuda, nccl, world)
    for _ in itertools.islice(itertools.count(), args.steps or None):
        stage.request()


if __name__ == "__main__":
    start(serve, arguments(__doc__, ranks=3).parse_args())
