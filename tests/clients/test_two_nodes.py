"""Two nodes, each with an array, a mount and a network of its own, that share an S3 store: a distributed checkpoint that
ranks on both have saved is loaded on one."""
import os

import pytest

from lab.copies import set_tier, sync, tier
from lab.killing import in_child
from lab.network import NodeNetwork
from lab.object_stores import SeaweedStore
from lab.system import die_with_parent, wait_until

pytestmark = [pytest.mark.P3, pytest.mark.P6]

torch = pytest.importorskip("torch")
checkpoint = pytest.importorskip("torch.distributed.checkpoint")

PORT = 29511  # of the ranks' meeting, on the first node


@pytest.fixture
def network():
    made = NodeNetwork(2)
    yield made
    made.close()


@pytest.fixture
def nodes(lab, make_array, make_mount, network, monkeypatch):
    """Mounts whose daemons reach the store by the network only."""
    service = SeaweedStore(lab / "store-of-nodes")
    try:
        for key, value in service.environment.items():
            monkeypatch.setenv(key, value)
        network.forward(service.port)
        url = f"s3://{service.BUCKET}/job?endpoint=http://{network.gateway}:{service.port}"
        mounts = [make_mount(make_array(), "tier_share=1", prefix=network.inside(number)) for number in range(2)]
        for mount in mounts:
            set_tier(mount, url, "--share")
        yield mounts
        for mount in mounts:
            if mount.process:
                mount.unmount()
    finally:
        service.close()


def whole_state():
    generator = torch.Generator().manual_seed(1)
    return {"rows": torch.randn(2048, 999, generator=generator), "odd": torch.randn(7, 13, generator=generator),
            "bytes": torch.arange(1 << 20, dtype=torch.int64).to(torch.uint8)}


def in_ranks(network, body):
    """body(rank) in one process on each node, which form a gloo group."""
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                die_with_parent()
                network.enter(rank)
                torch.set_num_threads(1)
                os.environ.update(GLOO_SOCKET_IFNAME="eth0", MASTER_ADDR=network.addresses[0], MASTER_PORT=str(PORT))
                torch.distributed.init_process_group("gloo", init_method="env://", rank=rank, world_size=2)
                body(rank)
                torch.distributed.barrier()
                torch.distributed.destroy_process_group()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_saved_by_two_nodes_and_loaded_on_one(network, nodes):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    state = whole_state()

    def save(rank):
        mesh = init_device_mesh("cpu", (2,))
        shares = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in state.items()}
        checkpoint.save(shares, checkpoint_id=str(nodes[rank].path / "step1"))

    in_child(lambda: in_ranks(network, save))
    # Each has its own, and of the other what has been copied by now.
    shards = [{path.name for path in (node.path / "step1").iterdir()} for node in nodes]
    assert shards[0] >= {".metadata", "__0_0.distcp"} and shards[1] >= {"__1_0.distcp"}
    for node in nodes:
        sync(node)
    nodes[0].unmount()  # that node is gone
    wanted = {".metadata", "__0_0.distcp", "__1_0.distcp"}
    wait_until(lambda: {path.name for path in (nodes[1].path / "step1").iterdir()} == wanted)  # a second later
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    checkpoint.load(loaded, checkpoint_id=str(nodes[1].path / "step1"), no_dist=True)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    assert tier(nodes[1])["conflicts"] == 0 and tier(nodes[1])["errors"] == 0
