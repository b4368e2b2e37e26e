"""tests/tidy.py: which sources it looks at, with which options, and that a finding fails it."""
import json
import subprocess
import sys

import pytest
import tidy


def test_options_that_only_gcc_knows_are_left_out():
    command = 'g++ -DNAME=\\"x\\" -include /build/x.dir/cmake_pch.hxx -include other.h -Winvalid-pch -Werror -o a.o -c a.cpp'
    assert tidy.for_clang(command) == ["g++", '-DNAME="x"', "-include", "other.h", "-c", "a.cpp",
                                       "-Wno-unknown-warning-option"]


def test_a_build_of_many_sources_at_once_hides_them(tmp_path):
    entry = {"file": f"{tmp_path}/x.dir/Unity/unity_0_cxx.cxx", "output": "o", "command": "g++ -c x", "directory": "/"}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    with pytest.raises(SystemExit, match="CMAKE_UNITY_BUILD=OFF"):
        tidy.read_commands(tmp_path)


def test_batches_are_of_one_target_and_its_options():
    def entry(name, target, *options):
        return {"file": name, "output": f"/build/{target}.dir/{name}.o", "arguments": ["g++", *options, "-c", name]}

    entries = {name: entry(name, "one") for name in "abcdefghi"}
    entries |= {"j": entry("j", "one", "-O1"), "k": entry("k", "two"), "l": entry("l", "two")}
    assert tidy.in_batches(entries, entries) == [list("abcdefgh"), ["i"], ["j"], ["k", "l"]]


@pytest.fixture
def project(lab, monkeypatch, numbers):
    """write(name, content), commit(), look(*arguments) -> (exit status, output) in a repository of its own."""
    place = lab / f"tidy{next(numbers)}"
    (place / "build").mkdir(parents=True)
    monkeypatch.setattr(tidy, "REPOSITORY", place)
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")

    class Project:
        def write(self, name, content):
            (place / name).write_text(content)

        def commit(self):
            subprocess.run(["git", "-C", place, "add", "."], check=True)
            subprocess.run(["git", "-C", place, *identity, "commit", "-qm", "change"], check=True)

        def look(self, capsys, *arguments):
            (place / "build/compile_commands.json").write_text(json.dumps([
                {"directory": str(place), "file": str(source), "output": f"{place}/build/all.dir/{source.name}.o",
                 "command": f"g++ -std=c++20 -c {source}"} for source in sorted(place.glob("*.cpp"))]))
            monkeypatch.setattr(sys, "argv", ["tidy.py", str(place / "build"), *arguments])
            with pytest.raises(SystemExit) as ended:
                tidy.main()
            return ended.value.code, capsys.readouterr().out

    subprocess.run(["git", "init", "-qb", "main", place], check=True)
    project = Project()
    project.write(".gitignore", "build/\n")
    project.write(".clang-tidy", "Checks: '-*,modernize-use-nullptr'\nHeaderFilterRegex: '.*'\n")
    return project


CLEAN = "int* {}() {{ return nullptr; }}\n"
FOUND = "int* {}() {{ return 0; }}\n"


def test_a_finding_fails_it(project, capsys):
    project.write("a.cpp", CLEAN.format("a"))
    project.write("b.cpp", CLEAN.format("b"))
    assert project.look(capsys) == (0, "clang-tidy: 2 sources, 0 warnings\n")
    project.write("b.cpp", FOUND.format("b"))
    status, said = project.look(capsys)
    assert status == 1 and "b.cpp:1:19: warning" in said and said.endswith("clang-tidy: 2 sources, 1 warnings\n")


def test_sources_that_repeat_names(project, capsys):
    project.write("a.cpp", FOUND.format("same"))
    project.write("b.cpp", CLEAN.format("same"))
    status, said = project.look(capsys)
    assert status == 1 and said.endswith("clang-tidy: 2 sources, 1 warnings\n") and "diagnostic" not in said


def test_what_does_not_compile_fails_it(project, capsys):
    project.write("a.cpp", "int a( {\n")
    assert project.look(capsys)[0] == 1


def test_what_was_changed_on_a_branch(project, capsys):
    for name in "abcd":
        project.write(f"{name}.cpp", FOUND.format(name))
    project.commit()
    subprocess.run(["git", "-C", tidy.REPOSITORY, "switch", "-qc", "branch"], check=True)
    project.write("a.cpp", CLEAN.format("a"))
    project.commit()
    project.write("b.h", "int* b();\n")
    project.write("b.cpp", CLEAN.format("b"))
    project.commit()
    project.write("d.cpp", CLEAN.format("d"))
    assert project.look(capsys, "--changed", "9") == (0, "clang-tidy: 3 sources, 0 warnings\n")
    project.write("a.cpp", FOUND.format("a"))
    project.commit()
    status, said = project.look(capsys, "--changed", "2")
    assert status == 1 and "a.cpp" in said
    assert said.endswith("clang-tidy: 2 sources, 1 warnings; 1 more were changed and not looked at\n")


def test_what_was_changed_on_the_main_branch(project, capsys, monkeypatch):
    monkeypatch.setattr(tidy, "COMMITS", 1)
    for name in "abc":
        project.write(f"{name}.cpp", CLEAN.format(name))
        project.commit()
    assert tidy.changed_sources({"a.cpp", "b.cpp", "c.cpp"}) == ["c.cpp"]
    monkeypatch.setattr(tidy, "COMMITS", 20)  # more than there are: since the first
    assert tidy.changed_sources({"a.cpp", "b.cpp", "c.cpp"}) == ["c.cpp", "b.cpp"]
