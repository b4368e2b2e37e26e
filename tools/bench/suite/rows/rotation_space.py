"""What a rotation of checkpoints takes of the drives, with dedup=previous and without: part of row 16.

    cd tools/bench; PYTHONPATH=.:../../tests python -m suite.rows.rotation_space BUILD LAB

does it alone, with checkpoints of the small model of suite/training.py (about two minutes). Mounts, drives (loop
devices; root) and checkpoints are made in LAB. `space_taken` is for whoever has a mount."""
import os
import pathlib
import shutil
import sys
import tempfile

CHECKPOINTS = 5
WAYS = (["dedup=off"], ["dedup=previous"], ["compress=zstd"], ["compress=zstd", "dedup=previous"])


def used(paths):
    """Bytes of the filesystems."""
    found = [os.statvfs(path) for path in paths]
    return sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in found)


def space_taken(mount, drives, checkpoints, remount):
    """Bytes of the drives for all of `checkpoints` (files), each saved under one name in a directory of its own, as
    trainers do. `remount`: mounts again, so that nothing is left to be freed."""
    before = used(drives)
    for number, checkpoint in enumerate(checkpoints, 1):
        directory = pathlib.Path(mount) / f"checkpoint-{number}"
        directory.mkdir()
        shutil.copyfile(checkpoint, directory / "model.pt")
    remount()
    return used(drives) - before


def make_checkpoints(directory, layers=6, dimension=256, vocabulary=8192, steps=3):
    """Of each kind of training a few, some steps apart: {kind: [file]}. The entries of torch's zip begin with the name
    of the file, which is always the same here."""
    import torch

    from ..training import Adapter, Model, Training, freeze, read_words
    torch.manual_seed(16)
    text = directory / "text"
    library = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    text.write_text("\n".join(path.read_text(errors="replace") for path in library))
    model, words = Model(layers, dimension, vocabulary), read_words(text, vocabulary)
    found = {}

    def save(kind):
        training, files = Training(model, words), []
        for number in range(CHECKPOINTS):
            training.steps(steps)
            training.save(directory / "model.pt")
            files.append(directory / f"{kind.split()[0]}-{number}")
            (directory / "model.pt").rename(files[-1])
        found[kind] = files

    save("full training")
    freeze([model.tokens, model.places, *model.blocks[:len(model.blocks) // 2]])
    save("embeddings and half of the layers frozen")
    freeze([model])
    for block in model.blocks:
        block.linear1, block.linear2 = Adapter(block.linear1), Adapter(block.linear2)
    save("adapters, saved with the model")
    return found


def main(build, lab):
    os.environ["FPFS_BUILD"] = build
    from lab.array import Array, Mount
    from lab.drives import Drives
    from lab.programs import Programs
    lab = pathlib.Path(tempfile.mkdtemp(prefix="rotation-", dir=lab))
    drives = Drives(lab / "drives")
    try:
        for kind, checkpoints in make_checkpoints(lab).items():
            size = sum(checkpoint.stat().st_size for checkpoint in checkpoints)
            print(f"{kind}: {len(checkpoints)} checkpoints of {size / len(checkpoints) / 1e6:.1f} MB")
            for options in WAYS:
                array = Array(Programs(), [path / "array" for path in drives.paths])
                mount = Mount(array, lab / "mount", options).start()
                try:
                    taken = space_taken(mount.path, drives.paths, checkpoints, mount.remount)
                    mount.unmount()
                finally:
                    mount.destroy()
                    array.remove()
                print(f"    {','.join(options):30} {taken / 1e6:7.1f} MB, {taken / size:.3f} of their size", flush=True)
    finally:
        drives.close()
        shutil.rmtree(lab, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
