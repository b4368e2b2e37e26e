"""torch.save and torch.load as users call them."""
import io
import os
import pickle
import zipfile

import pytest

from lab.killing import Client

pytestmark = pytest.mark.P6

torch = pytest.importorskip("torch")

KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8,
         torch.bool, torch.complex64, torch.float8_e4m3fn]


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(bits(left), bits(right))


def some_state(kinds=KINDS):
    """Tensors of every kind and of many sizes, also empty, scalar, strided and shared ones."""
    torch.manual_seed(5)
    state = {}
    for kind in kinds:
        for size in (0, 1, 1000, 33333, 700001):
            raw = torch.randint(0, 256, (size * torch.empty(0, dtype=kind).element_size(),), dtype=torch.uint8)
            state[f"{kind} {size}"] = (raw % 2).bool() if kind == torch.bool else raw.view(kind)
    state["scalar"] = torch.tensor(3.25)
    state["transposed"] = torch.randn(300, 200).t()
    state["shared"] = state["transposed"][:10]
    return state


def check(loaded, state):
    assert loaded.keys() == state.keys()
    for name in state:
        assert same(loaded[name], state[name]), name


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("given", ["path", "file", "memory"])
def test_save_and_load(mount, zip_format, given):
    # The legacy format cannot name float8.
    state, path = some_state(KINDS if zip_format else KINDS[:-1]), mount.path / "state.pt"
    if given == "path":
        torch.save(state, path, _use_new_zipfile_serialization=zip_format)
    elif given == "file":
        with open(path, "wb") as file:
            torch.save(state, file, _use_new_zipfile_serialization=zip_format)
    else:
        memory = io.BytesIO()
        torch.save(state, memory, _use_new_zipfile_serialization=zip_format)
        path.write_bytes(memory.getvalue())
    for remounted in (False, True):
        if remounted:
            mount.remount()
        check(torch.load(path, weights_only=True), state)
        check(torch.load(path, weights_only=False), state)
        with open(path, "rb") as file:
            check(torch.load(file), state)


def test_load_with_mmap(mount):
    state, path = some_state(), mount.path / "state.pt"
    torch.save(state, path)
    mount.remount()
    check(torch.load(path, mmap=True), state)
    loaded = torch.load(path, mmap=True)
    loaded["scalar"] += 1  # the mapping is private
    check(torch.load(path), state)


def test_saved_bytes_equal_those_on_a_native_directory(mount, native):
    state = some_state()
    for parent in (native, mount.path):
        torch.save(state, parent / "state.pt")
    assert (mount.path / "state.pt").read_bytes() == (native / "state.pt").read_bytes()


def test_optimizer_and_resume(mount):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(model, optimizer, seed):
        inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(seed))
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    for seed in range(5):
        step(model, optimizer, seed)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, mount.path / "step5.pt")
    expected = [step(model, optimizer, seed) for seed in range(5, 8)]
    mount.remount()
    resumed = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    other = torch.optim.AdamW(resumed.parameters(), lr=1e-3)
    loaded = torch.load(mount.path / "step5.pt")
    resumed.load_state_dict(loaded["model"])
    other.load_state_dict(loaded["optimizer"])
    assert [step(resumed, other, seed) for seed in range(5, 8)] == expected


def test_rotating_checkpoints(mount):
    """The usual loop: save the next, remove the oldest; temp and replace; a `latest` link."""
    for number in range(12):
        state = {"step": number, "weights": torch.full((1 << 20,), float(number))}
        torch.save(state, mount.path / "tmp.pt")
        os.replace(mount.path / "tmp.pt", mount.path / f"step{number}.pt")
        link = mount.path / "latest"
        if link.is_symlink():
            link.unlink()
        link.symlink_to(f"step{number}.pt")
        if number >= 3:
            os.unlink(mount.path / f"step{number - 3}.pt")
    assert sorted(os.listdir(mount.path)) == ["latest", "step10.pt", "step11.pt", "step9.pt"]
    mount.remount()
    for number in (9, 10, 11):
        loaded = torch.load(mount.path / f"step{number}.pt")
        assert loaded["step"] == number and torch.equal(loaded["weights"], torch.full((1 << 20,), float(number)))
    assert torch.load(mount.path / "latest")["step"] == 11


def test_several_processes_save_their_shards(mount):
    children = []
    for rank in range(4):
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)
                torch.save({"rank": rank, "shard": torch.arange(rank, rank + (1 << 20))}, mount.path / f"rank{rank}.pt")
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    for rank in range(4):
        loaded = torch.load(mount.path / f"rank{rank}.pt", mmap=True)
        assert loaded["rank"] == rank and torch.equal(loaded["shard"], torch.arange(rank, rank + (1 << 20)))


def test_distributed_checkpoint(mount):
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    torch.manual_seed(2)
    state = {"a": torch.randn(500, 700), "b": torch.randn(1 << 20)}
    checkpoint.save(state, checkpoint_id=str(mount.path / "dcp"), no_dist=True)
    mount.remount()
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    checkpoint.load(loaded, checkpoint_id=str(mount.path / "dcp"), no_dist=True)
    check(loaded, state)


# --- killed in the middle ----------------------------------------------------------------------------------------

def numbered_state(number):
    generator = torch.Generator().manual_seed(number)
    return {"step": number, **{f"layer{index}": torch.randn(1 << 20, generator=generator) for index in range(8)}}


def equal(loaded, state):
    return loaded["step"] == state["step"] and all(
        torch.equal(loaded[name], state[name]) for name in state if name != "step")


def load_every_way(path):
    """By weights alone, by unpickling, and mapped where the format allows it: all must find the same, or all refuse."""
    ways = [{}, {"weights_only": False}]
    if zipfile.is_zipfile(path):
        ways.append({"mmap": True})
    found = [torch.load(path, **way) for way in ways]
    assert all(equal(each, found[0]) for each in found)
    return found[0]


def saver(zip_format):
    """torch.save writes in place; an unfinished file is refused by torch.load."""
    return Client(numbered_state, lambda path, state: torch.save(state, path, _use_new_zipfile_serialization=zip_format),
                  load_every_way, equal, (RuntimeError, EOFError, pickle.UnpicklingError), sequential=True)


def replacing_saver():
    def save(path, state):
        torch.save(state, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)

    return Client(numbered_state, save, load_every_way, equal)


CLIENTS = {"zip": saver(True), "legacy": saver(False), "replaced": replacing_saver()}


@pytest.mark.P2
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_killed_while_saving(trial, client):
    trial(client).kill_client()


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_killed_together_with_the_daemon(trial, client):
    trial(client).kill_daemon()
