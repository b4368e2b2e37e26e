"""Other codecs, for row 16: how small they make files, and how fast, in one process on one processor.

    python -m suite.codecs ROUNDS KIND:FILE...

prints a JSON object per file: {codec: {"stored": share, "encoding": [bytes per second, ...], "decoding": [...]}}, and first
one of the versions. Each takes a file as a whole. A codec whose package is not installed is left out.
"""
import importlib
import importlib.metadata
import json
import os
import sys
import time


def zstd(level):
    import zstandard
    return zstandard.ZstdCompressor(level=level).compress, zstandard.ZstdDecompressor().decompress


def lz4():
    import lz4.frame
    return lz4.frame.compress, lz4.frame.decompress


def zipnn(kind):
    from zipnn import ZipNN
    codec = ZipNN(input_format="byte", bytearray_dtype="bfloat16" if kind == "bf16" else "float32", threads=1)
    return codec.compress, codec.decompress


# {name: (package, function of the kind of a content that returns encoder and decoder)}
CODECS = {"zstd -1": ("zstandard", lambda _: zstd(1)), "zstd -3": ("zstandard", lambda _: zstd(3)),
          "lz4": ("lz4", lambda _: lz4()), "ZipNN": ("zipnn", zipnn)}


def versions():
    found = {}
    for package, _ in CODECS.values():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    if "zstandard" in found:
        import zstandard
        found["zstd"] = ".".join(map(str, zstandard.ZSTD_VERSION))
    return found


def measure(codecs, content, rounds):
    """By turns, once for the caches and then `rounds` times."""
    found = {name: {"encoding": [], "decoding": []} for name in codecs}
    for turn in range(rounds + 1):
        for name, (encode, decode) in codecs.items():
            raw = bytearray(content)  # some work in place
            began = time.perf_counter()
            stored = encode(raw)
            encoded = time.perf_counter()
            back = decode(stored)
            ended = time.perf_counter()
            if back != content:
                raise ValueError(f"{name} gave back something else")
            found[name]["stored"] = len(stored) / len(content)
            if turn:
                found[name]["encoding"].append(len(content) / (encoded - began))
                found[name]["decoding"].append(len(content) / (ended - encoded))
    return found


def main(rounds, *files):
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    there = versions()
    print(json.dumps(there))
    for word in files:
        kind, path = word.split(":", 1)
        with open(path, "rb") as file:
            content = file.read()
        codecs = {name: make(kind) for name, (package, make) in CODECS.items() if package in there}
        print(json.dumps(measure(codecs, content, int(rounds))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
