"""Rules that readers of Kineto's trace format break on.

    lint_kineto.py TRACE...

Prints every rule that a trace breaks, and fails if there is one.
"""

import collections
import gzip
import json
import pathlib
import re
import sys

CATEGORIES = {"cpu_op", "user_annotation", "cpu_instant_event"}


def broken_rules(text):
    broken = collections.Counter()
    document = json.loads(text, object_pairs_hook=lambda pairs: check_keys(pairs, broken))
    for key in ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "traceName"):
        if key not in document:
            broken[f"no {key} at the top"] += 1
    if not re.search(r'"rank":\s+\d', text):
        broken["HTA finds no rank: it wants a space in `\"rank\": 0`"] += 1
    if "]" in text[text.rindex('"traceName"') :]:
        broken["an array after traceEvents: the TensorBoard plugin cuts the text there"] += 1
    rows = collections.defaultdict(list)
    for event in document["traceEvents"]:
        phase = event["ph"]
        if "name" not in event or "pid" not in event:
            broken["an event with no name or pid"] += 1
        if phase not in "XiCM":
            broken[f"unknown phase {phase}"] += 1
        if phase in "Xi" and event.get("cat") not in CATEGORIES:
            broken[f"unknown category {event.get('cat')}"] += 1
        if phase in "XiC" and not event["ts"] > 0:
            broken["an event with no time"] += 1
        if phase == "X":
            if not event["dur"] >= 0:
                broken["a negative duration"] += 1
            rows[event["pid"], event["tid"]].append((event["ts"], -(event["ts"] + event["dur"]), event["name"]))
        if phase == "C" and not all(isinstance(value, (int, float)) for value in event["args"].values()):
            broken["a counter that is no number"] += 1
    for row in rows.values():
        open_until = []
        for start, negative_end, name in sorted(row):
            while open_until and open_until[-1] <= start + 1e-4:
                open_until.pop()
            if open_until and -negative_end > open_until[-1] + 1e-4:
                broken[f"{name} crosses another span of its row"] += 1
            open_until.append(-negative_end)
    return broken


def check_keys(pairs, broken):
    keys = [key for key, _ in pairs]
    for key in {key for key in keys if keys.count(key) > 1}:
        broken[f"{key} twice in one object"] += 1
    return dict(pairs)


failed = False
for path in sys.argv[1:]:
    raw = pathlib.Path(path).read_bytes()
    text = (gzip.decompress(raw) if path.endswith(".gz") else raw).decode()
    for rule, count in broken_rules(text).items():
        print(f"{path}: {count} × {rule}")
        failed = True
sys.exit(failed)
