"""The libraries as they are installed: their examples build against them by pkg-config and by CMake, and run."""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from lab.damage import extents_of, flip
from lab.programs import run

EXAMPLES = pathlib.Path(__file__).parents[2] / "tools/examples"
EXAMPLE = EXAMPLES / "save_tensor.cpp"
LIBRARIES = {"aio": ("AioHandle", "PinnedBuffer"), "array": ("Array",)}


@pytest.fixture(scope="module")
def prefix(binaries, tmp_path_factory):
    run("cmake", "--build", binaries.build, "--target", *(f"fastpersist_{name}" for name in LIBRARIES), timeout=600)
    directory = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", binaries.build, "--component", "library", "--prefix", directory)
    return directory


@pytest.fixture(scope="module")
def libraries(prefix):
    found, = prefix.rglob("libfastpersist-aio.so")
    return found.parent


def expect_example_works(program, libraries, tmp_path, elements):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    file = tmp_path / "tensor"
    file.write_bytes(b"old" * 10_000_000)
    said = run(program, file, str(elements), env=environment).stdout
    assert said == f"{4 * elements} bytes saved and loaded\n"
    assert file.stat().st_size == 4 * elements
    failed = run(program, tmp_path / "no/file", env=environment, check=False)
    assert failed.returncode == 1 and "No such file" in failed.stderr


def test_only_the_libraries_are_installed(prefix):
    folders = {path.relative_to(prefix).parts[0] for path in prefix.rglob("*") if path.is_file()}
    assert folders == {"include", "lib"}
    assert {path.relative_to(prefix).as_posix() for path in prefix.rglob("*.h")} == {
        f"include/fastpersist/{name}.h" for name in ("error", *LIBRARIES)}


def test_the_headers_need_no_other_of_ours(prefix):
    for header in (prefix / "include/fastpersist").iterdir():
        for name in re.findall('#include "(.*)"', header.read_text()):
            assert (header.parent / name).exists()


@pytest.mark.parametrize("name", LIBRARIES)
def test_only_the_header_is_exported(libraries, name):
    names = run("nm", "-DC", "--defined-only", libraries / f"libfastpersist-{name}.so").stdout.splitlines()
    functions = [line.split(None, 2)[2] for line in names if line.split()[1] == "T"]
    assert functions
    ours = tuple(f"fastpersist::{type}::" for type in LIBRARIES[name])
    assert all(function.startswith(ours) for function in functions)
    assert not [line for line in names if "fpfs::" in line]


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="needs pkg-config")
def test_example_by_pkg_config(prefix, libraries, tmp_path, monkeypatch):
    monkeypatch.setenv("PKG_CONFIG_PATH", str(libraries / "pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "fastpersist-aio").stdout.split()
    run("g++", "-std=c++20", "-Wall", "-Werror", EXAMPLE, "-o", tmp_path / "save_tensor", *flags, timeout=120)
    expect_example_works(tmp_path / "save_tensor", libraries, tmp_path, 1_000_003)


@pytest.mark.root
def test_example_by_cmake(prefix, libraries, tmp_path, make_array, make_mount):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(outside LANGUAGES CXX)\nfind_package(fastpersist 0.1 REQUIRED)\n"
        f"add_executable(save_tensor {EXAMPLE})\ntarget_link_libraries(save_tensor PRIVATE fastpersist::aio)\n"
        f"add_executable(save_to_array {EXAMPLES}/save_to_array.cpp)\n"
        "target_link_libraries(save_to_array PRIVATE fastpersist::array)\n")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", timeout=120)
    run("cmake", "--build", tmp_path / "build", timeout=120)
    expect_example_works(tmp_path / "build/save_tensor", libraries, tmp_path, 25)
    # Under a mount, whose close is the commit.
    mount = make_mount(make_array())
    expect_example_works(tmp_path / "build/save_tensor", libraries, mount.path, 1_000_003)
    # A filesystem that is too small.
    full = tmp_path / "full"
    full.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "none", full)
    try:
        failed = run(tmp_path / "build/save_tensor", full / "tensor", "1000003", check=False,
                     env={**os.environ, "LD_LIBRARY_PATH": str(libraries)})
    finally:
        run("umount", full)
    assert failed.returncode == 1
    assert "No space left" in failed.stderr or "O_DIRECT" in failed.stderr  # tmpfs has it since Linux 6.6


# --- tensors in an array, without a mount ----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def save_to_array(prefix, libraries, drives, tmp_path_factory):
    """save_to_array(verb, array, path, ...): runs the example."""
    if not drives.direct_io:
        pytest.skip("needs O_DIRECT")
    program = tmp_path_factory.mktemp("example") / "save_to_array"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "fastpersist-array", env=environment).stdout.split()
    run("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", EXAMPLES / "save_to_array.cpp", "-o", program, *flags,
        timeout=120)

    def call(verb, array, *words, start=False, **options):
        command = [str(word) for word in (program, verb, array.argument, *words)]
        if start:
            return subprocess.Popen(command, env=environment)
        return run(*command, env=environment, **options)
    return call


def weights(elements, seed):
    numpy = pytest.importorskip("numpy")
    return ((numpy.arange(elements, dtype=numpy.int64) * 31 + seed * 17) % 65521).astype(numpy.float32)


@pytest.mark.P6
def test_saved_without_a_mount_is_read_on_one(save_to_array, make_array, make_mount):
    numpy, safetensors = pytest.importorskip("numpy"), pytest.importorskip("safetensors.numpy")
    array = make_array()
    for elements, seed in ((100, 3), (1_000_003, 4), (2_000_001, 5)):  # the file's own index holds the first one
        save_to_array("save", array, "run7/model.safetensors", elements, seed)
        assert save_to_array("load", array, "/run7/model.safetensors").stdout == f"seed {seed}, {elements} elements\n"
    save_to_array("save", array, "/run7/deeper//small.safetensors", 100, 6)
    array.assert_clean()
    mount = make_mount(array)
    assert sorted(path.name for path in mount.path.glob("run7/*")) == ["deeper", "model.safetensors"]
    loaded = safetensors.load_file(mount.path / "run7/model.safetensors")
    assert loaded.keys() == {"weight", "step"} and loaded["step"] == 5
    assert numpy.array_equal(loaded["weight"], weights(2_000_001, 5))
    with safetensors.safe_open(mount.path / "run7/deeper/small.safetensors", framework="np") as file:
        assert file.metadata() == {"seed": "6"} and file.get_slice("weight")[7] == weights(8, 6)[7]
    # While it is mounted nobody else has it.
    refused = save_to_array("load", array, "run7/model.safetensors", check=False)
    assert refused.returncode == 1 and str(mount.pid) in refused.stderr
    # The other way.
    saved = {"step": numpy.array(7, numpy.int64), "weight": weights(1_000_001, 7), "other": numpy.ones(3, numpy.uint8)}
    safetensors.save_file(saved, mount.path / "run7/theirs.safetensors", metadata={"seed": "7"})
    (mount.path / "run7/link").symlink_to("model.safetensors")
    (mount.path / "run7/no-tensors").write_bytes(b"{" * 1000)
    mount.unmount()
    assert save_to_array("load", array, "run7/theirs.safetensors").stdout == "seed 7, 1000001 elements\n"
    for verb, path, words in [("load", "run7/none", "No such file"), ("load", "run7/link", "not a regular file"),
                              ("load", "run7/no-tensors", "no file of safetensors"), ("load", "run7", "not a regular"),
                              ("load", "../run7", "'..'"), ("save", "run7", "s a directory"), ("save", "", "no file"),
                              ("save", "run7/link/x", "Not a directory")]:
        failed = save_to_array(verb, array, path, check=False)
        assert failed.returncode == 1 and words in failed.stderr and path[:9] in failed.stderr, failed.stderr
        assert failed.stderr.count("\n") == 1


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.P7
def test_killed_while_saving(save_to_array, make_array):
    """What is there is what was saved last, or what was being saved, whole."""
    array, elements = make_array(chunk_size=262144), 3_000_000
    save_to_array("save", array, "model", elements, 0)
    rolls, last = random.Random(1), 0
    for seed in range(1, 7):
        saver = save_to_array("save", array, "model", elements, seed, start=True)
        time.sleep(rolls.uniform(0, 0.25))
        saver.send_signal(signal.SIGKILL)
        is_saved = saver.wait() == 0
        loaded = save_to_array("load", array, "model").stdout
        assert loaded in {f"seed {number}, {elements} elements\n" for number in ({seed} if is_saved else {last, seed})}
        last = int(loaded.split()[1].rstrip(","))
    save_to_array("save", array, "model", 10, 99)
    array.assert_clean()


@pytest.mark.P4
@pytest.mark.root
def test_a_full_array_keeps_the_old_file(save_to_array, make_array, make_drive):
    array = make_array(paths=[make_drive(64 << 20).path for _ in range(2)])
    save_to_array("save", array, "model", 1_000_000, 1)
    failed = save_to_array("save", array, "model", 60_000_000, 2, check=False)
    assert failed.returncode == 1 and "has no room" in failed.stderr
    assert save_to_array("load", array, "model").stdout == "seed 1, 1000000 elements\n"
    save_to_array("save", array, "model", 2_000_000, 3)
    array.assert_clean()


@pytest.mark.P3
def test_damage_is_never_content(save_to_array, make_array, make_mount):
    array = make_array()
    save_to_array("save", array, "model", 2_000_000, 1)
    mount = make_mount(array)
    extent = extents_of(mount, mount.path / "model")["extents"][3]
    mount.unmount()
    array.damaged = True
    flip(extent["file"], extent["file_offset"] + 1000)
    failed = save_to_array("load", array, "model", check=False)
    assert failed.returncode == 1 and "model" in failed.stderr and failed.stdout == ""
