"""DeepNVMe's aio_handle over fastpersist-aio. torch is never imported here but for new_cpu_locked_tensor()."""
import atexit
import ctypes
import errno
import os
import sys
import weakref

from . import _aio

_COMPARED_AT_ONCE = 1 << 20  # bytes
_handles = weakref.WeakSet()
_pinned = weakref.WeakValueDictionary()  # address: PinnedBuffer, of the tensors of new_cpu_locked_tensor()


class aio_handle:
    """Threads and queues that read and write.

    block_size            bytes of one transfer, up to 1 GiB; transferred are whole blocks of 4096
    queue_depth           transfers in flight for each thread: 1 to 4096
    single_submit         each transfer is given to the kernel by a call of its own
    overlap_events        a transfer that has ended makes room for the next one at once: faster
    intra_op_parallelism  threads, which share each request: 1 to 64
    direct                False: through the page cache, for filesystems without O_DIRECT
    durable               a write ends when a power cut does not undo it any more (fdatasync, fsync of the directory)

    Raises ValueError for what is out of range, OSError (EAGAIN) when the kernel has no more room for asynchronous I/O
    (sysctl fs.aio-max-nr). A `with` block waits at its end.
    """
    _aio = None

    def __init__(self, block_size=1 << 20, queue_depth=128, single_submit=False, overlap_events=False,
                 intra_op_parallelism=1, *, direct=True, durable=False):
        for name, value in (("block_size", block_size), ("queue_depth", queue_depth),
                            ("intra_op_parallelism", intra_op_parallelism)):
            if not 0 < value < 1 << 31:
                raise ValueError(f"{name} is {value}; it must be above 0")
        self._settings = (block_size, queue_depth, bool(single_submit), bool(overlap_events), intra_op_parallelism)
        self._durable = bool(durable)
        self._to_compare = {}  # request: (memory, filename, offset)
        transferred = (block_size + _aio.ALIGNMENT - 1) // _aio.ALIGNMENT * _aio.ALIGNMENT
        self._aio = _aio.Handle(transferred, *self._settings[1:], bool(direct))
        self._process = os.getpid()
        _handles.add(self)

    def get_block_size(self):
        return self._settings[0]

    def get_queue_depth(self):
        return self._settings[1]

    def get_single_submit(self):
        return self._settings[2]

    def get_overlap_events(self):
        return self._settings[3]

    def get_intra_op_parallelism(self):
        return self._settings[4]

    def get_alignment(self):
        """Bytes. Requests of multiples of it, at such offsets, never go through the page cache; others may."""
        return _aio.ALIGNMENT

    # --- requests ----------------------------------------------------------------------------------------------------

    def pread(self, buffer, filename, validate, async_op, file_offset=0):
        """Fills `buffer` with the bytes of the file from `file_offset` on. Returns 1; 0 when wait() will count it.

        validate: the bytes are read once more, by an ordinary read, and compared (EIO).
        """
        path, memory, offset = _path_of(filename), _memory_of(buffer), _offset_of(file_offset)
        if async_op:
            return self._begun(self._aio.begin_read(path, memory, offset), validate, buffer, filename, offset)
        self._raise(self._aio.read(path, memory, offset), filename)
        return self._ended(validate, buffer, filename, offset)

    def pwrite(self, buffer, filename, validate, async_op, file_offset=None):
        """Writes `buffer` to a part of the file, which is made when there is none. Returns 1; 0 when wait() will
        count it.

        Without `file_offset` `buffer` is all of the file. A longer one is not written over (FileExistsError): what
        DeepNVMe leaves then is a file with an old end. sync_write_file() replaces it, file_offset=0 writes a part.

        validate: what was written is read, by an ordinary read, and compared (EIO).
        """
        path, memory, offset = _path_of(filename), _memory_of(buffer), _offset_of(file_offset or 0)
        if file_offset is None:
            _refuse_longer(filename, _size_of(buffer))
        if async_op:
            return self._begun(self._aio.begin_write(path, memory, offset, self._durable), validate, buffer, filename,
                               offset)
        self._raise(self._aio.write(path, memory, offset, self._durable), filename)
        return self._ended(validate, buffer, filename, offset)

    def sync_pread(self, buffer, filename, file_offset=0):
        """Returns 1 when `buffer` is full."""
        return self.pread(buffer, filename, False, False, file_offset)

    def sync_pwrite(self, buffer, filename, file_offset=None):
        """Returns 1 when all is written."""
        return self.pwrite(buffer, filename, False, False, file_offset)

    def async_pread(self, buffer, filename, file_offset=0):
        """Returns 0; wait() waits for it."""
        return self.pread(buffer, filename, False, True, file_offset)

    def async_pwrite(self, buffer, filename=None, file_offset=None, *, fd=None):
        """Returns 0; wait() waits for it. The file may be given as a descriptor, which the caller closes after that."""
        file = filename if fd is None else fd
        if not isinstance(file, int):
            return self.pwrite(buffer, file, False, True, file_offset)
        self._aio.begin_write_to(file, _memory_of(buffer), _offset_of(file_offset or 0), self._durable)
        return 0

    def sync_write_file(self, buffer, filename):
        """Makes the file, or writes over it, so that it is `buffer` and nothing else. Returns 1."""
        self._raise(self._aio.write_file(_path_of(filename), _memory_of(buffer), self._durable), filename)
        return 1

    def async_write_file(self, buffer, filename):
        """The same. Returns 0; wait() waits for it."""
        self._aio.begin_write_file(_path_of(filename), _memory_of(buffer), self._durable)
        return 0

    def read(self, buffer, filename, validate, file_offset=0):
        """sync_pread() that returns 0."""
        return self.pread(buffer, filename, validate, False, file_offset) - 1

    def write(self, buffer, filename, validate, file_offset=None):
        """sync_pwrite() that returns 0."""
        return self.pwrite(buffer, filename, validate, False, file_offset) - 1

    def wait(self):
        """Waits for the asynchronous requests made before, and returns how many have ended since the last wait().

        When some failed it raises the OSError of the first one; its `failures` are all of them, its `completed` the
        number that have ended, the failed ones included.
        """
        to_compare = list(self._to_compare)  # of requests that have begun: they have ended afterwards
        completed, failed = self._aio.wait()
        failures = [OSError(number, message, path) for _, number, message, path in failed]
        broken = {request for request, *_ in failed}
        for request in to_compare:
            compared = self._to_compare.pop(request, None)
            if compared and request not in broken:
                try:
                    _compare(*compared)
                except OSError as error:
                    failures.append(error)
        if failures:
            failures[0].failures, failures[0].completed = failures, completed
            raise failures[0]
        return completed

    def _begun(self, request, validate, buffer, filename, offset):
        if validate:
            self._to_compare[request] = (buffer, filename, offset)
        return 0

    @staticmethod
    def _ended(validate, buffer, filename, offset):
        if validate:
            _compare(buffer, filename, offset)
        return 1

    @staticmethod
    def _raise(error, filename):
        if error is not None:
            raise OSError(*error, os.fsdecode(filename))

    # --- pinned memory -----------------------------------------------------------------------------------------------

    def new_cpu_locked_tensor(self, num_elem, example_tensor):
        """A tensor of `num_elem` zeros of the dtype of `example_tensor`, in a PinnedBuffer.

        Its memory goes when nothing uses it any more, with free_cpu_locked_tensor() or without.
        """
        import torch
        if num_elem == 0:
            return torch.empty(0, dtype=example_tensor.dtype)
        memory = _aio.PinnedBuffer(num_elem * example_tensor.element_size())
        _pinned[memory.address] = memory
        return torch.frombuffer(memory, dtype=example_tensor.dtype, count=num_elem)

    def free_cpu_locked_tensor(self, tensor):
        """Makes the tensor empty, which gives back its memory unless something else uses it.

        False: it is no such tensor.
        """
        import torch
        if _pinned.pop(tensor.data_ptr(), None) is None:
            return False
        with torch.no_grad():
            tensor.set_()
        return True

    def is_pinned(self, buffer):
        """Whether it lies in memory that torch or new_cpu_locked_tensor() has pinned."""
        if buffer.is_pinned():
            return True
        first = buffer.data_ptr()
        return any(memory.address <= first and first + buffer.nbytes <= memory.address + len(memory)
                   for memory in list(_pinned.values()))

    # --- the end -----------------------------------------------------------------------------------------------------

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.wait()
        else:
            self._aio.wait()  # the memory may be used again; the error in hand is told

    def __del__(self):
        if self._aio is not None and self._process == os.getpid():
            self.wait()


@atexit.register
def _wait_for_all():
    for handle in list(_handles):
        if handle._process == os.getpid():
            try:
                handle.wait()
            except OSError:
                sys.excepthook(*sys.exc_info())


def aio_read(buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate):
    """One read by a handle of its own. Returns 0."""
    return aio_handle(block_size, queue_depth, single_submit, overlap_events).read(buffer, filename, validate)


def aio_write(buffer, filename, block_size, queue_depth, single_submit, overlap_events, validate):
    """One write by a handle of its own. Returns 0."""
    return aio_handle(block_size, queue_depth, single_submit, overlap_events).write(buffer, filename, validate)


class AsyncIOBuilder:
    """In place of deepspeed.ops.op_builder.AsyncIOBuilder; there is nothing to build."""
    NAME = "async_io"

    def load(self, verbose=True):
        return sys.modules[__package__]

    def is_compatible(self, verbose=False):
        return True


# --- arguments -------------------------------------------------------------------------------------------------------

def _path_of(filename):
    path = os.fsencode(filename)
    if b"\0" in path:
        raise ValueError("a filename with a null byte")
    return path


def _offset_of(file_offset):
    if not 0 <= file_offset < 1 << 63:
        raise ValueError(f"file_offset is {file_offset}; it must be 0 to 2^63 - 1")
    return file_offset


def _is_tensor(buffer):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(buffer, torch.Tensor)


def _memory_of(buffer):
    """What the extension takes: (address, bytes, owner) of a tensor, or what has the buffer protocol."""
    if not _is_tensor(buffer):
        return buffer
    if buffer.device.type != "cpu":
        raise TypeError(f"a tensor on {buffer.device}; only the memory of the CPU is read and written: tensor.cpu()")
    if buffer.layout != sys.modules["torch"].strided:
        raise TypeError(f"a tensor of layout {buffer.layout}; only strided ones are memory as it is")
    if not buffer.is_contiguous():
        raise ValueError("a tensor that is not contiguous: tensor.contiguous() is a copy that is")
    if buffer.is_conj() or buffer.is_neg():
        raise ValueError("a tensor whose memory has other values than it: tensor.resolve_conj().resolve_neg()")
    size, address = _size_of(buffer), buffer.data_ptr()
    if size > 0 and address == 0:
        raise TypeError(f"a {type(buffer).__name__} without memory of its own")
    return address, size, buffer.untyped_storage()


def _size_of(buffer):
    """Bytes."""
    return buffer.numel() * buffer.element_size() if _is_tensor(buffer) else memoryview(buffer).nbytes


def _refuse_longer(filename, size):
    try:
        found = os.stat(filename).st_size
    except OSError:
        return  # the request says what is wrong
    if found > size:
        raise FileExistsError(errno.EEXIST, f"has {found} bytes, more than the {size} that would be written over it: "
                              "sync_write_file() replaces it, file_offset=0 writes a part of it", os.fsdecode(filename))


def _compare(buffer, filename, offset):
    memory = _memory_of(buffer)
    if isinstance(memory, tuple):
        memory = (ctypes.c_char * memory[1]).from_address(memory[0])
    with memoryview(memory).cast("B") as view, open(filename, "rb") as file:
        file.seek(offset)
        for start in range(0, len(view), _COMPARED_AT_ONCE):
            part = view[start:start + _COMPARED_AT_ONCE]
            if file.read(len(part)) != bytes(part):
                raise OSError(errno.EIO, f"is not what is in memory, {len(part)} bytes at {offset + start}",
                              os.fsdecode(filename))
