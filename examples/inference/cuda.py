# SPDX-License-Identifier: Apache-2.0
"""GPU memory for inference.py: by the CUDA driver (ctypes), or by PyTorch.

Both give the same few methods: device(nbytes), async_device(nbytes) and
pinned(nbytes) return a Buffer, which is freed by free() or with its last reference;
compute(to) is an operator that writes a buffer, matmul(to) one by cuBLAS, copy(to, from)
and zero(to) what they say.
"""
import collections
import ctypes
import threading

OUT_OF_MEMORY = 2


# The smallest kernel that a real driver loads.
PROGRAM = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry decode() { ret; }
"""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig: grid, block, shared memory, stream, attributes."""

    _fields_ = [(name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")] + [
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]


class OutOfMemoryError(RuntimeError):
    pass


class Counter:
    """Memory that this process holds: the truth to compare a profile with."""

    def __init__(self):
        self.in_use = collections.Counter()  # by kind
        self.lock = threading.Lock()

    def add(self, kind, nbytes):
        with self.lock:
            self.in_use[kind] += nbytes


class Buffer:
    def __init__(self, release, kind, nbytes, counter, data):
        self._release, self.kind, self.nbytes, self._counter = release, kind, nbytes, counter
        self.data = data  # its address, or the tensor
        counter.add(kind, nbytes)

    def free(self):
        release, self._release = self._release, None
        if release:
            release()
            self._counter.add(self.kind, -self.nbytes)

    __del__ = free


class Driver:
    """The CUDA driver, real or simulated: at a path, or as found by the loader.

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
        values of the arguments after the size."""
        function = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(pointer_type), ctypes.c_size_t, *(t for t, _ in more)
        )((name, self._cu), ((2,), (1,)) + tuple((1, None, value) for _, value in more))

        def finish(result, function, args):
            pointer, nbytes = args[0], args[1]
            self._check(result, name, nbytes)
            return Buffer(lambda: free(pointer), kind, nbytes, self.counter, pointer)

        function.errcheck = finish
        return function

    def retain_only(self, device):
        """Creates a context that nobody uses."""
        self._check(self._cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), device),
                    "cuDevicePrimaryCtxRetain", 0)

    def use(self, device):
        """Makes a device current in the calling thread."""
        self._check(self._cu.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device),
                    "cuDevicePrimaryCtxRetain", 0)
        self.use_in_thread()
        module, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._cu.cuModuleLoadData(ctypes.byref(module), PROGRAM), "cuModuleLoadData", 0)
        self._check(self._cu.cuModuleGetFunction(ctypes.byref(self._kernel), module, b"decode"),
                    "cuModuleGetFunction", 0)

    def use_in_thread(self):
        self._check(self._cu.cuCtxSetCurrent(self._context), "cuCtxSetCurrent", 0)

    def _prepare(self):
        """The CUDA runtime's queries before a launch: it reads the device a dozen times."""
        value = ctypes.c_int()
        for _ in range(12):
            self._cu.cuCtxGetDevice(ctypes.byref(value))

    def compute(self, to):
        self._prepare()
        self._check(self._cu.cuLaunchKernel(self._kernel, 32, 1, 1, 128, 1, 1, 0, None, None, None),
                    "cuLaunchKernel", 0)

    def matmul(self, to):
        self._prepare()
        self._check(self._cu.cuLaunchKernelEx(ctypes.byref(LaunchConfig(8, 8, 1, 128, 1, 1)), self._kernel, None, None),
                    "cuLaunchKernelEx", 0)

    def copy(self, to, source):
        nbytes = min(to.nbytes, source.nbytes)
        self._check(self._cu.cuMemcpyDtoDAsync_v2(to.data, source.data, ctypes.c_size_t(nbytes), None),
                    "cuMemcpyDtoDAsync", 0)

    def zero(self, to):
        self._check(self._cu.cuMemsetD8Async(to.data, 0, ctypes.c_size_t(to.nbytes), None), "cuMemsetD8Async", 0)

    def _check(self, result, what, nbytes):
        if result == OUT_OF_MEMORY:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate %.2f MiB."
                                   % (nbytes / (1 << 20)))
        if result:
            raise RuntimeError("%s failed with CUDA error %d" % (what, result))


class Torch:
    """Real tensors. PyTorch's caching allocator is in between: the driver sees
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
        return Buffer(held.clear, kind, nbytes, self.counter, held)

    def device(self, nbytes):
        return self._buffer("device", nbytes, device="cuda")

    def async_device(self, nbytes):
        return self._buffer("pool", nbytes, device="cuda")

    def pinned(self, nbytes):
        return self._buffer("host", nbytes, pin_memory=True)

    def compute(self, to):
        to.data[0].add_(1)

    matmul = compute

    def copy(self, to, source):
        n = min(to.nbytes, source.nbytes)
        to.data[0][:n].copy_(source.data[0][:n])

    def zero(self, to):
        to.data[0].zero_()
