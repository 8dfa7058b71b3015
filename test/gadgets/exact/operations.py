# SPDX-License-Identifier: Apache-2.0
"""What a thread of the workload may do: each operation is a generator that yields
driver calls (a function and its arguments) and gets their results, so that its own
frame is not on the stack when a call is made. See Worker in worker.py, which mixes
these classes in and has what they use: rng, lib, the process p, call and expect.
"""
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from driver_types import (
    ARRAY, Array, Array3D, Array3DV1, ArrayV1, HOST, Held, INJECTED,
    INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, LOW, MEMORY, MIB, MIPMAP, NEVER,
    NOT_REGISTERED, OUT_OF_MEMORY, PoolProps, REGISTERED, SUCCESS, TOO_MUCH)


class Memory:
    """Allocates, frees, and holds allocations."""

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

    def plain_texel(self):
        return (self.rng.choice((0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20)),
                self.rng.choice((1, 2, 4)))

    def texel(self):
        return self.rng.choice((
            self.plain_texel(),
            (0xc0 + self.rng.randrange(12), self.rng.choice((1, 2, 4))),  # normalized
            (0x91 + self.rng.randrange(14), 4)))  # compressed, in blocks

    def array_flags(self):
        """Layers; or an array whose memory is mapped later."""
        return self.rng.choice((0, 0, 0, 1, 1, 0x40, 0x80))

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
        d = kind(*self.extents(3), *self.texel(), self.array_flags())
        if self.expect((yield self.call(name, byref(a), byref(d)))):
            self.hold(ARRAY, a.value)

    def alloc_mipmap(self, _):
        a = c_uint64()
        d = Array3D(*self.extents(3), *self.texel(), self.array_flags())
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


class Contexts:
    """Changes which context is current, and makes and retains contexts and pools."""

    pool_ways = ("cuMemPoolCreate", "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool",
                 "cuMemGetDefaultMemPool", "cuMemGetMemPool")

    def contexts(self):
        return self.p.primary + self.own

    def switch(self):
        """Another current context, in one of the possible ways."""
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
        """One reference more and one less: nothing ends, because others remain."""
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
        way = self.rng.choice(self.pool_ways)
        if way == "cuMemPoolCreate":
            # Some are in memory of the host.
            args = (byref(PoolProps(1, 0, self.rng.choice((1, 1, 1, 1, 2, 3)), device)),)
        elif way.startswith("cuMemGet"):  # of CUDA 13: a location, and pinned memory
            args = ((c_uint32 * 2)(1, device), c_int(1))
        else:
            args = (c_int(device),)
        if self.expect((yield self.call(way, byref(pool), *args))) and len(self.pools) < 8:
            self.pools.append(pool.value)
