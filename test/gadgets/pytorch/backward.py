# SPDX-License-Identifier: Apache-2.0
"""Backward passes whose tensors and kernels have sizes of their own: backward.py CASE.

A size is a number of blocks of an elementwise kernel, each of 512 elements of 4 bytes. Each
line on stdin is a round, which is answered when it is done: with the stacks of Python that
autograd's threads work for, by size. A stack is a list of functions and lines of this file,
innermost first. "<autograd>" comes before the frames of the thread that asked for the work.
"""
import os
import sys
import threading

import dialogue

stacks = {}  # size -> list of stacks


def here(ahead=0):
    """The stack of the caller; `ahead` is to be added to its line."""
    frames, frame = [], sys._getframe(1)
    while frame:
        if frame.f_code.co_filename.endswith(("/backward.py", "/checkpoint.py")):
            line = f":{frame.f_lineno + ahead}" if frame.f_code.co_filename == __file__ else ""
            frames.append(frame.f_code.co_qualname + line)
            ahead = 0
        frame = frame.f_back
    return frames


def expect(size, *stack):
    found = stacks.setdefault(size, [])
    if list(stack) not in found:
        found.append(list(stack))


class Cases:
    def __init__(self, torch):
        self.torch = torch
        self.sizes = iter(range(100, 500, 3))
        self.known = {}

        class Doubled(torch.autograd.Function):
            """Its backward is Python, and calls a function that the test chose."""

            @staticmethod
            def forward(context, x, work):
                context.work = work
                return x.clone()

            @staticmethod
            def backward(context, gradient):
                return context.work(gradient), None

        self.doubled = Doubled.apply

    def leaf(self, name, device=0):
        """A tensor and its gradient, of the same size in every round."""
        if name not in self.known:
            self.known[name] = next(self.sizes)
        size = self.known[name]
        x = self.torch.ones(size * 512, device=f"cuda:{device}", requires_grad=True)
        return size, x, self.torch.ones_like(x)

    def plain(self):
        size, x, g = self.leaf("plain")
        y = x.sin().exp()
        expect(size, "<autograd>", *here(1))
        y.backward(g)

    def lines(self):
        """A loop whose second step is on another line."""
        for step in range(2):
            size, x, g = self.leaf(f"lines {step}")
            y = x.sin().exp()
            if step == 0:
                expect(size, "<autograd>", *here(1))
                y.backward(g)
            else:
                expect(size, "<autograd>", *here(1))
                y.backward(g)

    def grad(self):
        size, x, g = self.leaf("grad")
        y = x.sin().exp()
        expect(size, "<autograd>", *here(1))
        self.torch.autograd.grad(y, x, g)

    def double(self):
        size, x, g = self.leaf("double")
        y = x.sin().exp()
        expect(size, "<autograd>", *here(1))
        first, = self.torch.autograd.grad(y, x, g, create_graph=True)
        expect(size, "<autograd>", *here(1))
        first.backward(g)

    def custom(self):
        """A node in Python, between others."""
        size, x, g = self.leaf("custom")
        asked = here(7)

        def work(gradient):
            expect(size, *here(1), "<autograd>", *asked)
            return gradient * 2

        y = self.doubled(x.sin(), work).exp()
        y.backward(g)
        expect(size, "<autograd>", *asked)

    def reentrant(self):
        """A checkpoint runs forward again in autograd's thread, and a pass inside of the pass."""
        size, x, g = self.leaf("reentrant")
        asked = None

        def part(x):
            if asked:
                expect(size, *here(1), "<autograd>", *asked)
            return x.sin().cos().exp()

        y = self.torch.utils.checkpoint.checkpoint(part, x.exp(), use_reentrant=True)
        asked = here(1)
        y.backward(g)
        expect(size, "<autograd>", *asked)
        expect(size, "CheckpointFunction.backward", "<autograd>", *asked)

    def threads(self):
        """Each has a pass, whose nodes take turns on the same thread of autograd."""
        barrier = threading.Barrier(2)

        def first():
            size, x, g = self.leaf("threads, first")
            y = x
            for _ in range(100):
                y = y.sin()
            barrier.wait()
            expect(size, "<autograd>", *here(1))
            y.backward(g)

        def second():
            size, x, g = self.leaf("threads, second")
            y = x
            for _ in range(100):
                y = y.sin()
            barrier.wait()
            expect(size, "<autograd>", *here(1))
            y.backward(g)

        together(first, second)

    def busy(self):
        """Another thread, which works on no pass, has many calls before autograd's first."""
        size, x, g = self.leaf("busy")
        begun, done = threading.Event(), threading.Event()

        def work(gradient):
            begun.set()
            assert done.wait(60)
            return gradient

        def asks():
            y = self.doubled(x.sin(), work)
            expect(size, "<autograd>", *here(1))
            y.backward(g)

        def other():
            assert begun.wait(60)
            for _ in range(300):
                self.torch.ones(64, device="cuda")
            done.set()

        together(asks, other)

    def waiting(self):
        """A thread of autograd that waits for an inner pass works on another thread's meanwhile."""
        waits, ended = threading.Event(), threading.Event()
        outer, x, g = self.leaf("waiting, outer")
        inner, x_inner, g_inner = self.leaf("waiting, inner", device=1)
        other, x_other, g_other = self.leaf("waiting, other")

        def holds(gradient):
            """On the thread of the other device: the inner pass ends after the other thread's."""
            waits.set()
            assert ended.wait(60)
            expect(inner, *here(1), "<autograd>", *begun, "<autograd>", *asked)
            return gradient * 2

        def begins(gradient):
            nonlocal begun
            begun = here(1)
            y_inner.backward(g_inner)
            expect(inner, "<autograd>", *begun, "<autograd>", *asked)
            expect(outer, *here(1), "<autograd>", *asked)
            return gradient * 2

        def first():
            nonlocal asked
            y = self.doubled(x.sin(), begins)
            asked = here(1)
            y.backward(g)
            expect(outer, "<autograd>", *asked)

        def works(gradient):
            assert not ended.is_set()
            # Of the stack behind the node's own frames nothing has asked for it.
            expect(other, *here(1)[:2], "<autograd>", *asked_other)
            return gradient * 2

        def second():
            nonlocal asked_other
            assert waits.wait(60)
            y = self.doubled(x_other.sin(), works).exp()
            asked_other = here(1)
            y.backward(g_other)
            ended.set()
            expect(other, "<autograd>", *asked_other)

        asked = asked_other = begun = None
        y_inner = self.doubled(x_inner.sin(), holds)
        together(first, second)


def together(*functions):
    failed = []

    def run(function):
        try:
            function()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def main():
    dialogue.say(begun=os.getpid())
    dialogue.wait()
    import torch  # after a tracer may have come
    import torch.utils.checkpoint

    dialogue.say(imported=torch.__version__)
    dialogue.wait()
    case = getattr(Cases(torch), sys.argv[1])
    while True:
        case()
        torch.cuda.synchronize()
        dialogue.say(stacks=stacks)
        dialogue.wait()


main()
