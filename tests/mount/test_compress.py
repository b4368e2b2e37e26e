"""compress=: what is stored smaller comes back as it was, for every client and tool."""
import json
import mmap
import os
import pwd
import random

import numpy
import pytest

from lab.data import pattern
from lab.programs import run
from lab.system import attempt, in_child

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


def planes_undone(stored, size, width, phase, rotation, frame):
    """docs/format.md, "Blocks": a block of planes."""
    count = (size - phase) // width
    tail = size - phase - count * width
    at, planes = 4 * width + phase + tail, []
    for k in range(width):
        length, method = int.from_bytes(stored[4 * k:4 * k + 3], "little"), stored[4 * k + 3]
        piece = stored[at:at + length]
        planes.append({1: lambda: piece, 2: lambda: piece * count, 3: lambda: frame(piece, count)}[method]())
        at += length
    assert at == len(stored)
    elements = numpy.stack([numpy.frombuffer(plane, "u1") for plane in planes], axis=1).reshape(-1).view(f"<u{width}")
    if rotation:
        elements = (elements >> rotation) | (elements << (8 * width - rotation))
    head = stored[4 * width:4 * width + phase]
    return head + elements.tobytes() + stored[4 * width + phase:4 * width + phase + tail]


def blocks_undone(stored, frame):
    """docs/format.md, "Blocks", with any zstd: `frame(bytes, size)` decodes one."""
    assert stored[:4] == b"FBLK"
    size, block_size = int.from_bytes(stored[4:8], "little"), 1 << stored[8]
    count = -(-size // block_size)
    at, content = 32 + 16 * count, b""
    for i in range(count):
        entry, raw = stored[32 + 16 * i:48 + 16 * i], min(block_size, size - i * block_size)
        length, (method, width, phase, rotation) = int.from_bytes(entry[:4], "little"), entry[4:8]
        block = stored[at:at + length]
        content += {1: lambda: block, 2: lambda: (block * (raw // 8 + 1))[:raw], 3: lambda: frame(block, raw),
                    4: lambda: planes_undone(block, raw, width, phase, rotation, frame)}[method]()
        at += length
    assert at == len(stored)
    return content


@pytest.mark.mount_options("compress=zstd")
def test_what_lies_on_the_drives_is_what_the_format_says(binaries, mount):
    """Decoded by numpy and another zstd: numbers of every width, at odd places; text, zeros, noise."""
    zstd = pytest.importorskip("pyarrow").Codec("zstd")
    special = torch.tensor([float("nan"), -0.0, float("inf"), -float("inf"), 1e-40, -1e-45])
    pieces = [weights(kind, MIB // 2) for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64)]
    pieces += [special.repeat(20000), torch.randint(0, 50000, (MIB // 4,)),
               torch.randint(0, 50000, (MIB // 2,), dtype=torch.int32)]
    content = b"\x07".join(piece.view(torch.uint8).numpy().tobytes() for piece in pieces)
    content += b"".join(b"step %d loss %d\n" % (step, step * 7 % 1000) for step in range(60000))
    content += bytes(2 * MIB) + os.urandom(MIB)
    path = mount.path / "file"
    path.write_bytes(content)
    found, methods = b"", set()
    for extent in json.loads(run(binaries.fpfs, "map", "--json", path).stdout)["extents"]:
        with open(extent["file"], "rb") as file:
            file.seek(extent["file_offset"])
            stored = file.read(extent["stored_length"])
        assert extent["offset"] == len(found) and len(stored) <= extent["length"]
        if extent["codec"] == "blocks":
            methods |= set(stored[36:32 + 16 * (-(-extent["length"] // 65536)):16])
            stored = blocks_undone(stored, lambda frame, size: zstd.decompress(frame, size, asbytes=True))
        found += stored
    assert found == content
    assert methods == {1, 2, 3, 4}


@pytest.mark.mount_options("compress=zstd:3")
def test_what_does_not_shrink_is_stored_as_it_is(binaries, mount):
    path = mount.path / "noise"
    path.write_bytes(os.urandom(4 * MIB))
    assert stat(binaries, path)["codecs"] == {"raw": 4, "zstd": 0, "blocks": 0, "away": 0}
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


def bytes_read(mount):
    return sum(member["bytes_read"] for member in mount.status()["members"])


@pytest.fixture
def weights_on_drives(mount):
    """A file of bf16 weights that is in nobody's memory, and its content."""
    path, chunks = mount.path / "weights", 32
    content = weights(torch.bfloat16, chunks * MIB // 2).view(torch.uint8).numpy().tobytes()
    path.write_bytes(content)
    mount.remount()
    return path, content


@pytest.mark.mount_options("compress=zstd")
def test_a_short_read_at_random_takes_one_block(binaries, mount, weights_on_drives):
    """64 KiB of content, which these weights have stored in less, and the chunk's index."""
    path, content = weights_on_drives
    assert stat(binaries, path)["codecs"]["blocks"] == len(content) // MIB
    rolls = random.Random(3)
    with open(path, "rb", buffering=0) as file:
        for chunk in rolls.sample(range(1, len(content) // MIB), 12):
            before, at = bytes_read(mount), chunk * MIB + rolls.randrange(0, MIB, 4096)
            assert os.pread(file.fileno(), 4096, at) == content[at:at + 4096]
            assert 4096 < bytes_read(mount) - before <= 65536
        # Who comes again to one of them has it loaded: what follows is in memory.
        before = bytes_read(mount)
        for at in range(chunk * MIB + 3 * 4096, (chunk + 1) * MIB, 17 * 4096):
            assert os.pread(file.fileno(), 4096, at) == content[at:at + 4096]
        assert bytes_read(mount) - before <= MIB
        before = bytes_read(mount)
        assert os.pread(file.fileno(), 4096, at - 8192) == content[at - 8192:at - 4096]
        assert bytes_read(mount) == before


@pytest.mark.mount_options("compress=zstd")
def test_pages_of_a_mapping_do_not_come_block_by_block(binaries, mount, weights_on_drives):
    path, content = weights_on_drives
    rolls = random.Random(4)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        view.madvise(mmap.MADV_RANDOM)  # a request for each page
        pages = list(range(0, len(content), 4096))
        rolls.shuffle(pages)
        for at in pages:
            assert view[at:at + 4096] == content[at:at + 4096]
    chunks = len(content) // MIB
    assert bytes_read(mount) <= stat(binaries, path)["stored_bytes"] + chunks * (4096 + 65536)


@pytest.mark.mount_options("compress=zstd")
def test_a_damaged_block_fails_its_readers_alone(binaries, mount, array, weights_on_drives):
    path, content = weights_on_drives
    place = json.loads(run(binaries.fpfs, "map", "--json", path).stdout)["extents"][5]
    assert place["codec"] == "blocks"
    mount.unmount()
    with open(place["file"], "r+b") as file:
        file.seek(place["file_offset"] + place["stored_length"] - 1000)  # of its last block
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    array.damaged = True
    mount.start()
    first, last = place["offset"], place["offset"] + MIB - 4096
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(file.fileno(), 4096, first + 65536) == content[first + 65536:first + 65536 + 4096]
    mount.remount()
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert attempt(os.pread, file.fileno(), 4096, last) == "EIO"
    assert mount.status()["members"][place["member"]]["checksum_errors"] > 0
    assert f"weights, chunk 5: member {place['member']}" in mount.log()


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


NOBODY = pwd.getpwnam("nobody").pw_uid
ATTRIBUTE = "user.fastpersistfs.compress"
SHRINKS = bytes(range(256)) * (4 * MIB // 256)


def is_compressed(binaries, path):
    codecs = stat(binaries, path)["codecs"]
    assert sum(codecs.values()) > 0
    return codecs["raw"] == 0


def test_a_directory_hands_it_down(binaries, mount):
    before, run7 = mount.path / "run7" / "before", mount.path / "run7"
    run7.mkdir()
    before.write_bytes(SHRINKS)
    os.setxattr(run7, ATTRIBUTE, b"zstd:3")
    (run7 / "deep" / "er").mkdir(parents=True)
    for place in (run7, run7 / "deep" / "er"):
        path = place / "step1"
        path.write_bytes(SHRINKS)
        assert os.getxattr(path, ATTRIBUTE) == b"zstd:3" and ATTRIBUTE in os.listxattr(path)
        assert is_compressed(binaries, path)
        os.mknod(place / "node")
        assert os.getxattr(place / "node", ATTRIBUTE) == b"zstd:3"
        os.mkfifo(place / "fifo")
        unnamed = os.open(place, os.O_TMPFILE | os.O_RDWR)
        assert os.getxattr(unnamed, ATTRIBUTE) == b"zstd:3"
        os.close(unnamed)
    (mount.path / "beside").write_bytes(SHRINKS)
    assert not is_compressed(binaries, mount.path / "beside")
    assert attempt(os.getxattr, before, ATTRIBUTE) == "ENODATA" and not is_compressed(binaries, before)
    # A file that moves away keeps it, one that moves in does not get it.
    os.rename(run7 / "step1", mount.path / "step1")
    os.rename(mount.path / "beside", run7 / "beside")
    mount.remount()
    for path, compresses in ((mount.path / "step1", True), (run7 / "beside", False)):
        with open(path, "ab") as file:
            file.write(SHRINKS)
        assert is_compressed(binaries, path) == compresses
        assert path.read_bytes() == 2 * SHRINKS
    os.removexattr(run7, ATTRIBUTE)
    (run7 / "later").write_bytes(SHRINKS)
    assert not is_compressed(binaries, run7 / "later")
    os.setxattr(run7, ATTRIBUTE, b"zstd")
    (run7 / "latest").write_bytes(SHRINKS)
    assert is_compressed(binaries, run7 / "latest")


@pytest.mark.root
@pytest.mark.mount_options("allow_other")
def test_others_inherit_it_whatever_they_may_do_with_what_they_make(binaries, mount):
    """The mode of a new file and what its maker may read of the directory have no say in it."""
    place = mount.path / "place"
    place.mkdir()
    os.setxattr(place, ATTRIBUTE, b"zstd")
    os.chmod(mount.path, 0o755)
    os.chmod(place, 0o733)

    def make():
        os.umask(0)
        for mode in (0o444, 0o222, 0o000, 0o640):
            descriptor = os.open(place / f"{mode:03o}", os.O_CREAT | os.O_WRONLY, mode)
            os.write(descriptor, SHRINKS)
            os.close(descriptor)

    in_child(make, uid=NOBODY)
    for path in place.iterdir():
        assert os.getxattr(path, ATTRIBUTE) == b"zstd"
        assert is_compressed(binaries, path) and path.read_bytes() == SHRINKS
        assert f"{os.stat(path).st_mode & 0o777:03o}" == path.name and os.stat(path).st_uid == NOBODY


@pytest.mark.mount_options("compress=zstd")
def test_a_file_says_otherwise_while_it_is_open(binaries, mount):
    path = mount.path / "file"
    with open(path, "wb", buffering=0) as file:
        for value, compresses in ((b"off", False), (b"zstd:1", True), (None, True), (b"off", False)):
            os.removexattr(path, ATTRIBUTE) if value is None else os.setxattr(file.fileno(), ATTRIBUTE, value)
            file.truncate(0)
            file.seek(0)
            file.write(SHRINKS)
            os.fsync(file.fileno())
            assert is_compressed(binaries, path) == compresses
    # It has no say in what is stored already.
    os.setxattr(path, ATTRIBUTE, b"zstd")
    assert not is_compressed(binaries, path)
    mount.remount()
    assert not is_compressed(binaries, path)
    path.write_bytes(SHRINKS)
    assert is_compressed(binaries, path)


def test_values_and_nodes_that_cannot_have_it(mount):
    path, link, pipe = (mount.path / name for name in ("file", "link", "pipe"))
    path.touch()
    link.symlink_to("nowhere")
    os.mkfifo(pipe)
    for value in (b"", b"zstd:0", b"zstd:20", b"lz4", b"ZSTD", b"zstd\0", b"zstd " * 20000):
        assert attempt(os.setxattr, path, ATTRIBUTE, value) in ("EINVAL", "E2BIG")
    assert attempt(os.getxattr, path, ATTRIBUTE) == "ENODATA"
    assert attempt(os.removexattr, path, ATTRIBUTE) == "ENODATA"
    assert attempt(os.setxattr, path, ATTRIBUTE, b"zstd", os.XATTR_REPLACE) == "ENODATA"
    assert not attempt(os.setxattr, path, ATTRIBUTE, b"zstd", os.XATTR_CREATE)
    assert attempt(os.setxattr, path, ATTRIBUTE, b"off", os.XATTR_CREATE) == "EEXIST"
    assert attempt(os.setxattr, link, ATTRIBUTE, b"zstd", follow_symlinks=False) == "EPERM"
    assert attempt(os.setxattr, pipe, ATTRIBUTE, b"zstd") == "EPERM"


def test_what_somebody_put_there_under_the_mount_counts_as_none(binaries, mount, array):
    directory = mount.path / "directory"
    directory.mkdir()
    mount.unmount()
    for value in (b"best", b"x" * 1000):
        os.setxattr(array.members[0] / "tree/directory", ATTRIBUTE, value)
        mount.start()
        (directory / "file").write_bytes(SHRINKS)
        assert not is_compressed(binaries, directory / "file")
        assert attempt(os.getxattr, directory / "file", ATTRIBUTE) == "ENODATA"
        mount.unmount()
