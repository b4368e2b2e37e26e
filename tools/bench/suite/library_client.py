"""How fast the wheel of the library moves one file; what fpfs-bench-aio is for C++.

    library_client.py SITE read|write FILE BYTES BLOCK DEPTH THREADS

SITE: a directory that has the wheel. Prints bytes per second of one request over the whole file, from or to pinned
memory; a write ends when it is durable.
"""
import ctypes
import sys
import time


def main(site, kind, file, size, block, depth, threads):
    sys.path.insert(0, site)
    from fastpersist import PinnedBuffer, aio_handle
    handle = aio_handle(int(block), int(depth), False, True, int(threads), durable=True)
    memory = PinnedBuffer(int(size))
    ctypes.memset(memory.address, 0x5A, len(memory))
    call = {"read": handle.sync_pread, "write": handle.sync_write_file}[kind]
    started = time.monotonic()
    call(memory, file)
    print(f"{int(size) / (time.monotonic() - started):.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
