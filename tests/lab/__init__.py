"""What the tests through a mount stand on: drives, arrays, mounts, data, time limits."""
import os

LONG = os.environ.get("FPFS_TEST_LONG", "0") == "1"  # tests/run --long
