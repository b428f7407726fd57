//! The sample trace with sampled call stacks.

use super::{at, gpu_trace};
use crate::trace::{SpanId, StackFrame, StackFrameId, StackNode, StackNodeId, StackSampleData, StackSampling};
use crate::trace::{Timestamp, Trace, TrackId};

/// A sample to be added to a trace: see [`add_stack`].
#[derive(Clone, Debug, Default)]
pub struct SampledStack<'a> {
    /// When the stack was taken, in microseconds after the window opened.
    pub micros: u64,
    /// The time that the sample stands for.
    pub nanos: u64,
    /// The index of the track.
    pub track: usize,
    /// The index of the innermost span.
    pub span: Option<usize>,
    /// The frames, outermost first.
    pub stack: Vec<&'a StackFrame>,
    /// Whether the thread waited.
    pub waiting: bool,
    /// Whether the thread is of a pool that worked for the span.
    pub pool: bool,
    /// Whether the sample is near the edge of a span.
    pub at_edge: bool,
    /// Whether the stack is incomplete.
    pub truncated: bool,
}

/// Returns a frame. The place is `FILE:LINE`, or empty if the library has no debug information.
pub fn frame(function: &str, place: &str, library: &str) -> StackFrame {
    let (file, line) = match place.rsplit_once(':') {
        Some((file, line)) => (Some(file.to_owned()), line.parse().ok()),
        None => (None, None),
    };
    StackFrame { function: function.to_owned(), file, line, library: library.to_owned(), inlined: false }
}

/// Returns a frame of a function that was inlined.
pub fn inlined(function: &str, place: &str, library: &str) -> StackFrame {
    StackFrame { inlined: true, ..frame(function, place, library) }
}

/// Sets how stacks were sampled, so that samples can be added.
pub fn sample_stacks(trace: &mut Trace, hertz: u32, lost: u64, problem: Option<&str>) {
    let problem = problem.map(str::to_owned);
    trace.losses.stack_samples = lost;
    trace.stack_sampling = Some(Box::new(StackSampling { hertz, lost, problem, ..StackSampling::default() }));
}

/// Adds a sample. Frames and the callers that stacks share are stored once.
pub fn add_stack(trace: &mut Trace, sample: &SampledStack<'_>) {
    let Some(sampling) = &mut trace.stack_sampling else { return };
    let mut stack = None;
    for &frame in &sample.stack {
        let known = sampling.frames.iter().position(|other| other == frame);
        let frame_id = StackFrameId::new(known.unwrap_or(sampling.frames.len()));
        if known.is_none() {
            sampling.frames.push(frame.clone());
        }
        let node = StackNode { frame: frame_id, caller: stack };
        let known = sampling.nodes.iter().position(|other| *other == node);
        stack = Some(StackNodeId::new(known.unwrap_or(sampling.nodes.len())));
        if known.is_none() {
            sampling.nodes.push(node);
        }
    }
    let data = StackSampleData {
        at: Timestamp::from_unix_nanos(at(0).as_unix_nanos() + sample.micros * 1_000),
        nanos: sample.nanos,
        track: TrackId::new(sample.track),
        span: sample.span.map(SpanId::new),
        stack,
        waiting: sample.waiting,
        pool: sample.pool,
        at_edge: sample.at_edge,
        truncated: sample.truncated,
    };
    let place = sampling.samples.partition_point(|other| other.at <= data.at);
    sampling.samples.insert(place, data);
}

/// Returns the sample trace with stacks of its two threads, sampled each microsecond.
///
/// - `forward` has 30 samples in each step: 18 in `softmax`, which is inlined into `attention`, and 12 in a kernel of
///   `gemm` that `attention` calls through `candle_core`.
/// - `backward` has 28 on the CPU, in the recursive function `walk`, and waits for 12 µs in a library without symbols.
/// - `train_step` has 2, one of them at an edge and one truncated: too few for shares.
/// - The thread `device` has 10 outside all spans, in a function with an awkward name, and waits for 50 µs.
pub fn stacks_trace() -> Trace {
    let mut trace = gpu_trace();
    sample_stacks(&mut trace, 1_000_000, 3, Some("waits of other processes were not sampled"));
    let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
    let start = frame("_start", "", "train");
    let lang = frame("std::rt::lang_start::<()>::{closure#0}", "/rustc/59807616/library/std/src/rt.rs:206", "train");
    let main = frame("train::main", "src/main.rs:12", "train");
    let attention = |line: u32| frame("train::model::attention", &format!("src/model.rs:{line}"), "train");
    let softmax = inlined("train::model::softmax", "src/model.rs:57", "train");
    let next = inlined(
        "<core::slice::iter::Iter<f32> as core::iter::Iterator>::next",
        "/rustc/59807616/library/core/src/slice/iter/macros.rs:168",
        "train",
    );
    let matmul = frame("candle_core::tensor::Tensor::matmul", &format!("{registry}/candle-core/tensor.rs:9"), "train");
    let gemm = |line: u32| frame("gemm_f32::kernel::x86", &format!("{registry}/gemm-f32/kernel.rs:{line}"), "train");
    let walk = |line: u32| frame("train::grad::walk", &format!("src/grad.rs:{line}"), "train");
    let wait = frame("0x1f2c4", "", "libcuda.so.1");
    let spawn = frame("tokio::runtime::task::raw::poll", &format!("{registry}/tokio/raw.rs:1"), "train");
    let park = frame("syscall", "", "libc.so.6");
    let awkward = frame("<T as \"Weird\\\n;name\">::fn\u{2603}", "src/wéird \"dir\"/a;b.rs:1", "train");
    let (attends, multiplies) = (attention(42), attention(43));
    let (kernel, loads) = (gemm(100), gemm(101));
    let (outer, inner) = (walk(7), walk(8));
    let root = [&start, &lang, &main];
    for step in 0..2 {
        let first = 3 * step;
        let mut add = |micros: usize, nanos, span: Option<usize>, stack: &[&StackFrame]| {
            let stack = root.iter().chain(stack).copied().collect();
            let sample = SampledStack { micros: (100 * step + micros) as u64, nanos, span, ..SampledStack::default() };
            add_stack(&mut trace, &SampledStack { stack, ..sample });
        };
        for micro in 0..30 {
            let stack: &[_] = match micro {
                0..9 => &[&attends, &softmax],
                9..18 => &[&attends, &softmax, &next],
                18..27 => &[&multiplies, &matmul, &kernel],
                _ => &[&multiplies, &matmul, &loads],
            };
            add(10 + micro, 1_000, Some(first + 1), stack);
        }
        for micro in 0..28 {
            let stack: &[_] = if micro < 14 { &[&outer, &outer, &inner] } else { &[&outer, &inner] };
            add(40 + micro, 1_000, Some(first + 2), stack);
        }
        let (micros, in_step) = (100 * step as u64, Some(first));
        let waits = SampledStack { micros: micros + 68, nanos: 12_000, waiting: true, ..SampledStack::default() };
        let stack = root.iter().copied().chain([&outer, &wait]).collect();
        add_stack(&mut trace, &SampledStack { span: Some(first + 2), stack, ..waits });
        let near = SampledStack { micros, nanos: 1_000, span: in_step, at_edge: true, ..SampledStack::default() };
        add_stack(&mut trace, &SampledStack { stack: root.to_vec(), ..near });
        let part = SampledStack { micros: micros + 85, nanos: 1_000, span: in_step, ..SampledStack::default() };
        add_stack(&mut trace, &SampledStack { truncated: true, stack: vec![&wait], ..part });
        for micro in 0..5 {
            let on_device =
                SampledStack { micros: micros + 2 * micro, nanos: 1_000, track: 1, ..SampledStack::default() };
            add_stack(&mut trace, &SampledStack { stack: vec![&spawn, &awkward], ..on_device });
        }
        let idle =
            SampledStack { micros: micros + 45, nanos: 50_000, track: 1, waiting: true, ..SampledStack::default() };
        add_stack(&mut trace, &SampledStack { stack: vec![&spawn, &park], ..idle });
    }
    // No stack could be taken at all.
    add_stack(&mut trace, &SampledStack { micros: 195, nanos: 1_000, truncated: true, ..SampledStack::default() });
    trace
}
