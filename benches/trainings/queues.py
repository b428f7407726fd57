#!/usr/bin/env python3
"""PyTorch loops that are bound by the GPU, whose launch queue is full, recorded with torch's profiler.

    queues.py OUT_DIR SECONDS [LOOP...]

Most kernels that run in a short window were launched before it, and are in the trace without their calls. Each loop has
about 50, 200, 700 or 3,000 kernels a step, of which products of f32 matrices take most of the time, about half of it,
or a quarter; the fix is TF32. For each loop, with and without a synchronisation at the end of a step, it times both
without a profiler, in turns, then records windows of 1, 3 and 6 steps, and appends a line of JSON to
OUT_DIR/measured.jsonl. No loop is begun after SECONDS.
"""

import json
import os
import statistics
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile, schedule

# Name, blocks, element-wise operations of a block, rows and columns. A block has three products and about four other
# kernels, and two more for each operation.
LOOPS = [
    ("torch-50-most", 8, 1, 4096, 2048),
    ("torch-50-half", 3, 7, 65536, 512),
    ("torch-50-few", 1, 23, 131072, 256),
    ("torch-200-most", 33, 1, 4096, 2048),
    ("torch-200-half", 10, 8, 65536, 512),
    ("torch-200-few", 4, 23, 131072, 256),
    ("torch-700-most", 116, 1, 4096, 2048),
    ("torch-700-half", 35, 8, 65536, 512),
    ("torch-700-few", 14, 23, 131072, 256),
    ("torch-3000-half", 150, 8, 32768, 512),
    ("torch-3000-few", 58, 23, 65536, 256),
    ("torch-3000-most", 500, 1, 2048, 2048),
]
ROUNDS = 3
# Seconds of a round, and its fewest steps.
ROUND = 0.25
FEWEST = 5
# Launches that fill the queue.
QUEUE = 1500


class Block(torch.nn.Module):
    def __init__(self, operations, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.operations = operations

    def forward(self, x):
        x = self.linear(x)
        for index in range(self.operations):
            x = torch.tanh(x) if index % 2 == 0 else x * 1.01
        return x


def build(blocks, operations, rows, width):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block(operations, width) for _ in range(blocks))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
    x, y = torch.randn(rows, width, device="cuda"), torch.randn(rows, width, device="cuda")

    def step(tf32, sync):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        if sync:
            torch.cuda.synchronize()

    return step


def mean(step, tf32, sync, count):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        step(tf32, sync)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def record(step, tf32, sync, steps, fill, path):
    for _ in range(fill):
        step(tf32, sync)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=3, warmup=2, active=steps, repeat=1),
        on_trace_ready=lambda it: it.export_chrome_trace(path),
    ) as profiler:
        for _ in range(3 + 2 + steps + 2):
            step(tf32, sync)
            profiler.step()


def main():
    folder, seconds, names = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    os.makedirs(folder, exist_ok=True)
    start = time.perf_counter()
    for name, *shape in LOOPS:
        if (names and name not in names) or time.perf_counter() - start > seconds:
            continue
        began = time.perf_counter()
        step = build(*shape)
        kernels = int(name.split("-")[1])
        for sync in [False, True]:
            counts = []
            for tf32 in [False, True]:
                mean(step, tf32, sync, 2)
                counts.append(max(FEWEST, int(ROUND / mean(step, tf32, sync, 3))))
            means = [[], []]
            for _ in range(ROUNDS):
                for tf32, count, of_variant in zip([False, True], counts, means):
                    of_variant.append(round(1e6 * mean(step, tf32, sync, count), 1))
            before, after = map(statistics.median, means)
            row = {"loop": name, "sync": sync, "f32_us": before, "tf32_us": after, "means_us": means}
            with open(os.path.join(folder, "measured.jsonl"), "a", encoding="utf-8") as table:
                print(json.dumps(row), file=table)
            # Recordings of 3,000 kernels are large; one with the fix shows what bounds the step then.
            for tf32, windows in [(False, [1, 3, 6] if kernels < 3000 else [1, 3]), (True, [] if sync else [1])]:
                for steps in windows:
                    wait, arithmetic = ("sync" if sync else "async"), ("tf32" if tf32 else "f32")
                    path = os.path.join(folder, f"{name}-{wait}-{arithmetic}-{steps}.json")
                    record(step, tf32, sync, steps, QUEUE // kernels + 1, path)
        del step
        torch.cuda.empty_cache()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)


main()
