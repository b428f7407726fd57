"""Trainings whose host waits for the GPU, or lets the GPU wait."""

import itertools
import json
import math
import struct
import tempfile
import time
import zlib
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function

from models import GPU, Gpt, GraphAttention, Lstm, SequentialRecommender, adam, cnn, gpt_loss, mlp, text, update
from more_models import WorldModel
from registry import case
from science_models import Siren, conformer
from vision_models import Detector, Vit, upscaler


@case("host-sync", "transformer", "log every 50 steps", shapes=True)
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


@case("host-sync", "CNN", "no synchronize() for timers", shapes=False)
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


@case("host-sync", "ViT", "keep norms and the check for NaN on the GPU", shapes=False, rounds=7)
def norms_vit(fault):
    images, labels = torch.randn(32, 3, 224, 224, device=GPU), torch.randint(100, (32,), device=GPU)
    model, log = Vit(12, 384, 6).to(GPU), {}
    optimizer, invalid = adam(model, fused=True), torch.zeros((), dtype=torch.bool, device=GPU)
    groups = {f"block {at}": list(block.parameters()) for at, block in enumerate(model.blocks)}
    groups |= {name: list(getattr(model, name).parameters()) for name in ("patches", "norm", "head")}

    def step():
        loss = F.cross_entropy(model(images), labels)
        if not fault:
            invalid.logical_or_(loss.detach().isnan())
        elif loss.isnan():
            raise FloatingPointError("the loss is NaN")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for name, group in groups.items():
            norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in group])
            log[name] = norm.item() if fault else norm
        optimizer.step()

    return step


@case("host-sync", "detector", "weights instead of boolean masks", shapes=True, rounds=7)
def masks_detector(fault):
    images, model = torch.randn(48, 3, 256, 256, device=GPU), Detector().to(GPU)
    optimizer, wanted = adam(model, fused=True), []
    for side in (64, 32, 16, 8):
        # Class 0 is the background, where no box is wanted.
        labels = torch.randint(1, 20, (48, side * side), device=GPU)
        labels *= torch.rand(48, side * side, device=GPU) < 0.1
        wanted.append((labels, torch.rand(48, side * side, 4, device=GPU)))

    def loss_of_map(scores, boxes, labels, targets):
        objects = labels > 0
        if fault:
            loss = F.cross_entropy(scores[objects], labels[objects])
            return loss + F.l1_loss(boxes[objects], targets[objects])
        each = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        each = each + F.l1_loss(boxes, targets, reduction="none").mean(-1)
        return (each * objects).sum() / objects.sum()

    def step():
        update(optimizer, sum(loss_of_map(*found, *targets) for found, targets in zip(model(images), wanted)))

    return step


def diversity(sequences, longest=6):
    """Returns the mean entropy of the n-grams of these sequences of tokens, up to the longest."""
    total = 0.0
    for tokens in sequences:
        for size in range(1, longest + 1):
            counts = Counter(zip(*(tokens[at:] for at in range(size))))
            whole = counts.total()
            total -= sum(count / whole * math.log2(count / whole) for count in counts.values())
    return total / (longest * len(sequences))


@case("host-work", "LSTM", "metrics every 50 steps", shapes=False, rounds=7)
def metrics_lstm(fault):
    tokens = text(64, 128, device="cpu")
    model, batch, sequences, log = Lstm().to(GPU), tokens.to(GPU), tokens.tolist(), {}
    optimizer, turn = adam(model, fused=True), itertools.count(1)

    def step():
        update(optimizer, gpt_loss(model, batch))
        if fault or next(turn) % 50 == 0:
            with record_function("log_metrics"):
                log["diversity"] = diversity(sequences)

    return step


@torch.no_grad()
def transport(cost, rounds, tolerance=None):
    """Returns the transport plan that Sinkhorn's iterations find for these costs. With a tolerance, they stop once all
    changes are below it."""
    kernel = torch.exp(-10 * cost)
    rows = columns = cost.new_ones(*cost.shape[:2], 1)
    for _ in range(rounds):
        before = rows
        rows = (kernel @ columns).reciprocal()
        columns = (kernel.transpose(1, 2) @ rows).reciprocal()
        if tolerance is not None and (rows - before).abs().max() < tolerance:
            break
    return rows * kernel * columns.transpose(1, 2)


@case("host-sync", "matching MLP", "a constant number of iterations", shapes=True, rounds=7)
def sinkhorn_matching(fault):
    points, model = torch.randn(16, 1024, 1024, device=GPU), mlp(4, 1024, classes=128)
    optimizer = adam(model, fused=True)
    # Nothing is below 0, so that both variants make all iterations.
    tolerance = 0.0 if fault else None

    def step():
        ours, theirs = F.normalize(model(points), dim=2).chunk(2)
        cost = 1 - ours @ theirs.transpose(1, 2)
        update(optimizer, (transport(cost.detach(), 60, tolerance) * cost).sum(2).mean())

    return step


@case("host-sync", "graph attention network", "repeat_interleave(output_size=...)", shapes=False, rounds=7)
def repeats_gat(fault):
    count, dim = 6144, 128
    nodes, labels = torch.randn(count, dim, device=GPU), torch.randint(40, (count,), device=GPU)
    degrees = torch.randint(8, 25, (count,), device=GPU)
    edges = int(degrees.sum())
    neighbours = torch.randint(count, (edges,), device=GPU)
    layers, head = nn.ModuleList(GraphAttention(dim, 4) for _ in range(8)).to(GPU), nn.Linear(dim, 40).to(GPU)
    optimizer = adam(nn.ModuleList([layers, head]), fused=True)

    def expand(rows):
        return torch.repeat_interleave(rows, degrees, dim=0, output_size=None if fault else edges)

    def step():
        x = nodes
        for layer in layers:
            x = layer(x, neighbours, expand)
        update(optimizer, F.cross_entropy(head(x), labels))

    return step


def png(pixels):
    """Encodes an image of shape (height, width, 3)."""
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes())), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@case("host-work", "super-resolution CNN", "images every 50 steps", shapes=True, rounds=7)
def images_upscaler(fault):
    high = np.random.default_rng(0).integers(0, 256, (64, 96, 96, 3), dtype=np.uint8)
    low = high[:, ::2, ::2].copy()
    inputs, wanted = (torch.from_numpy(images).to(GPU).permute(0, 3, 1, 2).float() / 255 for images in (low, high))
    inputs, wanted = inputs.contiguous(), wanted.contiguous()
    model, turn, log = upscaler(), itertools.count(1), {}
    optimizer = adam(model, fused=True)

    def pair(at):
        """An image as the model gets it, and as it should be."""
        return np.concatenate([low[at].repeat(2, axis=0).repeat(2, axis=1), high[at]], axis=1)

    def step():
        update(optimizer, F.l1_loss(model(inputs), wanted))
        at = next(turn)
        if fault or at % 50 == 0:
            with record_function("log_images"):
                rows = [np.concatenate([pair((at + row) % 64), pair((at + row + 3) % 64)], axis=1) for row in range(3)]
                log["pairs"] = png(np.concatenate(rows))

    return step


@case("host-sync", "world model", "validate_args=False of distributions", shapes=True, rounds=7)
def validated_world_model(fault):
    sequences, length, inputs, actions = 1536, 24, 256, 16
    seen, done = (torch.randn(sequences, length, size, device=GPU) for size in (inputs, actions))
    model = WorldModel(inputs, actions, 1024, 64).to(GPU)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, model(seen, done, fault))


@case("host-sync", "CNN", "random offsets on the host", shapes=False, rounds=7)
def gpu_offsets_cnn(fault):
    count, size, whole = 64, 160, 192
    images, labels = torch.rand(count, 3, whole, whole, device=GPU), torch.randint(100, (count,), device=GPU)
    model = cnn(64, (2, 2, 2))
    optimizer = adam(model, fused=True)

    def crops():
        """Cuts a random square out of each image. A bound that is on the GPU is read when the image is cut."""
        offsets = torch.randint(whole - size, (count, 2), device=GPU if fault else "cpu")
        pairs = offsets if fault else offsets.tolist()
        return torch.stack(
            [image[:, top : top + size, left : left + size] for image, (top, left) in zip(images, pairs)]
        )

    def step():
        update(optimizer, F.cross_entropy(model(crops()), labels))

    return step


@case("host-work", "sequential recommender", "append to the log instead of writing all of it", shapes=True, rounds=7)
def whole_log_recommender(fault):
    items, length = 8192, 200
    model, batch = SequentialRecommender(4, 256, 4, items, length).to(GPU), text(64, length, items)
    optimizer, turn = adam(model, fused=True), itertools.count(400)
    log = tempfile.TemporaryFile("w")

    def entry(at):
        rates = {f"lr/group {group}": 1e-4 * math.cos(at * 1e-5) * 0.9**group for group in range(8)}
        return {"step": at, "seconds": time.time(), "samples": 64 * at, "progress": at / 1e5, **rates}

    history = [entry(at) for at in range(400)]

    def write_log(at):
        """Writes the last 400 entries, or only the new one."""
        history.append(entry(at))
        del history[0]
        if fault:
            log.seek(0)
            log.write(json.dumps(history, indent=1))
            log.truncate()
        else:
            log.write(json.dumps(history[-1]) + "\n")
        log.flush()

    def step():
        scores = F.linear(model(batch[:, :-1]), model.items.weight)
        update(optimizer, F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten()))
        with record_function("write_log"):
            write_log(next(turn))

    return step


@case("host-sync", "conformer", "check all gradients on the GPU, at once", shapes=False, rounds=7)
def nan_checks_conformer(fault):
    sounds, units = torch.randn(16, 400, 80, device=GPU), torch.randint(500, (16, 400), device=GPU)
    model, skipped = conformer(8, 384, 6), []
    optimizer, weights = adam(model, fused=True), list(model.parameters())

    def step():
        loss = F.cross_entropy(model(sounds).flatten(0, 1), units.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if fault:
            for at, weight in enumerate(weights):
                if not torch.isfinite(weight.grad).all():
                    skipped.append(at)
                    return
        else:
            norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights])
            # A fused optimizer skips a step by itself if this is 1.
            optimizer.found_inf = 1 - torch.isfinite(norm).float()
        optimizer.step()

    return step


@case("host-work", "SIREN", "random numbers without a permutation of all pixels", shapes=False, rounds=7)
def permute_pixels_siren(fault):
    height, width, count = 512, 768, 98_304
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
    places, colours = torch.stack([rows, columns], 2).view(-1, 2).to(GPU), torch.rand(height * width, 3, device=GPU)
    model, random = Siren().to(GPU), np.random.default_rng(0)
    optimizer = adam(model, fused=True)

    def select():
        """Draws different pixels. numpy's older function shuffles the numbers of all pixels for that."""
        if fault:
            return np.random.choice(height * width, count, replace=False)
        return random.integers(0, height * width, count)

    def step():
        with record_function("select_pixels"):
            chosen = select()
        chosen = torch.from_numpy(chosen).pin_memory().to(GPU, non_blocking=True)
        update(optimizer, F.mse_loss(model(places[chosen]), colours[chosen]))

    return step
