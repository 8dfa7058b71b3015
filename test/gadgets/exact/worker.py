# SPDX-License-Identifier: Apache-2.0
"""The threads of the workload and what they share in a process."""
import ctypes
import mmap
import random
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint64

import routes
from driver_types import DESTROYED, INJECTED, REGISTERED, SUCCESS
from operations import Contexts, Memory
from virtual_memory import VirtualMemory


class Process:
    """What the threads of one process share."""

    def __init__(self, options, driver, index):
        self.options, self.driver, self.index = options, driver, index
        self.lib = driver.lib
        self.routes = routes.routes(options.plain_names)
        self.lock = threading.Lock()
        self.shared = []  # Held, owned by primary contexts
        self.surprises = []
        self.barrier = threading.Barrier(options.threads)
        self.reset_turns()
        # The caller's own memory, registered slot by slot.
        self.slot_bytes = 64 * 1024
        self.slots = list(range(256))
        self.memory = mmap.mmap(-1, self.slot_bytes * len(self.slots))
        self.memory_at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.primary = []

    def prepare(self):
        """Starts the driver and retains each device's primary context."""
        self.lib.cuInit(0)
        rng = random.Random(self.options.seed * 1000 + self.index)
        worker = self.worker(self, -1, rng)
        self.primary = [worker.retain(d) for d in range(self.options.devices)]

    def reset_turns(self):
        """For --deterministic: the first thread begins, all have work left."""
        n = self.options.threads
        self.turns = [threading.Semaphore(1 if i == 0 else 0) for i in range(n)]
        self.left = [True] * n

    def run(self):
        workers = [self.worker(self, i, random.Random((self.options.seed * 100 + self.index) * 100 + i))
                   for i in range(self.options.threads)]
        others = [threading.Thread(target=w.run) for w in workers[1:]]
        for t in others:
            t.start()
        workers[0].run()  # the main thread has its own kind of stack
        for t in others:
            t.join()


class Worker(Memory, Contexts, VirtualMemory):
    """One thread."""

    def __init__(self, process, index, rng):
        self.p, self.index, self.rng = process, index, rng
        self.lib = process.lib
        self.devices = process.options.devices
        self.stack = []  # of contexts, as the driver has it
        self.own = []  # contexts that this thread created
        self.private = []  # Held in them
        self.pools = []
        self.physical = []
        self.range = 0
        self.mapped = {}  # first slot → (Physical, slots)
        self.calls = 0
        ops = (
            (self.alloc, 340), (self.free, 330), (self.bad_alloc, 25), (self.bad_free, 25),
            (self.switch, 70), (self.create_context, 4), (self.retain_release, 6),
            (self.get_device, 10), (self.pool, 6), (self.vmm_create, 30), (self.vmm_map, 50),
            (self.vmm_unmap, 30), (self.vmm_retain, 20), (self.vmm_release, 40),
            (self.vmm_bad, 8))
        self.ops = [op for op, _ in ops]
        self.weights = [weight for _, weight in ops]

    def call(self, name, *args):
        """An operation yields this to have a driver call made."""
        return getattr(self.lib, name), args

    def drive(self, operation):
        """Runs an operation, a generator that yields calls and gets results.
        All calls are made here, so that the stacks are as many as the routes and
        not multiplied by the operations."""
        try:
            plan = next(operation)
            while True:
                route = self.rng.choice(self.p.routes)
                result = route(self.p.driver, plan[0], plan[1])
                self.calls += 1
                plan = operation.send(result)
        except StopIteration as stop:
            return stop.value

    def expect(self, result, *allowed):
        """Notes a result that the driver should not have given."""
        if result not in (SUCCESS, INJECTED) and result not in allowed:
            with self.p.lock:
                self.p.surprises.append((result, sys._getframe(1).f_code.co_name))
        return result == SUCCESS

    # ------------------------------------------------------------------ rounds

    def unwind(self):
        """Leaves this thread without a context."""
        while self.stack:
            yield from self.pop()

    def teardown(self):
        """Ends this thread's contexts; runs while all other threads wait."""
        yield from self.unwind()
        while self.own:
            context = self.own[-1]
            if self.rng.random() < 0.5:  # destroyed while current: it is popped
                if not (yield from self.set_current(context)):
                    continue
            elif len(self.own) > 1 and (yield from self.set_current(context)):
                # Destroyed while below another one: its number stays there.
                if self.expect((yield self.call("cuCtxPushCurrent_v2", c_uint64(self.own[0])))):
                    self.stack.append(self.own[0])
            name = self.rng.choice(("cuCtxDestroy", "cuCtxDestroy_v2"))
            while not self.expect((yield self.call(name, c_uint64(context)))):
                pass
            self.own.pop()
            self.private = list(self.forget(self.private, context))
            if self.stack and self.stack[-1] == context:
                self.stack.pop()
            while self.stack:
                if self.stack[-1] == context:
                    p = c_uint64(0xdead)
                    self.expect((yield self.call("cuMemAlloc_v2", byref(p), c_size_t(64))), DESTROYED)
                yield from self.pop()

    def forget(self, held, owner):
        """What remains after the end of a context."""
        for h in held:
            if h.owner != owner:
                yield h
            elif h.what == REGISTERED:
                self.free_slot(h.number)

    def reset_primary(self, device):
        """Frees a primary context's memory: by a reset, or the last release."""
        context = self.p.primary[device]
        if self.rng.random() < 0.5:
            name = self.rng.choice(("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"))
            while not self.expect((yield self.call(name, c_int(device)))):
                pass
            # Made again here: of threads that wait for one context it is not known which
            # of them makes it.
            yield from self.retain_again(device)
            yield from self.release(device)
        else:
            yield from self.release(device)
            again = yield from self.retain_again(device)
            if again != context:
                self.expect(-1)
        self.p.shared = list(self.forget(self.p.shared, context))

    def retain_again(self, device):
        again = c_uint64()
        while not self.expect((yield self.call("cuDevicePrimaryCtxRetain", byref(again),
                                               c_int(device)))):
            pass
        return again.value

    def wait_turn(self):
        if self.p.options.deterministic:
            self.p.turns[self.index].acquire()

    def pass_turn(self):
        if self.p.options.deterministic:
            self.p.turns[(self.index + 1) % len(self.p.turns)].release()

    def run(self):
        options = self.p.options
        quota = options.calls // options.processes // options.threads
        began = time.monotonic()
        for r in range(options.rounds):
            until = quota * (r + 1) // options.rounds
            while True:
                self.wait_turn()
                more = self.calls < until
                if more:
                    if options.seconds:
                        time.sleep(max(0, began + options.seconds * self.calls / quota - time.monotonic()))
                    op = self.rng.choices(self.ops, self.weights)[0]
                    self.drive(op())
                elif not options.deterministic:
                    break
                # With turns, all threads continue in lockstep until none has operations left.
                if options.deterministic:
                    self.p.left[self.index] = more
                    done = not any(self.p.left)
                    self.pass_turn()
                    if done:
                        break
            if r == options.rounds - 1:
                return
            self.quiesce(r)

    def quiesce(self, r):
        """All threads stop; one after the other ends its contexts."""
        for i in range(len(self.p.turns)):
            self.p.barrier.wait()
            if i == self.index:
                self.drive(self.teardown())
        self.p.barrier.wait()
        if self.index == r % len(self.p.turns):
            self.drive(self.reset_primary(r % self.devices))
            self.p.reset_turns()
        self.p.barrier.wait()


Process.worker = Worker
