# SPDX-License-Identifier: Apache-2.0
"""Programs of several processes, and one that dies: processes.py SITUATION.

Situations: loader (a DataLoader with workers that pins its batches), spawn
(torch.multiprocessing.spawn, a device for each of two processes), oom (what it holds, then
an allocation that is refused and ends it), roles (the threads that PyTorch names).
"""
import os
import sys

import dialogue
import holds
import lines


def record(torch):
    torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=1)


class Loader:
    def __init__(self, torch):
        self.torch, self.kept = torch, []
        record(torch)
        examples = torch.utils.data.TensorDataset(torch.randn(640, 333), torch.arange(640))
        self.batches = torch.utils.data.DataLoader(examples, batch_size=16, num_workers=2, pin_memory=True)

    def round(self):
        for batch, numbers in self.batches:
            self.kept.append(batch.to("cuda:1", non_blocking=True))
            copied = numbers.to("cuda", non_blocking=True).cpu()
            assert self.torch.equal(copied, numbers), "what was copied to the device comes back"
        del self.kept[::3]
        self.torch.cuda.synchronize()


def loader(torch):
    chosen = Loader(torch)
    while True:
        chosen.round()
        dialogue.say(moments=[holds.holds(torch)])
        dialogue.wait()


def child(rank, said, turns):
    import torch

    said.put({"pid": os.getpid()})
    turns[rank].get()
    lines.follow()
    torch.cuda.set_device(rank)
    record(torch)
    kept = []
    while True:
        kept.append(torch.ones(1 << (18 + rank), device="cuda"))
        kept.append(kept[-1] * 2)
        said.put(holds.holds(torch))
        if turns[rank].get() == "end":
            break


def spawn(torch):
    context = torch.multiprocessing.get_context("spawn")
    said, turns = context.SimpleQueue(), [context.SimpleQueue() for _ in range(2)]
    processes = torch.multiprocessing.spawn(child, args=(said, turns), nprocs=2, join=False)
    said_by_test = ""
    while said_by_test != "end":
        dialogue.say(moments=[said.get() for _ in turns])
        said_by_test = dialogue.wait()
        for turn in turns:
            turn.put(said_by_test)
    while not processes.join():
        pass


def roles(torch):
    x = torch.ones(1 << 16, device="cuda", requires_grad=True)
    x.sin().sum().backward()
    examples = torch.utils.data.TensorDataset(torch.ones(64, 4))
    batches = torch.utils.data.DataLoader(examples, batch_size=4, num_workers=1, pin_memory=True)
    iterator = iter(batches)
    next(iterator)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    torch.distributed.all_reduce(torch.ones(16, device="cuda"))
    torch.cuda.synchronize()

    def branch(x):
        return torch.jit.wait(torch.jit.fork(sine, x))

    torch.jit.script(branch)(torch.ones(4))
    from torch._inductor.compile_worker.subproc_pool import SubprocPool

    pool = SubprocPool(1)
    dialogue.say(moments=[])
    dialogue.wait()
    pool.shutdown()


def sine(x):
    return x.sin()


def weights(torch):
    return [torch.empty(40 << 20, dtype=torch.uint8, device="cuda") for _ in range(9)]


def cache(torch):
    return [
        torch.empty((5 << 20) + 1000 * i, dtype=torch.uint8, device="cuda") for i in range(50)
    ]


def other_device(torch):
    return torch.empty(100 << 20, dtype=torch.uint8, device="cuda:1")


def next_batch(torch):
    return torch.empty(700 << 20, dtype=torch.uint8, device="cuda")


def oom(torch):
    record(torch)
    held = weights(torch), cache(torch), other_device(torch)
    del held[1][::2]
    dialogue.say(moments=[holds.holds(torch)])
    dialogue.wait()
    try:
        next_batch(torch)
    except torch.OutOfMemoryError as error:
        dialogue.say(error=str(error))
        dialogue.wait()
        raise


def main():
    dialogue.say(begun=os.getpid())
    dialogue.wait()
    import torch  # after a tracer may have come
    import torch.distributed
    import torch.utils.data

    dialogue.say(imported=torch.__version__)
    dialogue.wait()
    lines.follow()
    {"loader": loader, "spawn": spawn, "oom": oom, "roles": roles}[sys.argv[1]](torch)


if __name__ == "__main__":
    main()
