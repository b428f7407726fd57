#!/usr/bin/env python3
"""Makes the fixtures of findings about the machine from what `trainings --stress FOLDER` has recorded.

    benches/trainings/machine_fixtures.py FOLDER tests/fixtures/machine

Of each trace, the steps, their outermost spans and the vital signs that rules look at are kept: a tenth of the size. Of
`stress.jsonl`, all but what was found at that time.
"""

import gzip
import json
import pathlib
import sys

SIGNS = {"vitals." + sign for sign in (
    "container.cpu", "container.cpu_throttled", "machine.cpu", "machine.io_pressure", "machine.iowait",
    "machine.swap_in", "machine.swap_out", "machine.throttles", "gpu0.other_processes", "gpu0.power_throttle",
    "gpu0.thermal_throttle")}


def is_kept(event):
    name = event.get("name", "")
    match event.get("ph"):
        case "C":
            return name in SIGNS
        case "X":
            return name.startswith("ProfilerStep") or name in ("train_step", "Record Window End") or (
                event.get("cat") == "Trace")
        case phase:
            return phase in ("M", "i", "I", "s", "f")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(pathlib.Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in (source / "stress.jsonl").read_text().splitlines()]
    for row in rows:
        document = json.loads(gzip.decompress((source / row["trace"]).read_bytes()))
        document["traceEvents"] = [event for event in document["traceEvents"] if is_kept(event)]
        text = json.dumps(document, separators=(",", ":"))
        (target / row["trace"]).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        del row["found"]
    rows.sort(key=lambda row: (row["case"], row["stress"]))
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    (target / "stress.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    main()
