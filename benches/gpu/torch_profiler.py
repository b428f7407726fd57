"""Measures the cost that PyTorch's profiler adds to a kernel launch, in nanoseconds on the launching thread.

    torch_profiler.py [ROUNDS]

Like `cost` it launches small kernels, 500 to a batch, and all variants take turns in one process. The output is the
median over the rounds, and the median of the differences within each round.
"""

import statistics
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile, schedule

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
BATCH, BATCHES = 500, 12
x = torch.zeros(32, device="cuda")


def measure():
    times = []
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(BATCH):
            x.add_(1.0)
        times.append((time.perf_counter_ns() - start) / BATCH)
    torch.cuda.synchronize()
    return statistics.median(times)


def recording(activities, **options):
    with profile(activities=activities, **options):
        measured = measure()
    return measured


def waiting():
    with profile(activities=[CPU, CUDA], schedule=schedule(wait=10**6, warmup=1, active=1)) as profiler:
        profiler.step()
        return measure()


CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA
variants = {
    "nothing": measure,
    "waiting": waiting,
    "CUDA": lambda: recording([CUDA]),
    "CPU and CUDA": lambda: recording([CPU, CUDA]),
    "and shapes and memory": lambda: recording([CPU, CUDA], record_shapes=True, profile_memory=True),
}
measure()
alone = statistics.median(measure() for _ in range(ROUNDS))
times = {name: [] for name in variants}
for turn in range(ROUNDS):
    names = list(variants)
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        times[name].append(variants[name]())
rounds = f"{ROUNDS} rounds of {BATCHES} x {BATCH}"
print(f"PyTorch {torch.__version__}, {rounds}; before any profiling {alone:.0f} ns a kernel")
for name, own in times.items():
    added = statistics.median(a - b for a, b in zip(own, times["nothing"]))
    median = statistics.median(own)
    print(f"{name:24} {median:7.0f} ns a kernel, {added:+7.0f} to nothing, {median / alone:.2f} times before")
