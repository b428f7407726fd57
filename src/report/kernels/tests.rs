//! Tests of the table of kernels.

use super::{KernelAverage, KernelTally, KernelTimes, Kernels, square};
use crate::trace::{
    Detail, Trace,
    sample::{self, gpu_trace},
};
use std::{borrow::Cow, sync::Arc, time::Duration};

#[test]
fn work_of_a_name_is_a_row() {
    let mut times = KernelTimes::default();
    times.add(&gpu_trace());
    let rows = Kernels::new(&times).rows();
    let seen: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.calls, row.total.as_micros())).collect();
    assert_eq!(
        seen,
        [
            ("gemm", 4, 100),
            ("Memset (Device)", 2, 20),
            ("node", 2, 20),
            ("stray", 1, 10),
            ("Memcpy HtoD (Pageable -> Device)", 2, 8),
        ]
    );
    assert!(rows.iter().all(|row| row.names == 1 && row.shapes.is_none() && row.gemm.is_none()));
    let (gemm, copy) = (&rows[0], &rows[4]);
    let micros = [gemm.average, gemm.shortest, gemm.longest].map(|time| time.as_micros());
    assert_eq!(micros, [25, 20, 30]);
    assert_eq!((gemm.deviation.as_nanos(), copy.deviation.as_nanos()), (5774, 0), "the root of 100 / 3");
    assert_eq!(format!("{:.3} {:.3}", gemm.percent, gemm.occupancy.unwrap()), "63.291 2.273");
    assert_eq!((gemm.registers, gemm.bytes, gemm.bytes_per_second), (Some(74), 0, None));
    assert_eq!((copy.registers, copy.bytes, copy.occupancy), (None, 8000, None));
    assert_eq!(copy.bytes_per_second.unwrap().round(), 1e9);
}

#[test]
fn the_table_shows_what_is_known() {
    let mut times = KernelTimes::default();
    assert_eq!(Kernels::new(&times).to_string(), "no GPU work was recorded\n");
    times.add(&gpu_trace());
    assert_eq!(
        format!("\n{}", Kernels::new(&times).limit(3).width(140)),
        "
---------------  ------  ----------  ---------  ---------  ---------  ---------  ---------  -----  ----  ----------
Kernel           CUDA %  CUDA total    Average   Shortest    Longest  Occupancy  Registers  Bytes  GB/s  # of Calls
---------------  ------  ----------  ---------  ---------  ---------  ---------  ---------  -----  ----  ----------
gemm             63.3 %  100.000 µs  25.000 µs  20.000 µs  30.000 µs      2.3 %         74      –     –           4
Memset (Device)  12.7 %   20.000 µs  10.000 µs  10.000 µs  10.000 µs          –          –  128 B  0.01           2
node             12.7 %   20.000 µs  10.000 µs  10.000 µs  10.000 µs      2.3 %         74      –     –           2
---------------  ------  ----------  ---------  ---------  ---------  ---------  ---------  -----  ----  ----------
2 more rows
"
    );
}

/// `GPU work` is of all kernels, `memory` of the rest.
fn kind(name: &str) -> Cow<'_, str> {
    if name.starts_with("Mem") { "memory".into() } else { format!("GPU {}", "work").into() }
}

#[test]
fn names_of_a_group_are_a_row() {
    let mut trace = gpu_trace();
    for work in &mut trace.work {
        if let Detail::Kernel(kernel) = &mut work.detail
            && &*kernel.name == "node"
        {
            // Sixteen blocks of four warps on each multiprocessor, which fill it.
            (kernel.grid, kernel.registers, kernel.static_shared_memory) = ([132 * 16, 1, 1], 32, 0);
        }
    }
    let mut times = KernelTimes::default();
    times.add(&trace);
    let rows = Kernels::new(&times).group_by(kind).rows();
    let seen: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.names, row.calls)).collect();
    assert_eq!(seen, [("GPU work", 3, 7), ("memory", 2, 4)]);
    let micros = |row: &KernelAverage| [row.total, row.shortest, row.longest].map(|time| time.as_micros());
    assert_eq!((micros(&rows[0]), micros(&rows[1])), ([130, 10, 30], [28, 4, 10]));
    // 110 µs at 2.273 % and 20 µs at 100 %.
    assert_eq!(format!("{:.3}", rows[0].occupancy.unwrap()), "17.308");
    assert_eq!((rows[0].registers, rows[1].registers, rows[1].occupancy), (Some(74), None, None));
    // 2 × 4000 copied and 2 × 64 set in 28 µs.
    assert_eq!((rows[1].bytes, rows[1].bytes_per_second.unwrap().round()), (8128, 290_285_714.0));
    assert_eq!(rows.iter().map(|row| row.percent).sum::<f64>().round(), 100.0);
}

#[test]
fn the_table_shows_shapes_and_groups() {
    let mut trace = gpu_trace();
    sample::set_fields(&mut trace, 0, &[("op.shape.input", "[8]")]);
    sample::set_fields(&mut trace, 1, &[("op.shape.input", "[8, 4]"), ("op.gemm", "8x2x4")]);
    let mut times = KernelTimes::default();
    times.add(&trace);
    // All of it took 158 µs: the second step's 60 and the stray 10, the first `backward`'s 40, and the first
    // `forward`'s 20.
    let kernels = Kernels::new(&times).group_by(kind).group_by_shape(true);
    assert_eq!(
        format!("\n{}", kernels.limit(3).width(100)),
        "
--------  ------  ----------  ---------  ---------  ----------  ----------  ------------  -----
Kernel    CUDA %  CUDA total    Average  Occupancy  # of Calls  # of Names  Input Shapes  m×n×k
--------  ------  ----------  ---------  ---------  ----------  ----------  ------------  -----
GPU work  44.3 %   70.000 µs  17.500 µs      2.3 %           4           3
GPU work  25.3 %   40.000 µs  20.000 µs      2.3 %           2           2  [8]
GPU work  12.7 %   20.000 µs  20.000 µs      2.3 %           1           1  [8, 4]        8x2x4
--------  ------  ----------  ---------  ---------  ----------  ----------  ------------  -----
hidden to fit the terminal: Registers, Longest, Shortest
2 more rows
"
    );
}

fn rename(trace: &mut Trace, from: &str, to: &str) {
    for work in &mut trace.work {
        if let Detail::Kernel(kernel) = &mut work.detail
            && (&*kernel.name == from || from == "*")
        {
            kernel.name = Arc::from(to);
        }
    }
}

fn seen(row: &KernelAverage) -> (&str, Option<&str>, Option<&str>, u64, u128) {
    (&row.name, row.shapes.as_deref(), row.gemm.as_deref(), row.calls, row.total.as_micros())
}

#[test]
fn shapes_are_those_of_the_innermost_span_that_says_them() {
    let mut trace = sample::gpu_trace();
    // The first step, its `forward`, and its `backward`, which states no shapes; then the second `forward`.
    sample::set_fields(&mut trace, 0, &[("op.shape.input", "[8]")]);
    let fields = [("op.shape.input", "[8, 4]"), ("op.gemm", "8x2x4"), ("op.shape.weight", "[4, 2]")];
    sample::set_fields(&mut trace, 1, &fields);
    sample::set_fields(&mut trace, 2, &[("op.gemm", "1x1x1"), ("op.flops", "7")]);
    sample::set_fields(&mut trace, 4, &[("op.shape.input", "[9, 4]")]);
    let mut times = KernelTimes::default();
    times.add(&trace);
    let copy = "Memcpy HtoD (Pageable -> Device)";
    let rows = Kernels::new(&times).group_by_shape(true).rows();
    assert_eq!(
        rows.iter().map(seen).collect::<Vec<_>>(),
        [
            ("gemm", None, None, 1, 30),
            ("gemm", Some("[8]"), None, 1, 30),
            ("gemm", Some("[8, 4], [4, 2]"), Some("8x2x4"), 1, 20),
            ("gemm", Some("[9, 4]"), None, 1, 20),
            ("Memset (Device)", None, None, 1, 10),
            ("Memset (Device)", Some("[8]"), None, 1, 10),
            ("node", None, None, 1, 10),
            ("node", Some("[8]"), None, 1, 10),
            ("stray", None, None, 1, 10),
            (copy, None, None, 1, 4),
            (copy, Some("[8]"), None, 1, 4),
        ]
    );
    let rows = Kernels::new(&times).rows();
    assert_eq!((rows.len(), seen(&rows[0])), (5, ("gemm", None, None, 4, 100)));
}

#[test]
fn names_are_bounded() {
    let mut times = KernelTimes::default();
    let mut trace = sample::gpu_trace();
    for name in 0..Kernels::NAMES + 20 {
        rename(&mut trace, "*", &format!("kernel {name}"));
        times.add(&trace);
    }
    let rows = Kernels::new(&times).limit(usize::MAX).rows();
    assert_eq!(rows.len(), Kernels::NAMES + 1);
    let others = rows.iter().find(|row| row.name == Kernels::OTHERS).unwrap();
    // Two names are of copies and fills.
    assert_eq!((others.calls, others.total), (22 * 7, 22 * Duration::from_micros(130)));
}

#[test]
fn where_there_are_too_many_shapes_names_are_still_told_apart() {
    let mut times = KernelTimes::default();
    // Each turn has four names in spans of a new shape, and `stray` in none.
    let turns = Kernels::NAMES / 4 + 10;
    for turn in 0..turns {
        let mut trace = sample::gpu_trace();
        let shape = format!("[{turn}]");
        sample::set_fields(&mut trace, 0, &[("op.shape.input", shape.as_str())]);
        sample::set_fields(&mut trace, 3, &[("op.shape.input", shape.as_str())]);
        if turn == turns - 1 {
            rename(&mut trace, "gemm", "late");
        }
        times.add(&trace);
    }
    let rows = Kernels::new(&times).group_by_shape(true).limit(usize::MAX).rows();
    assert_eq!(rows.iter().filter(|row| row.shapes.is_some()).count(), Kernels::NAMES);
    let mut without: Vec<_> =
        rows.iter().filter(|row| row.shapes.is_none()).map(|row| (&*row.name, row.calls)).collect();
    without.sort_unstable();
    let copy = "Memcpy HtoD (Pageable -> Device)";
    let stray = turns as u64;
    assert_eq!(
        without,
        [(copy, 20), ("Memset (Device)", 20), ("gemm", 36), ("late", 4), ("node", 20), ("stray", stray)]
    );
    assert_eq!(Kernels::new(&times).rows().len(), 6);
}

fn deviation(times: &[Duration]) -> Duration {
    let squares = times.iter().copied().map(square).sum();
    KernelTally { calls: times.len() as u64, total: times.iter().sum(), squares, ..KernelTally::default() }.deviation()
}

#[test]
fn deviations_are_those_of_samples() {
    let nanos = Duration::from_nanos;
    // The root of 32 / 7.
    assert_eq!(deviation(&[9, 2, 4, 4, 4, 5, 5, 7].map(nanos)), nanos(2));
    assert_eq!((deviation(&[nanos(7)]), deviation(&[])), (nanos(0), nanos(0)));
    // Of long durations that differ little.
    let day = Duration::from_secs(86_400);
    assert_eq!(deviation(&[day, day + nanos(20)]), nanos(14));
}
