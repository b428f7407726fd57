"""Prints the data of all pages that torch-tb-profiler, TensorBoard's plugin for PyTorch, shows for traces, as JSON.

    torch_tb.py FOLDER VIEW...

FOLDER has one run. Fails if the plugin complains about the traces, or if one of the VIEWs is missing or empty.
"""

import gzip
import json
import re
import sys
import time
import urllib.parse
import urllib.request

from tensorboard_server import TensorBoard

folder, *expected = sys.argv[1:]
# Matches errors and warnings, except two that are not about the traces: the headers of a page, and a list of operators
# that is not complete.
COMPLAINTS = re.compile(r"^[EW]\d{4} (?!.*(security_validator|Tensor Cores eligible operator))")
failed = []


def check(what, holds, seen=""):
    print("passed" if holds else "FAILED", what, str(seen)[:300])
    if not holds:
        failed.append(what)


class Server(TensorBoard):
    """TensorBoard, asked for the pages of its plugin."""

    def raw(self, page, **query):
        url = f"{self.address}data/plugin/pytorch_profiler/{page}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=300) as answer:
            body = answer.read()
            return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body

    def ask(self, page, **query):
        return json.loads(self.raw(page, **query))

    def loaded(self):
        """Returns the runs, after they are loaded."""
        runs, until = None, time.monotonic() + 300
        while self.runs() and time.monotonic() < until:
            runs = self.ask("runs")
            if runs["runs"] and not runs["loading"]:
                return runs["runs"]
            time.sleep(0.25)
        sys.exit(f"no run was loaded: {runs}\n{self.log()}")


def overview(server, capture):
    page = server.ask("overview", **capture)
    check("steps", page["steps"]["rows"])
    columns = [column["name"] for column in page["steps"]["columns"][1:] if "name" in column]
    rows = page["steps"]["rows"]
    steps = {row[0]: dict(zip(columns, [value for value in row[1:] if not isinstance(value, str)])) for row in rows}
    gpu = {entry["title"]: entry["value"] for entry in page.get("gpu_metrics", {}).get("data", [])}
    check("a summary of the GPU", bool(gpu) or "Kernel" not in expected, gpu)
    average = {part["name"]: part["value"] for part in page["performance"][0]["children"]}
    return {"steps": steps, "gpu": gpu, "average": average}


def operators(server, capture):
    seen = {}
    for grouping in ("Operation", "OperationAndInputShape"):
        rows = server.ask("operation/table", group_by=grouping, **capture)["data"]
        check(f"operators by {grouping}", rows, [row["name"] for row in rows])
        pies = server.ask("operation", group_by=grouping, **capture)
        check("time of operators on the device", pies["device_self_time"] or "Kernel" not in expected)
        for row in rows:
            query = {"op_name": row["name"], "group_by": grouping}
            if grouping == "OperationAndInputShape":
                query["input_shape"] = row["input_shape"]
            if row["has_call_stack"]:
                stacks = server.ask("operation/stack", **query, **capture)["data"]
                row["stacks"] = [stack["call_stack"] for stack in stacks]
                check(f"call stacks of {row['name']}", row["stacks"])
        seen[grouping] = rows
        # Tables are rounded to microseconds. These are not, but leave out times of zero.
        pies = {pie: dict(answer["rows"]) if answer else {} for pie, answer in pies.items()}
        if grouping == "Operation":
            names = [row["name"] for row in rows]
            seen["times"] = {name: {pie: times.get(name, 0) for pie, times in pies.items()} for name in names}
    return seen


def kernels(server, capture):
    events = json.loads(server.raw("trace", **capture))["traceEvents"]
    by_name = server.ask("kernel/table", group_by="Kernel", **capture)["data"]["rows"]
    check("kernels", by_name)
    by_operator = server.ask("kernel/table", group_by="KernelNameAndOpName", **capture)["data"]["rows"]
    check("kernels by operator", by_operator)
    owners = sorted({row[1] for row in by_operator})
    strays = [event for event in events if event.get("cat") == "kernel" and not event["args"]["External id"]]
    without_operator = {"N/A", "CallTreeRoot"} & set(owners)
    check("every attributed kernel has an operator", strays or not without_operator, owners)
    totals = dict(server.ask("kernel", **capture)["total"]["rows"])
    check("shares of kernels", totals)
    check("tensor cores", len(server.ask("kernel/tc_pie", **capture)["total"]["rows"]) == 2)
    # The number of calls is the ninth column, and the total is the tenth.
    return {
        "by_name": {row[0]: [row[2], totals[row[0]]] for row in by_name},
        "by_operator": [[row[0], row[1], row[8], row[9]] for row in by_operator],
    }


def memory(server, capture):
    stats = server.ask("memory", memory_metric="B", **capture)
    check("memory by operator", stats["rows"])
    curve = server.ask("memory_curve", memory_metric="B", time_metric="us", **capture)
    check("the curve of memory", curve["rows"])
    events = server.ask("memory_events", memory_metric="B", time_metric="us", **capture)
    check("allocations", events["rows"])
    return {
        "operators": {device: {row[0]: row[1:] for row in rows} for device, rows in stats["rows"].items()},
        # The curve is a selection of points, but the peak is exact.
        "peak": {device: float(peak.split(": ")[1].rstrip("B")) for device, peak in curve["metadata"]["peaks"].items()},
        "events": events["rows"],
    }


def modules(server, capture):
    data = server.ask("module", **capture)["data"]
    check("modules", data)
    return data


def trace(server, capture):
    """Returns counts of the trace page, which is the file with counters of the GPU that the plugin adds."""
    try:
        events = json.loads(server.raw("trace", **capture))["traceEvents"]
    except ValueError as error:
        check(f"the trace is JSON: {error}", False)
        return {}
    counters = sum(event.get("ph") == "C" and event["name"].startswith("GPU ") for event in events)
    check("events of the trace", events)
    return {"events": len(events) - counters, "gpu_counters": counters}


def distributed(server, run, span):
    pages = {}
    for page in ("gpuinfo", "overlap", "waittime", "commops"):
        answer = server.ask("distributed/" + page, run=run, worker="All", span=span)
        check(f"distributed {page}", answer and answer["data"], answer and answer["data"])
        pages[page] = answer and answer["data"]
    return pages


def look(server):
    (run,) = server.loaded()
    views = server.ask("views", run=run)
    check("views", set(expected) <= set(views), views)
    seen = {"run": run, "views": views, "workers": {}}
    workers = server.ask("workers", run=run, view="Overview")
    check("workers", workers, workers)
    for worker in workers:
        spans = server.ask("spans", run=run, worker=worker) or ["default"]
        for span in spans:
            capture = {"run": run, "worker": worker, "span": span}
            pages = {
                "overview": overview(server, capture),
                "operators": operators(server, capture),
                "trace": trace(server, capture),
            }
            for view, page in [("Kernel", kernels), ("Memory", memory), ("Module", modules)]:
                if view in views:
                    pages[view.lower()] = page(server, capture)
            tree = server.ask("tree", **capture)
            check("the tree", tree["children"])
            pages["tree"] = tree
            seen["workers"].setdefault(worker, []).append(pages)
    if "Distributed" in views:
        seen["distributed"] = distributed(server, run, spans[0])
    complaints = [line for line in server.log().splitlines() if COMPLAINTS.match(line)]
    check("no complaints", not complaints, "\n".join(complaints))
    return seen


with Server(folder, "--load_fast", "false") as server:
    seen = look(server)
print(json.dumps(seen))
sys.exit(f"failed: {failed}" if failed else 0)
