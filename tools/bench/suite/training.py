"""Trains a small language model on the processor, for what row 16 wants of real training: weights, Adam's states, and how
much of a checkpoint is still the same in the next one.

    python -m suite.training TEXT DIRECTORY LAYERS DIMENSION VOCABULARY STEPS

leaves `weights`, `adam` (bytes of fp32 tensors), `checkpoint` (torch.save of both) and `rotation.json` in DIRECTORY. Seeded:
the same every time on the same machine.
"""
import collections
import json
import os
import pathlib
import re
import sys

import torch
import xxhash
from torch import nn

SAVES = 6  # of each kind of training
BATCH, WINDOW = 8, 64  # sequences, tokens of each
RANK = 8  # of an adapter
CHUNK_SIZES = {"1 MiB": 1 << 20, "64 KiB": 64 << 10}


class Model(nn.Module):
    """A decoder as they all are: embeddings, blocks of attention and two linear layers, a head."""

    def __init__(self, layers, dimension, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dimension)
        self.places = nn.Embedding(WINDOW, dimension)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dimension, max(dimension // 64, 1), 4 * dimension, 0, "gelu", batch_first=True,
                                       norm_first=True) for _ in range(layers))
        self.head = nn.Linear(dimension, vocabulary, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW), persistent=False)

    def forward(self, words):
        x = self.tokens(words) + self.places.weight
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(x)


class Adapter(nn.Module):
    """Low-rank, beside a linear layer that stays as it is (LoRA)."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


class Training:
    def __init__(self, model, words):
        self.model = model
        self._words = words
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=1e-3)
        self._random = torch.Generator().manual_seed(16)
        self._step = 0

    def steps(self, count):
        for _ in range(count):
            starts = torch.randint(len(self._words) - WINDOW - 1, (BATCH,), generator=self._random)
            windows = torch.stack([self._words[start:start + WINDOW + 1] for start in starts])
            loss = nn.functional.cross_entropy(self.model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._step += 1
        return float(loss)

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict(), "step": self._step}, path)

    def adam(self):
        states = self._optimizer.state_dict()["state"].values()
        return [state[name] for state in states for name in ("exp_avg", "exp_avg_sq")]


def chunk_hashes(path, size):
    with open(path, "rb") as file:
        return [xxhash.xxh3_128_digest(chunk) for chunk in iter(lambda: file.read(size), b"")]


def rotation(training, path, steps):
    """Saves SAVES times, so many steps in between: of each save but the first, which share of its chunks the one before
    had at the same place."""
    before, shares = None, {name: [] for name in CHUNK_SIZES}
    for _ in range(SAVES):
        loss = training.steps(steps)
        training.save(path)
        hashes = {name: chunk_hashes(path, size) for name, size in CHUNK_SIZES.items()}
        for name, now in hashes.items() if before else ():
            shares[name].append(sum(a == b for a, b in zip(now, before[name])) / len(now))
        before = hashes
    return {"bytes": os.path.getsize(path), "steps": steps, "loss": loss, "same": shares}


def read_words(path, vocabulary):
    """The most frequent words get the first numbers, all the rare ones the last."""
    words = re.findall(r"\w+|[^\w\s]|\s+", pathlib.Path(path).read_text(errors="replace")[:4 << 20])
    numbers = {word: index for index, (word, _) in enumerate(collections.Counter(words).most_common(vocabulary - 1))}
    return torch.tensor([numbers.get(word, vocabulary - 1) for word in words])


def write_tensors(path, tensors):
    with open(path, "wb") as file:
        for tensor in tensors:
            file.write(tensor.detach().contiguous().view(torch.uint8).numpy())


def freeze(modules):
    for module in modules:
        module.requires_grad_(False)


def main(text, directory, layers, dimension, vocabulary, steps):
    directory = pathlib.Path(directory)
    torch.manual_seed(16)
    torch.use_deterministic_algorithms(True)
    words = read_words(text, int(vocabulary))
    model = Model(int(layers), int(dimension), int(vocabulary))
    full, checkpoint, steps = Training(model, words), directory / "checkpoint", int(steps)
    found = {"full training": rotation(full, checkpoint, steps)}
    write_tensors(directory / "weights", model.state_dict().values())
    write_tensors(directory / "adam", full.adam())
    scratch, few = directory / "other-checkpoint", max(steps // 4, 1)

    freeze([model.tokens, model.places, *model.blocks[:len(model.blocks) // 2]])
    found["embeddings and half of the layers frozen"] = rotation(Training(model, words), scratch, few)

    freeze([model])
    for block in model.blocks:
        block.linear1, block.linear2 = Adapter(block.linear1), Adapter(block.linear2)
    found["adapters, saved with the model"] = rotation(Training(model, words), scratch, few)
    scratch.unlink()
    (directory / "rotation.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
