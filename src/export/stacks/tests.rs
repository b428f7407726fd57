//! Tests of folded stacks.

use super::{Frames, Stacks};
use crate::trace::{
    Trace,
    sample::{gpu_trace, set_caller, set_parent, set_track, spans_trace, stacks_trace},
};

#[test]
fn frames_are_those_of_callers_on_the_thread_that_spent_the_time() {
    let spans = [("task", None, 20, 30), ("piece", Some(0), 22, 24), ("request", None, 0, 10), ("own", None, 40, 41)];
    let mut trace = spans_trace(&spans);
    [0, 1].into_iter().for_each(|span| set_track(&mut trace, span, "worker"));
    set_caller(&mut trace, 0, Some(2));
    set_caller(&mut trace, 3, Some(2));
    let stacks = Frames::of_host(&trace);
    let line = |&frame: &usize| format!("{} {}", stacks.text(frame), stacks.frames[frame].nanos);
    let lines: Vec<_> = stacks.of_span.iter().map(line).collect();
    let expected =
        ["worker;request;task 8000", "worker;request;task;piece 2000", "main;request 10000", "main;request;own 1000"];
    assert_eq!(lines, expected);
}

#[test]
fn gpu_time_is_on_top_of_the_spans_that_caused_it() {
    let trace = gpu_trace();
    let mut stacks = Frames::of_host(&trace);
    stacks.replace_by_gpu_work(&trace);
    let mut out = Vec::new();
    stacks.write(&trace, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    let expected = [
        "[unattributed];stray 10000",
        "main;train_step;Memcpy HtoD (Pageable -> Device) 8000",
        "main;train_step;backward;Memset (Device) 20000",
        "main;train_step;backward;gemm 60000",
        "main;train_step;backward;node 20000",
        "main;train_step;forward;gemm 40000",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn functions_are_inside_the_spans_of_their_thread() {
    let trace = stacks_trace();
    let lines = |write: fn(&Trace, &mut Vec<u8>) -> std::io::Result<()>| {
        let mut out = Vec::new();
        write(&trace, &mut out).unwrap();
        let mut lines: Vec<_> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let root = "_start;std::rt::lang_start::<()>::{closure#0};train::main";
    let attention = format!("main;train_step;forward;{root};train::model::attention");
    let cpu = lines(Stacks::write_cpu);
    for expected in [
        format!("{attention};train::model::softmax 18000"),
        format!("{attention};candle_core::tensor::Tensor::matmul;gemm_f32::kernel::x86 24000"),
        format!("main;train_step;{root} 2000"),
        "main;train_step;0x1f2c4 2000".to_owned(),
        "device;tokio::runtime::task::raw::poll;<T as \"Weird\\ :name\">::fn☃ 10000".to_owned(),
        "main;[unknown] 1000".to_owned(),
        "[kernspan lost 3: 3 stack_samples] 1".to_owned(),
    ] {
        assert!(cpu.contains(&expected), "{expected} in {cpu:#?}");
    }
    let nanos = |line: &String| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let waiting = lines(Stacks::write_waiting);
    assert_eq!(cpu.iter().map(nanos).sum::<u64>(), 131_001);
    let expected = [
        "[kernspan lost 3: 3 stack_samples] 1".to_owned(),
        "device;tokio::runtime::task::raw::poll;syscall 100000".to_owned(),
        format!("main;train_step;backward;{root};train::grad::walk;0x1f2c4 24000"),
    ];
    assert_eq!(waiting, expected);
    let mut none = Vec::new();
    Stacks::write_cpu(&gpu_trace(), &mut none).unwrap();
    Stacks::write_waiting(&gpu_trace(), &mut none).unwrap();
    assert!(none.is_empty());
}

#[test]
fn deep_recursion_is_a_frame_that_counts_it() {
    let mut trace = spans_trace(&[("recurse", None, 0, 9); 1_000]);
    (1..1_000).for_each(|span| set_parent(&mut trace, span, span - 1));
    trace.spans.iter_mut().for_each(|span| span.self_nanos = 7);
    let mut out = Vec::new();
    Frames::of_host(&trace).write(&trace, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.lines().count(), Frames::DEPTH + 1);
    let last = out.lines().last().unwrap();
    assert!(last.ends_with(";recurse;[744 spans nested deeper] 5208"), "{last}");
    let nanos = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(out.lines().map(nanos).sum::<u64>(), 7_000);
}
