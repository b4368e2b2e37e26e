"""Data that depends on its position, so that a swapped, shifted or stale piece of a file shows."""
import numpy


def pattern(seed, offset, size):
    """Bytes [offset, offset + size) of an endless stream that `seed` names. Those of every other pair of seeds shrink."""
    first, last = offset // 8, (offset + size + 7) // 8
    words = numpy.arange(first, last, dtype=numpy.uint64)
    with numpy.errstate(over="ignore"):  # splitmix64
        words = words * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64((seed * 0xD1342543DE82EF95) & (2**64 - 1))
        words = (words ^ (words >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        words ^= words >> numpy.uint64(31)
    if seed & 2:
        words &= numpy.uint64(0x0F0F0F0F0F0F0F0F)
    start = offset - first * 8
    return words.tobytes()[start:start + size]


def write_pattern(path, seed, size, block=1 << 20):
    """Writes a whole file; returns when close did, which may raise."""
    with open(path, "wb", buffering=0) as file:
        for offset in range(0, size, block):
            piece = memoryview(pattern(seed, offset, min(block, size - offset)))
            while piece:
                piece = piece[file.write(piece):]


def is_pattern(path, seed, size, block=1 << 22):
    """Whether a file holds exactly the first `size` bytes of a stream."""
    with open(path, "rb", buffering=0) as file:
        offset = 0
        while True:
            piece = file.read(block)
            if not piece:
                return offset == size
            if piece != pattern(seed, offset, len(piece)):
                return False
            offset += len(piece)


def first_difference(left, right):
    """Where two byte strings differ first, or None."""
    if left == right:
        return None
    length = min(len(left), len(right))
    differing = numpy.flatnonzero(numpy.frombuffer(left, "u1", length) != numpy.frombuffer(right, "u1", length))
    return int(differing[0]) if len(differing) else length
