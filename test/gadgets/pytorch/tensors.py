# SPDX-License-Identifier: Apache-2.0
"""Four threads use PyTorch's allocator at random, on two devices and three streams of each.

    tensors.py SEED [graphs] [tagged]

They pause at moments, at which PyTorch says what it holds: allocated and reserved bytes by
device, and the blocks of each line by its own recorder. A line on stdin lets them go on:
"go", or "record", which begins to record lines first; "segments" has it cache a segment of each
device, without a block, and say where its blocks lie. graphs: CUDA graphs are captured, too.
tagged: lines are for the driver's journal, where PyTorch's recorder has none (cudaMallocAsync).
"""
import os
import random
import sys
import threading

import dialogue
import holds
import lines

THREADS, OPERATIONS, MOST = 4, 25, 80


class Worker:
    """One thread; what it does is chosen by its own generator."""

    def __init__(self, torch, number, seed, graphs):
        self.torch, self.random = torch, random.Random(seed * 100 + number)
        self.held, self.graphs = [], []  # at most MOST of the first
        self.streams = [[torch.cuda.default_stream(d), torch.cuda.Stream(d), torch.cuda.Stream(d)] for d in range(2)]
        self.models = [None, None]
        # What can be chosen, the more often the more it is repeated.
        self.choices = [self.empty] * 4 + [self.drop] * 6 + [self.add, self.joined, self.view, self.in_place, self.copied,
                        self.recorded, self.resized, self.backward, self.pinned, self.many, self.custom]
        if graphs:
            self.choices += [self.captured, self.released]

    def operate(self):
        torch, chosen = self.torch, self.random.choice(self.choices)
        device = self.random.randrange(2)
        with torch.cuda.device(device), torch.cuda.stream(self.random.choice(self.streams[device])):
            chosen(device)
        while len(self.held) > MOST:
            self.drop(device)
        if self.random.random() < 0.01:
            torch.cuda.empty_cache()

    def size(self):
        return int(2 ** self.random.uniform(0, 21))

    def some(self, device):
        on = [t for t in self.held if t.is_cuda and t.device.index == device and t.numel()]
        return self.random.choice(on) if on else self.torch.empty(100, device="cuda")

    def empty(self, device):
        self.held.append(self.torch.empty(self.size(), dtype=self.torch.uint8, device="cuda"))

    def drop(self, _):
        if self.held:
            del self.held[self.random.randrange(len(self.held))]

    def add(self, device):
        self.held.append(self.some(device) + 1)

    def joined(self, device):
        self.held.append(
            self.torch.cat([self.some(device).reshape(-1).to(self.torch.float32),
                            self.torch.zeros(self.size() // 16, device="cuda")]))

    def view(self, device):
        t = self.some(device)
        self.held.append(t.reshape(-1)[: max(1, t.numel() // 2)])

    def in_place(self, device):
        t = self.some(device).detach()
        t.add_(1)
        t.zero_()

    def copied(self, device):
        self.held.append(self.some(device).detach().to(f"cuda:{1 - device}"))

    def recorded(self, device):
        t = self.torch.empty(self.size(), dtype=self.torch.uint8, device="cuda")
        t.record_stream(self.random.choice(self.streams[device]))
        if self.random.random() < 0.5:
            self.held.append(t)

    def resized(self, device):
        t = self.torch.empty(100, device="cuda")
        t.resize_(self.size() // 4)
        self.held.append(t)

    def backward(self, device):
        if self.models[device] is None:
            self.models[device] = self.torch.nn.Sequential(
                self.torch.nn.Linear(64, 128), self.torch.nn.GELU(), self.torch.nn.Linear(128, 64)).cuda()
        model = self.models[device]
        loss = model(self.torch.randn(self.random.randrange(1, 64), 64, device="cuda")).square().mean()
        if self.random.random() < 0.3:
            self.held.append(loss)  # and all activations with it
        else:
            loss.backward()
            if self.random.random() < 0.3:
                model.zero_grad()

    def pinned(self, _):
        self.held.append(self.torch.empty(self.size(), dtype=self.torch.uint8, pin_memory=True))

    def many(self, device):
        self.held.extend([self.torch.ones(self.random.randrange(1, 3000), device="cuda") for _ in range(20)])

    def custom(self, device):
        """Python code that runs in autograd's thread, which has a line there."""
        t = self.torch.ones(1000, device="cuda", requires_grad=True)
        kept = self.held

        class Kept(self.torch.autograd.Function):
            @staticmethod
            def forward(_, x):
                return x * 2

            @staticmethod
            def backward(_, gradient):
                kept.append(gradient * 3)
                return gradient

        Kept.apply(t).sum().backward()

    def captured(self, device):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            part = self.torch.empty(self.size(), dtype=self.torch.uint8, device="cuda")
            result = (part.to(self.torch.float32) + 1).sum()
        graph.replay()
        self.graphs.append((graph, result if self.random.random() < 0.5 else None))

    def released(self, _):
        if self.graphs:
            del self.graphs[self.random.randrange(len(self.graphs))]


def main():
    seed, settings = int(sys.argv[1]), sys.argv[2:]
    dialogue.say(begun=os.getpid())
    first = dialogue.wait()
    import torch  # after a tracer may have come

    dialogue.say(imported=torch.__version__)
    dialogue.wait()
    lines.follow()
    torch.cuda.init()
    recorder = "tagged" not in settings
    if first == "record" and recorder:
        torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=1)
    barrier, turn = threading.Barrier(THREADS + 1), threading.Lock()
    graphs = "graphs" in settings

    def run(worker):
        for_graphs = turn if graphs else None
        while True:
            barrier.wait()
            for device in range(2):  # each moment, both pools report
                with torch.cuda.device(device):
                    worker.empty(device)
            for _ in range(OPERATIONS):
                if for_graphs:
                    with for_graphs:
                        worker.operate()
                else:
                    worker.operate()
            barrier.wait()

    for number in range(THREADS):
        threading.Thread(target=run, args=(Worker(torch, number, seed, graphs),), daemon=True).start()
    while True:
        barrier.wait()
        barrier.wait()
        dialogue.say(**holds.holds(torch, recorder))
        answer = dialogue.wait()
        while answer == "segments":
            for device in range(2):
                torch.empty(64 << 20, dtype=torch.uint8, device=f"cuda:{device}")
            dialogue.say(segments=holds.segments(torch))
            answer = dialogue.wait()
        if answer == "record" and recorder:
            torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=1)


main()
