"""What the tests through a mount stand on: drives, arrays, mounts, data, time limits."""
