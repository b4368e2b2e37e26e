"""The Python half of quickstart: a training job that saves to a fastpersistfs mount, and a comparison of rates.

Nothing here knows about fastpersistfs: torch.save and torch.load as they come.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

import torch
from torch import nn

MODULUS = 53
STEPS = 120


class Adder(nn.Module):
    """A one-layer transformer that reads `a b =` and names a + b modulo MODULUS."""

    def __init__(self, width=128):
        super().__init__()
        self.token = nn.Embedding(MODULUS + 1, width)
        self.position = nn.Parameter(torch.randn(3, width) * 0.02)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, MODULUS)

    def forward(self, tokens):
        return self.head(self.layer(self.token(tokens) + self.position)[:, -1])


def batch(generator, size=256):
    pairs = torch.randint(0, MODULUS, (size, 2), generator=generator)
    tokens = torch.cat([pairs, torch.full((size, 1), MODULUS)], dim=1)
    return tokens, pairs.sum(dim=1) % MODULUS


def train_step(model, optimizer, generator):
    tokens, target = batch(generator)
    loss = nn.functional.cross_entropy(model(tokens), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def new_job():
    model = Adder()
    return model, torch.optim.AdamW(model.parameters(), lr=2e-3)


def same(left, right):
    """Whether two nested states are equal, tensors bit for bit."""
    if isinstance(left, torch.Tensor):
        return (isinstance(right, torch.Tensor) and left.dtype == right.dtype and left.shape == right.shape
                and torch.equal(left.contiguous().view(-1).view(torch.uint8), right.contiguous().view(-1).view(torch.uint8)))
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return left == right


def require(condition, message):
    if not condition:
        sys.exit(f"quickstart: {message}")


def train(directory):
    """Trains, saves half-way, and shows that training resumed from the file goes exactly the same way."""
    torch.set_num_threads(1)  # so small a model is faster so, above all on a busy machine
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(11)
    model, optimizer = new_job()
    first = train_step(model, optimizer, generator)
    for _ in range(STEPS - 1):
        last = train_step(model, optimizer, generator)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": STEPS,
             "generator": generator.get_state()}
    path = directory / f"step{STEPS}.pt"
    torch.save(state, path)
    print(f"trained {STEPS} steps (loss {first:.3f} to {last:.3f}), saved {path.name}: {path.stat().st_size / 1e6:.1f} MB")
    require(last < first, f"the model did not learn: loss {first} to {last}")
    require(same(torch.load(path), state), f"{path} does not hold what was saved")
    require(same(torch.load(path, mmap=True), state), f"{path} loaded with mmap=True is not what was saved")

    loaded = torch.load(path)
    resumed, resumed_optimizer = new_job()
    resumed.load_state_dict(loaded["model"])
    resumed_optimizer.load_state_dict(loaded["optimizer"])
    resumed_generator = torch.Generator()
    resumed_generator.set_state(loaded["generator"])
    losses = [train_step(model, optimizer, generator) for _ in range(3)]
    again = [train_step(resumed, resumed_optimizer, resumed_generator) for _ in range(3)]
    require(losses == again, f"training resumed from {path} goes another way: {again}, not {losses}")
    print("loaded back bit for bit (also with mmap=True); training resumed from it goes the same way")


def big_state(size_mib):
    """fp32 weights of a transformer's shape, in tensors of at most 16 MiB, `size_mib` in all."""
    torch.manual_seed(3)
    return {f"layers.{start // 16}.weight": torch.randn(min(16, size_mib - start) * 128, 2048) * 0.02
            for start in range(0, size_mib, 16)}


def forget(path):
    """Drops the kernel's cached pages of a file, so that a load comes from the drive."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def save_to_mount(state, path):
    torch.save(state, path)  # durable when close returned


def save_durably(state, path):
    """The same promise on a plain directory: the file and its name are on the drive."""
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def timed(action, *arguments, **options):
    start = time.perf_counter()
    result = action(*arguments, **options)
    return time.perf_counter() - start, result


def compare(mounted, plain, size_mib):
    """Saves and loads in turns on both; checks what the mount gives back each time."""
    state = big_state(size_mib)
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    places = {"fastpersistfs": (mounted / "big.pt", save_to_mount), "plain directory": (plain / "big.pt", save_durably)}
    seconds = {name: ([], [], []) for name in places}
    began = time.monotonic()
    for turn in range(3):
        for name, (path, save) in places.items():
            saves, loads, mapped = seconds[name]
            saves.append(timed(save, state, path)[0])
            forget(path)
            elapsed, loaded = timed(torch.load, path)
            loads.append(elapsed)
            require(same(loaded, state), f"{path} does not hold what was saved")
            del loaded
            forget(path)
            # A mapped load reads nothing yet: what counts is the time until every byte was looked at.
            elapsed, equal = timed(lambda: same(torch.load(path, mmap=True), state))
            mapped.append(elapsed)
            require(equal, f"{path} loaded with mmap=True is not what was saved")
        if time.monotonic() - began > 60:
            break  # a slow drive: one turn or two will do
    print(f"{size / 2**20:.0f} MiB of fp32 as a state dict, {turn + 1} times each in turns, median rates in MB/s")
    print("(both durable when the save returns: the plain directory with fsync, the mount at close)")
    print(f"{'':18}{'save':>8}{'load':>8}{'mmap load and compare':>24}")
    for name, measured in seconds.items():
        save, load, mapped = (size / 1e6 / statistics.median(each) for each in measured)
        print(f"{name:18}{save:8.0f}{load:8.0f}{mapped:24.0f}")
    print("loaded back bit for bit (also with mmap=True), every time")
    places["plain directory"][0].unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mount", type=pathlib.Path, required=True)
    parser.add_argument("--plain", type=pathlib.Path, required=True)
    parser.add_argument("--size-mib", type=int, default=1024)
    arguments = parser.parse_args()
    train(arguments.mount)
    compare(arguments.mount, arguments.plain, arguments.size_mib)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
