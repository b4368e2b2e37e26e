"""Memory to files and back by asynchronous O_DIRECT I/O, many blocks in flight: DeepNVMe's aio_handle, for any machine.

    aio = fastpersist.aio_handle(queue_depth=32, intra_op_parallelism=2)
    aio.async_pwrite(tensor, "/nvme/layer0", 0)      # returns at once
    aio.wait()                                       # all of them have ended; raises what went wrong

Code for DeepNVMe has to change its import only: `from fastpersist import AsyncIOBuilder`.

Memory. A torch tensor in the memory of the CPU, contiguous, of any dtype; or anything with the buffer protocol (bytes,
bytearray, numpy arrays, mmap, memoryview). It is used where it lies. It is kept alive until the request has ended; do
not change it (for a read: do not use it) before. Nor may a process fork while it reads into memory that the child
uses, too.

Errors. A request that did not move every byte raises OSError with errno and filename: a synchronous one itself, an
asynchronous one in wait(). A read that meets the end of the file is one of them (ENODATA). The bytes in question are
unspecified then. ValueError and TypeError: arguments, before anything is done. What nobody has waited for is waited for
when the handle goes away, or the program ends; errors can only be printed then.

Threads. Every function may be called from any thread; others run while it waits. A handle belongs to its process: the
child of a fork makes its own.

Durability. A write that succeeded can be read by everyone. It is on the drive only with `durable=True`.
"""
import importlib.metadata

from ._aio import PinnedBuffer
from .aio import AsyncIOBuilder, aio_handle, aio_read, aio_write

__all__ = ["AsyncIOBuilder", "PinnedBuffer", "aio_handle", "aio_read", "aio_write"]
__version__ = importlib.metadata.version("fastpersist")
