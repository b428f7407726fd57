"""Runs every analysis of HolisticTraceAnalysis on a folder of traces, and prints the results as JSON.

    hta_analyses.py FOLDER RANKS OPERATOR [ANALYSIS...]

The folder must have traces of RANKS ranks. OPERATOR is a prefix of the names of the operators whose kernel sequences
are searched. Fails if an analysis fails or finds nothing. The ANALYSES that are named must fail or find nothing, as the
traces have no data for them.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
import warnings

# Without this HTA rounds to whole microseconds, and shorter spans end before they start.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from hta.trace_analysis import TimeSeriesTypes, TraceAnalysis  # noqa: E402

folder, ranks, operator, *impossible = sys.argv[1:]
failed = []


def run(name, analysis, holds=lambda found: found is not None and len(found) > 0):
    found = None
    try:
        found = analysis()
        problem = None if holds(found) else "finds nothing"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    print(name, problem or "passed")
    if (problem is None) == (name in impossible):
        failed.append(name)
    return found if problem is None else None


def busy(row):
    return float(row["compute_time(us)"] + row["non_compute_time(us)"])


with tempfile.TemporaryDirectory() as work:
    # HTA writes files into the folder that it reads, so it gets a copy.
    traces = os.path.join(work, "traces")
    shutil.copytree(folder, traces)
    hta = TraceAnalysis(trace_dir=traces, include_last_profiler_step=True)
    run("ranks", hta.t.get_ranks, lambda found: len(found) == int(ranks))
    breakdown = run(
        "temporal breakdown",
        lambda: hta.get_temporal_breakdown(visualize=False),
        lambda found: (found["compute_time(us)"] > 0).all(),
    )
    run("idle time", lambda: hta.get_idle_time_breakdown(ranks=[0], visualize=False), lambda found: len(found[0]) > 0)
    kernels = run(
        "kernels",
        lambda: hta.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True),
        lambda found: len(found[0]) > 0 and len(found[1]) > 0,
    )
    overlap = run(
        "overlap",
        lambda: hta.get_comm_comp_overlap(visualize=False),
        lambda found: (found["comp_comm_overlap_pctg"] > 0).all(),
    )
    run("memory bandwidth", lambda: hta.get_memory_bw_summary(ranks=[0]))
    run("memory bandwidth over time", lambda: hta.get_memory_bw_time_series(ranks=[0]))
    run("queue length", lambda: hta.get_queue_length_summary(ranks=[0]))
    queue = run("queue length over time", lambda: hta.get_queue_length_time_series(ranks=[0]))
    run("full queue", lambda: hta.get_time_spent_blocked_on_full_queue(queue), lambda found: found is not None)
    launches = run(
        "launches",
        lambda: hta.get_cuda_kernel_launch_stats(ranks=[0], visualize=False),
        lambda found: len(found[0]) > 0,
    )
    run("aten operators", lambda: hta.get_aten_op_kernels_and_delay(ranks=[0]), lambda found: len(found[0]) > 0)
    run("kernels with annotations", lambda: hta.get_gpu_kernels_with_user_annotations(rank=0))
    run(
        "annotations on the GPU",
        lambda: hta.get_gpu_user_annotation_breakdown(use_gpu_annotation=True, visualize=False),
    )
    run(
        "annotations on the host",
        lambda: hta.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=False),
    )
    run("steps", hta.get_profiler_steps)
    # HTA finds stragglers only among kernels of NCCL before 2.19, and not in a single rank.
    run("stragglers", lambda: hta.get_potential_stragglers(num_candidates=1))
    run(
        "sequences of kernels",
        lambda: hta.get_frequent_cuda_kernel_sequences(
            operator_name=operator, output_dir=work, min_pattern_len=1, rank=0, visualize=False
        ),
    )
    series = TimeSeriesTypes.QUEUE_LENGTH | TimeSeriesTypes.MEMCPY_BANDWIDTH
    run("counters", lambda: hta.generate_trace_with_counters(time_series=series, ranks=[0]), lambda _: True)
    path = run(
        "critical path",
        lambda: hta.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0),
        lambda found: found[1],
    )
    if path:
        run("summary of the critical path", path[0].summary)
        run("parts of the critical path", path[0].get_critical_path_breakdown)
        run(
            "overlay of the critical path",
            lambda: hta.overlay_critical_path_analysis(0, path[0], output_dir=work),
            os.path.getsize,
        )
    seen = {
        "ranks": [int(rank) for rank in hta.t.get_ranks()],
        "steps": [int(step) for step in hta.t.get_iterations()],
        "launches": {} if launches is None else {str(rank): len(rows) for rank, rows in launches.items()},
        "overlap": {}
        if overlap is None
        else {str(int(row["rank"])): row["comp_comm_overlap_pctg"] for _, row in overlap.iterrows()},
        "kinds": {} if kernels is None else {row["kernel_type"]: float(row["sum"]) for _, row in kernels[0].iterrows()},
        "busy": {} if breakdown is None else {str(int(row["rank"])): busy(row) for _, row in breakdown.iterrows()},
        "critical path": bool(path),
    }
print(json.dumps(seen))
sys.exit(f"failed: {failed}" if failed else 0)
