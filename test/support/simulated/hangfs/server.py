# SPDX-License-Identifier: Apache-2.0
"""Mounts and serves a file system whose files can be opened and mapped, and whose content never comes.

server.py DIRECTORY SECONDS [open|read|stat|list]: prints "mounted", or why it cannot be. It ends with its input, and after
so long in any case. That operation is answered each time with that it was interrupted (EINTR).

server.py DIRECTORY SECONDS part FILE FROM TO: each name is a file with the content of FILE, of which the bytes FROM up to TO
come with a line of input only.
"""

import ctypes
import errno
import os
import select
import stat
import struct
import sys
import time

# Operations of linux/fuse.h.
LOOKUP, GETATTR, OPEN, INIT, READDIR = 1, 3, 14, 26, 28
FORGET, READ, FLUSH, INTERRUPT, POLL, BATCH_FORGET = 2, 15, 25, 36, 40, 42
# Those that have no answer, and those that never have one here.
UNANSWERED = {READ, FLUSH, FORGET, INTERRUPT, POLL, BATCH_FORGET}
ROOT, FILE = 1, 2  # nodes
INTERRUPTED = {"open": OPEN, "read": READ, "stat": GETATTR, "list": READDIR}.get(sys.argv[3] if len(sys.argv) > 3 else "")
CONTENT, MISSING = bytes(4096), range(4096)
if sys.argv[3:4] == ["part"]:
    with open(sys.argv[4], "rb") as file:
        CONTENT = file.read()
    MISSING = range(int(sys.argv[5]), int(sys.argv[6]))


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
    return struct.pack("=QQ44xII20x", node, len(CONTENT), mode, 1)


def answer(operation, node):
    """Returns what follows the header of an answer, or an error."""
    if operation == INTERRUPTED:
        return errno.EINTR, b""
    if operation == INIT:
        return 0, struct.pack("=II56x", 7, 31)
    if operation == GETATTR:
        return 0, bytes(16) + attributes(node)
    if operation == LOOKUP:
        return 0, struct.pack("=Q32x", FILE) + attributes(FILE)
    if operation == OPEN:
        return 0, bytes(16)
    return errno.ENOSYS, b""


def reply(device, unique, failed, body):
    try:
        os.write(device, struct.pack("=IiQ", 16 + len(body), -failed, unique) + body)
    except OSError:
        pass  # the request may have been interrupted


def content(request):
    """Returns what is to be read; None: it does not come."""
    at, size = struct.unpack_from("=QI", request, 48)
    end = min(at + size, len(CONTENT))
    return None if at < MISSING.stop and end > MISSING.start else CONTENT[at:end]


def serve(device):
    global MISSING
    waiting = []
    end = time.monotonic() + float(sys.argv[2])
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select([device, sys.stdin], [], [], left)
        if not ready or sys.stdin in ready and not sys.stdin.readline():
            return
        if sys.stdin in ready:
            MISSING = range(0)
            for unique, request in waiting:
                reply(device, unique, 0, content(request))
        if device not in ready:
            continue
        try:
            request = os.read(device, 1 << 17)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                continue  # the request was interrupted
            return
        _, operation, unique, node = struct.unpack_from("=IIQQ", request)
        if operation == READ != INTERRUPTED and (found := content(request)) is not None:
            reply(device, unique, 0, found)
            continue
        if operation in UNANSWERED - {INTERRUPTED}:
            if operation == READ:
                waiting.append((unique, request))
            continue
        failed, body = answer(operation, node)
        reply(device, unique, failed, body)


directory = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
try:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"hangfs", directory.encode(), b"fuse", ctypes.c_ulong(0), options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
except OSError as error:
    print(error, flush=True)
    sys.exit()
print("mounted", flush=True)
serve(device)
