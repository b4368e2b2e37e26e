"""Some handles go through the kernel's page cache and others past it: all must see one content all the same."""
import mmap
import os
import threading
import time

import pytest

from lab.system import die_with_parent, in_child

pytestmark = pytest.mark.P6

MIB = 1 << 20


def test_a_write_is_seen_by_every_handle_at_once(same):
    def behaviour(directory):
        path = directory / "file"
        writer = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(writer, b"a" * 3 * MIB, 0)
        reader = os.open(path, os.O_RDONLY)
        seen = [os.pread(reader, 4 * MIB, 0) == b"a" * 3 * MIB]
        for turn in range(100):
            content, offset = bytes([65 + turn % 26]) * 5000, turn * 7001
            os.pwrite(writer, content, offset)
            seen.append(os.pread(reader, 5000, offset) == content)
            other = os.open(path, os.O_RDONLY)
            seen.append(os.pread(other, 5000, offset) == content)
            os.close(other)
        os.pwrite(writer, b"tail", 3 * MIB)
        seen.append(os.pread(reader, 100, 3 * MIB - 3))
        os.ftruncate(writer, 100)
        seen += [os.fstat(reader).st_size, os.pread(reader, 1000, 0) == os.pread(writer, 1000, 0)]
        os.ftruncate(writer, 200)
        seen.append(os.pread(reader, 1000, 0)[90:])
        os.close(writer)
        os.close(reader)
        return seen

    same(behaviour)


def test_a_mapping_sees_writes_and_truncation(same):
    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(b"b" * MIB)
        with open(path, "r+b", buffering=0) as writer, open(path, "rb") as reader:
            with mmap.mmap(reader.fileno(), MIB, prot=mmap.PROT_READ) as mapping:
                seen = [mapping[5:8]]
                os.pwrite(writer.fileno(), b"xyz", 5)
                seen.append(mapping[4:9])
                with mmap.mmap(writer.fileno(), MIB) as shared:
                    shared[100:103] = b"map"
                    seen += [mapping[99:104], os.pread(reader.fileno(), 5, 99)]
        seen.append(path.read_bytes()[99:104])
        return seen

    same(behaviour)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY], ids=["rdwr", "wronly"])
def test_a_write_beside_a_mapping_that_changes_the_same_page(same, flags):
    """Neither loses anything, at whatever moment of the write the mapping touches the page (xfstests generic/344)."""
    PAGES, ROUNDS, WORD = 4, 8000, 8

    def encoded(number):
        return number.to_bytes(WORD, "little")

    def map_words(view, done):
        number = 0
        while not done[0]:
            number += 1
            for page in range(PAGES):
                view[page * 4096 + 2048:page * 4096 + 2048 + WORD] = encoded(number)
        done[8:8 + WORD] = encoded(number)

    def behaviour(directory):
        path = directory / "file"
        path.write_bytes(bytes(PAGES * 4096))
        done = mmap.mmap(-1, 4096)
        with open(path, "r+b", buffering=0) as file, mmap.mmap(file.fileno(), 0) as view:
            child = os.fork()
            if child == 0:
                die_with_parent()
                map_words(view, done)
                os._exit(0)
            writer = os.open(path, flags)
            lost = 0
            for number in range(1, ROUNDS):
                offset = number % PAGES * 4096
                os.pwrite(writer, encoded(number), offset)
                lost += os.pread(file.fileno(), WORD, offset) != encoded(number)
            done[0] = 1
            _, status = os.waitpid(child, 0)
            os.close(writer)
            last = done[8:8 + WORD]
            lost += sum(view[page * 4096 + 2048:page * 4096 + 2048 + WORD] != last for page in range(PAGES))
        content = path.read_bytes()
        lost += sum(content[page * 4096 + 2048:page * 4096 + 2048 + WORD] != last for page in range(PAGES))
        return lost, status

    assert same(behaviour) == (0, 0)


def test_a_rewritten_file_is_read_anew_although_its_times_are_the_same(same):
    def behaviour(directory):
        path = directory / "file"
        for turn in range(30):
            path.write_bytes(bytes([turn]) * 200000)
            os.utime(path, (1, 1))
            for _ in range(2):
                assert path.read_bytes() == bytes([turn]) * 200000, turn
            with open(path, "r+b") as file:
                file.write(b"new")
            os.utime(path, (1, 1))
            assert path.read_bytes() == b"new" + bytes([turn]) * 199997, turn
        return True

    same(behaviour)


def test_an_open_that_truncates_overtakes_pages_on_their_way_to_the_file(array, make_mount):
    """They do not bring the old content back."""
    PAGES = 4000  # every second one is a request of its own: many more than the kernel has under way at once
    mount = make_mount(array)
    path = mount.path / "file"
    path.write_bytes(b"old!" * (PAGES * 1024))

    def truncate():
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))

    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        for page in range(0, PAGES, 2):
            view[page * 4096] = view[page * 4096]
        mount.freeze()
        children = []
        for call in (view.flush, truncate):
            children.append(threading.Thread(target=in_child, args=[call]))
            children[-1].start()
            time.sleep(0.5)  # until it waits for the daemon
        mount.thaw()
        for child in children:
            child.join()
    assert path.read_bytes() == b""
    mount.remount()
    assert path.stat().st_size == 0


def drive_reads(mount):
    return sum(member["bytes_read"] for member in mount.status()["members"])


@pytest.mark.alone  # others drop what the whole machine has cached
def test_pages_of_a_committed_file_stay_for_the_next_reader(array, make_mount):
    mount = make_mount(array)
    path = mount.path / "file"
    path.write_bytes(os.urandom(8 * MIB))
    mount.remount()
    first = path.read_bytes()
    assert drive_reads(mount) >= 8 * MIB
    # Without the privilege to raise the kernel's read-ahead, readers go past the cache; the engine's own pool serves then.
    # The kernel may also drop some pages when it likes (its proactive reclaim does now and then): most do without.
    from_drives = []
    for _ in range(8):
        before = drive_reads(mount)
        assert path.read_bytes() == first
        from_drives.append(drive_reads(mount) - before)
    assert from_drives.count(0) > len(from_drives) / 2, from_drives
    with open(path, "r+b") as file:
        file.write(b"changed")
    assert path.read_bytes() == b"changed" + first[7:]
