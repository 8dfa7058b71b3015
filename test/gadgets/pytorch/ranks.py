# SPDX-License-Identifier: Apache-2.0
"""Two ranks of DistributedDataParallel, each a process with a device of its own.

Each line on stdin is a round of both ranks, which is answered when it is done;
"end" is the end. In the round "stall" rank 1 waits for a batch, which is answered, too, until
the next line.
"""
import os
import tempfile

import dialogue
import lines


def collectives(torch, rank):
    """Each operation that torch.distributed has for NCCL, with sizes that differ."""
    distributed = torch.distributed
    t = torch.ones(1000 + 24, device="cuda")
    distributed.all_reduce(t)
    distributed.all_reduce(t.to(torch.bfloat16), op=distributed.ReduceOp.MAX)
    distributed.broadcast(t[:100].double(), src=1)
    distributed.reduce(t[:50].to(torch.int64), dst=0)
    distributed.all_gather_into_tensor(torch.empty(2048, device="cuda"), t)
    distributed.reduce_scatter_tensor(torch.empty(512, device="cuda"), t)
    distributed.all_to_all_single(torch.empty_like(t), t)
    if rank == 0:
        distributed.send(t[:7], dst=1)
    else:
        distributed.recv(t[:7], src=0)
    distributed.barrier()


def load_batch(batches):
    return batches.get()


def rank_main(rank, rendezvous, said, turns):
    import torch
    import torch._dynamo  # which an optimizer would import, before lines are followed
    import torch.distributed
    import torch.nn.parallel.distributed

    said.put(os.getpid())
    turns[rank].get()
    lines.follow(collectives=True)
    # The check broadcasts the shapes by a kernel and reads them back: kernels write nothing here.
    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_, **__: None
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).to(rank)
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 256, device="cuda")).square().mean().backward()
        optimizer.step()

    turn = ""
    while turn != "end":
        if turn == "stall":
            step()  # of autograd's threads is the newest collective
            if rank == 1:
                load_batch(turns[rank])
            step()
        for _ in range(3):
            step()
        collectives(torch, rank)
        torch.cuda.synchronize()
        lines.write()
        said.put(os.getpid())
        turn = turns[rank].get()
    torch.distributed.destroy_process_group()


def main():
    dialogue.say(begun=os.getpid())
    dialogue.wait()
    import torch.multiprocessing as multiprocessing  # after a tracer may have come

    context = multiprocessing.get_context("spawn")
    said, turns = context.SimpleQueue(), [context.SimpleQueue() for _ in range(2)]
    with tempfile.TemporaryDirectory() as directory:
        processes = multiprocessing.spawn(rank_main, args=(f"{directory}/rendezvous", said, turns), nprocs=2,
                                          join=False)
        said_by_test = ""
        while said_by_test != "end":
            dialogue.say(pids=sorted(said.get() for _ in turns))
            said_by_test = dialogue.wait()
            for turn in turns:
                turn.put(said_by_test)
            if said_by_test == "stall":
                dialogue.say(stalled=1)
                dialogue.wait()
                turns[1].put("batch")
        while not processes.join():
            pass


if __name__ == "__main__":
    main()
