# SPDX-License-Identifier: Apache-2.0
"""NCCL and as much of the CUDA driver as it needs, by ctypes: real ones, or simulated."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

FLOAT32, FLOAT16, INT64, SUM = 7, 6, 4, 0
NOCOLOR = -1


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]

    def to_bytes(self):
        return ctypes.string_at(byref(self), 128)


class Config(ctypes.Structure):
    """ncclConfig_t as of 2.27, the first with a name."""

    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint),
                ("blocking", c_int), ("cga_cluster_size", c_int), ("min_ctas", c_int), ("max_ctas", c_int),
                ("net_name", c_char_p), ("split_share", c_int), ("traffic_class", c_int), ("comm_name", c_char_p)]
    UNDEFINED = -(1 << 31)

    def __init__(self, name):
        u = self.UNDEFINED
        super().__init__(ctypes.sizeof(Config), 0xcafebeef, 22700, u, u, u, u, None, u, u, name.encode())


class SimInfo(ctypes.Structure):
    """ncclSimInfo_t as of 2.22, the first that has it."""

    _fields_ = [("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("estimated_time", c_float)]

    def __init__(self):
        super().__init__(ctypes.sizeof(SimInfo), 0x74685283, 22200, -1.0)


class CUDA:
    """A context on one device."""

    def __init__(self, path="libcuda.so.1", device=0):
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self("cuInit", c_uint(0))
        context = c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(context), c_int(device))
        self("cuCtxSetCurrent", context)
        self.context = context

    def __call__(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result not in (0, 600):  # 600: not ready
            raise RuntimeError("%s: %d" % (name, result))
        return result

    def stream(self):
        s = c_void_p()
        self("cuStreamCreate", byref(s), c_uint(1))
        return s

    def event(self):
        e = c_void_p()
        self("cuEventCreate", byref(e), c_uint(2))
        return e

    def record(self, event, stream):
        self("cuEventRecord", event, stream)

    def wait_event(self, stream, event):
        self("cuStreamWaitEvent", stream, event, c_uint(0))

    def event_done(self, event):
        return self("cuEventQuery", event) == 0

    def synchronize(self, stream):
        self("cuStreamSynchronize", stream)

    def event_synchronize(self, event):
        self("cuEventSynchronize", event)

    def device_synchronize(self):
        self("cuCtxSynchronize")

    def alloc(self, nbytes):
        p = c_uint64()
        self("cuMemAlloc_v2", byref(p), c_size_t(nbytes))
        return c_void_p(p.value)


class NCCL:
    """prefix: `pnccl` calls the other names of the same functions."""

    def __init__(self, path="libnccl.so.2", prefix="nccl"):
        self.lib, self.prefix = ctypes.CDLL(path), prefix
        self.lib.ncclCommInitRank.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int]
        self.lib.ncclCommInitRankConfig.argtypes = [POINTER(c_void_p), c_int, UniqueId, c_int, c_void_p]

    def __call__(self, name, *args, allow=(0,)):
        function = getattr(self.lib, (self.prefix if "InitRank" not in name else "nccl") + name)
        result = function(*args)
        if result not in allow:
            raise RuntimeError("nccl%s: %d" % (name, result))
        return result

    def unique_id(self):
        uid = UniqueId()
        self("GetUniqueId", byref(uid))
        return uid.to_bytes()

    def init(self, size, uid, rank, name=None):
        comm, id_ = c_void_p(), UniqueId.from_buffer_copy(uid)
        if name is None:
            self("CommInitRank", byref(comm), c_int(size), id_, c_int(rank))
        else:
            config = Config(name)
            self("CommInitRankConfig", byref(comm), c_int(size), id_, c_int(rank), byref(config))
        return comm

    def split(self, comm, color, key):
        child = c_void_p()
        self("CommSplit", comm, c_int(color), c_int(key), byref(child), None)
        return child

    def shrink(self, comm, excluded):
        child, ranks = c_void_p(), (c_int * len(excluded))(*excluded)
        self("CommShrink", comm, ranks, c_int(len(excluded)), byref(child), None, c_int(0))
        return child

    def init_all(self, devices):
        comms = (c_void_p * len(devices))()
        self("CommInitAll", comms, c_int(len(devices)), (c_int * len(devices))(*devices))
        return [c_void_p(c) for c in comms]

    def destroy(self, comm):
        self("CommDestroy", comm)

    def group_start(self):
        self("GroupStart")

    def group_end(self):
        self("GroupEnd")

    def group_simulate_end(self):
        """The time that the group would take; it is not issued."""
        info = SimInfo()
        self("GroupSimulateEnd", byref(info))
        return info.estimated_time

    def all_reduce(self, send, recv, count, comm, stream, dtype=FLOAT32, op=SUM):
        self("AllReduce", send, recv, c_size_t(count), c_int(dtype), c_int(op), comm, stream)

    def broadcast(self, send, recv, count, root, comm, stream, dtype=FLOAT32):
        self("Broadcast", send, recv, c_size_t(count), c_int(dtype), c_int(root), comm, stream)

    def bcast(self, buff, count, root, comm, stream, dtype=FLOAT32):
        self("Bcast", buff, c_size_t(count), c_int(dtype), c_int(root), comm, stream)

    def reduce(self, send, recv, count, root, comm, stream, dtype=FLOAT32, op=SUM):
        self("Reduce", send, recv, c_size_t(count), c_int(dtype), c_int(op), c_int(root), comm, stream)

    def all_gather(self, send, recv, count, comm, stream, dtype=FLOAT32):
        self("AllGather", send, recv, c_size_t(count), c_int(dtype), comm, stream)

    def reduce_scatter(self, send, recv, count, comm, stream, dtype=FLOAT32, op=SUM):
        self("ReduceScatter", send, recv, c_size_t(count), c_int(dtype), c_int(op), comm, stream)

    def all_to_all(self, send, recv, count, comm, stream, dtype=FLOAT32):
        self("AlltoAll", send, recv, c_size_t(count), c_int(dtype), comm, stream)

    def gather(self, send, recv, count, root, comm, stream, dtype=FLOAT32):
        self("Gather", send, recv, c_size_t(count), c_int(dtype), c_int(root), comm, stream)

    def scatter(self, send, recv, count, root, comm, stream, dtype=FLOAT32):
        self("Scatter", send, recv, c_size_t(count), c_int(dtype), c_int(root), comm, stream)

    def send(self, buff, count, peer, comm, stream, dtype=FLOAT32):
        self("Send", buff, c_size_t(count), c_int(dtype), c_int(peer), comm, stream)

    def recv(self, buff, count, peer, comm, stream, dtype=FLOAT32):
        self("Recv", buff, c_size_t(count), c_int(dtype), c_int(peer), comm, stream)
