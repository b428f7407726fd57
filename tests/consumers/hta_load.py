"""Loads traces with HolisticTraceAnalysis, and prints its spans, GPU work and busy times as JSON.

    hta_load.py FOLDER
"""

import json
import logging
import os
import sys
import warnings

# Without this HTA rounds to whole microseconds, and shorter spans end before they start.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from hta.trace_analysis import TraceAnalysis  # noqa: E402

analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
traces = analysis.t
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
seen = {
    "ranks": [int(rank) for rank in traces.get_ranks()],
    "iterations": [int(iteration) for iteration in traces.get_iterations()],
    "spans": {},
    "work": {},
    "busy": {},
}
for rank in traces.get_ranks():
    rows = traces.get_trace(rank).copy()
    rows["name"] = rows["name"].map(lambda index: traces.symbol_table.sym_table[index])
    rows["cat"] = rows["cat"].map(lambda index: traces.symbol_table.sym_table[index])
    operators = rows[rows["cat"] == "cpu_op"].groupby("name")["dur"].agg(["count", "sum"])
    seen["spans"][str(rank)] = {name: [int(row["count"]), float(row["sum"])] for name, row in operators.iterrows()}
    work = rows[rows["cat"].isin(GPU)].groupby("name")["dur"].agg(["count", "sum"])
    seen["work"][str(rank)] = {name: [int(row["count"]), float(row["sum"])] for name, row in work.iterrows()}
if any(seen["work"].values()):
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    for _, row in breakdown.iterrows():
        seen["busy"][str(int(row["rank"]))] = float(row["compute_time(us)"] + row["non_compute_time(us)"])
print(json.dumps(seen))
