#!/usr/bin/env python3
"""Prints the data of all pages that XProf, TensorBoard's profile plugin, serves for a folder, as JSON.

usage: xprof.py LOGDIR [--gpu] [--input] [--copies]

With --gpu, every page must have data: pages without are printed, and the script fails. With --input, the page of the
input pipeline must have data, too. With --copies, the viewer is queried for the details of each copy, one by one.
"""
import gzip
import json
import sys
import time
import urllib.parse
import urllib.request

from tensorboard_server import TensorBoard

logdir, options = sys.argv[1], sys.argv[2:]
missing = []


def ask(path, **query):
    url = f"{server.address}data/plugin/profile/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=300) as answer:
        body = answer.read()
    return json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def rows(table):
    """Returns the rows of a Google data table, by the ids of its columns."""
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, (cell.get("v") for cell in row["c"]))) for row in table["rows"]]


def expect(run, what, holds):
    if not holds:
        missing.append(f"{run}: {what}")


def look(run, host):
    def page(tag):
        # Some pages are for all hosts together.
        hosts = [entry["hostname"] for entry in ask("hosts", run=run, tag=tag)]
        return ask("data", run=run, tag=tag, host=host if host in hosts else hosts[0])

    tools = ask("run_tools", run=run)
    overview = page("overview_page")
    statistics = page("framework_op_stats")[0]
    inputs = page("input_pipeline_analyzer")
    trace = page("trace_viewer@")
    events = trace["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    drawn = [e for e in events if e.get("ph") == "X"]
    out = {e["bind_id"] for e in events if e.get("flow_out")}
    into = {e["bind_id"] for e in events if e.get("flow_in")}
    seen = {
        "tools": tools,
        "device": overview[2]["p"]["device_type"],
        "banner": [row["message"] for row in rows(overview[-1])],
        "percent_16_bit": overview[0]["p"].get("device_compute_16bit_percent"),
        "top_ops": rows(overview[0]),
        "steps": rows(overview[1]),
        "operations": rows(statistics),
        "input": rows(inputs[2]) if len(inputs) > 2 and "cols" in inputs[2] else [],
        "input_steps": len(rows(inputs[1])),
        "events": [[threads.get((e["pid"], e["tid"]), ""), e["name"], e["ts"], e.get("dur", 0)] for e in drawn],
        "counters": {e["name"]: e["entries"] for e in events if e.get("ph") == "C"},
        "arrows": len(out & into),
        "timespan": trace["fullTimespan"],
        "lines": sorted(set(threads.values())),
    }
    if "kernel_stats" in tools:
        roofline, hlo = page("roofline_model"), page("hlo_stats")
        seen["kernels"] = rows(page("kernel_stats"))
        seen["roofline"] = rows(roofline[0])
        seen["peaks"] = roofline[0]["p"]
        seen["hlo"] = rows(hlo if isinstance(hlo, dict) else hlo[0])
    if "--copies" in options:
        seen["copies"] = []
        for event in drawn:
            on_stream = threads.get((event["pid"], event["tid"]), "").startswith("Stream #")
            if on_stream and event["name"].startswith("Memcpy"):
                # This is the query of the viewer when an event is clicked on. Other queries give names and times only.
                clicked = {"event_name": event["name"], "unique_id": event["args"]["uid"]}
                clicked |= {"start_time_ms": event["ts"] / 1e3, "duration_ms": event["dur"] / 1e3}
                answer = ask("data", run=run, tag="trace_viewer@", host=host, **clicked)
                details = next(e["args"]["memcpy_details"] for e in answer["traceEvents"] if e.get("ph") == "X")
                seen["copies"].append([event["name"], int(details.split()[0].removeprefix("num_bytes:"))])
    seen["memory"] = {}
    for name, memory in page("memory_profile").get("memoryProfilePerAllocator", {}).items():
        snapshots = memory["memoryProfileSnapshots"]
        seen["memory"][name] = {
            "peak": int(memory["profileSummary"]["peakStats"]["peakBytesInUse"]),
            "timeline": len(memory["sampledTimelineSnapshots"]),
            "names": sorted({snapshot["activityMetadata"]["tfOpName"] for snapshot in snapshots}),
            "changes": len(snapshots),
        }
    return seen


def check(run, seen):
    """Checks that the pages of a GPU's capture have data."""
    operations = seen["operations"]
    on = lambda side: [row for row in operations if row["host_or_device"] == side and row["type"] != "IDLE"]
    expect(run, "kernel stats are not offered", "kernel_stats" in seen["tools"])
    expect(run, "overview: device", seen["device"].startswith("Nvidia GPU ("))
    expect(run, "overview: steps", seen["steps"] and all(row["stepTimeMs"] > 0 for row in seen["steps"]))
    expect(run, "overview: top operations", seen["top_ops"])
    kernels = seen.get("kernels", [])
    expect(run, "kernel stats", kernels)
    expect(run, "kernel stats: launch dimensions", all(row["block_dim"] and row["grid_dim"] for row in kernels))
    expect(run, "kernel stats: registers", any(row["registers_per_thread"] for row in kernels))
    expect(run, "kernel stats: operations", any(row["op_name"] for row in kernels))
    expect(run, "framework op stats: device", on("Device"))
    expect(run, "framework op stats: host", on("Host"))
    expect(run, "input pipeline: steps", seen["input_steps"])
    expect(run, "memory: timeline", any(memory["timeline"] > 1 for memory in seen["memory"].values()))
    expect(run, "memory: owners", any(any(memory["names"]) for memory in seen["memory"].values()))
    expect(run, "trace viewer: events", seen["events"])
    expect(run, "trace viewer: arrows", seen["arrows"])
    expect(run, "trace viewer: times overflow", seen["timespan"][1] < 1e8)
    expect(run, "trace viewer: steps", "Steps" in seen["lines"])
    expect(run, "roofline: FLOPs", any(row["measured_flop_rate"] for row in seen.get("roofline", [])))
    peaks = seen.get("peaks", {"peak_flop_rate": 0, "peak_hbm_bw": 0})
    expect(run, "roofline: peaks", float(peaks["peak_flop_rate"]) > 0 and float(peaks["peak_hbm_bw"]) > 0)
    if "--input" in options:
        expect(run, "input pipeline: stages", seen["input"])


with TensorBoard(logdir) as server:
    runs, until = [], time.monotonic() + 300
    while not runs and server.runs() and time.monotonic() < until:
        runs = ask("runs")
        time.sleep(0 if runs else 0.25)
    found = {}
    for run in runs:
        hosts = [host["hostname"] for host in ask("hosts", run=run, tag="trace_viewer@")]
        found[run] = {host: look(run, host) for host in hosts}
        if "--gpu" in options:
            for host, seen in found[run].items():
                check(f"{run} on {host}", seen)
    if missing or not found:
        sys.exit(f"nothing of {'; '.join(missing or ['any profile'])}\n{server.log()}")
    print(json.dumps(found))
