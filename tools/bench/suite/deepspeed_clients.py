"""DeepSpeed's ways to write a checkpoint, when it is installed: FastFileWriter under torch.save, and its aio_handle with the
bytes of a state in one page-locked tensor. Neither syncs; the fsync here makes what they wrote durable, as everybody else's.

Handles, buffers and compiled operators are ready before the clock runs.
"""
import logging
import os
import time

import torch

os.environ.setdefault("DS_ACCELERATOR", "cpu")
BLOCK, DEPTH, PARALLEL = 1 << 20, 32, 1
BUFFER = 64 << 20  # of FastFileWriter: two halves


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class FastFileWriterSaver:
    def __init__(self, job):
        from deepspeed.io import FastFileWriter, FastFileWriterConfig
        from deepspeed.io import fast_file_writer, utils
        from deepspeed.ops.op_builder import AsyncIOBuilder
        from deepspeed.ops.op_builder.utils import UtilsBuilder
        # DeepSpeed offers this operator for accelerators only, but it is plain C++ and works here.
        for module in (fast_file_writer, utils):
            if hasattr(module, "UtilsBuilder"):
                module.UtilsBuilder = UtilsBuilder
        UtilsBuilder().load()
        self._writer = FastFileWriter
        handle = AsyncIOBuilder().load().aio_handle(BLOCK, DEPTH, False, True, PARALLEL)
        self._config = FastFileWriterConfig(dnvme_handle=handle, pinned_tensor=handle.new_cpu_locked_tensor(
            BUFFER, torch.empty(0, dtype=torch.uint8)))
        self._legacy = job["format"].endswith("legacy")

    def save(self, state, path):
        started = time.monotonic()
        writer = self._writer(file_path=path, config=self._config)
        torch.save(state, writer, _use_new_zipfile_serialization=not self._legacy)
        writer.close()
        _sync(path)
        return time.monotonic() - started


class AioHandleSaver:
    def __init__(self, job):
        from deepspeed.ops.op_builder import AsyncIOBuilder
        self._handle = AsyncIOBuilder().load().aio_handle(BLOCK, DEPTH, False, True, PARALLEL)
        self._bytes = self._handle.new_cpu_locked_tensor(job["size"], torch.empty(0, dtype=torch.uint8))
        self._bytes.fill_(7)

    def save(self, _state, path):
        started = time.monotonic()
        self._handle.sync_pwrite(self._bytes, path)
        _sync(path)
        return time.monotonic() - started


def saver(job):
    logging.disable(logging.WARNING)  # it warns of wear with each write
    return AioHandleSaver(job) if job["format"] == "aio_handle" else FastFileWriterSaver(job)
