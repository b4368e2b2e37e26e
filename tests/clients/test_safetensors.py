"""safetensors through its own ways of reading: whole files, single tensors, slices; all of it mapped."""
import numpy
import pytest

from lab.killing import Client

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
import safetensors.numpy  # noqa: E402
import safetensors.torch  # noqa: E402

pytestmark = pytest.mark.P6


def test_torch(mount):
    torch.manual_seed(1)
    state = {"a": torch.randn(1000, 333), "b": torch.randn(500001).bfloat16(), "empty": torch.empty(0), "i": torch.arange(9)}
    path = mount.path / "model.safetensors"
    safetensors.torch.save_file(state, path, metadata={"made": "here"})
    for remounted in (False, True):
        if remounted:
            mount.remount()
        loaded = safetensors.torch.load_file(path)
        assert loaded.keys() == state.keys() and all(torch.equal(loaded[name], state[name]) for name in state)
        del loaded  # it holds the file mapped
        with safetensors.safe_open(path, framework="pt") as file:
            assert file.metadata() == {"made": "here"} and set(file.keys()) == set(state)
            part = file.get_slice("a")
            assert torch.equal(part[100:200, 7:11], state["a"][100:200, 7:11])
            assert torch.equal(part[-1:], state["a"][-1:])
            del part
            assert torch.equal(file.get_tensor("b"), state["b"])


def test_numpy(mount):
    rolls = numpy.random.default_rng(1)
    state = {"a": rolls.standard_normal((700, 900)), "b": rolls.integers(0, 255, 1234567, dtype=numpy.uint8)}
    path = mount.path / "model.safetensors"
    safetensors.numpy.save_file(state, path)
    mount.remount()
    loaded = safetensors.numpy.load_file(path)
    assert all(numpy.array_equal(loaded[name], state[name]) for name in state)
    with safetensors.safe_open(path, framework="np") as file:
        assert numpy.array_equal(file.get_slice("a")[10:20, :5], state["a"][10:20, :5])


def test_saved_over_an_older_longer_file(mount):
    path = mount.path / "model.safetensors"
    safetensors.torch.save_file({"x": torch.randn(1 << 20)}, path)
    small = {"x": torch.randn(1000)}
    safetensors.torch.save_file(small, path)
    assert torch.equal(safetensors.torch.load_file(path)["x"], small["x"])
    mount.remount()
    assert torch.equal(safetensors.torch.load_file(path)["x"], small["x"])


# --- killed in the middle ----------------------------------------------------------------------------------------

def torch_state(number):
    generator = torch.Generator().manual_seed(number)
    return {f"layer{index}": torch.randn(1 << 20, generator=generator) for index in range(8)}


def numpy_state(number):
    rolls = numpy.random.default_rng(number)
    return {f"layer{index}": rolls.standard_normal(1 << 20, dtype=numpy.float32) for index in range(8)}


def slices(path):
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: torch.cat([file.get_slice(name)[:1000], file.get_slice(name)[1000:]]) for name in file.keys()}


def alike(left, right):
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in right)


CLIENTS = {
    "torch": Client(torch_state, lambda path, state: safetensors.torch.save_file(state, path),
                    safetensors.torch.load_file, alike, (safetensors.SafetensorError,)),
    "slices": Client(torch_state, lambda path, state: safetensors.torch.save_file(state, path), slices, alike,
                     (safetensors.SafetensorError,)),
    "numpy": Client(numpy_state, lambda path, state: safetensors.numpy.save_file(state, path),
                    safetensors.numpy.load_file, alike, (safetensors.SafetensorError,)),
}


@pytest.mark.P2
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_killed_while_saving(trial, client):
    trial(client, "model.safetensors").kill_client()


@pytest.mark.P1
@pytest.mark.P2
def test_killed_together_with_the_daemon(trial):
    trial(CLIENTS["torch"], "model.safetensors").kill_daemon()
