"""Measures the cost that PyTorch's profiler adds to a training step, in microseconds per step.

The loop is the same as in `src/lib.rs`. All variants take turns in one process.

    torch_mlp.py [ROUNDS] [STEPS]
"""

import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
WIDTH, LAYERS, BATCH = 512, 8, 64
model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU()))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False, fused=False)
x = torch.randn(BATCH, WIDTH, device="cuda")
y = torch.zeros(BATCH, dtype=torch.long, device="cuda")


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()


def measure(after_step=lambda: None):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
        after_step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 / STEPS


CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA


def recording(activities, **options):
    with profile(activities=activities, **options):
        return measure()


def waiting():
    with profile(activities=[CPU, CUDA], schedule=schedule(wait=10**6, warmup=1, active=1)) as profiler:
        return measure(profiler.step)


variants = {
    "nothing": measure,
    "waiting": waiting,
    "CUDA": lambda: recording([CUDA]),
    "CPU and CUDA": lambda: recording([CPU, CUDA]),
    "and shapes and memory": lambda: recording([CPU, CUDA], record_shapes=True, profile_memory=True),
}
measure()
# After the first profiling PyTorch stays slower, so this is measured before it.
alone = statistics.median(measure() for _ in range(ROUNDS))
times = {name: [] for name in variants}
for turn in range(ROUNDS):
    names = list(variants)
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        times[name].append(variants[name]())
print(f"PyTorch {torch.__version__}, {ROUNDS} rounds of {STEPS} steps; before any profiling {alone:.0f} µs a step")
for name, own in times.items():
    ratio = statistics.median(a / b for a, b in zip(own, times["nothing"]))
    median = statistics.median(own)
    print(f"{name:24} {median:7.0f} µs a step, {ratio:.3f} × nothing, {median / alone:.3f} × before")
