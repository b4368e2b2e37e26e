"""What the shells complete: the programs' own verbs, options and values."""
import os
import pty
import re
import select
import shutil
import signal
import time

import pytest

from lab.programs import run

# A line, and some of the words that it may be completed to.
LINES = [
    ("fpfs ", {"status", "scrub", "umount"}, {"--json"}),
    ("fpfs s", {"scrub", "status", "sync", "stat"}, {"tier"}),
    ("fpfs scrub ", {"start", "status", "pause", "resume", "cancel"}, set()),
    ("fpfs scrub start --", {"--limit", "--wait", "--json"}, {"--tier"}),
    ("fpfs scrub start --limit 5M /usr/bi", {"/usr/bin"}, {"start"}),
    ("fpfs verify -q /etc/hosts /etc/pass", {"/etc/passwd"}, set()),
    ("fsck.fastpersistfs -", {"-n", "-p", "-a", "-y", "--verify-data"}, set()),
    ("mkfs.fastpersistfs --meta-dir /usr/bi", {"/usr/bin"}, set()),
    ("mkfs.fastpersistfs /usr/sbin:/usr/bi", {"/usr/bin"}, {"/usr/sbin"}),
    ("setup-nvme --", {"--yes", "--prefix", "--mount-point"}, set()),
    ("fastpersistfs /usr/bi", {"/usr/bin"}, set()),
    ("fastpersistfs -o ro /usr/sbin:/usr/bi", {"/usr/bin"}, {"/usr/sbin"}),
    ("fastpersistfs /usr/sbin:/usr/bin /usr/bi", {"/usr/bin"}, set()),
    ("fastpersistfs --dur", {"--durable="}, set()),
    ("fastpersistfs --durable=", {"close", "fsync"}, {"--durable="}),
    ("fastpersistfs --compress=", {"off", "auto", "zstd"}, set()),
    ("fastpersistfs -o ro,dura", {"ro,durable="}, set()),
    ("fastpersistfs -o ro,durable=", {"close", "fsync"}, set()),
    ("fastpersistfs -o ", {"ro", "durable=", "log_file="}, {"help", "foreground"}),
]

SCRIPT = """
. "$1"
COMP_LINE=$2 COMP_POINT=${#2}
$(complete -p "${2%% *}" | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("line, there, not_there", LINES, ids=[line for line, _, _ in LINES])
def test_bash(root, search_path, line, there, not_there):
    script = root / "usr/share/bash-completion/completions" / line.split()[0]
    words = run("bash", "-c", SCRIPT, "bash", script, line).stdout.splitlines()
    assert there <= set(words)
    assert not not_there & set(words)


class Terminal:
    """An interactive shell."""

    def __init__(self, *command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", HOME="/nonexistent")
            os.execvp(command[0], command)

    def type(self, text, expected):
        """Types; the screen from then on, when it shows what is expected."""
        os.write(self.terminal, text.encode())
        shown = ""
        deadline = time.monotonic() + 20
        while not re.search(expected, shown):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.terminal], [], [], left)[0], f"{text!r}: {shown!r}"
            shown += os.read(self.terminal, 65536).decode(errors="replace")
        return shown

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def terminal(search_path):
    shells = []

    def start(*command):
        shells.append(Terminal(*command))
        return shells[-1]

    yield start
    for shell in shells:
        shell.close()


ERASE = "\x15"


def test_bash_at_a_terminal(root, terminal):
    shell = terminal("bash", "--norc", "--noprofile", "-i")
    shell.type(f". {root}/usr/share/bash-completion/completions/fpfs; echo lo''aded\n", "loaded")
    shell.type("fpfs scr\t", "fpfs scrub ")
    shell.type("resu\t", "resume ")
    shell.type(ERASE + "fastpersistfs --log_l\tdeb\t", "--log_level=debug ")
    shell.type(ERASE + "fastpersistfs -o ro,log_l\twar\t", "-o ro,log_level=warning ")


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_at_a_terminal(root, terminal):
    shell = terminal("zsh", "-f", "-i")
    shell.type(f"fpath=({root}/usr/share/zsh/vendor-completions $fpath); autoload -U compinit; compinit -u -D; "
               "zstyle ':completion:*' list-prompt ''; echo lo''aded\n", "loaded")
    shell.type("fpfs scr\t", "fpfs scrub ")
    shell.type("resu\t", "resume ")
    shell.type(ERASE + "fpfs member \t\t", r"list +remove|replace")
    shell.type(ERASE + "fpfs \t\t", r"export +-- Copy one file out(.|\n)*verify +--")
    shell.type(ERASE + "fpfs scrub start --li\t", "--limit")
    shell.type(ERASE + "fastpersistfs --log_l\tdeb\t", "--log_level=debug")
    shell.type(ERASE + "fastpersistfs -o ro,log_l\twar\t", "-o ro,log_level=warning")
    shell.type(ERASE + "fastpersistfs -o compress=z\t", "-o compress=zstd")
    shell.type(ERASE + "fastpersistfs /usr/sbin:/usr/bi\t", "/usr/sbin:/usr/bin/")
