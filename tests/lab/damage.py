"""Damage to what an array has on its drives, and what readers say."""
import errno
import json
import os

from .programs import run


def flip(path, offset, mask=0x10):
    """Turns one bit of a file around."""
    with open(path, "r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([byte[0] ^ mask]), offset)
        os.fsync(file.fileno())


def extents_of(mount, path):
    return json.loads(run(mount.array.programs.fpfs, "map", "--json", path).stdout)


def read_at(path, offset, length):
    """The bytes, or the name of the error. A fresh descriptor, so that no readahead of another read counts."""
    with open(path, "rb", buffering=0) as file:
        try:
            return os.pread(file.fileno(), length, offset)
        except OSError as error:
            return errno.errorcode[error.errno]
