"""What must be there after the cut.

Names and attributes. Every value that a name's attribute passed through has the step it was first seen at. The value that a
plain filesystem shows after the cut says what it kept at least: everything up to that step. The mount must show a value of the
earlier of the two steps, or of any later one. A name that came and went again hides what was kept; so beside that there are
the claims of every sync (Model.claims): what an fsync of a file makes durable (its attributes, the names it has, that it
is gone from those it had), and of a directory (its attributes, the names in it). A claim that XFS or ext4 does not keep is
none.

A sync that has anything to write writes the journal, and with it what happened before to anything else; one that finds
its file durable already writes nothing. The mount finds that more often, as a close or an fdatasync commits a file whole. So
what both plain filesystems kept of something that no sync behind it was about is asked for when the mount kept any later
change: then its order must hold, too.

Content is held to more than the plain filesystems do (P1, P2 of docs/durability.md): a file has a content that was committed,
whole, and none older than the last that was certain to be; empty when it was never committed. And such a file is not
lost: it is found under one of its names.

What is not asked: content that nobody synced, which XFS and ext4 may keep, lose or mix; a size changed by truncate(2) that
both keep once another file's sync has written their journals.
"""
import dataclasses

from .model import ATTRIBUTES

NAMES, CONTENT = "names and attributes", "content"


@dataclasses.dataclass(frozen=True)
class Violation:
    kind: str
    text: str
    journal_only: bool = False  # asked for because both plain filesystems kept it, not because a sync claims it

    def __str__(self):
        return f"{self.kind}: {self.text}"


def _paths(model):
    return sorted({path for state in model.snapshots for path in state})


def _found(left, path, attribute):
    return left[path][attribute] if path in left else None


def _values_since(model, step, path, attribute):
    return [model.value(later, path, attribute) for later in range(step, len(model.snapshots))]


def _kept_by(model, left, path, attribute):
    """The earliest step that has the value that was left."""
    values = _values_since(model, 0, path, attribute)
    found = _found(left, path, attribute)
    return values.index(found) if found in values else 0


def claimed(model, plain):
    """{(path, attribute): step}, of the claims that every plain filesystem kept."""
    steps = {}
    for claim in model.claims:
        for attribute in claim.attributes:
            if all(_found(left, claim.path, attribute) in _values_since(model, claim.step, claim.path, attribute)
                   for left in plain):
                steps[claim.path, attribute] = claim.step
    return steps


def broken_claims(model, plain):
    """Those that one of them did not keep. An error of the model, or a surprise."""
    return [(claim.step, claim.path, attribute) for claim in model.claims for attribute in claim.attributes
            if not all(_found(left, claim.path, attribute) in _values_since(model, claim.step, claim.path, attribute)
                       for left in plain)]


def judge(model, plain, left, durable):
    """The violations, in what was left on a mount with durable=close or fsync."""
    violations = []
    claims = claimed(model, plain)
    latest = _latest_change(model, left)
    for path in _paths(model):
        for attribute in ATTRIBUTES:
            kept = min((_kept_by(model, each, path, attribute) for each in plain), default=0)
            claim = claims.get((path, attribute), 0)
            by_journal = kept > claim and _is_asked_for(model, kept, path, latest)
            allowed = _values_since(model, kept if by_journal else claim, path, attribute)
            found = _found(left, path, attribute)
            if found not in allowed:
                text = f"{attribute} of {path} is {_show(found)}, not {' or '.join(map(_show, dict.fromkeys(allowed)))}"
                claimed_too = found not in _values_since(model, claim, path, attribute)
                violations.append(Violation(NAMES, text, journal_only=not claimed_too))
    unknown = sorted(set(left) - set(_paths(model)))
    if unknown:
        violations.append(Violation(NAMES, f"names that never were: {unknown}"))
    return violations + _content_violations(model, left, durable)


def _is_asked_for(model, kept, path, latest):
    return latest > kept or any(step >= kept and path in names for step, names in model.synced)


def _latest_change(model, left):
    """The last step of which anything was left."""
    steps = [_kept_by(model, left, path, attribute) for path in _paths(model) for attribute in ATTRIBUTES]
    contents = [there["content"] for there in left.values()]
    steps += [commit.written for inode in model.inodes for commit in inode.commits
              if commit.content and commit.content in contents]
    return max(steps)


def _certain(commit, durable):
    return commit.certain == "always" or (commit.certain == "close" and durable == "close")


def _allowed_contents(inode, durable):
    """Those of the last commit that was certain, and of all behind it; None among them when anything may be there."""
    last = max((index for index, commit in enumerate(inode.commits) if _certain(commit, durable)), default=0)
    return [commit.content for commit in inode.commits[last:]]


def _content_violations(model, left, durable):
    by_group = {inode.group: inode for inode in model.inodes if inode.kind == "file"}
    violations = []
    for path, there in sorted(left.items()):
        inode = by_group.get(there["group"])
        if there["kind"] != "file" or inode is None:
            continue
        allowed = _allowed_contents(inode, durable)
        if there["content"] not in allowed and (None not in allowed or isinstance(there["content"], str)):
            violations.append(Violation(CONTENT, f"{path} has {_describe(there['content'], inode)}, not that of "
                                                 f"{_steps(inode, durable)}"))
    for inode in by_group.values():
        certain = [commit.step for commit in inode.commits if _certain(commit, durable)]
        if certain and _always_named(model, inode, certain[-1]) and \
                not any(there["group"] == inode.group for there in left.values()):
            violations.append(Violation(CONTENT, f"the file that was committed at step {certain[-1]} has no name any more"))
    return violations


def _always_named(model, inode, step):
    return all(any(there["group"] == inode.group for there in state.values()) for state in model.snapshots[step:])


def _steps(inode, durable):
    last = max((index for index, commit in enumerate(inode.commits) if _certain(commit, durable)), default=0)
    return " or ".join(f"step {commit.step} ({len(commit.content or b'')} bytes)" for commit in inode.commits[last:])


def _describe(content, inode):
    if isinstance(content, str):
        return content
    for commit in reversed(inode.commits):
        if commit.content == content:
            return f"the content of step {commit.step} ({len(content)} bytes)"
    return f"{len(content)} bytes that were never committed"


def _show(value):
    if value is None:
        return "absent"
    return oct(value) if isinstance(value, int) and value < 0o2000 and value > 64 else repr(value)
