"""The training job's side: saves and loads with torch and safetensors as they come.

A server on stdin and stdout, one JSON object per line. Every save and every load runs in a process of its own, forked from
this one so that importing torch and making the state costs each of them nothing. What is timed is the call itself, from
before torch.save (the open) until close has returned, or torch.load until every byte is there.

  {"do": "state", "size": BYTES}            makes a state dict of fp32 tensors, for the saves that follow
  {"do": "forget"}                          frees it
  {"do": "run", "jobs": [JOB, ...]}         runs the jobs at the same time; answers a list of results
A job:
  {"call": "save", "path": ..., "format": "zip" | "legacy" | "safetensors" | "fastfilewriter" | "aio_handle",
   "crc": true, "fsync": false, "repeat": 1, "remove": false, "then": [program, ...]}
  {"call": "load", "path": ..., "how": "torch" | "torch-mmap" | "safetensors" | "safetensors-open"}
"""
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


def shapes(size):
    """Like a stack of layers: large weights, each with a small bias, `size` bytes in all."""
    elements = max(size // 4, 2 * SMALL)
    large = min(LARGE, max(elements // 8, SMALL))
    while elements > 0:
        weight = min(large, elements)
        yield (weight // SMALL, SMALL) if weight % SMALL == 0 else (weight,)
        elements -= weight
        if elements >= SMALL:
            yield (SMALL,)
            elements -= SMALL


def expected(index, count):
    """First and last element of the tensor `index`."""
    last = torch.tensor(float(count - 1), dtype=torch.float32) + index
    return float(index), float(last)


def make_state(size):
    return {f"layers.{index}": torch.arange(torch.Size(shape).numel(), dtype=torch.float32).add_(index).reshape(shape)
            for index, shape in enumerate(shapes(size))}


def touch(state):
    """Reads one byte of every page."""
    return sum(int(tensor.reshape(-1).numpy().view("uint8")[::4096].sum(dtype="uint64")) for tensor in state.values())


def check(state):
    for name, tensor in state.items():
        flat = tensor.reshape(-1)
        if (float(flat[0]), float(flat[-1])) != expected(int(name.split(".")[1]), flat.numel()):
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


def save_deepspeed(state, job):
    from . import deepspeed_clients
    return deepspeed_clients.save(state, job)


SAVERS = {"zip": save_torch, "legacy": save_torch, "safetensors": save_safetensors,
          "fastfilewriter": save_deepspeed, "aio_handle": save_deepspeed}


def save(job, state, began):
    seconds = []
    for _ in range(job.get("repeat", 1)):
        if job.get("remove") and os.path.exists(job["path"]):
            os.unlink(job["path"])
        seconds.append(SAVERS[job["format"]](state, job))
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


def load(job, _state, _began):
    loader = LOADERS[job["how"]]
    if job["how"].startswith("safetensors"):
        import safetensors.torch  # noqa: F401  imported before the clock runs
    started = time.monotonic()
    state = loader(job["path"])
    seconds = time.monotonic() - started
    check(state)
    return {"seconds": seconds}


CALLS = {"save": save, "load": load}


# --- processes -----------------------------------------------------------------------------------------------------------

def perform(job, state, start_pipe, result_pipe):
    """In the child."""
    try:
        os.read(start_pipe, 1)  # until the parent closes its end
        began = time.monotonic()
        result = CALLS[job["call"]](job, state, began)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        result.update(began=began, ended=time.monotonic(), cpu_seconds=usage.ru_utime + usage.ru_stime)
    except Exception as error:  # told to the parent
        result = {"error": f"{error!r}\n{traceback.format_exc()}"}
    os.write(result_pipe, json.dumps(result).encode())


def run_jobs(jobs, state):
    start_read, start_write = os.pipe()
    children = []
    for job in jobs:
        result_read, result_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(start_write)
            perform(job, state, start_read, result_write)
            os._exit(0)
        os.close(result_write)
        children.append((child, result_read))
    os.close(start_read)
    time.sleep(0.02)  # everybody waits at the start
    os.close(start_write)
    results = []
    for child, result_read in children:
        with os.fdopen(result_read, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        results.append(json.loads(said) if said else {"error": f"the process ended with status {status}"})
    return results


def main():
    torch.set_num_threads(1)
    answers, requests = os.fdopen(os.dup(1), "w"), sys.stdin
    os.dup2(2, 1)  # what libraries print must not end up among the answers
    state = {}
    for line in requests:
        request = json.loads(line)
        answer = None
        try:
            if request["do"] == "state":
                state = make_state(request["size"])
            elif request["do"] == "forget":
                state = {}
            elif request["do"] == "versions":
                answer = {"torch": torch.__version__}
            else:
                answer = run_jobs(request["jobs"], state)
        except Exception as error:
            answer = {"error": repr(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
