#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random workload of the exactness test.

Several processes with several threads call every driver entry that decides who
holds memory, in a random but seeded order, through about sixty Python stacks
(routes.py), and write down who did what (truth.py). A tracer that watches has to
come to the journal's sums to the byte.

    workload.py --libcuda build/simcuda/libcuda.so.1 --out DIR [--calls 200000]

DIR gets the driver's journals and the truth files. With --hold the parent prints
{"holding": [pid, …]} on one line when all calls are made, and everybody keeps
what they hold until a line arrives on its standard input. With --start-on-stdin
it prints {"ready": pid} with the library loaded and waits for a line first.

What the threads do at the same time is limited to what has one true answer: a
context is destroyed, or reset, while no other thread is in a call, because who
then owned an allocation made in that moment is a matter of luck. Addresses and
handles, on the other hand, pass from thread to thread as fast as they can.
"""
import argparse
import ctypes
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import routes  # noqa: E402
import truth  # noqa: E402

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE = 0, 1, 2, 201, 400
DESTROYED, NOT_REGISTERED, INJECTED = 709, 713, 999
MIB = 1 << 20
TOO_MUCH = 1 << 44  # bytes: more than any device here has
NEVER = 0x7000000000000001  # an odd number that is neither pointer nor handle

# What a free needs to know. "low" pointers fit the first ABI's 32 bits.
MEMORY, LOW, HOST, REGISTERED, ARRAY, MIPMAP = range(6)


class Array(ctypes.Structure):  # CUDA_ARRAY_DESCRIPTOR
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_uint32),
                ("channels", c_uint32)]


class ArrayV1(ctypes.Structure):
    _fields_ = [("width", c_uint32), ("height", c_uint32), ("format", c_uint32),
                ("channels", c_uint32)]


class Array3D(ctypes.Structure):  # CUDA_ARRAY3D_DESCRIPTOR
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
                ("format", c_uint32), ("channels", c_uint32), ("flags", c_uint32)]


class Array3DV1(ctypes.Structure):
    _fields_ = [("width", c_uint32), ("height", c_uint32), ("depth", c_uint32),
                ("format", c_uint32), ("channels", c_uint32), ("flags", c_uint32)]


class AllocationProp(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [("type", c_uint32), ("handle_types", c_uint32), ("location_type", c_uint32),
                ("location_id", c_int), ("win32", c_void_p), ("flags", ctypes.c_ubyte * 8)]


class PoolProps(ctypes.Structure):  # CUmemPoolProps
    _fields_ = [("type", c_uint32), ("handle_types", c_uint32), ("location_type", c_uint32),
                ("location_id", c_int), ("win32", c_void_p), ("max_size", c_size_t),
                ("usage", ctypes.c_uint16), ("reserved", ctypes.c_ubyte * 54)]


class Held:
    """Something to free: what it is, its number, and the context that owns it."""
    __slots__ = ("what", "number", "owner")

    def __init__(self, what, number, owner):
        self.what, self.number, self.owner = what, number, owner


class Physical:
    """A handle of cuMemCreate, as far as this program counts its references."""
    __slots__ = ("handle", "slots", "references", "mappings")

    def __init__(self, handle, slots):
        self.handle, self.slots, self.references, self.mappings = handle, slots, 1, 0


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
        # The caller's own memory, to be registered slot by slot.
        self.slot_bytes = 64 * 1024
        self.slots = list(range(256))
        self.memory = mmap.mmap(-1, self.slot_bytes * len(self.slots))
        self.memory_at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.primary = []

    def prepare(self):
        """Starts the driver and retains each device's primary context."""
        self.lib.cuInit(0)
        rng = random.Random(self.options.seed * 1000 + self.index)
        worker = Worker(self, -1, rng)
        self.primary = [worker.retain(d) for d in range(self.options.devices)]

    def reset_turns(self):
        """For --deterministic: the first thread begins, all have work left."""
        n = self.options.threads
        self.turns = [threading.Semaphore(1 if i == 0 else 0) for i in range(n)]
        self.left = [True] * n

    def run(self):
        workers = [Worker(self, i, random.Random((self.options.seed * 100 + self.index) * 100 + i))
                   for i in range(self.options.threads)]
        others = [threading.Thread(target=w.run) for w in workers[1:]]
        for t in others:
            t.start()
        workers[0].run()  # the main thread has its own kind of stack
        for t in others:
            t.join()


class Worker:
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
        self.range_slots = 0
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
        """What an operation yields to have a driver call made."""
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

    # -------------------------------------------------------------- allocation

    def size(self):
        return int(2 ** self.rng.uniform(0, 23))

    def hold(self, what, number):
        owner = self.stack[-1]
        h = Held(what, number, owner)
        if owner in self.own:
            self.private.append(h)
        else:
            with self.p.lock:
                self.p.shared.append(h)

    def alloc(self):
        kind = self.rng.choice((
            self.alloc_device, self.alloc_device, self.alloc_device, self.alloc_low,
            self.alloc_pitch, self.alloc_pitch_low, self.alloc_pool, self.alloc_pool,
            self.alloc_from_pool, self.alloc_managed, self.alloc_host, self.alloc_registered,
            self.alloc_array, self.alloc_array_3d, self.alloc_mipmap))
        if not self.stack:
            yield from self.switch()
            if not self.stack:
                return
        yield from kind(self.size())

    def alloc_device(self, size):
        p = c_uint64()
        if self.expect((yield self.call("cuMemAlloc_v2", byref(p), c_size_t(size)))):
            self.hold(MEMORY, p.value)

    def alloc_low(self, size):
        p = c_uint32()
        if self.expect((yield self.call("cuMemAlloc", byref(p), c_uint32(size)))):
            self.hold(LOW, p.value)

    def alloc_pitch(self, size):
        p, pitch = c_uint64(), c_size_t()
        height = self.rng.randint(1, 64)
        if self.expect((yield self.call("cuMemAllocPitch_v2", byref(p), byref(pitch),
                                        c_size_t(size // height + 1), c_size_t(height),
                                        c_uint32(self.rng.choice((4, 8, 16)))))):
            self.hold(MEMORY, p.value)

    def alloc_pitch_low(self, size):
        p, pitch = c_uint32(), c_uint32()
        height = self.rng.randint(1, 64)
        if self.expect((yield self.call("cuMemAllocPitch", byref(p), byref(pitch),
                                        c_uint32(size // height + 1), c_uint32(height),
                                        c_uint32(self.rng.choice((4, 8, 16)))))):
            self.hold(LOW, p.value)

    def stream(self):
        return c_void_p(self.rng.choice((0, 1, 2)))

    def alloc_pool(self, size):
        p = c_uint64()
        name = self.rng.choice(("cuMemAllocAsync", "cuMemAllocAsync_ptsz"))
        if self.expect((yield self.call(name, byref(p), c_size_t(size), self.stream()))):
            self.hold(MEMORY, p.value)

    def alloc_from_pool(self, size):
        if not self.pools:
            yield from self.pool()
            if not self.pools:
                return
        p = c_uint64()
        name = self.rng.choice(("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"))
        pool = c_uint64(self.rng.choice(self.pools))
        if self.expect((yield self.call(name, byref(p), c_size_t(size), pool, self.stream()))):
            self.hold(MEMORY, p.value)

    def alloc_managed(self, size):
        p = c_uint64()
        if self.expect((yield self.call("cuMemAllocManaged", byref(p), c_size_t(size),
                                        c_uint32(self.rng.choice((1, 2)))))):
            self.hold(MEMORY, p.value)

    def alloc_host(self, size):
        p = c_void_p()
        name = self.rng.choice(("cuMemAllocHost", "cuMemAllocHost_v2", "cuMemHostAlloc"))
        size = min(size, MIB)
        args = {"cuMemAllocHost": (c_uint32(size),), "cuMemAllocHost_v2": (c_size_t(size),),
                "cuMemHostAlloc": (c_size_t(size), c_uint32(0))}[name]
        if self.expect((yield self.call(name, byref(p), *args))):
            self.hold(HOST, p.value)

    def alloc_registered(self, size):
        with self.p.lock:
            if not self.p.slots:
                return
            slot = self.p.slots.pop(self.rng.randrange(len(self.p.slots)))
        at = self.p.memory_at + slot * self.p.slot_bytes
        name = self.rng.choice(("cuMemHostRegister", "cuMemHostRegister_v2"))
        size = min(size, self.p.slot_bytes)
        if self.expect((yield self.call(name, c_void_p(at), c_size_t(size), c_uint32(0)))):
            self.hold(REGISTERED, at)
        else:
            self.free_slot(at)

    def free_slot(self, at):
        with self.p.lock:
            self.p.slots.append((at - self.p.memory_at) // self.p.slot_bytes)

    def extents(self, dimensions):
        e = [self.rng.randint(1, 64)]
        e += [self.rng.randint(0, 32) for _ in range(dimensions - 1)]
        return e

    def texel(self):
        return (self.rng.choice((0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20)),
                self.rng.choice((1, 2, 4)))

    def alloc_array(self, _):
        a = c_uint64()
        name, kind = self.rng.choice((("cuArrayCreate", ArrayV1), ("cuArrayCreate_v2", Array)))
        d = kind(*self.extents(2), *self.texel())
        if self.expect((yield self.call(name, byref(a), byref(d)))):
            self.hold(ARRAY, a.value)

    def alloc_array_3d(self, _):
        a = c_uint64()
        name, kind = self.rng.choice((("cuArray3DCreate", Array3DV1),
                                      ("cuArray3DCreate_v2", Array3D)))
        d = kind(*self.extents(3), *self.texel(), self.rng.choice((0, 0, 1)))
        if self.expect((yield self.call(name, byref(a), byref(d)))):
            self.hold(ARRAY, a.value)

    def alloc_mipmap(self, _):
        a = c_uint64()
        d = Array3D(*self.extents(3), *self.texel(), self.rng.choice((0, 0, 1)))
        if self.expect((yield self.call("cuMipmappedArrayCreate", byref(a), byref(d),
                                        c_uint32(self.rng.randint(0, 9))))):
            self.hold(MIPMAP, a.value)

    def bad_alloc(self):
        """Calls that the driver refuses: they must not count."""
        p, q = c_uint64(0xdead), c_size_t()
        big = c_size_t(TOO_MUCH)
        array = Array3D(TOO_MUCH // 16, 16, 0, 0x20, 4, 0)
        name, args = self.rng.choice((
            ("cuMemAlloc_v2", (byref(p), big)), ("cuMemAlloc_v2", (byref(p), c_size_t(0))),
            ("cuMemAlloc_v2", (None, c_size_t(64))),
            ("cuMemAllocPitch_v2", (byref(p), byref(q), big, c_size_t(2), c_uint32(4))),
            ("cuMemAllocPitch_v2", (byref(p), byref(q), c_size_t(64), c_size_t(2), c_uint32(3))),
            ("cuMemAllocAsync", (byref(p), big, c_void_p(0))),
            ("cuMemAllocManaged", (byref(p), big, c_uint32(1))),
            ("cuMemAllocManaged", (byref(p), c_size_t(64), c_uint32(0))),
            ("cuMemAllocFromPoolAsync", (byref(p), c_size_t(64), c_uint64(NEVER), c_void_p(0))),
            ("cuMemHostAlloc", (byref(p), c_size_t(1 << 60), c_uint32(0))),
            ("cuMemHostRegister_v2", (None, c_size_t(64), c_uint32(0))),
            ("cuArray3DCreate_v2", (byref(p), byref(array))),
            ("cuMipmappedArrayCreate", (byref(p), byref(array), c_uint32(3)))))
        self.expect((yield self.call(name, *args)), INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT)

    # -------------------------------------------------------------------- free

    def free(self):
        h = None
        if self.private and self.rng.random() < 0.5:
            h = self.private.pop(self.rng.randrange(len(self.private)))
        else:
            with self.p.lock:
                # Often a recent one: a number that is quickly used again.
                if self.p.shared:
                    n = len(self.p.shared)
                    i = n - 1 if self.rng.random() < 0.5 else self.rng.randrange(n)
                    h = self.p.shared.pop(i)
        if h is None:
            return
        if not self.expect((yield self.call(*self.free_call(h)))):
            if h.owner in self.own:
                self.private.append(h)
            else:
                with self.p.lock:
                    self.p.shared.append(h)
        elif h.what == REGISTERED:
            self.free_slot(h.number)

    def free_call(self, h):
        if h.what in (MEMORY, LOW):
            names = ["cuMemFree_v2", "cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz"]
            name = self.rng.choice(names + ["cuMemFree"] * 4 if h.what == LOW else names)
            if name == "cuMemFree":
                return name, c_uint32(h.number)
            if name == "cuMemFree_v2":
                return name, c_uint64(h.number)
            return name, c_uint64(h.number), self.stream()
        name = {HOST: "cuMemFreeHost", REGISTERED: "cuMemHostUnregister", ARRAY: "cuArrayDestroy",
                MIPMAP: "cuMipmappedArrayDestroy"}[h.what]
        return name, c_uint64(h.number)

    def bad_free(self):
        odd = c_uint64(NEVER)
        name, args = self.rng.choice((
            ("cuMemFree_v2", (odd,)), ("cuMemFree_v2", (c_uint64(0),)),
            ("cuMemFree", (c_uint32(1),)), ("cuMemFreeAsync", (odd, c_void_p(0))),
            ("cuMemFreeHost", (odd,)), ("cuMemHostUnregister", (odd,)),
            ("cuArrayDestroy", (odd,)), ("cuMipmappedArrayDestroy", (odd,)),
            ("cuMemRelease", (odd,)), ("cuCtxDestroy_v2", (odd,)), ("cuCtxDestroy", (c_uint64(0),))))
        self.expect((yield self.call(name, *args)), INVALID_VALUE, INVALID_HANDLE, NOT_REGISTERED,
                    INVALID_CONTEXT)

    # ---------------------------------------------------------------- contexts

    def contexts(self):
        return self.p.primary + self.own

    def switch(self):
        """Another current context, by one of the ways there are."""
        way = self.rng.randrange(10)
        context = self.rng.choice(self.contexts())
        if way < 4 and len(self.stack) < 6:
            name = self.rng.choice(("cuCtxPushCurrent", "cuCtxPushCurrent_v2"))
            if self.expect((yield self.call(name, c_uint64(context)))):
                self.stack.append(context)
        elif way < 7:
            yield from self.pop()
        elif way == 7:
            if self.expect((yield self.call("cuCtxSetCurrent", c_uint64(0)))) and self.stack:
                self.stack.pop()
        else:
            yield from self.set_current(context)

    def set_current(self, context):
        if self.expect((yield self.call("cuCtxSetCurrent", c_uint64(context)))):
            self.stack[-1:] = [context]
            return True
        return False

    def pop(self):
        name = self.rng.choice(("cuCtxPopCurrent", "cuCtxPopCurrent_v2"))
        popped = c_uint64()
        out = byref(popped) if self.rng.random() < 0.8 else None
        allowed = () if self.stack else (INVALID_CONTEXT,)
        if self.expect((yield self.call(name, out)), *allowed):
            context = self.stack.pop()
            if out is not None and popped.value != context:
                self.expect(-1)

    def get_device(self):
        d = c_int()
        allowed = () if self.stack else (INVALID_CONTEXT,)
        self.expect((yield self.call("cuCtxGetDevice", byref(d))), *allowed)

    def create_context(self):
        if len(self.own) >= 3 or len(self.stack) >= 6:
            return
        context, device, flags = c_uint64(), c_int(self.rng.randrange(self.devices)), c_uint32(0)
        name, args = self.rng.choice((
            ("cuCtxCreate", (flags, device)), ("cuCtxCreate_v2", (flags, device)),
            ("cuCtxCreate_v3", (None, c_int(0), flags, device)),
            ("cuCtxCreate_v4", (None, flags, device))))
        if self.expect((yield self.call(name, byref(context), *args))):
            self.own.append(context.value)
            self.stack.append(context.value)

    def retain_release(self):
        """One reference more and one less: nothing ends, since others remain."""
        device = self.rng.randrange(self.devices)
        context = c_uint64()
        if not self.expect((yield self.call("cuDevicePrimaryCtxRetain", byref(context),
                                            c_int(device)))):
            return
        yield from self.release(device)

    def release(self, device):
        result = INJECTED
        while result != SUCCESS:
            name = self.rng.choice(("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"))
            result = yield self.call(name, c_int(device))
            if not self.expect(result) and result != INJECTED:
                return

    def retain(self, device):
        """Retains a primary context until it works, and returns it."""
        context = c_uint64()

        def operation():
            while not self.expect((yield self.call("cuDevicePrimaryCtxRetain", byref(context),
                                                   c_int(device)))):
                pass
        self.drive(operation())
        return context.value

    def pool(self):
        pool, device = c_uint64(), self.rng.randrange(self.devices)
        way = self.rng.choice(("cuMemPoolCreate", "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool"))
        if way == "cuMemPoolCreate":
            args = (byref(PoolProps(1, 0, 1, device)),)
        else:
            args = (c_int(device),)
        if self.expect((yield self.call(way, byref(pool), *args))) and len(self.pools) < 8:
            self.pools.append(pool.value)

    # --------------------------------------------------------- physical memory

    UNIT = 2 * MIB
    SLOTS = 256

    def vmm_create(self):
        if len(self.physical) > 40:
            return
        handle, slots = c_uint64(), self.rng.choice((1, 1, 2, 3, 4))
        if self.rng.random() < 0.05:
            if self.expect((yield self.call("cuMemImportFromShareableHandle", byref(handle),
                                            c_void_p(3), c_int(1)))):
                self.physical.append(Physical(handle.value, slots))
            return
        prop = AllocationProp(1, 0, 1, self.rng.randrange(self.devices))
        if self.rng.random() < 0.05:
            prop.location_type, prop.location_id = 2, 0  # host memory
        if self.expect((yield self.call("cuMemCreate", byref(handle),
                                        c_size_t(slots * self.UNIT), byref(prop), c_uint64(0)))):
            self.physical.append(Physical(handle.value, slots))

    def vmm_map(self):
        if not self.range:
            at = c_uint64()
            if self.lib.cuMemAddressReserve(byref(at), c_size_t(self.SLOTS * self.UNIT),
                                            c_size_t(0), c_uint64(0), c_uint64(0)):
                return
            self.range = at.value
        usable = [p for p in self.physical if p.references and p.mappings < 3]
        if not usable:
            return
        p = self.rng.choice(usable)
        # Next to the others where possible, so that one unmap can take several.
        taken = set()
        for first, (_, n) in self.mapped.items():
            taken.update(range(first, first + n))
        slot = next((s for s in range(self.SLOTS - p.slots)
                     if not any(s + i in taken for i in range(p.slots))), None)
        if slot is None:
            return
        if self.expect((yield self.call("cuMemMap", c_uint64(self.range + slot * self.UNIT),
                                        c_size_t(p.slots * self.UNIT), c_size_t(0),
                                        c_uint64(p.handle), c_uint64(0)))):
            self.mapped[slot] = (p, p.slots)
            p.mappings += 1

    def vmm_unmap(self):
        if not self.mapped:
            return
        slot = first = self.rng.choice(sorted(self.mapped))
        together = []
        while slot in self.mapped and len(together) < self.rng.randint(1, 5):
            together.append(slot)
            slot += self.mapped[slot][1]
        if not self.expect((yield self.call("cuMemUnmap", c_uint64(self.range + first * self.UNIT),
                                            c_size_t((slot - first) * self.UNIT)))):
            return
        for s in together:
            p, _ = self.mapped.pop(s)
            p.mappings -= 1
            self.drop_unused(p)

    def drop_unused(self, p):
        if not p.references and not p.mappings:
            self.physical.remove(p)

    def vmm_retain(self):
        if not self.mapped:
            return
        slot = self.rng.choice(sorted(self.mapped))
        p, slots = self.mapped[slot]
        if p.references > 2:
            return
        inside = self.range + slot * self.UNIT + self.rng.randrange(slots * self.UNIT)
        handle = c_uint64()
        if self.expect((yield self.call("cuMemRetainAllocationHandle", byref(handle),
                                        c_uint64(inside)))):
            p.references += 1
            if handle.value != p.handle:
                self.expect(-1)

    def vmm_release(self):
        usable = [p for p in self.physical if p.references]
        if not usable or (len(usable) < 8 and self.rng.random() < 0.5):
            return
        p = self.rng.choice(usable)
        if self.expect((yield self.call("cuMemRelease", c_uint64(p.handle)))):
            p.references -= 1
            self.drop_unused(p)

    def vmm_bad(self):
        """Refused: part of a mapping, a gap, no granularity, too much."""
        handle = c_uint64()
        prop = AllocationProp(1, 0, 1, self.rng.randrange(self.devices))
        choices = [
            ("cuMemCreate", (byref(handle), c_size_t(TOO_MUCH), byref(prop), c_uint64(0))),
            ("cuMemCreate", (byref(handle), c_size_t(self.UNIT + 1), byref(prop), c_uint64(0))),
            ("cuMemRetainAllocationHandle", (byref(handle), c_uint64(NEVER))),
            ("cuMemUnmap", (c_uint64(NEVER), c_size_t(self.UNIT)))]
        wide = [s for s, (_, n) in self.mapped.items() if n > 1]
        if wide:
            at = c_uint64(self.range + self.rng.choice(sorted(wide)) * self.UNIT)
            choices.append(("cuMemUnmap", (at, c_size_t(self.UNIT))))
        name, args = self.rng.choice(choices)
        self.expect((yield self.call(name, *args)), INVALID_VALUE, OUT_OF_MEMORY)

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
        """What remains when a context has ended."""
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
        else:
            yield from self.release(device)
            again = c_uint64()
            while not self.expect((yield self.call("cuDevicePrimaryCtxRetain", byref(again),
                                                   c_int(device)))):
                pass
            if again.value != context:
                self.expect(-1)
        self.p.shared = list(self.forget(self.p.shared, context))

    def wait_turn(self):
        if self.p.options.deterministic:
            self.p.turns[self.index].acquire()

    def pass_turn(self):
        if self.p.options.deterministic:
            self.p.turns[(self.index + 1) % len(self.p.turns)].release()

    def run(self):
        options = self.p.options
        quota = options.calls // options.processes // options.threads
        for r in range(options.rounds):
            until = quota * (r + 1) // options.rounds
            while True:
                self.wait_turn()
                more = self.calls < until
                if more:
                    op = self.rng.choices(self.ops, self.weights)[0]
                    self.drive(op())
                elif not options.deterministic:
                    break
                # With turns, all go on in step until nobody has anything left.
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


def arguments():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--libcuda", default="build/simcuda/libcuda.so.1")
    a.add_argument("--out", required=True, help="directory for journals and truth files")
    a.add_argument("--calls", type=int, default=200000, help="driver calls in all")
    a.add_argument("--processes", type=int, default=4)
    a.add_argument("--threads", type=int, default=8, help="per process")
    a.add_argument("--devices", type=int, default=2)
    a.add_argument("--rounds", type=int, default=5, help="contexts end between rounds")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--fail-every", type=int, default=97, help="0: no injected failures")
    a.add_argument("--deterministic", action="store_true",
                   help="threads take turns: the same calls in the same order each time")
    a.add_argument("--plain-names", action="store_true", help="ASCII function names only")
    a.add_argument("--hold", action="store_true", help="keep everything until a line on stdin")
    a.add_argument("--start-on-stdin", action="store_true", help="wait for a line before calls")
    a.add_argument("--kill-last", action="store_true", help="the last process ends by SIGKILL")
    a.add_argument("--index", type=int, default=-1, help=argparse.SUPPRESS)
    return a.parse_args()


class Child:
    """Another process and the two pipes to it: it says that it holds, and is told to end."""

    def __init__(self, pid, says, tell, popen=None):
        self.pid, self.says, self.tell, self.popen = pid, says, tell, popen

    def wait(self):
        if self.popen:
            return self.popen.wait()
        return os.waitpid(self.pid, 0)[1]


def work(options, driver, index, ready, go, process=None):
    """Everything that one process does. ready and go are the ends of pipes."""
    p = process
    if p is None:
        p = Process(options, driver, index)
        p.prepare()
    p.run()
    if p.surprises:
        print("workload: process %d: unexpected results (result, where): %s"
              % (os.getpid(), p.surprises[:10]), file=sys.stderr)
    os.write(ready, b"!" if p.surprises else b".")
    os.read(go, 1)
    if options.kill_last and index == options.processes - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1 if p.surprises else 0


def fork(options, driver, index):
    says, ready = os.pipe()
    go, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(says)
        os.close(tell)
        driver.reset()
        code = 1
        try:
            code = work(options, driver, index, ready, go)
        except BaseException:
            import traceback
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)  # without atexit, as multiprocessing ends its children
    os.close(ready)
    os.close(go)
    return Child(pid, says, tell)


def spawn(options, index):
    says, ready = os.pipe()
    go, tell = os.pipe()
    for end in (ready, go):
        os.set_inheritable(end, True)
    env = dict(os.environ, WORKLOAD_PIPES="%d %d" % (ready, go))
    args = [sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + ["--index", str(index)]
    popen = subprocess.Popen(args, env=env, pass_fds=(ready, go), stdin=subprocess.DEVNULL)
    os.close(ready)
    os.close(go)
    return Child(popen.pid, says, tell, popen)


def say(**row):
    print(json.dumps(row), flush=True)


def main():
    options = arguments()
    os.makedirs(options.out, exist_ok=True)
    os.environ["SIMCUDA_JOURNAL"] = os.path.abspath(options.out)
    os.environ["SIMCUDA_DEVICES"] = str(options.devices)
    os.environ["SIMCUDA_FAIL_EVERY"] = str(options.fail_every)
    driver = truth.Driver(os.path.abspath(options.libcuda), options.out)
    if options.index >= 0:
        ready, go = map(int, os.environ["WORKLOAD_PIPES"].split())
        sys.exit(work(options, driver, options.index, ready, go))

    if options.start_on_stdin:
        say(ready=os.getpid())
        sys.stdin.readline()
    # The children: one forked before this process has started the driver, one
    # spawned, one forked when this process holds memory, and so on.
    children = []
    process = Process(options, driver, 0)
    for index in range(1, options.processes):
        if index % 3 == 1:
            children.append(fork(options, driver, index))
        elif index % 3 == 2:
            children.append(spawn(options, index))
    process.prepare()
    before = Worker(process, 0, random.Random(options.seed))
    for _ in range(50):
        before.drive(before.alloc())
        before.drive(before.vmm_create())
    before.drive(before.unwind())
    for index in range(3, options.processes, 3):
        children.append(fork(options, driver, index))

    ready, said = os.pipe()
    go, told = os.pipe()
    pids = [os.getpid()] + [c.pid for c in children]
    answers = []

    def supervise():
        """Waits for all to hold, then for the word to end."""
        answers.append(os.read(ready, 1))
        answers.extend(os.read(c.says, 1) for c in children)
        if options.hold:
            say(holding=pids, ok=all(a == b"." for a in answers))
            sys.stdin.readline()
        for c in children:
            os.write(c.tell, b".")
        for c in children:
            c.wait()
        os.write(told, b".")

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    code = work(options, driver, 0, said, go, process)
    supervisor.join()
    say(done=pids, ok=all(a == b"." for a in answers))
    sys.exit(0 if code == 0 and all(a == b"." for a in answers) else 1)


if __name__ == "__main__":
    main()
