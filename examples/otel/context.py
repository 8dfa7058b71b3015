# SPDX-License-Identifier: Apache-2.0
"""Publishes a thread's span for readers outside of the process, as OpenTelemetry's OTEPs 4947
(thread context) and 4719 (process context) have it. OpenTelemetry's SDK for Python does not do
that yet: call span() where yours starts one.

    from context import Publisher
    publisher = Publisher("build/otel/libpublisher.so", ["http.route"])
    with publisher.span(trace_id, span_id, {"http.route": "/chat"}):
        ...
"""
import contextlib
import ctypes
import mmap
import os
import time

NAMED = b"OTEL_CTX"


class Publisher:
    def __init__(self, library, attributes=()):
        """`attributes`: the names of those that spans may have."""
        self.set = ctypes.CDLL(library).publish
        self.set.argtypes = [ctypes.c_void_p]
        self.keys = list(attributes)
        self.context = publish_process(self.keys)  # as long as the process lives

    @contextlib.contextmanager
    def span(self, trace_id, span_id, attributes=None, outer=None):
        """For the thread, until the block's end; then `outer`, the record of another span()."""
        record = self.record(trace_id, span_id, attributes or {})
        self.set(ctypes.addressof(record))
        try:
            yield record
        finally:
            self.set(ctypes.addressof(outer) if outer else None)

    def record(self, trace_id, span_id, attributes):
        data = b""
        for name, value in attributes.items():
            value = value.encode()[:255]
            data += bytes([self.keys.index(name), len(value)]) + value
        head = bytes.fromhex(trace_id) + bytes.fromhex(span_id) + bytes([1, 1])
        return ctypes.create_string_buffer(head + len(data).to_bytes(2, "little") + data)


def publish_process(keys):
    """Publishes the list of names that records have the numbers of. The mapping must live."""
    names = b"".join(field(1, field(1, name.encode())) for name in keys)  # AnyValues
    payload = attribute("threadlocal.schema_version", field(1, b"tls_v1")) + \
        attribute("threadlocal.attribute_key_map", field(5, names))
    size = 32 + len(payload)
    fd = os.memfd_create("OTEL_CTX", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(fd)
    memory.madvise(mmap.MADV_DONTFORK)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[32:] = payload
    memory[:16] = NAMED + (2).to_bytes(4, "little") + len(payload).to_bytes(4, "little")
    memory[24:32] = (at + 32).to_bytes(8, "little")
    memory[16:24] = time.clock_gettime_ns(time.CLOCK_BOOTTIME).to_bytes(8, "little")  # last: it is valid now
    prctl = ctypes.CDLL(None).prctl  # PR_SET_VMA, PR_SET_VMA_ANON_NAME; not all kernels have it
    prctl(0x53564d41, ctypes.c_ulong(0), ctypes.c_ulong(at), ctypes.c_ulong(size), NAMED)
    return memory


def attribute(key, value):
    """A KeyValue of the message ProcessContext."""
    return field(2, field(1, key.encode()) + field(2, value))


def field(number, content):
    """A field of protobuf with a length."""
    length, n = b"", len(content)
    while n >= 128:
        length += bytes([n & 127 | 128])
        n >>= 7
    return bytes([number << 3 | 2]) + length + bytes([n]) + content
