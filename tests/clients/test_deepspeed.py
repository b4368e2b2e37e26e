"""DeepSpeed: its aio_handle (O_DIRECT and libaio on the mount itself), and its engine's checkpoints.

Both need C++ that has to be compiled first: deepspeed_extensions.py does that, tests/run calls it.
"""
import os
import tempfile

import deepspeed_extensions
import pytest

from lab import LONG
from lab.killing import ROUNDS, Client, Refused, in_child

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.P6, pytest.mark.time_limit(240)]
MIB = 1 << 20


@pytest.fixture(scope="module")
def deepspeed():
    if not deepspeed_extensions.are_compiled():
        pytest.skip("DeepSpeed or its extensions are missing: tests/run --filter deepspeed installs and compiles them")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in deepspeed_extensions.environment().items():
            patch.setenv(name, value)
        yield pytest.importorskip("deepspeed")


@pytest.fixture(scope="module")
def aio(deepspeed):
    return deepspeed_extensions.load("AsyncIOBuilder")


def numbers(count, seed):
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("single_submit", [False, True])
@pytest.mark.parametrize("overlap_events", [False, True])
@pytest.mark.parametrize("parallel", [1, 4])
def test_aio_handle(mount, aio, single_submit, overlap_events, parallel):
    handle = aio.aio_handle(256 * 1024, 16, single_submit, overlap_events, parallel)
    for size in (4 * MIB, 24 * MIB):
        data, path = numbers(size, size), mount.path / f"{size}.bin"
        buffer = handle.new_cpu_locked_tensor(size, data)
        buffer.copy_(data)
        assert handle.sync_pwrite(buffer, str(path)) == 1
        assert path.read_bytes() == data.numpy().tobytes()
        assert handle.async_pwrite(buffer, str(path) + "2") == 0 and handle.wait() == 1
        buffer.zero_()
        assert handle.sync_pread(buffer, str(path) + "2") == 1
        assert torch.equal(buffer, data)
        if not (single_submit or overlap_events):
            buffer.zero_()
            assert handle.read(buffer, str(path), False) >= 0
            assert torch.equal(buffer, data)
            assert handle.write(buffer, str(path) + "3", False) >= 0
            assert (mount.path / f"{size}.bin3").read_bytes() == data.numpy().tobytes()
        handle.free_cpu_locked_tensor(buffer)
    mount.remount()
    buffer = handle.new_cpu_locked_tensor(24 * MIB, data)
    assert handle.sync_pread(buffer, str(path)) == 1 and torch.equal(buffer, data)
    handle.free_cpu_locked_tensor(buffer)


def test_aio_handle_killed_while_writing(trial, aio):
    """In place, blocks in any order: after a kill each block is there or not."""
    block = 64 * 1024

    def save(path, data):
        handle = aio.aio_handle(block, 8, False, False, 1)
        buffer = handle.new_cpu_locked_tensor(len(data), data)
        buffer.copy_(data)
        for start in range(0, len(data), 4 * MIB):
            handle.sync_pwrite(buffer[start:start + 4 * MIB], str(path), start)

    def is_part(loaded, old, new):
        def pages(state):
            return state[:len(loaded)].view(-1, 4096)

        whole = (pages(loaded) == pages(new)).all(1) | (pages(loaded) == 0).all(1)
        return bool((whole | (pages(loaded) == pages(old)).all(1) if old is not None else whole).all())

    client = Client(lambda number: numbers(64 * MIB, number), save,
                    lambda path: torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8), torch.equal,
                    is_part=is_part)
    trial(client, "weights.bin").kill_client()


# --- the engine's checkpoints -----------------------------------------------------------------------------------

def make_engine(deepspeed):
    """The engine of a small model, ready to train, in one gloo rank: once in a process."""
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    store = tempfile.NamedTemporaryFile(delete=False)  # used as long as the process lives
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, init_method=f"file://{store.name}", rank=0,
                               world_size=1, verbose=False)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1))
    engine, *_ = deepspeed.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 1}, "bf16": {"enabled": True}})
    return engine


def step(engine, seed):
    inputs = torch.randn(4, 512, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    engine.backward(engine(inputs).square().mean())
    engine.step()


def weights(engine):
    return {name: tensor.clone() for name, tensor in engine.module.state_dict().items()}


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def test_checkpoint(mount, native, deepspeed):
    def save(engine):
        for seed in range(3):
            step(engine, seed)
        assert engine.save_checkpoint(str(mount.path / "run"), tag="step3", client_state={"note": "kept"})
        for seed in range(3, 6):
            step(engine, seed)
        torch.save(weights(engine), native / "expected.pt")

    def load(engine):
        path, client_state = engine.load_checkpoint(str(mount.path / "run"))
        assert path.endswith("step3/mp_rank_00_model_states.pt") and client_state["note"] == "kept"
        for seed in range(3, 6):
            step(engine, seed)
        assert equal(weights(engine), torch.load(native / "expected.pt"))

    in_child(lambda: save(make_engine(deepspeed)))
    mount.remount()
    assert (mount.path / "run/latest").read_text() == "step3"
    in_child(lambda: load(make_engine(deepspeed)))


@pytest.mark.P2
def test_checkpoint_killed_while_saving(trial, deepspeed):
    """`latest` names the last checkpoint that was finished; DeepSpeed writes it after everything else."""
    def prepare(number):
        engine = make_engine(deepspeed)
        torch.nn.init.constant_(engine.module[0].bias, float(number))
        return engine, number

    def save(path, prepared):
        engine, number = prepared
        engine.save_checkpoint(str(path), tag=f"step{number}")

    def load(path):
        tag = (path / "latest").read_text()
        if not tag:
            raise Refused("`latest` is empty")
        found = torch.load(path / tag / "mp_rank_00_model_states.pt", weights_only=False)
        bias = found["module"]["0.bias"]
        assert tag == f"step{int(bias[0])}" and (bias == bias[0]).all()
        return int(bias[0])

    # `latest` itself is written in place: for a moment it is empty.
    trial(Client(int, save, load, refusals=(Refused,), prepare=prepare), "run").kill_client(
        ROUNDS if LONG else 1)  # each takes an engine of its own
