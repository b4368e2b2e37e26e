"""The promises, as tests name them. docs/durability.md has them in full; `pytest -m P2` and `ctest -L P2` run the tests that
try to break one."""

PROMISES = {
    "P1": "durable at close",
    "P2": "old or new, never mixed",
    "P3": "verified reads",
    "P4": "no swallowed error",
    "P5": "bounded memory",
    "P6": "POSIX",
    "P7": "never a guess",
}
