"""Trainings that wait for their input."""

import itertools

import torch
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

from models import GPU, Gpt, adam, cnn, gpt_loss, update
from registry import case


class Images(Dataset):
    """Images that are cropped, flipped, jittered and normalised one by one."""

    def __init__(self, size=160, count=100_000):
        self.raw, self.size, self.count = torch.randint(256, (64, 3, 224, 224), dtype=torch.uint8), size, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        top, left = (int(x) for x in torch.randint(224 - self.size, (2,)))
        image = self.raw[index % 64][:, top : top + self.size, left : left + self.size].float() / 255
        image = image.flip(2) if index % 2 else image
        image = (image - image.mean((1, 2), keepdim=True)) / (image.std((1, 2), keepdim=True) + 1e-3)
        return image * (0.8 + 0.4 * torch.rand(3, 1, 1)), index % 100


@case("input-bound", "CNN", "DataLoader(num_workers=8)", shapes=True)
def loader_cnn(fault):
    loader = DataLoader(Images(), 64, num_workers=0 if fault else 8, pin_memory=True, persistent_workers=not fault)
    batches, model = iter(loader), cnn(64, (2, 2))
    optimizer = adam(model, fused=True)

    def step():
        images, labels = next(batches)
        images, labels = images.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True)
        update(optimizer, F.cross_entropy(model(images), labels))

    return step


class Sentences(Dataset):
    """Sentences that are tokenised in Python."""

    def __init__(self, length=256):
        words = ["span", "kernel", "stream", "event", "launch", "copy", "graph", "block", "warp", "grid"]
        self.length, self.text = length, " ".join(words[i * i % 10] for i in range(length + 8))

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        tokens = [sum(ord(letter) * 31**at for at, letter in enumerate(word)) % 4096 for word in self.text.split()]
        return torch.tensor(tokens[index % 8 : index % 8 + self.length + 1])


@case("input-bound", "transformer", "DataLoader(num_workers=6)", shapes=False)
def tokenise_gpt(fault):
    data, model = Sentences(), Gpt(4, 768, 12).to(GPU)
    optimizer, indices = adam(model), itertools.count()
    loader = None if fault else iter(DataLoader(data, 24, num_workers=6, persistent_workers=True))

    def step():
        with record_function("get_batch"):
            batch = next(loader) if loader else torch.stack([data[next(indices)] for _ in range(24)])
        update(optimizer, gpt_loss(model, batch.to(GPU)))

    return step
