"""accelerate: weights offloaded to the mount, where numpy maps them."""
import numpy
import pytest

from lab.killing import Client

pytestmark = pytest.mark.P6

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def accelerate():
    return pytest.importorskip("accelerate")


def make_model(seed, width=512):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width),
                               torch.nn.LayerNorm(width))


def test_disk_offload(mount, accelerate):
    model, inputs = make_model(1).eval(), torch.randn(8, 512)
    with torch.no_grad():
        expected = model(inputs)
        accelerate.disk_offload(model, offload_dir=str(mount.path / "offload"), execution_device="cpu")
        assert all(parameter.device.type == "meta" for parameter in model.parameters())
        assert torch.equal(model(inputs), expected)
    assert len(list((mount.path / "offload").glob("*.dat"))) == 6


def test_offloaded_weights_survive_a_remount(mount, accelerate):
    state = dict(make_model(2).state_dict(), half=torch.randn(77, 33).bfloat16(), scalar=torch.tensor(2.5))
    accelerate.utils.offload_state_dict(str(mount.path / "offload"), state)
    mount.remount()
    loader = accelerate.utils.OffloadedWeightsLoader(save_folder=str(mount.path / "offload"))
    assert set(loader) == set(state)
    for name, tensor in state.items():
        assert torch.equal(loader[name], tensor) and loader[name].dtype == tensor.dtype
    del loader


def test_load_and_dispatch_to_disk(mount, accelerate):
    model, inputs = make_model(3).eval(), torch.randn(8, 512)
    with torch.no_grad():
        expected = model(inputs)
    accelerate.Accelerator(cpu=True).save_model(model, str(mount.path / "model"), max_shard_size="3MB")
    with accelerate.init_empty_weights():
        empty = make_model(4)
    empty = accelerate.load_checkpoint_and_dispatch(
        empty, str(mount.path / "model"), device_map={"0": "cpu", "1": "cpu", "2": "disk", "3": "disk"},
        offload_folder=str(mount.path / "offload"))
    with torch.no_grad():
        assert torch.equal(empty.eval()(inputs), expected)


def test_killed_while_offloading(trial, accelerate):
    """The files have their size before their content comes, through a shared mapping: any page may be missing."""
    def make(number):
        generator = torch.Generator().manual_seed(number)
        return {f"layer{index}": torch.randn(1 << 20, generator=generator) for index in range(8)}

    def load(path):
        found = {file.stem: numpy.fromfile(file, numpy.float32) for file in path.glob("*.dat")}
        return {name: torch.from_numpy(content) for name, content in found.items()}

    def same(loaded, state):
        return loaded.keys() == state.keys() and all(torch.equal(loaded[name], state[name]) for name in state)

    def in_pages(content):
        # Of bytes: memcpy(3) may copy by `rep movsb`, which a kill ends within a number (on any filesystem).
        return content.numpy().view(numpy.uint8).reshape(-1, 4096)

    def is_part(loaded, old, new):
        copied_into = []
        for name, content in loaded.items():
            pages = in_pages(content)
            allowed = [in_pages(state[name])[:len(pages)] for state in (new, old) if state]
            allowed.append(numpy.zeros_like(pages))
            if not numpy.any([pages == other for other in allowed], axis=0).all():
                return False
            whole = numpy.any([(pages == other).all(axis=1) for other in allowed], axis=0)
            copied_into += [(name, page) for page in numpy.flatnonzero(~whole) if 0 < page < len(pages) - 1]
        if not copied_into:
            return True
        # These are where the kill found memcpy(3), which copies up to four pages at once, and what is at both ends of the
        # whole at times of its own.
        (first_name, first), (last_name, last) = copied_into[0], copied_into[-1]
        return first_name == last_name and last - first < 4

    client = Client(make, lambda path, state: accelerate.utils.offload_state_dict(str(path), state), load, same,
                    is_part=is_part)
    trial(client, "offload").kill_client()
