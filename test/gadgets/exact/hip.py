# SPDX-License-Identifier: Apache-2.0
"""The same workload on HIP: threads with a device instead of contexts, HIP's functions."""
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from driver_types import (
    ARRAY, Array, Array3D, Channels, Extent, HOST, Held, INVALID_CONTEXT, INVALID_HANDLE,
    INVALID_VALUE, MEMORY, MIB, MIPMAP, NEVER, NOT_REGISTERED, OUT_OF_MEMORY, Pitched, PoolProps,
    REGISTERED, TOO_MUCH)
from worker import Process, Worker

INVALID_DEVICE = 101
ALL = -1  # devices

# HIP's functions with the parameters of those of the CUDA driver.
NAMES = {
    "cuMemAlloc_v2": "hipMalloc", "cuMemAllocPitch_v2": "hipMemAllocPitch",
    "cuMemAllocAsync": "hipMallocAsync", "cuMemAllocAsync_ptsz": "hipMallocAsync",
    "cuMemAllocFromPoolAsync": "hipMallocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz": "hipMallocFromPoolAsync",
    "cuMemAllocManaged": "hipMallocManaged", "cuMemHostAlloc": "hipHostMalloc",
    "cuMemHostRegister": "hipHostRegister", "cuMemHostRegister_v2": "hipHostRegister",
    "cuArray3DCreate_v2": "hipArray3DCreate", "cuMipmappedArrayCreate": "hipMipmappedArrayCreate",
    "cuMemPoolCreate": "hipMemPoolCreate", "cuDeviceGetMemPool": "hipDeviceGetMemPool",
    "cuDeviceGetDefaultMemPool": "hipDeviceGetDefaultMemPool",
    "cuMemImportFromShareableHandle": "hipMemImportFromShareableHandle",
    "cuMemCreate": "hipMemCreate", "cuMemAddressReserve": "hipMemAddressReserve",
    "cuMemMap": "hipMemMap", "cuMemUnmap": "hipMemUnmap", "cuMemRelease": "hipMemRelease",
    "cuMemRetainAllocationHandle": "hipMemRetainAllocationHandle",
}


class Library:
    def __init__(self, lib):
        self._lib = lib

    def __getattr__(self, name):
        return getattr(self._lib, NAMES.get(name, name))


class HipWorker(Worker):
    """One thread. Its stack is its device, on which it is from its start."""

    pool_ways = ("cuMemPoolCreate", "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")

    def __init__(self, process, index, rng):
        super().__init__(process, index, rng)
        self.lib = Library(process.lib)
        self.stack = [0]
        self.handles = {}  # device → context
        ops = (
            (self.alloc, 340), (self.free, 330), (self.bad_alloc, 25), (self.bad_free, 25),
            (self.switch, 90), (self.get_device, 10), (self.pool, 6), (self.vmm_create, 30),
            (self.vmm_map, 50), (self.vmm_unmap, 30), (self.vmm_retain, 20),
            (self.vmm_release, 40), (self.vmm_bad, 8), (self.address_free, 8),
            (self.bad_extent, 12))
        self.ops = [op for op, _ in ops]
        self.weights = [weight for _, weight in ops]

    def hold(self, what, number, owner=None):
        """Of a device: a reset frees it. Managed and pinned memory belong to all of them."""
        if owner == ALL and self.devices == 1:
            owner = 0
        if number:
            with self.p.lock:
                self.p.shared.append(Held(what, number, self.stack[-1] if owner is None else owner))

    def alloc_low(self, size):
        p = c_uint64()
        if self.expect((yield self.call("hipExtMallocWithFlags", byref(p), c_size_t(size),
                                        c_uint32(0)))):
            self.hold(MEMORY, p.value)

    def alloc_pitch_low(self, size):
        p, pitch = c_uint64(), c_size_t()
        height = self.rng.randint(1, 64)
        if self.rng.random() < 0.5:
            if self.expect((yield self.call("hipMallocPitch", byref(p), byref(pitch),
                                            c_size_t(size // height + 1), c_size_t(height)))):
                self.hold(MEMORY, p.value)
            return
        out, depth = Pitched(), self.rng.randint(0, 4)
        if self.expect((yield self.call("hipMalloc3D", byref(out), Extent(size // height // 2 + 1,
                                                                          height, depth)))):
            self.hold(MEMORY, out.ptr)

    def alloc_managed(self, size):
        p = c_uint64()
        if self.expect((yield self.call("hipMallocManaged", byref(p), c_size_t(size),
                                        c_uint32(self.rng.choice((1, 2)))))):
            self.hold(MEMORY, p.value, ALL)

    def alloc_from_pool(self, size):
        if not self.pools:
            yield from self.pool()
            if not self.pools:
                return
        p, pool = c_uint64(), self.rng.choice(self.pools)
        if self.expect((yield self.call("hipMallocFromPoolAsync", byref(p), c_size_t(size),
                                        c_uint64(pool), self.stream()))):
            self.hold(MEMORY, p.value, self.p.pool_device[pool])

    def pool(self):
        pool, device = c_uint64(), self.rng.randrange(self.devices)
        name = self.rng.choice(("hipMemPoolCreate", "hipDeviceGetDefaultMemPool",
                                "hipDeviceGetMemPool"))
        args = byref(PoolProps(1, 0, 1, device)) if name == "hipMemPoolCreate" else c_int(device)
        if self.expect((yield self.call(name, byref(pool), args))) and len(self.pools) < 8:
            self.pools.append(pool.value)
            self.p.pool_device[pool.value] = device

    def texel(self):
        return self.plain_texel()

    def array_flags(self):
        return self.rng.choice((0, 0, 1))

    def channels(self):
        bits, count = self.rng.choice((8, 16, 32)), self.rng.choice((1, 2, 4))
        return Channels((c_int * 4)(*[bits] * count), 0)

    def alloc_host(self, size):
        p = c_void_p()
        name = self.rng.choice(("hipMallocHost", "hipMemAllocHost", "hipHostMalloc", "hipHostAlloc"))
        flags = () if name in ("hipMallocHost", "hipMemAllocHost") else (c_uint32(0),)
        if self.expect((yield self.call(name, byref(p), c_size_t(min(size, MIB)), *flags))):
            self.hold(HOST, p.value, ALL)

    def alloc_registered(self, size):
        with self.p.lock:
            if not self.p.slots:
                return
            slot = self.p.slots.pop(self.rng.randrange(len(self.p.slots)))
        at = self.p.memory_at + slot * self.p.slot_bytes
        size = min(size, self.p.slot_bytes)
        if self.expect((yield self.call("hipHostRegister", c_void_p(at), c_size_t(size),
                                        c_uint32(0)))):
            self.hold(REGISTERED, at, ALL)
        else:
            self.free_slot(at)

    def alloc_array(self, _):
        a, e = c_uint64(), self.extents(2)
        if self.rng.random() < 0.5:
            plan = "hipArrayCreate", byref(a), byref(Array(*e, *self.texel()))
        else:
            plan = ("hipMallocArray", byref(a), byref(self.channels()), c_size_t(e[0]),
                    c_size_t(e[1]), c_uint32(0))
        if self.expect((yield self.call(*plan))):
            self.hold(ARRAY, a.value)

    def alloc_array_3d(self, _):
        a, e, layered = c_uint64(), self.extents(3), self.rng.choice((0, 0, 1))
        if self.rng.random() < 0.5:
            plan = "hipArray3DCreate", byref(a), byref(Array3D(*e, *self.texel(), layered))
        else:
            plan = ("hipMalloc3DArray", byref(a), byref(self.channels()), Extent(*e),
                    c_uint32(layered))
        if self.expect((yield self.call(*plan))):
            self.hold(ARRAY, a.value)

    def alloc_mipmap(self, size):
        if self.rng.random() < 0.5:
            yield from super().alloc_mipmap(size)
            return
        a = c_uint64()
        if self.expect((yield self.call("hipMallocMipmappedArray", byref(a), byref(self.channels()),
                                        Extent(*self.extents(3)), c_uint32(self.rng.randint(0, 9)),
                                        c_uint32(self.rng.choice((0, 0, 1)))))):
            self.hold(MIPMAP, a.value)

    def bad_extent(self):
        """Refused, or of no size: they must not count."""
        p, out, big = c_uint64(0xdead), Pitched(), Extent(TOO_MUCH // 16, 16, 1)
        odd = Channels((c_int * 4)(8, 16), 0)
        name, args = self.rng.choice((
            ("hipMalloc", (byref(p), c_size_t(0))),
            ("hipMallocManaged", (byref(p), c_size_t(0), c_uint32(1))),
            ("hipMalloc3D", (byref(out), Extent(16, 0, 3))), ("hipMalloc3D", (byref(out), big)),
            ("hipMalloc3D", (None, Extent(16, 1, 3))),
            ("hipMallocArray", (byref(p), None, c_size_t(4), c_size_t(4), c_uint32(0))),
            ("hipMallocArray", (byref(p), byref(odd), c_size_t(4), c_size_t(4), c_uint32(0))),
            ("hipMalloc3DArray", (byref(p), byref(self.channels()), big, c_uint32(0))),
            ("hipMallocMipmappedArray", (byref(p), byref(self.channels()), big, c_uint32(2),
                                         c_uint32(0)))))
        self.expect((yield self.call(name, *args)), INVALID_VALUE, OUT_OF_MEMORY)

    def address_free(self):
        """What was mapped there and released is no longer held. Refused where something is."""
        at, size = c_uint64(self.range or NEVER), c_size_t(self.SLOTS * self.UNIT)
        allowed = (INVALID_VALUE,) if self.mapped or not self.range else ()
        if self.expect((yield self.call("hipMemAddressFree", at, size)), *allowed):
            self.range = 0

    def free_call(self, h):
        name = self.rng.choice({
            MEMORY: ("hipFree", "hipFree", "hipFreeAsync"), HOST: ("hipFreeHost", "hipHostFree"),
            REGISTERED: ("hipHostUnregister",), ARRAY: ("hipArrayDestroy", "hipFreeArray"),
            MIPMAP: ("hipMipmappedArrayDestroy", "hipFreeMipmappedArray")}[h.what])
        if name == "hipFreeAsync":
            return name, c_uint64(h.number), self.stream()
        return name, c_uint64(h.number)

    def bad_free(self):
        odd = c_uint64(NEVER)
        name, args = self.rng.choice((
            ("hipFree", (odd,)), ("hipFree", (c_uint64(0),)), ("hipFreeAsync", (odd, c_void_p(0))),
            ("hipFreeHost", (odd,)), ("hipHostFree", (odd,)), ("hipHostUnregister", (odd,)),
            ("hipArrayDestroy", (odd,)), ("hipFreeArray", (odd,)),
            ("hipFreeMipmappedArray", (odd,)), ("hipMemRelease", (odd,))))
        self.expect((yield self.call(name, *args)), INVALID_VALUE, INVALID_HANDLE, NOT_REGISTERED)

    def handle(self, device):
        """A context of the device; neither call changes the thread's device."""
        context = c_uint64()
        name, args = self.rng.choice((("hipCtxCreate", (c_uint32(0), c_int(device))),
                                      ("hipDevicePrimaryCtxRetain", (c_int(device),))))
        if self.expect((yield self.call(name, byref(context), *args))):
            self.handles[device] = context.value

    def switch(self):
        """Another device, in one of the possible ways, or a call that fails or changes nothing."""
        way = self.rng.randrange(10)
        device = self.rng.randrange(self.devices)
        if way == 0:
            self.expect((yield self.call("hipSetDevice", c_int(self.devices))), INVALID_DEVICE)
        elif way == 1:
            name = self.rng.choice(("hipCtxSetCurrent", "hipCtxPushCurrent"))
            self.expect((yield self.call(name, c_uint64(0))), INVALID_CONTEXT)
        elif way < 4:
            if device not in self.handles:
                yield from self.handle(device)
            elif self.expect((yield self.call(
                    self.rng.choice(("hipCtxSetCurrent", "hipCtxPushCurrent")),
                    c_uint64(self.handles[device])))):
                self.stack = [device]
        elif self.expect((yield self.call("hipSetDevice", c_int(device)))):
            self.stack = [device]

    def get_device(self):
        d = c_int()
        if self.expect((yield self.call("hipGetDevice", byref(d)))) and d.value != self.stack[-1]:
            self.expect(-1)

    # No context owns memory, so that none ends with one.

    def unwind(self):
        yield from ()

    def teardown(self):
        yield from ()

    def reset_primary(self, device):
        while not self.expect((yield self.call("hipSetDevice", c_int(device)))):
            pass
        self.stack = [device]
        while not self.expect((yield self.call("hipDeviceReset"))):
            pass
        self.p.shared = list(self.forget(self.p.shared, device))


class HipProcess(Process):
    worker = HipWorker

    def prepare(self):
        """The device of a thread that is older than the gadget is not known before, nor how many
        there are."""
        self.pool_device = {}
        while self.lib.hipSetDevice(c_int(0)):
            pass
        while self.lib.hipGetDeviceCount(byref(c_int())):
            pass
