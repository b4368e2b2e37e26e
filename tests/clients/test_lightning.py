"""Lightning's ModelCheckpoint: the best and the last checkpoints, resuming, killed."""
import errno
import os
import pickle
import shutil
import time

import pytest

from lab.killing import Child, assert_alive, in_child

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.P6, pytest.mark.time_limit(240)]
STEPS = 8


@pytest.fixture(scope="module")
def lightning():
    import logging
    import warnings
    module = pytest.importorskip("lightning.pytorch")
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return module


def make_module(lightning):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1))

        def training_step(self, batch, index):
            loss = (self.layers(batch) - batch.sum(1, keepdim=True)).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.randn(4 * STEPS, 256, generator=torch.Generator().manual_seed(2)),
                                               batch_size=4)

    return Module()


def fit(lightning, directory, resume=None):
    """Trains one epoch of STEPS steps with a checkpoint after each; the weights."""
    torch.set_num_threads(1)
    module = make_module(lightning)
    saver = lightning.callbacks.ModelCheckpoint(dirpath=directory, filename="{step}", every_n_train_steps=1, save_top_k=2,
                                                monitor="step", mode="max", save_last=True)
    trainer = lightning.Trainer(max_steps=STEPS, accelerator="cpu", devices=1, logger=False, callbacks=[saver],
                                enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1)
    trainer.fit(module, ckpt_path=resume)
    return module.state_dict()


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def loadable(directory):
    """The checkpoints that torch.load takes, by step. A killed one may be a beginning: Lightning copies it into place."""
    found = {}
    for path in directory.glob("*.ckpt"):
        try:
            loaded = torch.load(path, weights_only=False)
            found.setdefault(loaded["global_step"], path)
        except (RuntimeError, EOFError, pickle.UnpicklingError, OSError) as refusal:
            # Of a beginning of a checkpoint, on whatever filesystem: torch seeks to before its start.
            if isinstance(refusal, OSError) and refusal.errno != errno.EINVAL:
                raise
            print(f"{path.name} is refused: {refusal}"[:150])
    return found


def test_best_and_last(mount, native, lightning):
    directory = mount.path / "run"
    trained = fit(lightning, directory)
    names = sorted(os.listdir(directory))
    assert names == ["last.ckpt", f"step={STEPS - 1}.ckpt", f"step={STEPS}.ckpt"]
    mount.remount()
    for name in ("last.ckpt", f"step={STEPS}.ckpt"):
        loaded = torch.load(directory / name, weights_only=False)
        assert loaded["global_step"] == STEPS and equal(loaded["state_dict"], trained)
    assert equal(fit(lightning, native / "run"), trained), "the filesystem makes a difference"


@pytest.mark.P2
def test_killed_and_resumed(mount, native, lightning):
    directory = mount.path / "run"
    seconds = in_child(lambda: fit(lightning, directory))
    for part in (0.1, 0.4):
        shutil.rmtree(directory)
        child = Child(lambda: fit(lightning, directory))
        while not (directory.exists() and loadable(directory)):
            assert os.waitpid(child.pid, os.WNOHANG) == (0, 0), "training ended by itself"
        time.sleep(part * seconds)
        landed = child.kill()
        assert_alive(mount)
        finished = loadable(directory)
        assert finished, "no checkpoint is left, though one had been whole"
        newest = finished[max(finished)]
        print(f"killed: {landed}; resumed from {newest.name}, step {max(finished)}")

        def resume():
            shutil.copy(newest, native / "copy.ckpt")
            expected = fit(lightning, native / f"resumed{part}", str(native / "copy.ckpt"))
            assert equal(fit(lightning, directory, str(newest)), expected)

        in_child(resume)
        assert STEPS in loadable(directory)
