//! Tests of the tables of sampled stacks.

use super::{SampledLine, SampledStacks, SampledTime};
use crate::trace::sample::{SampledStack, add_stack, frame, gpu_trace, sample_stacks, stacks_trace};
use proptest::prelude::*;
use std::time::Duration;

/// A row as text: the span, the line, the program's own line, and microseconds on the CPU and waiting.
fn text(line: &SampledLine) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "--".to_owned());
    let micros = |time: Duration| time.as_nanos() / 1_000;
    let (span, place, own) = (or_none(&line.span), or_none(&line.line), or_none(&line.own_line));
    format!("{span} | {place} | {own} | {} {}", micros(line.time.cpu), micros(line.time.waiting))
}

#[test]
fn a_span_s_own_time_goes_to_lines() {
    let sampled = SampledStacks::of(&stacks_trace());
    let lines: Vec<_> = sampled.lines.iter().map(text).collect();
    let expected = [
        "backward | src/grad.rs:8 | src/grad.rs:8 | 56 0",
        // `next` of the standard library is folded into the line that called it.
        "forward | src/model.rs:57 | src/model.rs:57 | 36 0",
        "backward | -- | src/grad.rs:7 | 0 24",
        "forward | gemm-f32/kernel.rs:100 | src/model.rs:43 | 18 0",
        "-- | src/wéird \"dir\"/a;b.rs:1 | src/wéird \"dir\"/a;b.rs:1 | 10 0",
        "forward | gemm-f32/kernel.rs:101 | src/model.rs:43 | 6 0",
        "train_step | -- | -- | 2 0",
        "train_step | src/main.rs:12 | src/main.rs:12 | 2 0",
        // Waiting outside all spans counts for nothing.
        "-- | -- | -- | 0 100",
        "-- | -- | -- | 1 0",
    ];
    let mut lines = lines;
    let mut expected = expected.map(str::to_owned).to_vec();
    assert_eq!(lines[..4], expected[..4]);
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    let forward = sampled.lines.iter().find(|line| line.line.as_deref() == Some("src/model.rs:57")).unwrap();
    assert_eq!((forward.percent(), forward.is_hot()), (Some(60.0), true));
    assert_eq!(
        (forward.function.as_str(), forward.span_location.as_deref()),
        ("train::model::softmax", Some("src/model.rs:7"))
    );
    assert!((12.0..13.0).contains(&forward.margin().unwrap()), "{:?}", forward.margin());
    let step = sampled.lines.iter().find(|line| line.span.as_deref() == Some("train_step")).unwrap();
    assert_eq!((step.percent(), step.margin(), step.span_time.samples), (None, None, 4));
}

#[test]
fn lines_of_libraries_are_added_to_the_lines_that_lead_to_them() {
    let own = SampledStacks::of(&stacks_trace()).own_lines();
    let forward: Vec<_> = own.iter().filter(|line| line.span.as_deref() == Some("forward")).map(text).collect();
    let expected =
        ["forward | src/model.rs:57 | src/model.rs:57 | 36 0", "forward | src/model.rs:43 | src/model.rs:43 | 24 0"];
    assert_eq!(forward, expected);
}

#[test]
fn functions_have_their_own_and_their_total_time() {
    let sampled = SampledStacks::of(&stacks_trace());
    let function = |name: &str| sampled.functions.iter().find(|row| row.function == name).unwrap();
    let micros = |time: &SampledTime| (time.cpu.as_nanos() / 1_000, time.waiting.as_nanos() / 1_000);
    let both = |name: &str| (micros(&function(name).self_time), micros(&function(name).total_time));
    assert_eq!(both("train::grad::walk"), ((56, 0), (56, 24)), "a recursive function counts once");
    assert_eq!(both("train::model::softmax"), ((36, 0), (36, 0)));
    assert_eq!(both("train::model::attention"), ((0, 0), (60, 0)));
    assert_eq!(both("candle_core::tensor::Tensor::matmul"), ((0, 0), (24, 0)));
    assert_eq!(both("0x1f2c4"), ((2, 24), (2, 24)));
    let main = function("train::main");
    assert_eq!(micros(&main.total_time), (118, 24));
    let spans: Vec<_> =
        main.spans.iter().map(|(span, time)| (span.as_deref().unwrap(), time.cpu.as_micros())).collect();
    assert_eq!(spans, [("forward", 60), ("backward", 56), ("train_step", 2)]);
    assert_eq!(sampled.functions[0].function, "train::grad::walk");
    for folded in ["_start", "core::", "std::", "tokio::"] {
        assert!(sampled.functions.iter().all(|row| !row.function.starts_with(folded)), "{folded}");
    }
    let totals = &sampled.totals;
    assert_eq!((totals.time.samples, totals.time.waits, totals.time.at_edge), (131, 4, 2));
    assert_eq!((totals.truncated, totals.outside_spans, totals.lost, totals.problems.len()), (3, 13, 3, 1));
}

#[test]
fn a_stack_of_folded_frames_only_is_shown_by_the_innermost() {
    let mut trace = gpu_trace();
    sample_stacks(&mut trace, 99, 0, None);
    let (start, park) = (frame("start_thread", "", "libc.so.6"), frame("tokio::runtime::park", "", "train"));
    add_stack(&mut trace, &SampledStack { nanos: 5, stack: vec![&start, &park], ..SampledStack::default() });
    let sampled = SampledStacks::of(&trace);
    let functions: Vec<_> = sampled.functions.iter().map(|row| row.function.as_str()).collect();
    assert_eq!((functions, sampled.lines[0].function.as_str()), (vec!["tokio::runtime::park"], "tokio::runtime::park"));
}

/// Has a program wait in a lock, copy in two ways, and start a thread, as sampled on a system without libc's symbols.
#[test]
fn the_c_library_is_folded_if_the_runtime_called_it() {
    let mut trace = gpu_trace();
    sample_stacks(&mut trace, 99, 0, None);
    let (start, idle) = (frame("0x891f4", "", "libc.so.6"), frame("rayon_core::sleep::Sleep::sleep", "", "train"));
    let (own, library) =
        (frame("train::step", "src/main.rs:3", "train"), frame("gemm::pack", "/vendor/gemm/a.rs:5", "t"));
    let lock = frame("std::sync::Mutex<T>::lock", "/rustc/1/library/std/src/sync/mutex.rs:1", "train");
    let (syscall, copy) = (frame("syscall", "", "libc.so.6"), frame("memmove", "", "libc.so.6"));
    for (nanos, stack) in [
        (5, vec![&start, &own, &lock, &syscall]),
        (4, vec![&start, &own, &library, &copy]),
        (3, vec![&start, &own, &copy, &copy]),
        (2, vec![&start, &start, &idle]),
        (1, vec![&start, &start]),
    ] {
        add_stack(&mut trace, &SampledStack { nanos, stack, ..SampledStack::default() });
    }
    let sampled = SampledStacks::of(&trace);
    let shown: Vec<_> = sampled.lines.iter().map(|line| line.function.as_str()).collect();
    assert_eq!(shown, ["memmove", "train::step", "rayon_core::sleep::Sleep::sleep", "0x891f4"]);
    let own: Vec<_> = sampled.lines.iter().filter_map(|line| line.own_line.as_deref()).collect();
    assert_eq!(own, ["src/main.rs:3"; 2]);
}

#[test]
fn windows_add_up() {
    let once = SampledStacks::of(&stacks_trace());
    let mut twice = SampledStacks::default();
    twice.add(&once);
    assert_eq!(twice, once);
    twice.add(&once);
    assert_eq!(twice.lines.len(), once.lines.len());
    for (twice, once) in twice.lines.iter().zip(&once.lines) {
        assert_eq!((twice.time.cpu, twice.span_time.samples), (2 * once.time.cpu, 2 * once.span_time.samples));
    }
    for (twice, once) in twice.functions.iter().zip(&once.functions) {
        assert_eq!((twice.total_time.cpu, twice.spans.len()), (2 * once.total_time.cpu, once.spans.len()));
    }
    assert_eq!((twice.totals.lost, twice.totals.hertz), (6, 1_000_000));
}

/// Adds the probabilities of all numbers of samples that a line with this share may have. As these numbers are whole,
/// no interval is exact: the worst of these has 94.8 %.
#[test]
fn the_true_share_is_within_the_margin_in_19_of_20_cases() {
    for samples in [25_u64, 100, 1_000] {
        for share in [0.02, 0.1, 0.3, 0.6, 0.95] {
            // Logarithms, since the probabilities themselves are too small.
            let mut probability = samples as f64 * (1.0_f64 - share).ln();
            let mut within = 0.0;
            for count in 0..=samples {
                let time =
                    |samples| SampledTime { samples, cpu: Duration::from_micros(samples), ..SampledTime::default() };
                let (line, whole) = (time(count), time(samples));
                let (percent, margin) = (line.percent_of(&whole).unwrap(), line.margin_of(&whole).unwrap());
                within += if (percent - 100.0 * share).abs() <= margin { probability.exp() } else { 0.0 };
                probability += ((samples - count) as f64 / (count + 1) as f64 * share / (1.0 - share)).ln();
            }
            assert!(within > 0.94, "{within} of {samples} samples with a share of {share}");
        }
    }
}

proptest! {
    #[test]
    fn no_time_is_lost_or_counted_twice(
        stacks in prop::collection::vec((0_usize..6, prop::collection::vec(0_usize..5, 0..6), any::<bool>()), 0..40),
    ) {
        let frames = [
            frame("train::a", "src/a.rs:1", "train"),
            frame("train::b", "src/b.rs:1", "train"),
            frame("std::c", "/rustc/1/library/std/src/c.rs:1", "train"),
            frame("gemm::d", "/home/me/.cargo/registry/src/index/gemm-1/d.rs:1", "train"),
            frame("e", "", "libc.so.6"),
        ];
        let mut trace = gpu_trace();
        sample_stacks(&mut trace, 99, 0, None);
        for (span, stack, waiting) in &stacks {
            let stack = stack.iter().map(|&frame| &frames[frame]).collect();
            let span = Some(*span).filter(|span| *span < 5);
            let sample = SampledStack { nanos: 7, span, stack, waiting: *waiting, ..SampledStack::default() };
            add_stack(&mut trace, &sample);
        }
        let sampled = SampledStacks::of(&trace);
        let sum = |times: &mut dyn Iterator<Item = SampledTime>| times.fold(SampledTime::default(), |mut sum, time| {
            sum.add(&time);
            sum
        });
        prop_assert_eq!(sum(&mut sampled.lines.iter().map(|line| line.time)), sampled.totals.time);
        let unknown = sampled.lines.iter().filter(|line| line.function == super::UNKNOWN);
        let unknown = sum(&mut unknown.map(|line| line.time));
        let mut own = sum(&mut sampled.functions.iter().map(|row| row.self_time));
        own.add(&unknown);
        prop_assert_eq!(own, sampled.totals.time);
        for row in &sampled.functions {
            prop_assert_eq!(sum(&mut row.spans.iter().map(|(_, time)| *time)), row.total_time);
            prop_assert!(row.self_time.cpu <= row.total_time.cpu && row.total_time.cpu <= row.all_time.cpu);
        }
        prop_assert_eq!(sum(&mut sampled.own_lines().iter().map(|line| line.time)), sampled.totals.time);
    }
}
