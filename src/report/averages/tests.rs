//! Tests of the table of spans.

mod flops;

use super::{Average, SortBy};
use crate::{
    analysis::Analysis,
    report::Report,
    trace::{
        Attribution, Detail, Trace,
        sample::{gpu_trace, set_fields, set_parent, set_previous, spans_trace},
    },
};
use std::time::Duration;

fn report(trace: &Trace) -> Report {
    let mut report = Report::default();
    report.add(&Analysis::of(trace));
    report
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

#[test]
fn gpu_time_belongs_to_the_span_that_caused_it_and_those_around_it() {
    let rows = report(&gpu_trace()).averages().sort_by(SortBy::Name).rows();
    let times: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.self_gpu, row.total_gpu)).collect();
    assert_eq!(
        times,
        [
            (Average::UNATTRIBUTED, micros(10), micros(10)),
            ("backward", micros(100), micros(100)),
            ("forward", micros(40), micros(40)),
            ("train_step", micros(8), micros(148)),
        ]
    );
    let averages: Vec<_> = rows.iter().map(|row| (row.calls, row.average_gpu, row.kernels)).collect();
    assert_eq!(averages, [(0, micros(0), 1), (2, micros(50), 4), (2, micros(20), 2), (2, micros(74), 6)]);
    let percents: Vec<_> = rows.iter().map(|row| format!("{:.3}", row.self_gpu_percent)).collect();
    assert_eq!(percents, ["6.329", "63.291", "25.316", "5.063"], "of 158 µs");
    let memory: Vec<_> = rows.iter().map(|row| (row.self_gpu_memory, row.total_gpu_memory)).collect();
    assert_eq!(memory, [(0, 0), (-8192, -8192), (8192, 8192), (0, 0)]);
}

#[test]
fn the_peak_of_memory_is_of_allocations_of_the_spans_and_nested_ones() {
    let mut trace = gpu_trace();
    // The second `forward` finds more in use; `backward` only frees, after which less is in use.
    (trace.allocations[2].in_use, trace.allocations[2].attribution) = (9192, Attribution::HandedOff);
    let peaks = |trace: &Trace| {
        let rows = report(trace).averages().sort_by(SortBy::Name).rows();
        rows.iter().map(|row| row.peak_gpu_memory).collect::<Vec<_>>()
    };
    assert_eq!(peaks(&trace), [None, None, Some(9192), Some(9192)]);
    // Allocated in the first `backward`, it is of that and of the step around it.
    trace.allocations[2].span = trace.allocations[1].span;
    assert_eq!(peaks(&trace), [None, Some(9192), Some(5096), Some(9192)]);
    trace.allocations[2].span = None;
    assert_eq!(peaks(&trace), [Some(9192), None, Some(5096), Some(5096)]);
    trace.allocations.clear();
    assert_eq!(peaks(&trace), [None; 4]);
    assert!(!report(&trace).averages().width(200).to_string().contains("CUDA Peak"));
}

#[test]
fn deep_stacks_are_compared_whole_and_cut() {
    let mut trace = spans_trace(&[("recurse", None, 0, 9); 500]);
    (1..500).for_each(|span| set_parent(&mut trace, span, span - 1));
    let rows = report(&trace).averages().group_by_stack(usize::MAX).limit(usize::MAX).rows();
    assert_eq!(rows.len(), 500);
    let deepest = rows.iter().find(|row| row.stack.last().is_some_and(|name| name == "[399 more]")).unwrap();
    assert_eq!(deepest.stack.len(), 101);
    assert_eq!(rows.iter().map(|row| row.stack.len()).max(), Some(101));
    // All of it is one call, and 499 inside it.
    let rows = report(&trace).averages().rows();
    assert_eq!((rows[0].calls, rows[0].outermost_calls, rows[0].total_cpu), (500, 1, micros(9)));
}

#[test]
fn paths_are_kept_with_those_around_them() {
    let spans = [("a", None, 0, 90), ("b", Some(0), 1, 50), ("c", Some(1), 2, 40), ("d", None, 90, 95)];
    let of = |most, deepest| {
        let report = report(&spans_trace(&spans));
        let paths = report.averages().paths(most, deepest);
        let rows: Vec<_> = paths.rows.into_iter().map(|(row, parent)| (row.name, parent)).collect();
        (rows, paths.left_out)
    };
    let rows =
        |rows: &[(&str, Option<usize>)]| rows.iter().map(|&(name, at)| (name.to_owned(), at)).collect::<Vec<_>>();
    assert_eq!(of(9, 9), (rows(&[("a", None), ("d", None), ("b", Some(0)), ("c", Some(2))]), 0));
    assert_eq!(of(2, 9), (rows(&[("a", None), ("b", Some(0))]), 2));
    assert_eq!(of(9, 1), (rows(&[("a", None), ("d", None)]), 2));
}

#[test]
fn rows_can_be_of_modules() {
    let mut trace = gpu_trace();
    // Both instances of `forward` are of one name, but not of one module.
    set_fields(&mut trace, 1, &[("op.module", "layers.0")]);
    set_fields(&mut trace, 4, &[("op.module", "layers.1")]);
    let report = report(&trace);
    let rows = |by_module| report.averages().group_by_module(by_module).sort_by(SortBy::Name).rows();
    let forward = |row: &Average| (row.name == "forward").then(|| (row.module.clone(), row.calls, row.total_gpu));
    let merged: Vec<_> = rows(false).iter().filter_map(forward).collect();
    assert_eq!(merged, [(None, 2, micros(40))]);
    let mut apart: Vec<_> = rows(true).iter().filter_map(forward).collect();
    apart.sort();
    assert_eq!(apart, ["layers.0", "layers.1"].map(|module| (Some(module.to_owned()), 1, micros(20))));
    assert!(report.averages().group_by_module(true).to_string().contains("\nlayers.0 "));
}

#[test]
fn rows_can_be_sorted_by_what_gpus_did() {
    let report = report(&gpu_trace());
    let first = |sort_by| report.averages().sort_by(sort_by).rows()[0].name.clone();
    assert_eq!(first(SortBy::SelfGpu), "backward");
    assert_eq!(first(SortBy::TotalGpu), "train_step");
    assert_eq!(first(SortBy::GpuMemory), "forward");
}

#[test]
fn long_kernels_count_for_more_in_the_occupancy() {
    let mut trace = gpu_trace();
    for work in &mut trace.work {
        if let Detail::Kernel(kernel) = &mut work.detail
            && &*kernel.name == "node"
        {
            // Sixteen blocks of four warps on each multiprocessor, which fill it.
            kernel.grid = [132 * 16, 1, 1];
            kernel.registers = 32;
            kernel.static_shared_memory = 0;
        }
    }
    let rows = report(&trace).averages().sort_by(SortBy::Name).rows();
    let occupancy: Vec<_> = rows.iter().map(|row| format!("{:.3}", row.occupancy.unwrap())).collect();
    // 60 µs at 2.273 % and 20 µs at 100 %, and for the whole step 40 µs more at 2.273 %.
    assert_eq!(occupancy, ["2.273", "26.705", "2.273", "18.561"]);
}

#[test]
fn gpu_time_of_nested_spans_of_a_row_is_not_counted_twice() {
    let mut trace = gpu_trace();
    // All three are one place in the source.
    let callsite = trace.spans[0].callsite;
    trace.spans.iter_mut().for_each(|span| span.callsite = callsite);
    let rows = report(&trace).averages().rows();
    assert_eq!(rows[0].name, "train_step");
    assert_eq!((rows[0].self_gpu, rows[0].total_gpu, rows[0].kernels), (micros(148), micros(148), 6));
    // 2 × 74 µs around 2 × 20 and 2 × 50, which are counted once.
    assert_eq!((rows[0].calls, rows[0].outermost_calls, rows[0].average_gpu), (6, 2, micros(74)));
}

#[test]
fn the_table_has_all_columns_that_have_room() {
    assert_eq!(report(&gpu_trace()).averages().width(200).to_string(), include_str!("tests/wide.txt"));
    assert_eq!(
        format!("\n{}", report(&gpu_trace()).averages().width(120)),
        "
--------------  ---------  ----------  ---------  ----------  -----------  ----------  ---------  ---------  ----------
Name            Self time  Total time   Avg time   Self CUDA  Self CUDA %  CUDA total   CUDA Mem  Occupancy  # of Calls
--------------  ---------  ----------  ---------  ----------  -----------  ----------  ---------  ---------  ----------
train_step      40.000 µs  180.000 µs  90.000 µs    8.000 µs        5.1 %  148.000 µs        0 B      2.3 %           2
backward        80.000 µs   80.000 µs  40.000 µs  100.000 µs       63.3 %  100.000 µs  -8.00 KiB      2.3 %           2
forward         60.000 µs   60.000 µs  30.000 µs   40.000 µs       25.3 %   40.000 µs   8.00 KiB      2.3 %           2
[unattributed]          –           –          –   10.000 µs        6.3 %   10.000 µs        0 B      2.3 %           0
--------------  ---------  ----------  ---------  ----------  -----------  ----------  ---------  ---------  ----------
hidden to fit the terminal: p50, Longest, Total %, Self %, p95, CUDA time avg, CUDA Peak, Self CUDA Mem
"
    );
}

fn row(rows: &[Average], name: &str) -> Average {
    rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}")).clone()
}

#[test]
fn self_and_total_time_are_told_apart() {
    let spans =
        [("outer", None, 0, 15), ("inner", Some(0), 5, 15), ("outer", None, 20, 40), ("inner", Some(2), 21, 39)];
    let rows = report(&spans_trace(&spans)).averages().rows();
    let (outer, inner) = (row(&rows, "outer"), row(&rows, "inner"));
    assert_eq!((outer.calls, outer.self_cpu, outer.total_cpu), (2, micros(7), micros(35)));
    assert_eq!((inner.calls, inner.self_cpu, inner.total_cpu), (2, micros(28), micros(28)));
    assert_eq!((inner.longest_cpu, inner.average_cpu), (micros(18), micros(14)));
    assert_eq!((outer.total_percent, outer.self_percent, inner.self_percent), (100.0, 20.0, 80.0));
}

#[test]
fn percentiles_are_of_all_instances_of_a_row() {
    // 1 µs, 2 µs and so on to 100 µs, on two paths.
    let spans: Vec<_> = (1..=100_u64)
        .flat_map(|n| {
            let (outer, start) = (if n % 2 == 0 { "even" } else { "odd" }, 1000 * n);
            [(outer, None, start, start + n), ("inner", Some(2 * (n as usize - 1)), start, start + n)]
        })
        .collect();
    let rows = report(&spans_trace(&spans)).averages().rows();
    let (inner, even) = (row(&rows, "inner"), row(&rows, "even"));
    assert_eq!((inner.p50_cpu, inner.p95_cpu, inner.longest_cpu), (nanos(50_500), nanos(95_050), micros(100)));
    assert_eq!((even.p50_cpu, even.p95_cpu, even.longest_cpu), (micros(51), nanos(95_100), micros(100)));

    // More windows than times are kept for: percentiles are less than 1 % off, and the longest is exact.
    let (mut report, trace) = (Report::default(), spans_trace(&spans));
    (0..5).for_each(|_| report.add(&Analysis::of(&trace)));
    let inner = row(&report.averages().rows(), "inner");
    assert_eq!((inner.calls, inner.longest_cpu), (500, micros(100)));
    for (found, exact) in [(inner.p50_cpu, 50e-6), (inner.p95_cpu, 95e-6)] {
        assert!((found.as_secs_f64() / exact - 1.0).abs() <= 0.01, "{found:?}");
    }
    let table = report.averages().width(160).to_string();
    assert!(["p50", "p95", "Longest"].iter().all(|title| table.contains(title)), "{table}");
    // No more digits are printed than are known.
    assert!(table.contains("  ~50.4 µs  ~94.8 µs  100.000 µs  "), "{table}");
}

#[test]
fn calls_that_an_edge_cuts_are_counted_apart() {
    let mut trace = spans_trace(&[
        ("epoch", None, 0, 1000),
        ("step", Some(0), 0, 3),
        ("step", Some(0), 10, 20),
        ("step", Some(0), 30, 42),
        ("step", Some(0), 960, 1000),
    ]);
    (trace.spans[0].cut.start, trace.spans[0].cut.end) = (true, true);
    (trace.spans[1].cut.start, trace.spans[4].cut.end) = (true, true);
    let report = report(&trace);
    let rows = report.averages().rows();
    let (step, epoch) = (row(&rows, "step"), row(&rows, "epoch"));
    assert_eq!((step.calls, step.cut_calls, step.outermost_calls), (2, 2, 2));
    assert_eq!((step.average_cpu, step.p50_cpu, step.longest_cpu), (micros(11), micros(11), micros(12)));
    assert_eq!(step.total_cpu, micros(65), "the time in the window is known");
    assert_eq!((epoch.calls, epoch.cut_calls, epoch.longest_cpu), (0, 1, Duration::ZERO));
    assert_eq!(report.calls(), 5);
    let table = report.averages().width(160).to_string();
    assert!(table.contains("  2 + 2 cut") && table.contains("      1 cut"), "{table}");
    let epoch = table.lines().find(|line| line.starts_with("epoch")).unwrap();
    assert!(epoch.contains("  1.000 ms          –  "), "{table}");
}

#[test]
fn recursion_is_not_counted_twice() {
    let spans = [
        ("root", None, 0, 50),
        ("down", Some(0), 0, 40),
        ("between", Some(1), 10, 40),
        ("down", Some(2), 10, 40),
        ("between", Some(3), 20, 40),
        ("down", Some(4), 20, 40),
    ];
    let rows = report(&spans_trace(&spans)).averages().rows();
    assert_eq!(rows.len(), 3);
    let (down, between) = (row(&rows, "down"), row(&rows, "between"));
    assert_eq!((down.calls, down.total_cpu, between.total_cpu), (3, micros(40), micros(30)));
    // The average is of what the total counts.
    assert_eq!((down.outermost_calls, down.average_cpu, down.longest_cpu), (1, micros(40), micros(40)));
    // And so are percentiles: a mean above the longest call but one would be of other calls.
    assert_eq!((down.p50_cpu, down.p95_cpu), (micros(40), micros(40)));
    let note = "3 calls were inside a call of the same row: only # of Calls counts them again\n";
    let table = report(&spans_trace(&spans)).averages().to_string();
    assert!(table.ends_with(note), "{table}");
}

#[test]
fn rows_are_sorted_and_limited_as_asked() {
    let spans = [
        ("b slow", None, 0, 20),
        ("c often", None, 20, 21),
        ("c often", None, 21, 22),
        ("c often", None, 22, 23),
        ("a outer", None, 30, 40),
        ("d inner", Some(4), 30, 40),
    ];
    let report = report(&spans_trace(&spans));
    let first = |sort_by| report.averages().sort_by(sort_by).limit(1).rows()[0].name.clone();
    assert_eq!(first(SortBy::TotalCpu), "b slow");
    assert_eq!(first(SortBy::AverageCpu), "b slow");
    assert_eq!(first(SortBy::Calls), "c often");
    assert_eq!(first(SortBy::Name), "a outer");
    let by_self: Vec<_> = report.averages().sort_by(SortBy::SelfCpu).rows().into_iter().map(|row| row.name).collect();
    assert_eq!(by_self, ["b slow", "d inner", "c often", "a outer"]);
    let table = report.averages().limit(1).to_string();
    assert!(table.contains("b slow") && !table.contains("c often") && table.ends_with("3 more rows\n"), "{table}");
}

#[test]
fn enters_of_one_call_are_counted_once() {
    // Two futures: one of three polls with another span in it, and one that is ready at once.
    let mut trace = spans_trace(&[
        ("fetch", None, 0, 10),
        ("fetch", None, 20, 24),
        ("parse", Some(1), 21, 23),
        ("fetch", None, 90, 100),
        ("fetch", None, 200, 206),
    ]);
    set_previous(&mut trace, 1, 0);
    set_previous(&mut trace, 3, 1);
    let report = report(&trace);
    let rows = report.averages().rows();
    let (fetch, parse) = (row(&rows, "fetch"), row(&rows, "parse"));
    assert_eq!((fetch.calls, fetch.enters, fetch.total_cpu, fetch.self_cpu), (2, 4, micros(30), micros(28)));
    assert_eq!((fetch.average_cpu, fetch.p50_cpu, fetch.longest_cpu), (micros(15), micros(15), micros(24)));
    let latency = fetch.latency.unwrap();
    assert_eq!((latency.average, latency.p50, latency.p95), (micros(53), micros(53), nanos(95_300)));
    assert_eq!(latency.longest, micros(100));
    assert_eq!((parse.calls, parse.enters, parse.latency), (1, 1, None));
    assert_eq!((report.spans(), report.calls()), (5, 3));
    assert!(report.to_string().contains("\n5 spans of 3 calls in 1 window"), "{report}");
    let table = report.averages().width(160).to_string();
    assert!(["# of Calls", "# of Enters", "Latency p50", "Latency p95"].iter().all(|title| table.contains(title)));
}

#[test]
fn time_is_counted_once_if_a_call_is_entered_inside_itself() {
    let mut trace = spans_trace(&[("fetch", None, 0, 10), ("fetch", Some(0), 2, 8)]);
    set_previous(&mut trace, 1, 0);
    let fetch = row(&report(&trace).averages().rows(), "fetch");
    assert_eq!((fetch.calls, fetch.enters, fetch.average_cpu, fetch.total_cpu), (1, 2, micros(10), micros(10)));
    assert_eq!(fetch.latency.unwrap().longest, micros(10));
}
