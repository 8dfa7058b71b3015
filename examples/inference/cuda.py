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
    """The CUDA driver, real or simulated: a path, or what the loader finds.

    device, async_device and pinned are ctypes functions, not methods: like a call
    into PyTorch, they add no Python frame of their own, so that a profile names
    the line that wanted the memory.
    """

    def __init__(self, path=None):
        self.counter = Counter()
        self._cu = ctypes.CDLL(path or "libcuda.so.1")
        self._check(self._cu.cuInit(0), "cuInit", 0)
        self._context = ctypes.c_void_p()
        stream = ctypes.c_void_p()
        self.device = self._allocator(
            "cuMemAlloc_v2", "device", ctypes.c_uint64, [], self._cu.cuMemFree_v2)
        self.async_device = self._allocator(
            "cuMemAllocAsync", "pool", ctypes.c_uint64, [(ctypes.c_void_p, None)],
            lambda pointer: self._cu.cuMemFreeAsync(pointer, stream))
        self.pinned = self._allocator(
            "cuMemHostAlloc", "host", ctypes.c_void_p, [(ctypes.c_uint, 0)],
            self._cu.cuMemFreeHost)

    def _allocator(self, name, kind, pointer_type, more, free):
        """A function of the size in bytes that gives a Buffer. `more` is types and
        values of the arguments behind the size."""
        function = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(pointer_type), ctypes.c_size_t, *(t for t, _ in more)
        )((name, self._cu), ((2,), (1,)) + tuple((1, None, value) for _, value in more))

        def finish(result, function, args):
            pointer, nbytes = args[0], args[1]
            self._check(result, name, nbytes)
            return Buffer(lambda: free(pointer), kind, nbytes, self.counter)

        function.errcheck = finish
        return function

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
