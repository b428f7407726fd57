#!/usr/bin/env python3
"""PyTorch trainings with a fault and its fix, timed without a profiler and recorded with torch's own.

    trainings.py [--time] OUT_DIR [CASE...]

Needs PyTorch with CUDA. Each case trains twice, with the fault and without. It writes OUT_DIR/CASE-VARIANT.json.gz, the
trace of four steps (of three such windows, the one whose steps take the median time), and appends one line of JSON for
each to OUT_DIR/torch.jsonl, with the time of a step without a profiler: the median of five or seven means, with and
without the fault in turns. With `--time`, there are no traces. Nothing synchronises in a step unless the case does. A
case that fails does not stop the others; the exit code is 1.

The cases are in `*_cases.py`, by what is wrong with them; `models.py` and `*_models.py` have what they train.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import time
import traceback

import torch
from torch.profiler import ProfilerActivity, profile, schedule

# The cases run in the order of these imports.
import input_cases  # noqa: F401
import copy_cases  # noqa: F401
import upload_cases  # noqa: F401
import wait_cases  # noqa: F401
import launch_cases  # noqa: F401
import memory_cases  # noqa: F401
import kernel_cases  # noqa: F401
from models import GPU
from registry import CASES

VARIANTS = ["fault", "fixed"]


def allow_tf32():
    """Lets tensor cores compute, as a step before may have switched them off."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def times_of_steps(steps, rounds, seconds=0.6):
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
            allow_tf32()
            step()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                step()
            torch.cuda.synchronize()
            of_step.append((time.perf_counter() - began) / count)
    return means


def record(step, path, shapes, windows=3):
    """Records some windows, and keeps the one whose steps take the median time: the host is slow for a second or so
    now and then, which the times without a profiler are medians over, too."""
    taken = []
    for window in range(windows):
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            schedule=schedule(wait=3, warmup=2, active=4, repeat=1),
            record_shapes=shapes,
        ) as profiler:
            for index in range(3 + 2 + 4):
                if index == 3 + 2:
                    began = time.perf_counter()
                step()
                ended = time.perf_counter()
                profiler.step()
        profiler.export_chrome_trace(f"{path}.{window}")
        taken.append((ended - began, window))
    kept = sorted(taken)[windows // 2][1]
    with open(f"{path}.{kept}", "rb") as plain, gzip.GzipFile(path + ".gz", "wb", 9, mtime=0) as small:
        small.write(plain.read())
    for window in range(windows):
        os.remove(f"{path}.{window}")


def run(name, folder, record_too):
    """Times both variants of a case, records them unless told not to, and returns the lines of the table."""
    case = CASES[name]
    allow_tf32()
    torch.manual_seed(0)
    began = time.perf_counter()
    steps = [case.build(variant == "fault") for variant in VARIANTS]
    means = times_of_steps(steps, case.rounds)
    fault, fixed = (statistics.median(of_variant) for of_variant in means)
    print(
        f"{name}: {case.kind}, {fault * 1e3:.2f} ms a step with the fault, {fixed * 1e3:.2f} ms fixed,",
        f"{100 * (1 - fixed / fault):.1f} % saved; timed in {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    if record_too:
        for variant, step in zip(VARIANTS, steps):
            allow_tf32()
            record(step, os.path.join(folder, f"{name}-{variant}.json"), case.shapes)
    return [
        {
            "case": name,
            "framework": "PyTorch",
            "model": case.model,
            "variant": variant,
            "kind": case.kind,
            "fix": case.fix,
            "step_us": round(statistics.median(of_variant) * 1e6, 1),
            "means_us": [round(mean * 1e6, 1) for mean in of_variant],
        }
        for variant, of_variant in zip(VARIANTS, means)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time", action="store_true", help="only time the steps, and write no traces")
    parser.add_argument("folder", metavar="OUT_DIR")
    parser.add_argument("names", metavar="CASE", nargs="*")
    options = parser.parse_args()
    names = options.names or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"unknown case {', '.join(unknown)}: expected some of {', '.join(CASES)}")
    os.makedirs(options.folder, exist_ok=True)
    if not options.time:
        # The first profiler of a process takes seconds to begin.
        record(lambda: torch.zeros(1, device=GPU), os.path.join(options.folder, "first.json"), False, 1)
        os.remove(os.path.join(options.folder, "first.json.gz"))
    began, failed = time.perf_counter(), []
    with open(os.path.join(options.folder, "torch.jsonl"), "a") as table:
        for name in names:
            try:
                for line in run(name, options.folder, not options.time):
                    print(json.dumps(line), file=table, flush=True)
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except Exception:
                traceback.print_exc()
                failed.append(name)
    print(f"{len(names)} cases in {time.perf_counter() - began:.0f} s", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
