"""What a sequence does: the calls it is made of, every state that it passes through, and what each sync promises.

Names are those below one directory: the directories A and B, in them the files foo and bar, and A/sub, B/sub. A file that
the first operation on its name needs is there, and durable, before the sequence begins.
"""
import dataclasses

DIRECTORIES = ("A", "B")
# An object is known again after the cut by its group, which it is made with: no inode number comes again, no name moves.
FIRST_GROUP = 2000


class Impossible(Exception):
    """The operation cannot be done in this state, or does nothing that another sequence does not do."""


@dataclasses.dataclass
class Commit:
    """A content that may be found from here on; None: nobody can say which. `certain`: no older one may be found any more,
    with durable=close ("close") or always ("always"); otherwise it may as well not have come to it."""
    step: int
    content: bytes | None
    certain: str = ""
    written: int = 0  # the step that made it what it is


@dataclasses.dataclass
class Inode:
    group: int
    kind: str
    mode: int
    content: bytes = b""
    xattr: bytes = b""
    commits: list = dataclasses.field(default_factory=list)
    writer: str = ""  # the slots of its open descriptors
    reader: str = ""
    mapping: str = ""
    appends: bool = False  # `writer` was opened with O_APPEND
    wrote: bool = False  # through `writer`, and neither closed nor synced since
    stored: bool = False  # the same through `mapping`
    changed: bool = False  # not synced since
    written: int = 0  # the step that last changed the content


@dataclasses.dataclass
class Claim:
    """A sync at `step` says that these attributes of these names are at least as new."""
    step: int
    path: str
    attributes: tuple


ATTRIBUTES = ("kind", "group", "mode", "xattr", "links")
ABSENT = dict.fromkeys(ATTRIBUTES)


class Model:
    """`content(seed, offset, size)`: the bytes that a write with this seed brings."""

    def __init__(self, size, content, initial=()):
        self.size, self._content = size, content
        self.inodes, self.names, self.calls, self.claims, self.snapshots = [], {}, [], [], []
        self.synced = []  # (step, the names that a sync was about)
        self.step = 0
        self._seen = set()
        for name in DIRECTORIES:
            self.names[name] = self._make("directory", 0o755)
        self.initial = []
        for name in initial:
            self._make_initial(name)
        self._take()

    # --- the state -----------------------------------------------------------------------------------------------

    def _make(self, kind, mode):
        self.inodes.append(Inode(FIRST_GROUP + len(self.inodes), kind, mode))
        return self.inodes[-1]

    def _make_initial(self, name):
        if name.endswith("/sub"):
            self.names[name] = self._make("directory", 0o755)
        else:
            inode = self.names[name] = self._make("file", 0o640)
            inode.content = self._content(len(self.inodes), 0, self.size)
            inode.commits.append(Commit(0, inode.content, "always"))
        self.initial.append((name, self.names[name]))

    def names_of(self, inode):
        return sorted(name for name, there in self.names.items() if there is inode)

    def _take(self):
        state = {}
        for name, inode in self.names.items():
            links = len(self.names_of(inode)) if inode.kind == "file" else None
            state[name] = {"kind": inode.kind, "group": inode.group, "mode": inode.mode, "xattr": inode.xattr, "links": links}
        self.snapshots.append(state)

    def value(self, step, path, attribute):
        return self.snapshots[step].get(path, ABSENT)[attribute]

    def _existing(self, path, kind=None):
        parent = path.rsplit("/", 1)[0]
        if parent != path and parent not in self.names:
            raise Impossible(path)
        if path not in self.names:
            if path in self._seen:
                raise Impossible(path)
            self._make_initial(path)
        self._seen.add(path)
        if kind and self.names[path].kind != kind:
            raise Impossible(path)
        return self.names[path]

    def _absent(self, path):
        self._seen.add(path)
        if path in self.names:
            raise Impossible(path)

    def _file(self, path):
        return self._existing(path, "file")

    def _call(self, *words):
        self.calls.append((self.step, *words))

    def _pattern(self, offset, size):
        return self._content(1000 * self.step + 7, offset, size)

    def _change(self, inode, offset, data, through):
        content = inode.content.ljust(offset, b"\0")
        inode.content = content[:offset] + data + content[offset + len(data):]
        setattr(inode, through, True)
        inode.changed, inode.written = True, self.step

    def _commit(self, inode, certain):
        """What is in the page cache only, as nobody synced a mapping, may come along or not."""
        unsure = inode.stored and not certain
        inode.commits.append(Commit(self.step, None if unsure else inode.content, certain, inode.written))
        if certain:
            inode.wrote = inode.stored = False
        if certain == "always":
            inode.changed = False

    # --- operations ----------------------------------------------------------------------------------------------

    def apply(self, operation):
        word, *paths = operation
        self.step += 1
        getattr(self, "do_" + word)(*paths)
        self._take()

    def _open_writer(self, inode, path, flags):
        if not inode.writer:
            inode.writer, inode.appends = f"w{self.step}", flags == "append"
            self._call("open", inode.writer, path, flags)
        elif inode.appends and flags != "append":
            raise Impossible(path)  # whatever it writes goes to the end

    def do_create(self, path):
        self._absent(path)
        inode = self.names[path] = self._make("file", 0o600)
        inode.commits.append(Commit(self.step, b""))
        inode.writer, inode.wrote, inode.changed = f"w{self.step}", True, True
        self._call("create", inode.writer, path, inode.group)

    def do_hold(self, path):
        """A reader that stays."""
        inode = self._file(path)
        if inode.reader:
            raise Impossible(path)
        inode.reader = f"r{self.step}"
        self._call("open", inode.reader, path, "read")

    def do_rewrite(self, path):
        """O_TRUNC, and the first half of the new content."""
        inode = self._file(path)
        if inode.writer or inode.mapping:
            raise Impossible(path)
        inode.writer = f"w{self.step}"
        self._call("open", inode.writer, path, "truncate")
        inode.content = b""
        self._write(inode, 0, self.size // 2)

    def _write(self, inode, offset, size):
        data = self._pattern(offset, size)
        self._change(inode, offset, data, "wrote")
        self._call("write", inode.writer, offset, data)

    def do_write(self, path):
        """From the beginning on, longer than half and shorter than the whole."""
        inode = self._file(path)
        self._open_writer(inode, path, "both")
        self._write(inode, 0, self.size * 3 // 4)

    def do_append(self, path):
        inode = self._file(path)
        self._open_writer(inode, path, "append")
        self._write(inode, len(inode.content), self.size // 4 + 7)

    def do_extend(self, path):
        """Beyond the end: a hole."""
        inode = self._file(path)
        self._open_writer(inode, path, "write")
        self._write(inode, len(inode.content) + self.size // 2, self.size // 4)

    def _truncate(self, path, size):
        inode = self._file(path)
        size = size(len(inode.content))
        if size == len(inode.content):
            raise Impossible(path)
        inode.content = inode.content[:size].ljust(size, b"\0")
        inode.changed, inode.written = True, self.step
        if inode.writer:
            inode.wrote = True
            self._call("ftruncate", inode.writer, size)
        else:
            self._call("truncate", path, size)
            self._commit(inode, "" if inode.stored else "close")  # it has no close of its own

    def do_shrink(self, path):
        self._truncate(path, lambda size: size // 3)

    def do_grow(self, path):
        self._truncate(path, lambda size: size * 3 // 2 + 1)

    def do_map(self, path):
        """A shared mapping, and stores in it."""
        inode = self._file(path)
        size = len(inode.content)
        if inode.mapping or size < 16:
            raise Impossible(path)
        inode.mapping = f"m{self.step}"
        self._call("open", inode.mapping, path, "both")
        data = self._pattern(size // 4, size // 2)
        self._change(inode, size // 4, data, "stored")
        self._call("store", inode.mapping, size, size // 4, data)

    def _moves(self, old, new):
        if old == new or (old[1:] == "/sub") != (new[1:] == "/sub"):
            raise Impossible(new)

    def do_rename(self, old, new):
        self._moves(old, new)
        inode = self._existing(old)
        self._absent(new)
        self._call("rename", old, new)
        self.names[new] = inode
        del self.names[old]
        self._seen.add(old)

    def do_replace(self, old, new):
        self._moves(old, new)
        inode, covered = self._file(old), self._file(new)
        if inode is covered:
            raise Impossible(new)
        self._call("rename", old, new)
        if inode.changed:
            # The rename waits for the commit, where it would otherwise put nothing in the place of something.
            certain = covered.commits[0].certain and not inode.stored
            self._commit(inode, "always" if certain else "")
        self.names[new] = inode
        del self.names[old]

    def do_link(self, old, new):
        inode = self._file(old)
        self._absent(new)
        self._call("link", old, new)
        self.names[new] = inode

    def do_unlink(self, path):
        self._file(path)
        self._call("unlink", path)
        del self.names[path]

    def do_mkdir(self, path):
        self._absent(path)
        inode = self.names[path] = self._make("directory", 0o700)
        self._call("mkdir", path, inode.group)

    def do_chmod(self, path):
        inode = self._existing(path)
        inode.mode = {0o755: 0o711, 0o711: 0o750, 0o700: 0o751, 0o640: 0o604, 0o600: 0o620}.get(inode.mode, 0o642)
        self._call("chmod", path, inode.mode)

    def do_setxattr(self, path):
        inode = self._existing(path)
        inode.xattr = b"step %d" % self.step
        self._call("setxattr", path, inode.xattr)

    # --- syncs ---------------------------------------------------------------------------------------------------

    def _synced(self, inode, attributes):
        self._commit(inode, "always")
        had = {name for state in self.snapshots for name, there in state.items() if there["group"] == inode.group}
        names = had.union(self.names_of(inode))
        self.synced.append((self.step, names))
        if not attributes:
            return
        for name in sorted(names):
            self.claims.append(Claim(self.step, name, attributes if name in self.names_of(inode) else ("kind", "group")))

    def _sync(self, word, path, attributes, through=""):
        inode = self._existing(path)
        if inode.kind == "directory":
            if word != "fsync":
                raise Impossible(path)
            self._call("sync_by_name", word, path)
            inside = {name for state in (*self.snapshots, self.names) for name in state if name.startswith(path + "/")}
            self.synced.append((self.step, {path, *inside}))
            self.claims += [Claim(self.step, name, ("kind", "group")) for name in sorted(inside) if name.count("/") == 1]
            self.claims.append(Claim(self.step, path, ATTRIBUTES))
            return
        slot = through or inode.writer or inode.mapping
        self._call(*(("sync", word, slot) if slot else ("sync_by_name", word, path)))
        self._synced(inode, attributes)

    def do_fsync(self, path):
        self._sync("fsync", path, ATTRIBUTES)

    def do_fdatasync(self, path):
        self._sync("fdatasync", path, ())

    def do_readsync(self, path):
        """fsync through a descriptor that can only read, while another could write, or that was there first."""
        inode = self._file(path)
        if not inode.reader and not inode.writer and not inode.mapping:
            raise Impossible(path)  # as fsync
        if inode.reader:
            return self._sync("fsync", path, ATTRIBUTES, inode.reader)
        self._call("sync_by_name", "fsync", path)
        self._synced(inode, ATTRIBUTES)

    def do_msync(self, path):
        inode = self._file(path)
        if not inode.mapping:
            raise Impossible(path)
        self._call("msync", inode.mapping)
        self._synced(inode, ())

    def do_close(self, path):
        """Of every descriptor but a reader's: first the mapping, so that what was stored is in the last close."""
        inode = self._file(path)
        if not inode.writer and not inode.mapping:
            raise Impossible(path)
        certain = "close" if inode.wrote or inode.stored else ""
        for slot in (inode.mapping, inode.writer):
            if slot:
                self._call("close", slot)
        self._commit(inode, certain)
        inode.writer = inode.mapping = ""
        inode.appends = False


def simulate(operations, size, content):
    """A model that has done them; raises Impossible. Twice, as what is there at the beginning shows on the way only."""
    first = Model(size, lambda seed, offset, length: bytes(length))
    for operation in operations:
        first.apply(operation)
    return replay(operations, size, content, [name for name, _ in first.initial])


def replay(operations, size, content, initial):
    model = Model(size, content, initial)
    for operation in operations:
        model.apply(operation)
    return model


def to_text(operations):
    return "; ".join(" ".join(operation) for operation in operations)


def from_text(text):
    return [tuple(part.split()) for part in text.split(";") if part.strip()]
