"""fastpersist-aio as it is installed: the example builds against it by pkg-config and by CMake, and runs."""
import os
import pathlib
import shutil

import pytest

from lab.programs import run

EXAMPLE = pathlib.Path(__file__).parents[2] / "tools/examples/save_tensor.cpp"


@pytest.fixture(scope="module")
def prefix(binaries, tmp_path_factory):
    run("cmake", "--build", binaries.build, "--target", "fastpersist_aio", timeout=600)
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


def test_only_the_library_is_installed(prefix):
    folders = {path.relative_to(prefix).parts[0] for path in prefix.rglob("*") if path.is_file()}
    assert folders == {"include", "lib"}
    assert [path.relative_to(prefix).as_posix() for path in prefix.rglob("*.h")] == ["include/fastpersist/aio.h"]


def test_the_header_needs_no_other_of_ours():
    header = pathlib.Path(__file__).parents[2] / "engine/aio/aio.h"
    assert '#include "' not in header.read_text()


def test_only_the_header_is_exported(libraries):
    names = run("nm", "-DC", "--defined-only", libraries / "libfastpersist-aio.so").stdout.splitlines()
    functions = [line.split(None, 2)[2] for line in names if line.split()[1] == "T"]
    assert functions
    assert all(name.startswith(("fastpersist::AioHandle::", "fastpersist::PinnedBuffer::")) for name in functions)


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
        f"add_executable(save_tensor {EXAMPLE})\ntarget_link_libraries(save_tensor PRIVATE fastpersist::aio)\n")
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


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_the_benchmark_runs(binaries, tmp_path):
    """Tiny: that it runs, not how fast."""
    program = binaries.build / "tools/fpfs-bench-aio"
    run("cmake", "--build", binaries.build, "--target", program.name, timeout=600)
    said = run(EXAMPLE.parents[1] / "bench/aio_against_fio", tmp_path / "file", "--program", program, "--rounds", "1",
               "--bytes", str(8 << 20), "--settings", "131072,4,2").stdout.splitlines()
    assert [line.split()[:4] for line in said[1:]] == [[kind, "131072", "4", "2"] for kind in ("write", "read")]
    assert not list(tmp_path.iterdir())
