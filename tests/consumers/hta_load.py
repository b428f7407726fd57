"""Loads traces with HolisticTraceAnalysis and prints what it sees, as JSON.

    hta_load.py FOLDER
"""

import json
import logging
import os
import sys
import warnings

# Otherwise HTA rounds to whole microseconds, and shorter spans end before they start.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from hta.trace_analysis import TraceAnalysis  # noqa: E402

analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
traces = analysis.t
seen = {"ranks": [int(rank) for rank in traces.get_ranks()], "iterations": [int(i) for i in traces.get_iterations()], "spans": {}}
for rank in traces.get_ranks():
    rows = traces.get_trace(rank).copy()
    rows["name"] = rows["name"].map(lambda index: traces.symbol_table.sym_table[index])
    rows["cat"] = rows["cat"].map(lambda index: traces.symbol_table.sym_table[index])
    operators = rows[rows["cat"] == "cpu_op"].groupby("name")["dur"].agg(["count", "sum"])
    seen["spans"][str(rank)] = {name: [int(row["count"]), float(row["sum"])] for name, row in operators.iterrows()}
print(json.dumps(seen))
