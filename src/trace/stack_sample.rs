//! Sampled call stacks: the functions and lines that threads were in, each sample in its span.

use super::{Attribution, Span, SpanId, Timestamp, Trace, Track, TrackId, id::define_id};
use std::time::Duration;

define_id! {
    /// Names a [`StackFrame`] of one trace.
    pub struct StackFrameId;

    /// The index of the frame in [`StackSampling::frames`].
    pub fn index;
}

define_id! {
    /// Names a [`StackNode`] of one trace: a frame, with those that called it.
    pub(crate) struct StackNodeId;

    /// The index of the node in [`StackSampling::nodes`].
    pub(crate) fn index;
}

/// A place in the program: a function, and the line in it. A function inlined into another has a frame of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackFrame {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) library: String,
    pub(crate) inlined: bool,
}

impl StackFrame {
    /// The function of the only frame of a thread that was preempted. Where that happened says nothing.
    pub(crate) const PREEMPTED: &str = "[preempted]";

    /// The function's readable name, such as `candle_core::tensor::Tensor::matmul`. Without symbols it is that of the
    /// library, such as `[libm.so.6]`, and in code of no known library an address.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// The source file, if the library has debug information.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The line of the source file, counted from 1.
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    /// The file name of the program or the shared library, such as `libcuda.so.1`.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Whether the compiler inlined the function into its caller.
    pub fn is_inlined(&self) -> bool {
        self.inlined
    }
}

/// A frame of a stack, and the node of its caller. Stacks with the same callers share nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackNode {
    pub(crate) frame: StackFrameId,
    /// Always a node with a lower index.
    pub(crate) caller: Option<StackNodeId>,
}

/// The stored data of a [`StackSample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackSampleData {
    pub(crate) at: Timestamp,
    /// The time that the sample stands for.
    pub(crate) nanos: u64,
    pub(crate) track: TrackId,
    pub(crate) span: Option<SpanId>,
    pub(crate) stack: Option<StackNodeId>,
    pub(crate) waiting: bool,
    /// Whether the thread is of a pool, and the span on the thread that waits for it.
    pub(crate) pool: bool,
    pub(crate) at_edge: bool,
    pub(crate) truncated: bool,
}

/// The call stacks sampled in one window: see [`ProfilerBuilder::samples`](crate::ProfilerBuilder::samples).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackSampling {
    pub(crate) hertz: u32,
    pub(crate) frames: Vec<StackFrame>,
    pub(crate) nodes: Vec<StackNode>,
    /// In chronological order.
    pub(crate) samples: Vec<StackSampleData>,
    pub(crate) lost: u64,
    pub(crate) problem: Option<String>,
}

impl StackSampling {
    /// The number of samples of a thread per second on the CPU.
    pub fn hertz(&self) -> u32 {
        self.hertz
    }

    /// The places in the program that were sampled.
    pub fn frames(&self) -> &[StackFrame] {
        &self.frames
    }

    /// The number of samples that were lost, because the kernel's buffer or the memory limit was exceeded. The trace's
    /// [`Losses`](super::Losses) count them as well.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Why nothing or less than requested was sampled, with what to change, if so.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// A moment at which a thread's call stack was taken.
#[derive(Clone, Copy, Debug)]
pub struct StackSample<'a> {
    trace: &'a Trace,
    sampling: &'a StackSampling,
    data: &'a StackSampleData,
}

impl<'a> StackSample<'a> {
    /// When the stack was taken. A thread that waits does so from this moment on.
    pub fn at(self) -> Timestamp {
        self.data.at
    }

    /// The time that the sample stands for: the interval between samples, or the duration of a wait.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.data.nanos)
    }

    /// The track of the thread.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data.track)
    }

    /// The innermost span open on the thread at that moment. For a thread of a pool, that on the thread that the pool
    /// worked for, if it is certain which one that was: see [`attribution`](Self::attribution).
    pub fn span(self) -> Option<Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }

    /// How the span is known: [`Direct`](Attribution::Direct) if it was open on the sampled thread,
    /// [`HandedOff`](Attribution::HandedOff) if the thread is of a pool of rayon or Candle and worked for another one.
    pub fn attribution(self) -> Attribution {
        match self.data.span {
            Some(_) if self.data.pool => Attribution::HandedOff,
            Some(_) => Attribution::Direct,
            None => Attribution::Unattributed,
        }
    }

    /// The innermost node of the stack.
    pub(crate) fn node(self) -> Option<StackNodeId> {
        self.data.stack
    }

    /// Whether the thread was not on a CPU, because it waited or others ran.
    pub fn is_waiting(self) -> bool {
        self.data.waiting
    }

    /// Whether the thread was ready to run, but had no CPU, as others ran.
    pub fn is_preempted(self) -> bool {
        self.is_waiting() && self.stack().next().is_some_and(|frame| frame.function() == StackFrame::PREEMPTED)
    }

    /// Whether the sample is within a microsecond of the start or the end of a span, so that it may belong to the one
    /// before or after.
    pub fn is_at_edge(self) -> bool {
        self.data.at_edge
    }

    /// Whether the stack could not be followed to its root: frames of callers are missing.
    pub fn is_truncated(self) -> bool {
        self.data.truncated
    }

    /// The frames of the stack, innermost first.
    pub fn stack(self) -> impl Iterator<Item = &'a StackFrame> {
        self.frame_ids().map(move |id| &self.sampling.frames[id.index()])
    }

    /// The ids of the frames of the stack, innermost first.
    pub fn frame_ids(self) -> impl Iterator<Item = StackFrameId> + use<'a> {
        let nodes = &self.sampling.nodes;
        let first = self.data.stack;
        std::iter::successors(first, |node| nodes[node.index()].caller).map(|node| nodes[node.index()].frame)
    }
}

impl Trace {
    /// The sampled call stacks; `None` if they were not requested.
    pub fn stack_sampling(&self) -> Option<&StackSampling> {
        self.stack_sampling.as_deref()
    }

    /// The sampled call stacks of all threads, in chronological order.
    ///
    /// ```
    /// # use kernspan::Trace;
    /// /// Prints the function that each span was in when it was sampled.
    /// fn print_functions(trace: &Trace) {
    ///     for sample in trace.stack_samples() {
    ///         let span = sample.span().map_or("no span", |span| span.name());
    ///         let function = sample.stack().next().map_or("unknown", |frame| frame.function());
    ///         println!("{span}: {function}");
    ///     }
    /// }
    /// ```
    pub fn stack_samples(&self) -> impl Iterator<Item = StackSample<'_>> {
        self.stack_sampling.iter().flat_map(move |sampling| {
            sampling.samples.iter().map(move |data| StackSample { trace: self, sampling, data })
        })
    }
}
