# SPDX-License-Identifier: Apache-2.0
"""Structures and results of the CUDA Driver API (reference 12.4), as ctypes has them."""
import ctypes
from ctypes import c_int, c_size_t, c_uint32, c_uint64, c_void_p

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE = 0, 1, 2, 201, 400
DESTROYED, NOT_REGISTERED, INJECTED = 709, 713, 999
MIB = 1 << 20
TOO_MUCH = 1 << 44  # bytes: more than any device here has
NEVER = 0x7000000000000001  # an odd number that is neither pointer nor handle

# The properties that a free needs. "low" pointers fit the first ABI's 32 bits.
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


class Channels(ctypes.Structure):
    """hipChannelFormatDesc: bits of x, y, z and w; the last is the kind."""
    _fields_ = [("bits", c_int * 4), ("kind", c_int)]


class Extent(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]


class Pitched(ctypes.Structure):
    """hipPitchedPtr"""
    _fields_ = [("ptr", c_uint64), ("pitch", c_size_t), ("width", c_size_t), ("height", c_size_t)]


class Held:
    """Something to free: its kind, its number, and the context that owns it."""
    __slots__ = ("what", "number", "owner")

    def __init__(self, what, number, owner):
        self.what, self.number, self.owner = what, number, owner


class Physical:
    """A handle of cuMemCreate, as far as this program counts its references."""
    __slots__ = ("handle", "slots", "references", "mappings")

    def __init__(self, handle, slots):
        self.handle, self.slots, self.references, self.mappings = handle, slots, 1, 0
