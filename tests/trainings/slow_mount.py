"""A file system of one file, `data`, that answers reads late or never: a network file system whose server is slow or gone.

    python slow_mount.py FOLDER SECONDS        # inf: never

It speaks the kernel's FUSE protocol itself (include/uapi/linux/fuse.h), so that no library is needed. It must run as root. Who
reads the file waits in state D. At the end, by SIGTERM, all reads fail.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import threading
import time

HEADER = struct.Struct("<IIQQIIIHH")
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, INTERRUPT, BATCH_FORGET = (
    1,
    2,
    3,
    14,
    15,
    18,
    25,
    26,
    27,
    36,
    42,
)
NO_ANSWER = {FORGET, INTERRUPT, BATCH_FORGET}
ROOT, FILE = 1, 2
SIZE = 1 << 20
ENOSYS, ENOENT = 38, 2
MNT_DETACH = 2
ASYNC_READ = 1
"""The kernel reads ahead, and who reads waits for its page, in state D, and not for the answer, which a signal may interrupt."""


def attributes(node: int) -> bytes:
    mode, size = (0o40755, 0) if node == ROOT else (0o100644, SIZE)
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes) -> bytes | int:
    """Return what an operation gives, or the number of its error."""
    if opcode == INIT:
        _, minor = struct.unpack_from("<II", body)
        return struct.pack("<IIIIHHIIHHI7I", 7, min(minor, 31), 1 << 17, ASYNC_READ, 12, 9, 4096, 1, 1, 0, 0, *[0] * 7)
    if opcode == LOOKUP:
        return struct.pack("<QQQQII", FILE, 0, 60, 60, 0, 0) + attributes(FILE) if body.rstrip(b"\0") == b"data" else ENOENT
    if opcode == GETATTR:
        return struct.pack("<QII", 60, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<QII", 1, 0, 0)
    return b"" if opcode in (RELEASE, FLUSH) else ENOSYS


def serve(device: int, seconds: float) -> None:
    def say(unique: int, told: bytes | int) -> None:
        error, data = (-told, b"") if isinstance(told, int) else (0, told)
        os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)

    while True:
        try:
            request = os.read(device, 1 << 18)
        except OSError:  # unmounted
            return
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        body = request[HEADER.size :]
        if opcode == READ:
            size = struct.unpack_from("<QQI", body)[2]
            if seconds != float("inf"):
                threading.Timer(seconds, say, (unique, bytes(size))).start()
        elif opcode not in NO_ANSWER:
            say(unique, answer(opcode, node, body))


def main() -> None:
    folder, seconds = sys.argv[1], float(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"slow", folder.encode(), b"fuse.slow", 0, options):
        sys.exit(f"could not mount: {os.strerror(ctypes.get_errno())}")
    signal.signal(signal.SIGTERM, lambda *_: (libc.umount2(folder.encode(), MNT_DETACH), os._exit(0)))
    threading.Thread(target=serve, args=(device, seconds), daemon=True).start()
    print("mounted", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
