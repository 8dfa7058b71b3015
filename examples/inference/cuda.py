# SPDX-License-Identifier: Apache-2.0
"""GPU memory for inference.py: by the CUDA driver (ctypes), or by PyTorch.

Both give the same few methods: device(nbytes), async_device(nbytes) and
pinned(nbytes) return a Buffer, which is freed by free() or with its last reference.
"""
import collections
import ctypes
import threading

OUT_OF_MEMORY = 2


class OutOfMemoryError(RuntimeError):
    pass


class Counter:
    """What this process holds: the truth to compare a profile with."""

    def __init__(self):
        self.in_use = collections.Counter()  # by kind
        self.lock = threading.Lock()

    def add(self, kind, nbytes):
        with self.lock:
            self.in_use[kind] += nbytes


class Buffer:
    def __init__(self, release, kind, nbytes, counter):
        self._release, self.kind, self.nbytes, self._counter = release, kind, nbytes, counter
        counter.add(kind, nbytes)

    def free(self):
        release, self._release = self._release, None
        if release:
            release()
            self._counter.add(self.kind, -self.nbytes)

    __del__ = free


class Driver:
    """The CUDA driver, real or simulated: a path, or what the loader finds."""

    def __init__(self, path=None):
        self.counter = Counter()
        self._cu = ctypes.CDLL(path or "libcuda.so.1")
        self._check(self._cu.cuInit(0), "cuInit", 0)
        self._context = ctypes.c_void_p()

    def use(self, device):
        """Makes a device current in the calling thread."""
        self._check(self._cu.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device),
                    "cuDevicePrimaryCtxRetain", 0)
        self.use_in_thread()

    def use_in_thread(self):
        self._check(self._cu.cuCtxSetCurrent(self._context), "cuCtxSetCurrent", 0)

    def _check(self, result, what, nbytes):
        if result == OUT_OF_MEMORY:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate %.2f MiB."
                                   % (nbytes / (1 << 20)))
        if result:
            raise RuntimeError("%s failed with CUDA error %d" % (what, result))

    def device(self, nbytes):
        p = ctypes.c_uint64()
        result = self._cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(nbytes))
        self._check(result, "cuMemAlloc", nbytes)
        return Buffer(lambda: self._cu.cuMemFree_v2(p), "device", nbytes, self.counter)

    def async_device(self, nbytes):
        p, stream = ctypes.c_uint64(), ctypes.c_void_p()
        result = self._cu.cuMemAllocAsync(ctypes.byref(p), ctypes.c_size_t(nbytes), stream)
        self._check(result, "cuMemAllocAsync", nbytes)
        return Buffer(lambda: self._cu.cuMemFreeAsync(p, stream), "pool", nbytes, self.counter)

    def pinned(self, nbytes):
        p = ctypes.c_void_p()
        result = self._cu.cuMemHostAlloc(ctypes.byref(p), ctypes.c_size_t(nbytes), 0)
        self._check(result, "cuMemHostAlloc", nbytes)
        return Buffer(lambda: self._cu.cuMemFreeHost(p), "host", nbytes, self.counter)


class Torch:
    """Real tensors. PyTorch's caching allocator stands between: the driver sees
    its segments, which are larger and live longer than the tensors."""

    def __init__(self):
        import torch
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no CUDA device")
        self._torch = torch
        self.counter = Counter()

    def use(self, device):
        self._device = device
        self.use_in_thread()

    def use_in_thread(self):
        self._torch.cuda.set_device(self._device)

    def _buffer(self, kind, nbytes, **where):
        try:
            held = [self._torch.empty(nbytes, dtype=self._torch.uint8, **where)]
        except self._torch.cuda.OutOfMemoryError as e:
            raise OutOfMemoryError(str(e)) from None
        return Buffer(held.clear, kind, nbytes, self.counter)

    def device(self, nbytes):
        return self._buffer("device", nbytes, device="cuda")

    def async_device(self, nbytes):
        return self._buffer("pool", nbytes, device="cuda")

    def pinned(self, nbytes):
        return self._buffer("host", nbytes, pin_memory=True)
