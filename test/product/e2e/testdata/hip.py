# SPDX-License-Identifier: Apache-2.0
"""Calls a libamdhip64, by the lines of its standard input: "alloc BYTES", "array WIDTH" (1,024 high, of
four floats), "device N", "ask" (which device), "free", "release BYTES" (memory that was mapped) and
"forget" its address range, "register" and "launch" a kernel, "copy BYTES", "wait". Answers
"ok RESULT"."""
import ctypes
import sys

hip = ctypes.CDLL(sys.argv[1])
held = []


def allocate(size):
    p = ctypes.c_void_p()
    result = hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(size))
    if not result:
        held.append(p)
    return result


def array(width):
    bits = (ctypes.c_int * 5)(32, 32, 32, 32, 2)
    p = ctypes.c_void_p()
    return hip.hipMallocArray(ctypes.byref(p), bits, ctypes.c_size_t(width), ctypes.c_size_t(1024), 0)


class Place(ctypes.Structure):  # hipMemAllocationProp
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("more", ctypes.c_uint64 * 2)]


at, zero = ctypes.c_uint64(), ctypes.c_uint64(0)
reserved = ctypes.c_size_t(0)


def release(size):
    handle, bytes_ = ctypes.c_uint64(), ctypes.c_size_t(size)
    reserved.value = size
    return (hip.hipMemAddressReserve(ctypes.byref(at), bytes_, zero, zero, zero)
            or hip.hipMemCreate(ctypes.byref(handle), bytes_, ctypes.byref(Place(1, 0, 1, 0)), zero)
            or hip.hipMemMap(at, bytes_, zero, handle, zero)
            or hip.hipMemUnmap(at, bytes_) or hip.hipMemRelease(handle))


class Dim3(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in "xyz"]


name = b"_ZN2at6native10vectorizedEPfi"
handle = ctypes.c_uint64(0x5000)


def register():
    getattr(hip, "__hipRegisterFunction")(None, handle, name, name, 0, None, None, None, None, None)
    return 0


def launch():
    return hip.hipLaunchKernel(handle, Dim3(4, 2, 1), Dim3(64, 1, 1), None, ctypes.c_size_t(0), ctypes.c_uint64(0))


def copy(size):
    return hip.hipMemcpy(ctypes.c_uint64(4096), ctypes.c_uint64(4096), ctypes.c_size_t(size), 1)


print("ready", flush=True)
for line in sys.stdin:
    word, number = (line.split() + ["0"])[:2]
    if word == "alloc":
        answer = allocate(int(number))
    elif word == "array":
        answer = array(int(number))
    elif word == "release":
        answer = release(int(number))
    elif word == "forget":
        answer = hip.hipMemAddressFree(at, reserved)
    elif word == "device":
        answer = hip.hipSetDevice(int(number))
    elif word == "ask":
        answer = hip.hipGetDevice(ctypes.byref(ctypes.c_int()))
    elif word == "free":
        answer = hip.hipFree(held.pop())
    elif word == "register":
        answer = register()
    elif word == "launch":
        answer = launch()
    elif word == "copy":
        answer = copy(int(number))
    elif word == "wait":
        answer = hip.hipDeviceSynchronize()
    print("ok", answer, flush=True)
