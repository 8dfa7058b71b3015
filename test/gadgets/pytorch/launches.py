# SPDX-License-Identifier: Apache-2.0
"""Launches kernels with PyTorch: launches.py SITUATION.

Situations: eager (two threads, each on a device of its own, with autograd), parallel
(torch.nn.DataParallel on two devices), graph (capture and replay), compiled (by nvrtc).
Each line on stdin is a round, which is answered when it is done.
"""
import os
import sys
import threading

import dialogue
import lines


class Net:
    """Built where it is used: torch is not imported before that."""

    def __new__(cls, torch):
        return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.LayerNorm(128), torch.nn.GELU(),
                                   torch.nn.Dropout(0.1), torch.nn.Linear(128, 64))


class Eager:
    def __init__(self, torch):
        self.torch = torch
        self.models = [Net(torch).to(f"cuda:{d}") for d in range(2)]
        self.optimizers = [torch.optim.AdamW(model.parameters()) for model in self.models]

    def train(self, device):
        torch = self.torch
        with torch.cuda.device(device):
            batch = torch.randn(16, 64).pin_memory().to(f"cuda:{device}", non_blocking=True)
            scores = torch.softmax(batch @ batch.T, dim=-1)
            values, order = scores.sort(descending=True)
            mask = torch.where(values > 0.5, values, values.cumsum(0))
            kept = [mask[i].exp_().add_(order[i]) for i in range(4)]
            self.optimizers[device].zero_grad()
            (self.models[device](batch).square().mean() + torch.stack(kept).sum() * 0).backward()
            self.optimizers[device].step()
            torch.cuda.synchronize()

    def round(self):
        threads = [threading.Thread(target=self.train, args=(device,)) for device in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Parallel:
    def __init__(self, torch):
        self.torch = torch
        self.model = torch.nn.DataParallel(Net(torch).cuda(), device_ids=[0, 1])

    def round(self):
        self.model.zero_grad()
        self.model(self.torch.randn(32, 64, device="cuda")).sum().backward()
        for device in range(2):
            self.torch.cuda.synchronize(device)


class Graph:
    def __init__(self, torch):
        self.torch = torch
        self.batch, self.weight = torch.randn(16, 16, device="cuda:1"), torch.randn(16, 16, device="cuda:1")
        self.graphs = []
        self.work()

    def work(self):
        hidden = (self.batch @ self.weight).relu()
        return hidden.sigmoid() + 1

    def round(self):
        torch = self.torch
        with torch.cuda.device(1):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.work()
            self.graphs.append(graph)
            for graph in self.graphs:
                graph.replay()
            self.work()
            torch.cuda.synchronize()


class Compiled:
    SOURCE = "template <typename T> T cubed(T x, T y) { return x * x * x + y; }"

    def __init__(self, torch):
        self.torch = torch
        self.cubed = torch.cuda.jiterator._create_jit_fn(self.SOURCE)

    def round(self):
        for device in range(2):
            t = self.torch.ones(1000, device=f"cuda:{device}")
            for _ in range(3):
                t = self.cubed(t, t)
            self.cubed(t.double(), t.double())
            self.torch.cuda.synchronize(device)


def main():
    situation = {"eager": Eager, "parallel": Parallel, "graph": Graph, "compiled": Compiled}[sys.argv[1]]
    dialogue.say(begun=os.getpid())
    dialogue.wait()
    import torch  # after a tracer may have come
    import torch._dynamo  # which an optimizer would import, before lines are followed

    dialogue.say(imported=torch.__version__)
    dialogue.wait()
    lines.follow()
    chosen = situation(torch)
    while True:
        chosen.round()
        lines.write()
        dialogue.say(rounds=1)
        dialogue.wait()


main()
