"""The Python half of quickstart: a training job that saves to a fastpersistfs mount, and a comparison of rates.

Nothing here knows about fastpersistfs: torch.save and torch.load as they come.
"""
import argparse
import multiprocessing
import os
import pathlib
import signal
import statistics
import sys
import time

import torch
from torch import nn

MODULUS = 53
STEPS = 120
ROUNDS = 4  # of the comparison; the first is not counted
SECONDS_MAX = 60  # after that long it begins no other round


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
    """Drops the kernel's cached pages of a file, or of all files below a directory, so that a load comes from the drive."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def note(text=""):
    """One line of a terminal that the next note, or the next output, replaces."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


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


def in_new_process(action):
    """What the action returns in a process of its own: with this one's state to compare with, without memory to reuse."""
    processes = multiprocessing.get_context("fork")
    receiver, sender = processes.Pipe(duplex=False)

    def perform():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sender.send(action())

    child = processes.Process(target=perform)
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        sys.exit("quickstart: a process that loaded ended without a result")
    finally:
        child.join()


def timed_load(path, state):
    """Seconds, and whether it is what was saved."""
    seconds, loaded = timed(torch.load, path)
    return seconds, same(loaded, state)


def timed_mapped_load(path, state):
    """A mapped load reads nothing yet: what counts is the time until every byte was looked at."""
    return timed(lambda: same(torch.load(path, mmap=True), state))


def one_round(state, sides, members, title):
    """Every operation on one side, then on the other; {(side, operation): seconds}.

    So no load follows one of its own side, of which the drive, or the machine under a virtual one, may remember much.
    """
    seconds = {}
    for side, (path, save) in sides.items():
        note(f"{title}save, {side}")
        seconds[side, "save"] = timed(save, state, path)[0]
    for operation, load in ("load", timed_load), ("mmap load and compare", timed_mapped_load):
        for side, (path, _) in sides.items():
            note(f"{title}{operation}, {side}")
            for what in (path, *members):
                forget(what)
            seconds[side, operation], equal = in_new_process(lambda: load(path, state))
            require(equal, f"{path} does not hold what was saved ({operation})")
    return seconds


def compare(mounted, plain, members, size_mib):
    """Saves and loads in turns on both; checks what each gives back every time."""
    state = big_state(size_mib)
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    sides = {"fastpersistfs": (mounted / "big.pt", save_to_mount), "plain directory": (plain / "big.pt", save_durably)}
    print(f"saving and loading a state dict of {size / 2**20:.0f} MiB of fp32, on the mount and in a plain directory")
    rounds, began = [], time.monotonic()
    while len(rounds) < ROUNDS and time.monotonic() - began < SECONDS_MAX:
        rounds.append(one_round(state, sides, members, f"  round {len(rounds) + 1} of {ROUNDS}: "))
    note()
    counted = rounds[1:] or rounds
    print(f"MB/s: median of {len(counted)} rounds (lowest to highest)"
          + (", after one that is not counted" if counted != rounds else ""))
    operations = list(dict.fromkeys(operation for _, operation in counted[0]))
    print(f"{'':17}" + "".join(f"{operation:>24}" for operation in operations))
    for side in sides:
        row = f"{side:17}"
        for operation in operations:
            rates = sorted(size / 1e6 / each[side, operation] for each in counted)
            row += f"{f'{statistics.median(rates):.0f} ({rates[0]:.0f} to {rates[-1]:.0f})':>24}"
        print(row)
    print("the plain directory is on the drive of the first member")
    print("save: until it is durable: on the mount when close returns, in the plain directory after fsync")
    print("load: each by a new process, like a job that starts again; nothing of the file is in the page cache before;")
    print("      the two sides take turns, so no load follows one of the same file")
    print("loaded back bit for bit (also with mmap=True), every time")
    sides["plain directory"][0].unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mount", type=pathlib.Path, required=True)
    parser.add_argument("--plain", type=pathlib.Path, required=True)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("members", type=pathlib.Path, nargs="+", help="the page cache forgets these, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so small a model is faster so, above all on a busy machine; and forks need it
    train(arguments.mount)
    compare(arguments.mount, arguments.plain, arguments.members, arguments.size_mib)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
