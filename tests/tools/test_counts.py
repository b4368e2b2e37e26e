"""What is said with a count has its noun from format_count() (engine/base/ranges.h): "1 chunk is", "2 chunks are"."""
import re

from lab.programs import REPOSITORY

NOUNS = ("arrays attributes chunks clients commits conflicts copies directories drives entries errors files leftovers lines "
         "members mounts names objects orphans parts places processes ranges requests runs tails threads times tries "
         "uploads versions").split()
LITERALS = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
COUNTED = re.compile(r"(?<!at most )(?<!from )(?<!between )\{[a-z0-9_]*\} (?:(?:more|other|open|damaged|orphan|torn) )?"
                     rf"(?:{'|'.join(NOUNS)})\b")
# Never one, or no count: the number of something.
FINE = [
    "{} directories were given",  # 257 and more
    "{} arguments name directories",  # two and more
    "it is one of {} names of the file",
    "{} arrays, {} among them",
    "{} arrays copy there",
    "{} of its {} directories",
    "found {} arguments; directories are one argument",
    "indexes may have {} chunks in memory",
    "the superblock's stripe is {} members wide",
    "{} open files are needed", "allow {} open files",
    "{} versions of others", "checksums of {} chunks",  # of what is damaged
]


def test_no_plural_is_said_of_one():
    found = []
    for folder in ("engine", "fs", "tools"):
        for path in sorted((REPOSITORY / folder).rglob("*.cpp")):
            if "sim" in path.parts or "bench" in path.parts and path.parent.name == "bench":
                continue
            for match in LITERALS.finditer(path.read_text()):
                text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[0]))
                if COUNTED.search(text) and not any(fine in text for fine in FINE):
                    found.append(f"{path.name}: {text}")
    assert not found, "\n".join(found)
