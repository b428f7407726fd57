#!/usr/bin/env python3
"""PyTorch trainings with a fault and its fix, timed without a profiler and recorded with torch's own.

    trainings.py OUT_DIR [CASE...]

Needs PyTorch with CUDA. Each case trains twice, with the fault and without. It writes OUT_DIR/CASE-VARIANT.json.gz, the
trace of four steps, and one line of JSON for each to OUT_DIR/torch.jsonl, with the time of a step without a profiler:
the median of five means, with and without the fault in turns. Nothing synchronises in a step unless the case does.
"""

import gzip
import itertools
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

GPU = torch.device("cuda")
CASES = {}


def case(kind, model, fix):
    """Registers a case: a function that takes whether to have the fault, and returns a function that runs a step."""

    def register(function):
        CASES[function.__name__.replace("_", "-")] = (kind, model, fix, function)
        return function

    return register


class Block(nn.Module):
    """A transformer's block. `norm` and `act` are classes of modules."""

    def __init__(self, dim, heads, norm=nn.LayerNorm, act=nn.GELU):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, norm(dim), norm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.act, self.down = nn.Linear(dim, 4 * dim), act(), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.n1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(self.act(self.up(self.n2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, dim, heads, vocab=4096, length=512, **parts):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, **parts) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, x, each=None):
        x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
            if each:
                each(x)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self, width, stride=1, inputs=None):
        super().__init__()
        inputs = inputs or width
        self.c1, self.b1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.b2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(inputs, width, 1, stride) if inputs != width or stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(y + self.skip(x))


def cnn(width=64, blocks=(2, 2), classes=100):
    layers = [nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for index, count in enumerate(blocks):
        for at in range(count):
            layers.append(Residual(width << index, 2 if index and not at else 1, inputs))
            inputs = width << index
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)).to(GPU)


def mlp(layers, width, act=nn.GELU, classes=None):
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), act())]
    return nn.Sequential(*parts, nn.Linear(width, classes or width)).to(GPU)


def text(batch, length=512, vocab=4096, device=GPU):
    return torch.randint(vocab, (batch, length + 1), device=device)


def gpt_loss(model, batch, **each):
    logits = model(batch[:, :-1], **each)
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def adam(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def update(optimizer, loss):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


# Input.


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


@case("input-bound", "CNN", "DataLoader(num_workers=8)")
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


@case("input-bound", "transformer", "DataLoader(num_workers=6)")
def tokenise_gpt(fault):
    data, model = Sentences(), Gpt(4, 768, 12).to(GPU)
    optimizer, indices = adam(model), itertools.count()
    loader = None if fault else iter(DataLoader(data, 24, num_workers=6, persistent_workers=True))

    def step():
        with record_function("get_batch"):
            batch = next(loader) if loader else torch.stack([data[next(indices)] for _ in range(24)])
        update(optimizer, gpt_loss(model, batch.to(GPU)))

    return step


# Copies.


@case("pageable-copy", "CNN", "pin_memory and non_blocking")
def pageable_cnn(fault):
    images = [torch.randn(128, 3, 192, 192) for _ in range(4)]
    images = images if fault else [image.pin_memory() for image in images]
    labels, model, turn = torch.randint(100, (128,), device=GPU), cnn(48, (2, 2)), itertools.count()
    optimizer = adam(model, fused=True)

    def step():
        batch = images[next(turn) % 4].to(GPU, non_blocking=not fault)
        update(optimizer, F.cross_entropy(model(batch), labels))

    return step


@case("pageable-copy", "MLP", "pin_memory and non_blocking")
def pageable_mlp(fault):
    rows = [torch.randn(8192, 2048) for _ in range(6)]
    rows = rows if fault else [batch.pin_memory() for batch in rows]
    model, turn = mlp(4, 2048), itertools.count()
    optimizer = adam(model, fused=True)

    def step():
        batch = rows[next(turn) % 6].to(GPU, non_blocking=not fault)
        loss = F.mse_loss(model(batch), batch)
        update(optimizer, loss)
        return loss.item()

    return step


@case("exposed-copy", "MLP", "copy the next batch on a second stream")
def serial_copy_mlp(fault):
    rows = [torch.randn(16384, 2048).pin_memory() for _ in range(4)]
    model, turn, side = mlp(5, 2048), itertools.count(), torch.cuda.Stream()
    optimizer, ready = adam(model, fused=True), []

    def fetch():
        with torch.cuda.stream(side):
            ready.append(rows[next(turn) % 4].to(GPU, non_blocking=True))

    def step():
        if fault:
            batch = rows[next(turn) % 4].to(GPU, non_blocking=True)
        else:
            if not ready:
                fetch()
            torch.cuda.current_stream().wait_stream(side)
            batch = ready.pop()
            batch.record_stream(torch.cuda.current_stream())
            fetch()
        update(optimizer, F.mse_loss(model(batch), batch))

    return step


@case("same-bytes-again", "transformer", "keep the table on the GPU")
def table_gpt(fault):
    table = torch.randn(32768, 1024)
    on_gpu, model, batch = table.to(GPU), Gpt(3, 1024, 16).to(GPU), text(8)
    optimizer, places = adam(model, fused=True), torch.randint(32768, (4096,), device=GPU)

    def step():
        features = (table.to(GPU) if fault else on_gpu)[places]
        loss = gpt_loss(model, batch) + (features.mean(0) * model.places.weight[0]).sum()
        update(optimizer, loss)

    return step


@case("large-readback", "transformer", "argmax on the GPU")
def logits_gpt(fault):
    model, batch, seen = Gpt(3, 768, 12).to(GPU), text(8), []
    optimizer = adam(model, fused=True)

    def step():
        logits = model(batch[:, :-1])
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))
        seen[:] = [logits.detach().cpu() if fault else logits.detach().argmax(-1)]

    return step


@case("tiny-copies", "CNN", "one tensor of all weights")
def weights_cnn(fault):
    images, labels, model = torch.randn(96, 3, 128, 128, device=GPU), torch.randint(100, (96,), device=GPU), cnn(64)
    optimizer, values = adam(model, fused=True), [0.5 + index / 96 for index in range(96)]

    def step():
        if fault:
            weights = torch.stack([torch.tensor(value, device=GPU) for value in values])
        else:
            weights = torch.tensor(values).pin_memory().to(GPU, non_blocking=True)
        update(optimizer, (F.cross_entropy(model(images), labels, reduction="none") * weights).mean())

    return step


# Waits.


@case("host-sync", "transformer", "log every 50 steps")
def item_gpt(fault):
    model, batch, log = Gpt(6, 640, 10).to(GPU), text(16), []
    optimizer = adam(model, fused=True)

    def step():
        each = (lambda x: log.append(x.norm().item())) if fault else None
        loss = gpt_loss(model, batch, each=each)
        update(optimizer, loss)
        if fault:
            log[:] = [loss.item()]

    return step


@case("host-sync", "CNN", "no synchronize() for timers")
def timers_cnn(fault):
    images, labels, model = torch.randn(96, 3, 160, 160, device=GPU), torch.randint(100, (96,), device=GPU), cnn(64)
    optimizer, times = adam(model, fused=True), []

    def lap():
        if fault:
            torch.cuda.synchronize()
            times[:] = [time.perf_counter()]

    def step():
        lap()
        loss = F.cross_entropy(model(images), labels)
        lap()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        lap()
        optimizer.step()
        lap()

    return step


# Launches.


def graphed(step, fault):
    """Captures a step as a CUDA graph, unless it is the fault not to."""
    if fault:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    # The graph does not keep the tensors of the model alive, but the step does.
    return lambda _tensors=step: graph.replay()


@case("launch-bound", "MLP", "CUDA graph of the step")
def graph_mlp(fault):
    model, batch = mlp(12, 256), torch.randn(128, 256, device=GPU)
    optimizer = adam(model, capturable=True)
    return graphed(lambda: update(optimizer, F.mse_loss(model(batch), batch)), fault)


@case("launch-bound", "transformer", "CUDA graph of the step")
def graph_gpt(fault):
    model, batch = Gpt(5, 256, 4, vocab=512, length=128).to(GPU), text(8, 128, 512)
    optimizer = adam(model, capturable=True, foreach=True)
    return graphed(lambda: update(optimizer, gpt_loss(model, batch)), fault)


@case("tensor-by-tensor", "transformer", "AdamW(fused=True)")
def adam_loop_gpt(fault):
    model, batch = Gpt(4, 512, 8).to(GPU), text(8)
    optimizer = adam(model, foreach=False) if fault else adam(model, fused=True)
    return lambda: update(optimizer, gpt_loss(model, batch))


@case("tensor-by-tensor", "CNN", "clip_grad_norm_ and a fused optimizer")
def clip_by_hand_cnn(fault):
    images, labels = torch.randn(64, 3, 160, 160, device=GPU), torch.randint(100, (64,), device=GPU)
    model = cnn(64, (2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=not fault)

    def step():
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if fault:
            for parameter in model.parameters():
                norm = (parameter.grad * parameter.grad).sum().sqrt()
                parameter.grad.mul_(torch.clamp(0.1 / (norm + 1e-6), max=1.0))
                parameter.grad.add_(parameter.detach(), alpha=1e-4)
                parameter.grad.clamp_(-1.0, 1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return step


# Memory.


@case("blocking-allocation", "transformer", "no empty_cache() in the loop")
def empty_cache_gpt(fault):
    model, batch = Gpt(4, 768, 12).to(GPU), text(8)
    optimizer = adam(model, fused=True)

    def step():
        update(optimizer, gpt_loss(model, batch))
        if fault:
            torch.cuda.empty_cache()

    return step


@case("blocking-allocation", "CNN", "no empty_cache() in the loop")
def empty_cache_cnn(fault):
    images, labels = torch.randn(64, 3, 160, 160, device=GPU), torch.randint(100, (64,), device=GPU)
    model = cnn(64, (2, 2))
    optimizer = adam(model, fused=True)

    def step():
        loss = F.cross_entropy(model(images), labels)
        if fault:
            torch.cuda.empty_cache()
        update(optimizer, loss)
        if fault:
            torch.cuda.empty_cache()

    return step


# Kernels.


@case("no-tensor-cores", "transformer", "set_float32_matmul_precision('high')")
def f32_gpt(fault):
    model, batch = Gpt(4, 1024, 16).to(GPU), text(16)
    optimizer = adam(model, fused=True)

    def step():
        torch.set_float32_matmul_precision("highest" if fault else "high")
        update(optimizer, gpt_loss(model, batch))

    return step


@case("no-tensor-cores", "MLP", "set_float32_matmul_precision('high')")
def f32_mlp(fault):
    model, batch = mlp(4, 2048, nn.ReLU), torch.randn(4096, 2048, device=GPU)
    optimizer = adam(model)

    def step():
        torch.set_float32_matmul_precision("highest" if fault else "high")
        loss = F.mse_loss(model(batch), batch)
        update(optimizer, loss)
        return loss.item()

    return step


class HandGelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class TanhGelu(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


@case("unfused-chain", "MLP", "F.gelu(approximate='tanh')")
def gelu_by_hand_mlp(fault):
    model, batch = mlp(4, 3072, HandGelu if fault else TanhGelu), torch.randn(8192, 3072, device=GPU)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, F.mse_loss(model(batch), batch))


class HandNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


@case("unfused-chain", "transformer", "F.layer_norm")
def norm_by_hand_gpt(fault):
    model, batch = Gpt(4, 1024, 16, norm=HandNorm if fault else nn.LayerNorm).to(GPU), text(24)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, gpt_loss(model, batch))


def times_of_steps(steps, rounds=5, seconds=0.6):
    """Returns the seconds that each of these steps takes, in one mean a round; they take turns."""
    counts, means = [], [[] for _ in steps]
    for step in steps:
        for _ in range(12):
            step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(6):
            step()
        torch.cuda.synchronize()
        counts.append(max(12, min(400, int(seconds * 6 / (time.perf_counter() - began)))))
    for _ in range(rounds):
        for step, count, of_step in zip(steps, counts, means):
            torch.set_float32_matmul_precision("high")
            step()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                step()
            torch.cuda.synchronize()
            of_step.append((time.perf_counter() - began) / count)
    return means


def record(step, path, shapes):
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=3, warmup=2, active=4, repeat=1),
        record_shapes=shapes,
    ) as profiler:
        for _ in range(3 + 2 + 4):
            step()
            profiler.step()
    profiler.export_chrome_trace(path)
    with open(path, "rb") as plain, gzip.GzipFile(path + ".gz", "wb", 9, mtime=0) as small:
        small.write(plain.read())
    os.remove(path)


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(CASES)
    os.makedirs(folder, exist_ok=True)
    # The first profiler of a process takes seconds to begin.
    record(lambda: torch.zeros(1, device=GPU), os.path.join(folder, "first.json"), False)
    os.remove(os.path.join(folder, "first.json.gz"))
    with open(os.path.join(folder, "torch.jsonl"), "a") as table:
        for name in names:
            kind, model, fix, function = CASES[name]
            torch.set_float32_matmul_precision("high")
            torch.manual_seed(0)
            began = time.perf_counter()
            variants = ["fault", "fixed"]
            steps = [function(variant == "fault") for variant in variants]
            # Shapes are recorded in every other case, as users do either.
            shapes = list(CASES).index(name) % 2 == 0
            for variant, step, means in zip(variants, steps, times_of_steps(steps)):
                torch.set_float32_matmul_precision("high")
                record(step, os.path.join(folder, f"{name}-{variant}.json"), shapes)
                line = {
                    "case": name,
                    "framework": "PyTorch",
                    "model": model,
                    "variant": variant,
                    "kind": kind,
                    "fix": fix,
                    "step_us": round(statistics.median(means) * 1e6, 1),
                    "means_us": [round(mean * 1e6, 1) for mean in means],
                }
                print(json.dumps(line), file=table, flush=True)
            print(name, f"{time.perf_counter() - began:.1f} s", flush=True)
            del steps, step
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
