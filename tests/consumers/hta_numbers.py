"""Runs the analyses of HolisticTraceAnalysis that kernspan has, too, and prints their numbers as JSON, a line a file.

    hta_numbers.py FILE...

Each file is analysed twice: with times in whole nanoseconds ("ns"), for which HTA computes with integers, and in
microseconds ("us"), as files have them. Times begin at the first event, since HTA reads them as floating-point numbers
that are too large for nanoseconds otherwise.
"""

import gzip
import json
import logging
import os
import sys
import tempfile
import warnings
from decimal import Decimal

# Without this HTA rounds to whole microseconds.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from hta.trace_analysis import TraceAnalysis  # noqa: E402

# Gaps of less than this are HTA's "kernel wait". It says that its default of 30 is in nanoseconds, but compares it with
# the times of the file, which are in microseconds.
KERNEL_DELAY = {"ns": 30_000, "us": 30}
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_driver", "cuda_runtime")


def events_of(file):
    with gzip.open(file, "rt") if file.endswith(".gz") else open(file) as opened:
        document = json.load(opened, parse_float=Decimal)
    events = document["traceEvents"]
    # HTA drops events without a category, and the one of the whole trace.
    start = min(event["ts"] for event in events if "dur" in event and event.get("cat") not in (None, "Trace"))
    for event in events:
        for time, since in ("ts", start), ("dur", 0):
            if time in event:
                event[time] = round((event[time] - since) * 1000)
    return events


def numbers(events, unit):
    scale = {"ns": 1, "us": 1000}[unit]
    scaled = [dict(event) for event in events]
    if unit == "us":
        for event in scaled:
            event.update({time: event[time] / scale for time in ("ts", "dur") if time in event})
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "trace.json")
        with open(file, "w") as opened:
            json.dump({"traceEvents": scaled}, opened, default=float)
        hta = TraceAnalysis(trace_files={0: file}, include_last_profiler_step=True)
    idle, _ = hta.get_idle_time_breakdown(ranks=[0], visualize=False, consecutive_kernel_delay=KERNEL_DELAY[unit])
    # All kernels, none as "others".
    _, kernels = hta.get_gpu_kernel_breakdown(
        visualize=False, include_memory_kernels=True, duration_ratio=1.0, num_kernels=10**9
    )
    queues = hta.get_queue_length_time_series(ranks=[0]).get(0)
    launches = hta.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]

    def columns(frame, *names):
        return [] if frame is None else [list(row) for row in frame[list(names)].astype(object).values.tolist()]

    statistics = ["sum (us)", "max (us)", "min (us)", "mean (us)", "stddev"]
    return {
        "idle": columns(idle, "stream", "idle_category", "idle_time"),
        "kernels": {name: row for name, *row in columns(kernels, "name", *statistics)},
        "queues": columns(queues, "stream", "ts", "queue_length"),
        "launches": columns(launches, "correlation", "cpu_duration", "gpu_duration", "launch_delay"),
    }


for name in sys.argv[1:]:
    events = events_of(name)
    first = min(event["ts"] for event in events if event.get("cat") in GPU)
    calls = {event["args"]["correlation"]: event["name"] for event in events if event.get("cat") in CALLS}
    seen = {unit: numbers(events, unit) for unit in ("ns", "us")}
    print(json.dumps({"first": first, "calls": calls, **seen}))
