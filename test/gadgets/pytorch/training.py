# SPDX-License-Identifier: Apache-2.0
"""A small training loop; each line on stdin is ten steps, which are answered when they are done."""
import os

import dialogue

STEPS = 10


def main():
    dialogue.say(begun=os.getpid())
    dialogue.wait()
    import torch  # after a tracer may have come

    dialogue.say(imported=torch.__version__)
    dialogue.wait()
    layers = [torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True) for _ in range(3)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 64, 256, device="cuda")
    while True:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        dialogue.say(steps=STEPS)
        dialogue.wait()


main()
