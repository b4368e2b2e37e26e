"""A bounded black-box crash test in the manner of CrashMonkey and ACE (Mohan et al., OSDI 2018).

Every short sequence of operations over two directories and two files is run on the mount and on plain XFS and ext4, each
time followed by a power cut (shutdown ioctl, as in tests/mount/test_crash_loop.py). What both plain filesystems keep the
mount keeps, and of a replaced file there is the whole old or the whole new content.

  model.py      what an operation does to names, attributes and content, and by which calls; nothing but memory
  sequences.py  which sequences there are, and their numbers
  places.py     where a sequence runs: a plain filesystem, or an array and its mount; set-up, calls, cut, what is left
  oracle.py     what must be left
  runner.py     many numbers, one after the other, in one process
  __main__.py   the command line: `PYTHONPATH=tests python -m ace --number 1234 --verbose` replays one sequence

A sequence is written as text, one operation after the other: "rename A/foo B/bar; fsync B/bar". `python -m ace
--sequence TEXT` runs one that has no number.
"""
