"""Checks the rules of Kineto's trace format that its readers depend on.

    lint_kineto.py FLAVOR TRACE...

The flavor is `kineto`, or `torch` for the format that TensorBoard's plugin for PyTorch reads. Prints every rule that a
trace breaks, and fails if there is one.
"""

import collections
import gzip
import json
import pathlib
import re
import sys

HOST = {"cpu_op", "user_annotation", "cpu_instant_event", "operation"}
CALLS = {"kineto": {"cuda_driver", "cuda_runtime"}, "torch": {"runtime"}}[sys.argv[1]]
WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
CATEGORIES = HOST | CALLS | WORK | {"gpu_user_annotation", "cuda_sync", "overhead"}
TORCH = sys.argv[1] == "torch"
if TORCH:
    CATEGORIES.add("python_function")
# TensorBoard's plugin adds times in floating point, and drops spans that then cross by the smallest amount.
ERROR = 0 if TORCH else 1e-4
# The distance between rows of one stream.
ROWS = 10_000_000
SYNCS = {"Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync"}
LAUNCH = ("grid", "block", "registers per thread", "shared memory", "queued")
OCCUPANCY = ("blocks per SM", "warps per SM", "est. achieved occupancy %")
MEMORY = ("Addr", "Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id")
TOP = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "baseTimeNanoseconds",
    "displayTimeUnit",
    "traceName",
)
DEVICE = (
    "id name totalGlobalMem computeMajor computeMinor maxThreadsPerBlock maxThreadsPerMultiprocessor regsPerBlock"
    " warpSize sharedMemPerBlock numSms regsPerMultiprocessor sharedMemPerBlockOptin sharedMemPerMultiprocessor"
)


def broken_rules(text):
    broken = collections.Counter()
    document = json.loads(text, object_pairs_hook=lambda pairs: check_keys(pairs, broken))
    check_top(document, text, broken)
    events = document["traceEvents"]
    for event in events:
        check_event(event, broken)
    check_rows(events, broken)
    check_names(events, broken)
    check_work(document, broken)
    check_flows(events, broken)
    if TORCH:
        check_torch(events, broken)
    return broken


def check_keys(pairs, broken):
    keys = [key for key, _ in pairs]
    for key in {key for key in keys if keys.count(key) > 1}:
        broken[f"{key} twice in one object"] += 1
    return dict(pairs)


def check_top(document, text, broken):
    for key in TOP:
        if key not in document:
            broken[f"no {key} at the top"] += 1
    if "kernspan_gpu" not in document:
        broken["no word on whether GPUs were recorded"] += 1
    for device in document["deviceProperties"]:
        if not set(device) >= set(DEVICE.split()):
            broken["a device without the properties that Kineto gives"] += 1
    if not re.search(r'"rank":\s+\d', text):
        broken["HTA finds no rank: it wants a space in `\"rank\": 0`"] += 1
    if "]" in text[text.rindex('"traceName"') :]:
        broken["an array after traceEvents: the TensorBoard plugin cuts the text there"] += 1


def check_event(event, broken):
    phase, category, arguments = event["ph"], event.get("cat"), event.get("args", {})
    if "name" not in event or "pid" not in event:
        broken["an event with no name or pid"] += 1
    if phase not in "XiCMsf":
        broken[f"unknown phase {phase}"] += 1
    if phase in "Xi" and category not in CATEGORIES:
        broken[f"unknown category {category}"] += 1
    if phase in "XiCsf" and not event["ts"] > 0:
        broken["an event with no time"] += 1
    if phase == "X" and not event["dur"] >= 0:
        broken["a negative duration"] += 1
    if phase == "C" and not all(isinstance(value, (int, float)) for value in arguments.values()):
        broken["a counter that is no number"] += 1
    if not 0 <= event.get("tid", 0) < 2**32:
        broken["a row that Perfetto's 32 bits do not hold"] += 1
    if category == "cuda_sync":
        kind = arguments.get("cuda_sync_kind")
        if kind not in SYNCS:
            broken["a wait of a kind that HTA does not know"] += 1
        if kind in ("Stream Wait Event", "Event Sync") and arguments["wait_on_cuda_event_record_corr_id"] < 0:
            broken["a wait for an event that nobody recorded"] += 1
        expect(arguments, ("stream", "correlation", "device", "context"), "a wait", broken)
    if event["name"] == "[memory]":
        expect(arguments, MEMORY, "[memory]", broken)


def expect(arguments, keys, what, broken):
    for key in keys:
        if key not in arguments:
            broken[f"{what} without {key}"] += 1


def check_rows(events, broken):
    """Checks that ranges of a row do not cross, since Perfetto drops those. It reads negative numbers as 0."""
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            row = max(event["pid"], 0), event["tid"]
            rows[row].append((event["ts"], -(event["ts"] + event["dur"]), event["name"]))
    for row in rows.values():
        open_until = []
        for start, negative_end, name in sorted(row):
            while open_until and open_until[-1] <= start + ERROR:
                open_until.pop()
            if open_until and -negative_end > open_until[-1] + ERROR:
                broken[f"{name} crosses another span of its row"] += 1
            open_until.append(-negative_end)
    # Work on the row of a stream must not overlap at all.
    streams = collections.defaultdict(list)
    for event in events:
        if event.get("cat") in WORK:
            streams[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for ranges in streams.values():
        ranges.sort()
        for (_, end), (start, _) in zip(ranges, ranges[1:]):
            if start < end - ERROR:
                broken["work that overlaps other work of its row"] += 1


def check_torch(events, broken):
    """Checks the rules of TensorBoard's plugin for PyTorch."""
    for event in events:
        category, arguments = event.get("cat"), event.get("args", {})
        if event["name"].startswith("ProfilerStep#"):
            if category != "user_annotation":
                broken["a step that is not on the host: the plugin divides by zero"] += 1
            if not event["name"].split("#")[1].isdigit():
                broken["a step with no number"] += 1
        if category in CALLS | WORK:
            expect(arguments, ("External id",), category, broken)
        if category == "cpu_op" and not arguments.get("Call stack") and not event["name"].startswith("nccl:"):
            broken["a span without a call stack"] += 1
        if category == "python_function":
            expect(arguments, ("Python id", "Python parent id", "Python module id"), category, broken)
            if not event["name"].startswith("nn.Module: "):
                broken["a function that is no module"] += 1


def check_names(events, broken):
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    labels = {event["pid"]: event["args"]["labels"] for event in events if event["name"] == "process_labels"}
    hosts = {event["pid"] for event in events if event.get("cat") in HOST}
    for event in events:
        if event["ph"] == "X" and (event["pid"], event["tid"]) not in named:
            broken[f"a row of {event['cat']} without a name"] += 1
        if event.get("cat") in WORK:
            if event["pid"] in hosts:
                broken["a GPU with the number of the process: their rows are mixed up"] += 1
            if labels.get(event["pid"]) != f"GPU {event['pid']}":
                broken["a GPU that is not labelled as one"] += 1
    if 0 in hosts:
        broken["a process with number 0, which HTA takes for a GPU"] += 1


def check_work(document, broken):
    events = document["traceEvents"]
    spans = {event["args"]["External id"] for event in events if event.get("cat") == "cpu_op"}
    devices = {device["id"] for device in document["deviceProperties"]}
    if TORCH:
        spans.add(0)
    calls, work = {}, [event for event in events if event.get("cat") in WORK]
    for event in events:
        if event.get("cat") in CALLS:
            expect(event["args"], ("cbid", "correlation"), "a call", broken)
            if calls.setdefault(event["args"]["correlation"], event) is not event:
                broken["two calls with one correlation: HTA and the TensorBoard plugin join by it"] += 1
        has_id = event.get("cat") in CALLS | WORK and "External id" in event["args"]
        if has_id and event["args"]["External id"] not in spans:
            broken["an External id that no span has"] += 1
    for event in work:
        arguments = event["args"]
        expect(arguments, ("device", "context", "stream", "correlation"), event["cat"], broken)
        if arguments["device"] != event["pid"]:
            broken["work on another device's row"] += 1
        if event["tid"] % ROWS != arguments["stream"]:
            broken["work on another stream's row"] += 1
        if not event["dur"] > 0:
            broken["work that takes no time"] += 1
        if arguments["stream"] < 0:
            broken["work on a negative stream, which HTA takes for the host"] += 1
        if event["cat"] == "kernel":
            expect(arguments, LAUNCH, "a kernel", broken)
            expect(arguments, OCCUPANCY if arguments["device"] in devices else (), "a kernel", broken)
            if not (isinstance(arguments.get(OCCUPANCY[2], 0), int) and 0 <= arguments.get(OCCUPANCY[2], 0) <= 100):
                broken["an occupancy that is no whole number of percent"] += 1
        else:
            expect(arguments, ("bytes",), event["cat"], broken)
            pattern = r"Memcpy [HDAP]to[HDAP] \(.+ -> .+\)$" if event["cat"] == "gpu_memcpy" else r"Memset \(.+\)$"
            if not re.match(pattern, event["name"]):
                broken["a copy that HTA does not know by its name"] += 1
        call = calls.get(arguments["correlation"])
        if call and call["args"].get("External id") != arguments.get("External id"):
            broken["work and its call have not the same External id: the TensorBoard plugin joins by it"] += 1
        is_known = arguments.get("attribution") not in ("unattributed", "before")
        if call is None and is_known:
            broken["work without its call"] += 1
        if call and event["ts"] < call["ts"]:
            broken["work that starts before its call"] += 1
        if not arguments.get("External id") and is_known:
            broken["work of no span that does not say so"] += 1
    if work and sum(document["kernspan_attribution"].values()) != len(work):
        broken["attributions that do not add up"] += 1


def check_flows(events, broken):
    """Checks that each arrow begins at the start of a call and ends at the start of work: Perfetto refuses others.

    Arrows of the category `call` lead from one `cpu_op` to another.
    """
    ops = {(event["pid"], event["tid"], event["ts"]) for event in events if event.get("cat") == "cpu_op"}
    for event in events:
        if event["ph"] in "sf" and event["cat"] not in ({"ac2g"} if TORCH else {"ac2g", "call"}):
            broken[f"an arrow of the category {event['cat']}"] += 1
        if event["ph"] in "sf" and event["cat"] == "call" and (event["pid"], event["tid"], event["ts"]) not in ops:
            broken["an arrow of a call that is at no span"] += 1
    events = [event for event in events if event["ph"] not in "sf" or event["cat"] == "ac2g"]
    begins = {(event["pid"], event["tid"], event["ts"]): event for event in events if event.get("cat") in CALLS}
    ends = {(event["pid"], event["tid"], event["ts"]): event for event in events if event.get("cat") in WORK}
    started, ended = {}, set()
    for event in events:
        position = event["pid"], event.get("tid"), event.get("ts")
        if event["ph"] == "s":
            if started.setdefault(event["id"], event) is not event:
                broken["an arrow that begins twice"] += 1
            if begins.get(position, {"args": {"correlation": None}})["args"]["correlation"] != event["id"]:
                broken["an arrow that does not begin at its call"] += 1
    for event in events:
        position = event["pid"], event.get("tid"), event.get("ts")
        if event["ph"] == "f":
            ended.add(event["id"])
            if event.get("bp") != "e":
                broken["an arrow to the next slice instead of the one it ends at"] += 1
            if ends.get(position, {"args": {"correlation": None}})["args"]["correlation"] != event["id"]:
                broken["an arrow that does not end at its work"] += 1
            if event["id"] in started and event["ts"] < started[event["id"]]["ts"]:
                broken["an arrow back in time"] += 1
    if started.keys() != ended:
        broken["an arrow with one end"] += 1


failed = False
for path in sys.argv[2:]:
    raw = pathlib.Path(path).read_bytes()
    text = (gzip.decompress(raw) if path.endswith(".gz") else raw).decode()
    for rule, count in broken_rules(text).items():
        print(f"{path}: {count} × {rule}")
        failed = True
sys.exit(failed)
