#!/usr/bin/env python3
"""Saves a tensor to a file and loads it again by DeepNVMe's calls. Needs torch and the wheel (docs/library.md)."""
import sys

import torch
from fastpersist import AsyncIOBuilder  # with DeepSpeed: from deepspeed.ops.op_builder import AsyncIOBuilder


def main(file, elements=1_000_003):
    aio = AsyncIOBuilder().load().aio_handle(queue_depth=32, intra_op_parallelism=2)
    saved = aio.new_cpu_locked_tensor(elements, torch.empty(0, dtype=torch.float32))
    torch.arange(elements, out=saved)
    aio.async_pwrite(saved, file, 0)
    aio.wait()  # the tensor stays as it is until then
    loaded = aio.new_cpu_locked_tensor(elements, saved)
    aio.async_pread(loaded, file, 0)
    aio.wait()
    assert torch.equal(saved, loaded)
    print(f"{saved.nbytes} bytes saved and loaded")
    for tensor in (saved, loaded):
        aio.free_cpu_locked_tensor(tensor)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: save_tensor.py FILE [ELEMENTS]")
    main(sys.argv[1], *map(int, sys.argv[2:]))
