"""The training job's side: saves and loads with torch and safetensors as they come.

A server on stdin and stdout, one JSON object per line. Every save and every load runs in a process of its own, forked from
this one so that importing torch costs it nothing. The process makes the state itself (memory that it inherited would cost a
page fault per page while the clock runs), and has run torch's code once, on a few bytes in memory, as a training job has by
its second checkpoint. The machine has the memory for it (have_memory()). What is timed is the call itself, from before
torch.save (the open) until close has returned, or torch.load until every byte is there.

  {"do": "run", "jobs": [JOB, ...]}         runs the jobs at the same time; answers a list of results
  {"do": "versions"}
A job:
  {"call": "save", "path": ..., "size": BYTES of the state, "format": "zip" | "legacy" | "safetensors" | "deepspeed-zip" | "deepspeed-legacy" | "aio_handle",
   "content": "ramp" | "bf16" | "fp32", "crc": true, "fsync": false, "repeat": 1, "remove": false, "pause": 0,
   "then": [program, ...]}
  {"call": "load", "path": ..., "how": "torch" | "torch-mmap" | "safetensors" | "safetensors-open", "content": as saved}
"""
import importlib.metadata
import io
import json
import os
import resource
import subprocess
import sys
import time
import traceback

import torch

LARGE = 4 << 20  # elements of a weight: 16 MiB
SMALL = 1024


def shapes(elements):
    """Like a stack of layers: large weights, each with a small bias, so many elements in all."""
    elements = max(elements, 2 * SMALL)
    large = min(LARGE, max(elements // 8, SMALL))
    while elements > 0:
        weight = min(large, elements)
        yield (weight // SMALL, SMALL) if weight % SMALL == 0 else (weight,)
        elements -= weight
        if elements >= SMALL:
            yield (SMALL,)
            elements -= SMALL


class Ramp:
    """fp32, each element its place in the tensor and the tensor's number: nothing that has to be random."""

    width = 4

    def tensor(self, index, count):
        return torch.arange(count, dtype=torch.float32).add_(index)

    def ends(self, index, count):
        """First and last element."""
        last = torch.tensor(float(count - 1), dtype=torch.float32) + index
        return float(index), float(last)


class Weights:
    """Normal numbers as a network's weights are, other ones in each tensor: what compression is measured with. A tensor is
    the same random numbers, scaled, as making them anew would take longer than saving them."""

    def __init__(self, dtype):
        self.width = dtype.itemsize
        self._dtype = dtype
        self._normal = torch.randn(LARGE, generator=torch.Generator().manual_seed(16)).mul_(0.02)

    def tensor(self, index, count):
        return (self._normal[:count] * (1 + index / 1024)).to(self._dtype)

    def ends(self, index, count):
        return tuple((self._normal[[0, count - 1]] * (1 + index / 1024)).to(self._dtype).tolist())


CONTENTS = {"ramp": Ramp, "bf16": lambda: Weights(torch.bfloat16), "fp32": lambda: Weights(torch.float32)}


def content_of(job):
    return CONTENTS[job.get("content", "ramp")]()


def make_state(size, content):
    return {f"layers.{index}": content.tensor(index, torch.Size(shape).numel()).reshape(shape)
            for index, shape in enumerate(shapes(size // content.width))}


def touch(state):
    """Reads one byte of every page."""
    return sum(int(tensor.reshape(-1).view(torch.uint8).numpy()[::4096].sum(dtype="uint64")) for tensor in state.values())


def check(state, content):
    for name, tensor in state.items():
        flat = tensor.reshape(-1)
        if (float(flat[0]), float(flat[-1])) != content.ends(int(name.split(".")[1]), flat.numel()):
            raise ValueError(f"{name} came back with other content")


# --- calls: each returns the seconds it took -----------------------------------------------------------------------------

def save_torch(state, job):
    legacy = job["format"] == "legacy"
    torch.serialization.set_crc32_options(job.get("crc", True))
    started = time.monotonic()
    if job.get("fsync"):
        with open(job["path"], "wb") as file:
            torch.save(state, file, _use_new_zipfile_serialization=not legacy)
            file.flush()
            os.fsync(file.fileno())
    else:
        torch.save(state, job["path"], _use_new_zipfile_serialization=not legacy)
    return time.monotonic() - started


def save_safetensors(state, job):
    from safetensors.torch import save_file
    started = time.monotonic()
    save_file(state, job["path"])
    if job.get("fsync"):
        descriptor = os.open(job["path"], os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.monotonic() - started


def save(job, state):
    began, seconds = time.monotonic(), []
    for turn in range(job.get("repeat", 1)):
        if turn:
            time.sleep(job.get("pause", 0))
        if job.get("remove") and os.path.exists(job["path"]):
            os.unlink(job["path"])
        if "saver" in job:
            seconds.append(job["saver"].save(state, job["path"]))
        elif job["format"] == "safetensors":
            seconds.append(save_safetensors(state, job))
        else:
            seconds.append(save_torch(state, job))
    result = {"seconds": seconds[-1], "all_seconds": seconds}
    if job.get("then"):  # what ends the work from the trainer's side, like `fpfs sync`
        subprocess.run(job["then"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        result["seconds_then"] = time.monotonic() - began
    return result


def load_torch(path):
    return torch.load(path, map_location="cpu")


def load_torch_mmap(path):
    state = torch.load(path, map_location="cpu", mmap=True)
    touch(state)
    return state


def load_safetensors(path):
    from safetensors.torch import load_file
    state = load_file(path)
    touch(state)
    return state


def load_safetensors_open(path):
    from safetensors import safe_open
    with safe_open(path, framework="pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}
        touch(state)
    return state


LOADERS = {"torch": load_torch, "torch-mmap": load_torch_mmap, "safetensors": load_safetensors,
           "safetensors-open": load_safetensors_open}


def load(job, _state):
    loader = LOADERS[job["how"]]
    started = time.monotonic()
    state = loader(job["path"])
    seconds = time.monotonic() - started
    check(state, content_of(job))
    return {"seconds": seconds}


CALLS = {"save": save, "load": load}


# --- processes -----------------------------------------------------------------------------------------------------------

def have_memory(jobs):
    """The host of a virtual machine takes what has been free for some seconds (free page reporting), and to have it back costs
    whoever touches it first (the caller, the daemon, the kernel's threads) up to 8 us for each 4 KiB, 23 times as much as to
    clear it: a load is half as fast. So as much as the calls take, or half of what is free, is touched and given back before
    they begin: of a save what the drives of the lab take; of a load its tensors, and the page cache."""
    loaded = [job["path"] for job in jobs if job["call"] == "load"]
    size = sum(job["size"] for job in jobs if job["call"] == "save")
    size += sum(os.path.getsize(path) for path in loaded + list(set(loaded)))
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemFree"))
    torch.ones(min(size, free // 2), dtype=torch.uint8)


def prepare(job):
    """The state that the job needs; and everything has run once."""
    small = make_state(8 * SMALL, Ramp())
    legacy = job.get("format") == "legacy"
    memory = io.BytesIO()
    torch.save(small, memory, _use_new_zipfile_serialization=not legacy)
    memory.seek(0)
    check(torch.load(memory), Ramp())
    if "safetensors" in (job.get("format"), job.get("how", "").split("-")[0]):
        from safetensors import torch as safetensors_torch
        check(safetensors_torch.load(safetensors_torch.save(small)), Ramp())
    if job.get("format", "").startswith(("deepspeed", "aio_handle")):
        from . import deepspeed_clients
        job["saver"] = deepspeed_clients.saver(job)
    return make_state(job["size"], content_of(job)) if job["call"] == "save" else {}


def processor_times():
    """(ticks in which some processor had nothing to do, all ticks), over all processors since boot."""
    with open("/proc/stat") as file:
        user, nice, system, idle, io_wait, *rest = map(int, file.readline().split()[1:9])
    return idle + io_wait, user + nice + system + idle + io_wait + sum(rest)


def perform(job, ready_pipe, start_pipe, result_pipe):
    """In the child."""
    try:
        state = prepare(job)
        os.close(ready_pipe)
        os.read(start_pipe, 1)  # until the parent closes its end
        idle_before, ticks_before = processor_times()
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        result = CALLS[job["call"]](job, state)
        after = resource.getrusage(resource.RUSAGE_SELF)
        result.update(began=began, ended=time.monotonic(),
                      cpu_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        idle_after, ticks_after = processor_times()
        result["processors_idle"] = (idle_after - idle_before) / max(ticks_after - ticks_before, 1)
    except Exception as error:  # told to the parent
        result = {"error": f"{error!r}\n{traceback.format_exc()}"}
    os.write(result_pipe, json.dumps(result).encode())


def run_jobs(jobs):
    """Each in a process; they start together when all are ready."""
    start_read, start_write = os.pipe()
    ready_read, ready_write = os.pipe()
    children = []
    for job in jobs:
        result_read, result_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(start_write)
            perform(job, ready_write, start_read, result_write)
            os._exit(0)
        os.close(result_write)
        children.append((child, result_read))
    os.close(start_read)
    os.close(ready_write)
    os.read(ready_read, 1)  # until all children have closed their ends
    os.close(ready_read)
    have_memory(jobs)
    time.sleep(0.02)
    os.close(start_write)
    results = []
    for child, result_read in children:
        with os.fdopen(result_read, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        results.append(json.loads(said) if said else {"error": f"the process ended with status {status}"})
    return results


def versions():
    found = {"torch": torch.__version__}
    for name in ("safetensors", "deepspeed"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def main():
    torch.set_num_threads(1)
    answers, requests = os.fdopen(os.dup(1), "w"), sys.stdin
    os.dup2(2, 1)  # what libraries print must not end up among the answers
    for line in requests:
        request = json.loads(line)
        try:
            answer = versions() if request["do"] == "versions" else run_jobs(request["jobs"])
        except Exception as error:
            answer = {"error": repr(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
