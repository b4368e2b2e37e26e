"""compress=: what is stored smaller comes back as it was, for every client and tool."""
import json
import os
import random

import pytest

from lab.data import pattern
from lab.programs import run

pytestmark = [pytest.mark.P3, pytest.mark.P6]

torch = pytest.importorskip("torch")

MIB = 1 << 20


def weights(kind, count=4 << 20):
    torch.manual_seed(7)
    return (torch.randn(count) * 0.02).to(kind)


def stat(binaries, path):
    return json.loads(run(binaries.fpfs, "stat", "--json", path).stdout)


@pytest.mark.parametrize("kind, share", [(torch.bfloat16, 0.68), (torch.float32, 0.85)], ids=["bf16", "fp32"])
@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
@pytest.mark.mount_options("compress=zstd")
def test_weights_are_stored_smaller(binaries, mount, array, kind, share, zip_format):
    state, path = {"weights": weights(kind)}, mount.path / "state.pt"
    torch.save(state, path, _use_new_zipfile_serialization=zip_format)
    found = stat(binaries, path)
    assert found["codecs"]["blocks"] > 0
    assert found["stored_bytes"] <= share * found["size"]
    assert os.stat(path).st_blocks * 512 <= share * found["size"] + 4096 * found["chunks"]
    mount.remount()
    assert torch.equal(torch.load(path)["weights"].view(torch.uint8), state["weights"].view(torch.uint8))
    assert torch.equal(torch.load(path, mmap=zip_format)["weights"].view(torch.uint8), state["weights"].view(torch.uint8))
    run(binaries.fpfs, "verify", path)


@pytest.mark.mount_options("compress=zstd:3")
def test_what_does_not_shrink_is_stored_as_it_is(binaries, mount):
    path = mount.path / "noise"
    path.write_bytes(os.urandom(4 * MIB))
    assert stat(binaries, path)["codecs"] == {"raw": 4, "zstd": 0, "blocks": 0}
    assert mount.status()["options"]["compress"] == "zstd:3"


@pytest.mark.mount_options("compress=zstd")
def test_a_damaged_chunk_is_said_and_found(binaries, mount, array):
    path = mount.path / "state.pt"
    path.write_bytes(bytes(range(256)) * (16 * MIB // 256))
    places = json.loads(run(binaries.fpfs, "map", "--json", path).stdout)["extents"]
    place = next(place for place in places if place["codec"] == "blocks")
    mount.unmount()
    with open(place["file"], "r+b") as file:
        file.seek(place["file_offset"] + place["stored_length"] // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    array.damaged = True
    _, report = array.fsck_report("-n", "--verify-data")
    assert [error["kind"] for error in report["errors"]] == ["checksum"]
    mount.start()
    with open(path, "rb") as file, pytest.raises(OSError, match="Input/output"):
        file.read()


def test_mounts_of_all_kinds_read_what_others_wrote(mount, binaries):
    """Without the option, with it, without it: each changes a piece in the middle, and appends."""
    path, content = mount.path / "file", bytearray()
    rolls = random.Random(5)
    for turn, option in enumerate(("compress=zstd", "compress=off", "compress=auto", "compress=zstd:19", "compress=off")):
        mount.unmount()
        mount.options = [option]
        mount.start()
        assert not content or path.read_bytes() == content
        with open(path, "r+b" if content else "w+b") as file:
            piece = bytes(rolls.choices(range(4), k=3 * MIB)) if turn % 3 == 0 else pattern(turn, 0, 3 * MIB)
            at = rolls.randrange(max(len(content) - len(piece), 1)) if content else 0
            file.seek(at)
            file.write(piece)
            content[at:at + len(piece)] = piece
            file.seek(0, os.SEEK_END)
            file.write(piece[:100_001])
            content += piece[:100_001]
        assert path.read_bytes() == content
        if option.startswith("compress=zstd"):
            assert stat(binaries, path)["codecs"]["blocks"] > 0


@pytest.mark.mount_options("compress=zstd")
def test_truncated_punched_and_read_anywhere(mount):
    path = mount.path / "file"
    rolls = random.Random(9)
    content = bytearray(bytes(rolls.choices(range(5), k=8 * MIB)))
    path.write_bytes(content)
    os.truncate(path, 5 * MIB + 777)
    del content[5 * MIB + 777:]
    os.truncate(path, 7 * MIB)
    content += bytes(7 * MIB - len(content))
    mount.remount()
    with open(path, "rb") as file:
        for _ in range(200):
            at, length = rolls.randrange(7 * MIB), rolls.choice((1, 4096, 100_000))
            assert os.pread(file.fileno(), length, at) == content[at:at + length]
