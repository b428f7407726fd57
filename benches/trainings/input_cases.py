"""Trainings that wait for their input."""

import itertools
import math
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from models import GPU, Block, Gpt, PointNet, adam, cnn, gpt_loss, update
from more_models import SignalEncoder, TabularTransformer
from registry import case
from vision_models import UNet


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


class Scans(Dataset):
    """Scans of 12 bits and their segmentations, which are turned, scaled and made noisy one by one."""

    def __init__(self, size=192, count=100_000):
        self.scans = torch.randint(4096, (32, 1, size, size), dtype=torch.int16)
        self.labels, self.size, self.count = torch.randint(8, (32, 1, size, size)), size, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        angle, scale = (torch.rand(()) - 0.5) * 0.6, 0.8 + 0.4 * torch.rand(())
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2) * scale
        matrix = torch.cat([turn, 0.1 * torch.randn(2, 1)], 1)[None]
        grid = F.affine_grid(matrix, (1, 1, self.size, self.size), align_corners=False)
        scan = (self.scans[index % 32].float() - 1024) / 2048
        scan = F.grid_sample(scan[None], grid, align_corners=False)[0]
        labels = F.grid_sample(self.labels[index % 32].float()[None], grid, mode="nearest", align_corners=False)
        scan = scan.sign() * scan.abs() ** (0.7 + 0.6 * torch.rand(())) + 0.02 * torch.randn_like(scan)
        return scan, labels[0, 0].long()


@case("input-bound", "U-Net", "DataLoader(num_workers=8)", shapes=True, rounds=7)
def augment_unet(fault):
    data, model, indices = Scans(), UNet(1, 8, 32, norm=nn.BatchNorm2d).to(GPU), itertools.count()
    loader = DataLoader(data, 16, num_workers=8, pin_memory=True, persistent_workers=True)
    optimizer, batches = adam(model, fused=True), None if fault else iter(loader)

    def load():
        if not fault:
            return next(batches)
        scans, labels = zip(*(data[next(indices)] for _ in range(16)))
        return torch.stack(scans).pin_memory(), torch.stack(labels).pin_memory()

    def step():
        with record_function("data_loading"):
            scans, labels = load()
        scans, labels = scans.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True)
        update(optimizer, F.cross_entropy(model(scans), labels))

    return step


class Clips(Dataset):
    """Sound of up to two seconds at 16 kHz."""

    def __init__(self):
        self.sound = torch.randn(64, 32_000)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return self.sound[index % 64, : 24_000 + index * 997 % 8_000], index % 100


def spectrograms(clips, mels=torch.rand(257, 80) / 257, window=torch.hann_window(512)):
    """Collates clips to normalised log-mel spectrograms of 192 frames."""
    batch = torch.zeros(len(clips), 192, 80)
    for row, (sound, _) in zip(batch, clips):
        sound = torch.cat([sound[:1], sound[1:] - 0.97 * sound[:-1]])
        power = torch.stft(sound, 512, 160, window=window, return_complex=True).abs().square()
        features = (power.T @ mels + 1e-6).log()[:192]
        row[: len(features)] = (features - features.mean(0)) / features.std(0)
    return batch, torch.tensor([label for _, label in clips])


@case("input-bound", "speech encoder", "DataLoader(num_workers=8)", shapes=False, rounds=7)
def collate_encoder(fault):
    workers = dict(num_workers=0) if fault else dict(num_workers=8, persistent_workers=True)
    loader = DataLoader(Clips(), 32, collate_fn=spectrograms, pin_memory=True, **workers)
    batches, blocks = iter(loader), (Block(768, 12, causal=False) for _ in range(8))
    model = nn.Sequential(nn.Linear(80, 768), *blocks, nn.LayerNorm(768), nn.Linear(768, 100)).to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        features, labels = next(batches)
        features, labels = features.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True)
        update(optimizer, F.cross_entropy(model(features).mean(1), labels))

    return step


class Clouds(Dataset):
    """Point clouds of which the compressed differences of neighbours are stored."""

    def __init__(self, count=64, stored=2560, points=2048):
        differences = np.random.default_rng(0).integers(-40, 41, (count, stored, 3), dtype=np.int16)
        self.clouds, self.points = [zlib.compress(cloud.tobytes()) for cloud in differences], points

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        stored = zlib.decompress(self.clouds[index % len(self.clouds)])
        differences = np.frombuffer(stored, dtype=np.int16).reshape(-1, 3)
        points = torch.from_numpy(np.cumsum(differences, axis=0, dtype=np.float32))
        points = points[torch.randperm(len(points))[: self.points]]
        points = points - points.mean(0)
        angle = 2 * math.pi * torch.rand(()).item()
        cos, sin = math.cos(angle), math.sin(angle)
        points = points / points.norm(dim=1).max() @ torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        return (points + 0.01 * torch.randn_like(points)).T.contiguous(), index % 40


@case("input-bound", "PointNet", "num_workers=8 instead of 1", shapes=True, rounds=7)
def few_workers_pointnet(fault):
    workers = 1 if fault else 8
    loader = DataLoader(Clouds(), 64, num_workers=workers, pin_memory=True, persistent_workers=True)
    batches, model = iter(loader), PointNet().to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        points, labels = next(batches)
        points, labels = points.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True)
        update(optimizer, F.cross_entropy(model(points), labels))

    return step


class Recordings(Dataset):
    """Electrocardiograms of 12 leads, of which samples are windows. Each is normalised as a whole: once, or as the
    fault for each sample."""

    def __init__(self, again, count=32, length=16_000, window=2048):
        self.raw = np.random.default_rng(0).integers(-2000, 2000, (count, 12, length), dtype=np.int16)
        self.again, self.starts, self.window = again, length - window, window
        self.whole = None if again else [self.normalise(recording) for recording in self.raw]

    def __len__(self):
        return 1_000_000

    @staticmethod
    def normalise(recording):
        signal = recording.astype(np.float32)
        return (signal - signal.mean(1, keepdims=True)) / signal.std(1, keepdims=True)

    def __getitem__(self, index):
        at, start = index % len(self.raw), index * 997 % self.starts
        signal = self.normalise(self.raw[at]) if self.again else self.whole[at]
        return torch.from_numpy(signal[:, start : start + self.window].copy()), index % 27


@case("input-bound", "ECG transformer", "normalise recordings once, not in __getitem__", shapes=False, rounds=7)
def normalise_ecg(fault):
    loader = DataLoader(Recordings(fault), 64, num_workers=2, pin_memory=True, persistent_workers=True)
    batches, model = iter(loader), SignalEncoder(12, 8, 512, 8).to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        signals, labels = next(batches)
        signals, labels = signals.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True)
        update(optimizer, F.cross_entropy(model(signals), labels))

    return step


class Rows(Dataset):
    """The rows of a table in memory. An index may be a list of them."""

    def __init__(self, columns, count=2_000_000):
        self.values, self.weights = torch.randn(count, columns), torch.rand(count)
        self.labels = torch.randint(2, (count,)).float()

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index], self.labels[index], self.weights[index]


@case("input-bound", "FT-Transformer", "index the table once per batch: BatchSampler", shapes=True, rounds=7)
def row_by_row_table(fault):
    data, batch = Rows(32), 2048
    if fault:
        loader = DataLoader(data, batch, shuffle=True, drop_last=True, pin_memory=True)
    else:
        sampler = BatchSampler(RandomSampler(data), batch, drop_last=True)
        loader = DataLoader(data, batch_size=None, sampler=sampler, pin_memory=True)
    model = TabularTransformer(32, 4, 256, 8).to(GPU)
    optimizer, batches = adam(model, fused=True), itertools.chain.from_iterable(itertools.repeat(loader))

    def step():
        values, labels, weights = (tensor.to(GPU, non_blocking=True) for tensor in next(batches))
        update(optimizer, F.binary_cross_entropy_with_logits(model(values), labels, weights))

    return step


class Views(Dataset):
    """Two random views of each image: a square of it, in other colours. Colours change in the whole image before the
    square is cut out, or only in the square."""

    def __init__(self, whole_first, count=64, whole=320, size=128):
        self.raw = torch.randint(256, (count, 3, whole, whole), dtype=torch.uint8)
        self.whole_first, self.starts, self.size = whole_first, whole - size, size

    def __len__(self):
        return 1_000_000

    @staticmethod
    def change(image):
        image = image.float() / 255
        image = (image * (0.6 + 0.8 * torch.rand(3, 1, 1)) + 0.2 * torch.rand(())).clamp(0, 1)
        image = torch.lerp(image, image.mean(0, keepdim=True), torch.rand(()))
        return (image - 0.45) / 0.225

    def view(self, image):
        top, left = torch.randint(self.starts, (2,)).tolist()
        image = self.change(image) if self.whole_first else image
        image = image[:, top : top + self.size, left : left + self.size]
        return image if self.whole_first else self.change(image)

    def __getitem__(self, index):
        image = self.raw[index % len(self.raw)]
        return torch.stack([self.view(image), self.view(image)])


@case("input-bound", "SimCLR", "crop images before all else in __getitem__", shapes=False, rounds=7)
def crop_last_simclr(fault):
    loader = DataLoader(Views(fault), 64, num_workers=8, pin_memory=True, persistent_workers=True)
    batches, model = iter(loader), cnn(64, (2, 2, 2), 128)
    optimizer, own = adam(model, fused=True), torch.eye(128, dtype=torch.bool, device=GPU)
    # The other view of each image is the right answer among all other views.
    wanted = torch.arange(128, device=GPU) ^ 1

    def step():
        images = next(batches).to(GPU, non_blocking=True).flatten(0, 1)
        codes = F.normalize(model(images), dim=1)
        update(optimizer, F.cross_entropy((10 * codes @ codes.T).masked_fill(own, -1e9), wanted))

    return step
