"""Trainings whose host waits for the GPU, or lets the GPU wait."""

import itertools
import math
import time
from collections import Counter

import torch
import torch.nn.functional as F
from torch.profiler import record_function

from models import GPU, Gpt, Lstm, adam, cnn, gpt_loss, text, update
from registry import case
from vision_models import Detector, Vit


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
