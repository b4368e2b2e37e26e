"""Manual pages: they render, and say what --help says."""
import os
import re
import shutil

import pytest

from lab.programs import run

PAGES = ["man1/fpfs.1", "man5/fastpersistfs.5", "man8/fastpersistfs.8", "man8/fsck.fastpersistfs.8",
         "man8/mkfs.fastpersistfs.8", "man8/mount.fastpersistfs.8", "man8/umount.fastpersistfs.8",
         "man8/setup-nvme.8", "man8/umount.fuse.8", "man8/umount.fuse.fastpersistfs.8"]

pytestmark = pytest.mark.skipif(not shutil.which("man") or not shutil.which("help2man"),
                                reason="needs man-db and help2man")


def rendered(root, page, *options):
    """The text of a page, without warnings."""
    manual = root / "usr/share/man"
    result = run("man", "--warnings", *options, "-M", manual, "-l", manual / f"{page}.gz", cwd=manual,
                 env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
    assert result.stderr == "", result.stderr
    return result.stdout


def entries(text):
    """Of a help text: (option or argument, description)."""
    return re.findall(r"^  (\S.*?)(?: {2,}|\n {20,})(\S.*)$", text, re.MULTILINE)


def squeezed(text):
    return re.sub(r"\s+", " ", text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").replace("\N{HYPHEN}", "-"))


@pytest.mark.parametrize("page", PAGES)
def test_pages_render(root, page):
    text = rendered(root, page)
    assert re.search(r"^NAME\n +\S.* +- +\S", text, re.MULTILINE), text[:500]
    assert "SEE ALSO" in text
    if not page.startswith("man5"):
        named = set(re.findall(r"\b[a-z]+\.md\b", text[text.rindex("SEE ALSO"):]))
        assert "troubleshooting.md" in named and "/usr/share/doc/fastpersistfs" in text
        assert all((root / "usr/share/doc/fastpersistfs" / guide).is_file() for guide in named)


def test_every_program_has_a_page(root):
    pages = {path.name.rsplit(".", 2)[0] for path in (root / "usr/share/man").rglob("*.gz")}
    programs = {path.name for folder in ("bin", "sbin") for path in (root / "usr" / folder).iterdir()}
    assert programs <= pages


@pytest.mark.parametrize("page, call", [
    ("man1/fpfs.1", ["fpfs", "--help-all"]), ("man8/fastpersistfs.8", ["fastpersistfs", "--help"]),
    ("man8/setup-nvme.8", ["setup-nvme", "--help"]), ("man8/mkfs.fastpersistfs.8", ["mkfs.fastpersistfs", "--help"]),
    ("man8/fsck.fastpersistfs.8", ["fsck.fastpersistfs", "--help"])])
def test_pages_say_what_help_says(root, search_path, page, call):
    text = squeezed(rendered(root, page, "--nh", "--nj"))
    found = entries(run(*call).stdout)
    assert len(found) > 5
    for name, description in found:
        assert squeezed(f" {name} {description}") in text, name


def test_the_help_of_all_verbs_has_that_of_each(search_path):
    everything = set(entries(run("fpfs", "--help-all").stdout))
    verbs = [name for name, _ in entries(run("fpfs", "--help").stdout) if not name.startswith("-")]
    assert "scrub" in verbs
    for verb in verbs:
        for entry in entries(run("fpfs", verb, "--help").stdout):
            assert entry in everything, (verb, entry)
