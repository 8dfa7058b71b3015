# SPDX-License-Identifier: Apache-2.0
"""The same workload on HIP: threads with a device instead of contexts, HIP's functions."""
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from driver_types import (
    ARRAY, Array, Array3D, HOST, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, MEMORY, MIB,
    MIPMAP, NEVER, NOT_REGISTERED, REGISTERED)
from worker import Process, Worker

INVALID_DEVICE = 101

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

    def __init__(self, process, index, rng):
        super().__init__(process, index, rng)
        self.lib = Library(process.lib)
        self.stack = [0]
        self.handles = {}  # device → context
        ops = (
            (self.alloc, 340), (self.free, 330), (self.bad_alloc, 25), (self.bad_free, 25),
            (self.switch, 90), (self.get_device, 10), (self.pool, 6), (self.vmm_create, 30),
            (self.vmm_map, 50), (self.vmm_unmap, 30), (self.vmm_retain, 20),
            (self.vmm_release, 40), (self.vmm_bad, 8))
        self.ops = [op for op, _ in ops]
        self.weights = [weight for _, weight in ops]

    def alloc_low(self, size):
        p = c_uint64()
        if self.expect((yield self.call("hipExtMallocWithFlags", byref(p), c_size_t(size),
                                        c_uint32(0)))):
            self.hold(MEMORY, p.value)

    def alloc_pitch_low(self, size):
        p, pitch = c_uint64(), c_size_t()
        height = self.rng.randint(1, 64)
        if self.expect((yield self.call("hipMallocPitch", byref(p), byref(pitch),
                                        c_size_t(size // height + 1), c_size_t(height)))):
            self.hold(MEMORY, p.value)

    def alloc_host(self, size):
        p = c_void_p()
        name = self.rng.choice(("hipMallocHost", "hipMemAllocHost", "hipHostMalloc", "hipHostAlloc"))
        flags = () if name in ("hipMallocHost", "hipMemAllocHost") else (c_uint32(0),)
        if self.expect((yield self.call(name, byref(p), c_size_t(min(size, MIB)), *flags))):
            self.hold(HOST, p.value)

    def alloc_array(self, _):
        a = c_uint64()
        d = Array(*self.extents(2), *self.texel())
        if self.expect((yield self.call("hipArrayCreate", byref(a), byref(d)))):
            self.hold(ARRAY, a.value)

    def alloc_array_3d(self, _):
        a = c_uint64()
        d = Array3D(*self.extents(3), *self.texel(), self.rng.choice((0, 0, 1)))
        if self.expect((yield self.call("hipArray3DCreate", byref(a), byref(d)))):
            self.hold(ARRAY, a.value)

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

    def reset_primary(self, _):
        yield from ()


class HipProcess(Process):
    worker = HipWorker

    def prepare(self):
        pass
