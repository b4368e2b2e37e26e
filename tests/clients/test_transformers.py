"""transformers: save_pretrained and from_pretrained of a small random model; the Trainer and its rotation; killed."""
import json
import os
import shutil
import time

import pytest

from lab.killing import Child, Client, Refused, assert_alive, in_child

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.P6, pytest.mark.time_limit(240)]


@pytest.fixture(scope="module")
def transformers():
    module = pytest.importorskip("transformers")
    module.logging.set_verbosity_error()
    module.logging.disable_progress_bar()
    return module


def make_model(transformers, seed, width=256):
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=2000, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=4, num_attention_heads=8,
        max_position_embeddings=64))


def weights(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


@pytest.mark.parametrize("shard_size", ["50GB", "4MB"], ids=["one-file", "shards"])
def test_save_and_load(mount, transformers, shard_size):
    model, path = make_model(transformers, 1), mount.path / "model"
    model.save_pretrained(path, max_shard_size=shard_size)
    shards = [name for name in os.listdir(path) if name.endswith(".safetensors")]
    assert len(shards) > 1 if shard_size == "4MB" else shards == ["model.safetensors"]
    for remounted in (False, True):
        if remounted:
            mount.remount()
        loaded = transformers.AutoModelForCausalLM.from_pretrained(path)
        assert equal(weights(loaded), weights(model))
        tokens = torch.arange(20).unsqueeze(0)
        with torch.no_grad():
            assert torch.equal(loaded(tokens).logits, model.eval()(tokens).logits)
        del loaded  # it holds files mapped


@pytest.mark.P1
@pytest.mark.P2
def test_killed_while_saving(trial, transformers):
    def load(path):
        try:
            return weights(transformers.LlamaForCausalLM.from_pretrained(path))
        except (OSError, ValueError) as error:  # a cut-off config.json
            if getattr(error, "errno", None):
                raise
            raise Refused(str(error))

    client = Client(lambda number: make_model(transformers, number, 768), lambda path, model: model.save_pretrained(path),
                    load, lambda loaded, model: equal(loaded, weights(model)), (Refused,))
    one = trial(client, "model")
    one.kill_client()
    one.kill_daemon(1)


# --- the Trainer -------------------------------------------------------------------------------------------------

class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.randint(0, 2000, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def train(transformers, directory, steps, resume=False):
    """Trains and returns the weights; a checkpoint after every step, the newest two are kept."""
    torch.set_num_threads(1)
    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=steps, save_steps=1, save_total_limit=2, per_device_train_batch_size=2,
        use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no", seed=7, data_seed=7)
    trainer = transformers.Trainer(model=make_model(transformers, 1, 128), args=arguments, train_dataset=Sentences())
    trainer.train(resume_from_checkpoint=resume or None)
    return weights(trainer.model)


def finished_checkpoints(directory):
    """Those whose trainer_state.json, which is written last, is whole; by step."""
    found = {}
    for name in os.listdir(directory):
        state = directory / name / "trainer_state.json"
        if name.startswith("checkpoint-") and state.exists():
            try:
                json.loads(state.read_text())
                found[int(name.split("-")[1])] = directory / name
            except ValueError:
                pass
    return found


def test_trainer_rotates(mount, native, transformers):
    trained = train(transformers, mount.path / "run", 5)
    assert sorted(os.listdir(mount.path / "run")) == ["checkpoint-4", "checkpoint-5"]
    mount.remount()
    loaded = transformers.LlamaForCausalLM.from_pretrained(mount.path / "run/checkpoint-5")
    assert equal(weights(loaded), trained)
    assert equal(train(transformers, native / "run", 5), trained), "the filesystem makes a difference"


@pytest.mark.P2
def test_trainer_is_killed_and_resumes(mount, native, transformers):
    steps, directory = 12, mount.path / "run"
    expected = train(transformers, native / "run", steps)
    seconds = in_child(lambda: train(transformers, directory, steps))
    for part in (0.5, 0.8):
        shutil.rmtree(directory)
        child = Child(lambda: train(transformers, directory, steps))
        # Somewhere in the middle: after the first checkpoint, in whatever the Trainer is doing then.
        while not (directory.exists() and finished_checkpoints(directory)):
            assert os.waitpid(child.pid, os.WNOHANG) == (0, 0), "training ended by itself"
        time.sleep(part * seconds * 0.5)
        landed = child.kill()
        assert_alive(mount)
        finished = finished_checkpoints(directory)
        assert finished
        for name in os.listdir(directory):  # what a user does who finds half a checkpoint
            if directory / name not in finished.values():
                shutil.rmtree(directory / name)
        print(f"killed: {landed}; resumed from step {max(finished)} of {steps}")

        def resume():
            assert equal(train(transformers, directory, steps, resume=True), expected)

        in_child(resume)
        assert steps in finished_checkpoints(directory)
