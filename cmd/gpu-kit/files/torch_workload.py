# SPDX-License-Identifier: Apache-2.0
"""A short training of PyTorch that reports PyTorch's own counts: see workload.py."""
import json
import sys


class Training:
    def __init__(self):
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.cuda.current_device()

    def step(self):
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        torch = self.torch
        layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batch = torch.randn(8, 64, 256, device="cuda")
        for _ in range(5):
            self.step()
        torch.cuda.synchronize()
        return {"allocated": torch.cuda.memory_allocated()}

    def count(self):
        torch = self.torch
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as p:
            pass  # the profiler's launches at its start are not the step's
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as p:
            self.step()
            torch.cuda.synchronize()
        names = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel")
        return {"launches": sum(1 for e in p.events() if e.name in names)}


def main():
    training = None
    for command in sys.stdin:
        answer = {"result": 0}
        try:
            if command.strip() == "init":
                training = Training()
            elif command.strip() == "train":
                answer.update(training.train())
            elif command.strip() == "step":
                answer.update(training.count())
        except Exception as e:  # the kit reports it
            answer = {"result": 1, "error": "%s: %s" % (type(e).__name__, e)}
        print(json.dumps(answer), flush=True)


main()
