"""torch.distributed.checkpoint with two gloo ranks: save, async_save, load into other shardings, kill."""
import os
import shutil
import tempfile

import pytest

from lab.killing import Client, in_child
from lab.system import die_with_parent

pytestmark = pytest.mark.P6

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.distributed.checkpoint")


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """What the ranks need, before they are forked: importing it takes longer than the tests."""
    import torch._dynamo  # which distribute_tensor asks for
    import torch.distributed.device_mesh
    import torch.distributed.tensor
    checkpoint.save({"a": torch.zeros(1)}, storage_writer=checkpoint.FileSystemWriter(tempfile.mkdtemp()), no_dist=True)


def in_ranks(count, body):
    """Runs body(rank) in `count` processes that form a gloo group; fails when one of them did."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = tempfile.mkdtemp()
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                die_with_parent()
                torch.set_num_threads(1)
                torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank,
                                                     world_size=count)
                body(rank)
                torch.distributed.barrier()
                torch.distributed.destroy_process_group()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    try:
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * count
    finally:
        shutil.rmtree(meeting)


def whole_state(number, scale=1):
    generator = torch.Generator().manual_seed(number)
    return {"rows": torch.randn(1024 * scale, 999, generator=generator), "odd": torch.randn(7, 13, generator=generator),
            "number": torch.tensor(number), "bytes": torch.arange(1 << 20, dtype=torch.int64).to(torch.uint8)}


def sharded(state, dimension, count):
    """Every rank's share of a whole state, as DTensors along a dimension; scalars are replicated."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (count,))
    return {name: distribute_tensor(tensor, mesh, [Shard(dimension % tensor.dim()) if tensor.dim() else Replicate()])
            for name, tensor in state.items()}


def save(path, state, asynchronous=False, ranks=2):
    def body(rank):
        shares = sharded(state, 0, ranks)
        if asynchronous:
            checkpoint.async_save(shares, checkpoint_id=str(path)).result()
        else:
            checkpoint.save(shares, checkpoint_id=str(path))

    in_ranks(ranks, body)


def load_whole(path, like):
    loaded = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    checkpoint.load(loaded, checkpoint_id=str(path), no_dist=True)
    return loaded


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["save", "async_save"])
def test_two_ranks_and_resharding(mount, asynchronous):
    state, path = whole_state(1), mount.path / "step1"
    in_child(lambda: save(path, state, asynchronous))
    mount.remount()
    assert equal(load_whole(path, state), state)

    def check(ranks, dimension):
        def body(rank):
            shares = sharded({name: torch.zeros_like(tensor) for name, tensor in state.items()}, dimension, ranks)
            checkpoint.load(shares, checkpoint_id=str(path))
            assert equal({name: share.full_tensor() for name, share in shares.items()}, state)

        in_child(lambda: in_ranks(ranks, body))

    check(2, 0)  # as it was saved
    check(2, 1)  # along the other dimension
    check(3, 0)  # by another number of ranks


def step_saver(asynchronous):
    """A directory for each step, as training loops make them; a step counts when its .metadata is there."""
    def save_step(path, state):
        number = int(state["number"])
        save(path / f"step{number}", state, asynchronous)
        for other in os.listdir(path):
            if other != f"step{number}":
                shutil.rmtree(path / other)

    def load_newest(path):
        for step in sorted(os.listdir(path), key=lambda name: int(name[4:]), reverse=True):
            if (path / step / ".metadata").exists():
                return load_whole(path / step, whole_state(0, 8))
        raise AssertionError("no finished step is left")

    # The ranks meet first. Every save has an identifier of its own in its metadata.
    return Client(lambda number: whole_state(number, 8), save_step, load_newest, equal, window=(0.4, 0.95),
                  varying=(".metadata",))


@pytest.mark.P2
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["save", "async_save"])
def test_killed_while_saving(trial, asynchronous):
    trial(step_saver(asynchronous), "run").kill_client()


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.time_limit(300)
def test_killed_together_with_the_daemon(trial):
    trial(step_saver(False), "run").kill_daemon()
