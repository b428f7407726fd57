//! Folded stacks, the input of flame graph tools.

use super::{
    exporter::{ExportResult, Exporter},
    work_text::WorkKey,
};
use crate::{
    analysis::Analysis,
    file,
    trace::{StackFrame, StackNodeId, StackSample, Trace},
};
use rustc_hash::FxHashMap;
use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

/// An exporter of folded stacks, the input of flame graph tools such as inferno, speedscope and flamegraph.pl.
///
/// A line is a stack of spans with the self time of its innermost span in nanoseconds.
///
/// ```no_run
/// # use kernspan::{Profiler, Stacks};
/// let (layer, profiler) = Profiler::builder().export(Stacks::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// `inferno-flamegraph --countname ns < FILE.folded > flame.svg` draws one, after `cargo install inferno`.
///
/// Each window is a file, `{host}_{pid}.{time}.folded`. The outermost frame is the name of the thread that spent the
/// time. The frames inside it are the spans that the innermost one works for, which may have been on other threads: see
/// [`Span::caller`](crate::trace::Span::caller). Losses get their own frame, one nanosecond wide, and so does the
/// reason why GPUs were not recorded.
///
/// If GPUs did anything, there is a second file, `{host}_{pid}.{time}.gpu.folded`, with nanoseconds of GPU time. Its
/// innermost frames are kernels and copies, inside the spans that caused them or inside `[unattributed]`.
///
/// If stacks were sampled, `{host}_{pid}.{time}.cpu.folded` has nanoseconds on the CPU, and
/// `{host}_{pid}.{time}.waiting.folded` those that threads waited. Inside the spans of a stack are the functions of the
/// sampled one, from its root: those that called into the span, too.
///
/// A stack has at most 256 spans. More deeply nested spans become one frame, which says how many there are.
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Stacks {
    folder: PathBuf,
}

impl Stacks {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes the stacks of a trace, with the host time spent in them, to a writer instead of a file.
    ///
    /// ```
    /// use kernspan::{Stacks, Trace};
    ///
    /// fn folded(trace: &Trace) -> std::io::Result<Vec<u8>> {
    ///     let mut stacks = Vec::new();
    ///     Stacks::write_host(trace, &mut stacks)?;
    ///     Ok(stacks)
    /// }
    /// ```
    pub fn write_host(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        Frames::of_host(trace).write(trace, out)
    }

    /// Writes the stacks of a trace, with the GPU time spent for them, to a writer instead of a file. It writes nothing
    /// if GPUs did nothing.
    pub fn write_gpu(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        if trace.work().len() == 0 {
            return Ok(());
        }
        let mut stacks = Frames::of_host(trace);
        stacks.replace_by_gpu_work(trace);
        stacks.write(trace, out)
    }

    /// Writes the sampled stacks of a trace, with their time on the CPU, to a writer instead of a file. It writes
    /// nothing if no thread was sampled on the CPU.
    pub fn write_cpu(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        Self::write_samples(trace, Sampled::OnCpu, out)
    }

    /// Writes the stacks in which threads waited, with the time that they did, to a writer instead of a file. It writes
    /// nothing if no waits were sampled.
    pub fn write_waiting(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        Self::write_samples(trace, Sampled::Waiting, out)
    }

    fn write_samples(trace: &Trace, which: Sampled, out: &mut dyn Write) -> io::Result<()> {
        if !which.is_in(trace) {
            return Ok(());
        }
        let mut stacks = Frames::of_host(trace);
        stacks.replace_by_samples(trace, which);
        stacks.write(trace, out)
    }
}

/// The samples that a file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sampled {
    OnCpu,
    Waiting,
}

impl Sampled {
    fn has(self, sample: StackSample<'_>) -> bool {
        sample.is_waiting() == (self == Self::Waiting)
    }

    fn is_in(self, trace: &Trace) -> bool {
        trace.stack_samples().any(|sample| self.has(sample))
    }
}

impl Exporter for Stacks {
    fn name(&self) -> &str {
        "Stacks"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let trace = window.trace();
        let mut stacks = Frames::of_host(trace);
        let mut files = vec![file::write(&self.folder, trace, ".folded", |out| stacks.write(trace, out))?];
        if trace.work().len() > 0 {
            stacks.replace_by_gpu_work(trace);
            files.push(file::write(&self.folder, trace, ".gpu.folded", |out| stacks.write(trace, out))?);
        }
        for (which, ending) in [(Sampled::OnCpu, ".cpu.folded"), (Sampled::Waiting, ".waiting.folded")] {
            if which.is_in(trace) {
                files.push(file::write(&self.folder, trace, ending, |out| Self::write_samples(trace, which, out))?);
            }
        }
        Ok(files)
    }
}

/// The frames of all stacks, as a tree: a stack is a frame and those around it. Deep recursion has a line for each
/// depth, whose texts would take memory quadratic in the depth.
#[derive(Debug, Default)]
struct Frames<'a> {
    frames: Vec<Frame<'a>>,
    /// The frame of each span.
    of_span: Vec<usize>,
}

#[derive(Debug)]
struct Frame<'a> {
    /// The frame around it.
    outer: Option<usize>,
    name: Name<'a>,
    /// The thread that spent the time; `None` for unattributed work.
    thread: Option<&'a str>,
    depth: usize,
    /// The self time of the frame in nanoseconds.
    nanos: u64,
}

#[derive(Debug)]
enum Name<'a> {
    Span(&'a str),
    Work(String),
    /// A function of a sampled stack.
    Function(&'a str),
    /// Functions that are nested too deeply.
    DeeperFunctions,
    /// Frames that are nested too deeply, of this many spans.
    Deeper(u64),
}

impl<'a> Frames<'a> {
    /// The maximum number of frames in a stack. Larger flame graphs do not fit a screen, and each line lists all
    /// frames.
    const DEPTH: usize = 256;

    /// Returns the stacks of spans with the time that the host spent in them.
    fn of_host(trace: &'a Trace) -> Self {
        let mut all = Self { frames: Vec::new(), of_span: vec![0; trace.spans().len()] };
        let mut known: FxHashMap<(Option<usize>, &str, Option<&str>), usize> = FxHashMap::default();
        // The frames of a caller are known before those of its spans.
        for span in trace.caller_order().unwrap_or_default().into_iter().map(|id| trace.span(id)) {
            let caller = span.caller().map(|caller| all.of_span[caller.id().index()]);
            let (outer, name) = match caller.map(|caller| &all.frames[caller]) {
                // Everything nested too deeply in a frame becomes one frame.
                Some(Frame { name: Name::Deeper(_), outer, .. }) => (*outer, None),
                Some(frame) if frame.depth >= Self::DEPTH => (caller, None),
                _ => (caller, Some(span.name())),
            };
            let thread = span.track().thread_name();
            let new = || all.push(outer, name.map_or(Name::Deeper(0), Name::Span), Some(thread));
            let frame = *known.entry((outer, thread, name)).or_insert_with(new);
            if let Name::Deeper(spans) = &mut all.frames[frame].name {
                *spans += 1;
            }
            all.add(frame, span.self_time());
            all.of_span[span.id().index()] = frame;
        }
        all
    }

    /// Replaces the host time by GPU time. Each kernel is a frame inside the spans that caused it.
    fn replace_by_gpu_work(&mut self, trace: &Trace) {
        let mut known: FxHashMap<(Option<usize>, WorkKey), usize> = FxHashMap::default();
        let mut named: FxHashMap<(Option<usize>, String), usize> = FxHashMap::default();
        self.frames.iter_mut().for_each(|frame| frame.nanos = 0);
        for work in trace.work() {
            let outer = work.span().map(|span| self.of_span[span.id().index()]);
            let frame = *known.entry((outer, WorkKey::of(work))).or_insert_with(|| {
                let name = work.name().to_string();
                let thread = outer.and_then(|outer| self.frames[outer].thread);
                *named
                    .entry((outer, name))
                    .or_insert_with_key(|(_, name)| self.push(outer, Name::Work(name.clone()), thread))
            });
            self.add(frame, work.duration());
        }
    }

    /// Replaces the host time by that of samples. The functions of a stack are frames inside the spans of its thread.
    fn replace_by_samples(&mut self, trace: &'a Trace, which: Sampled) {
        self.frames.iter_mut().for_each(|frame| frame.nanos = 0);
        // The frame of each stack by the frame of its span, and that of each function in another frame.
        let mut known: FxHashMap<(Option<usize>, &str, Option<StackNodeId>), usize> = FxHashMap::default();
        let mut named: FxHashMap<(Option<usize>, &str, Option<&str>), usize> = FxHashMap::default();
        for sample in trace.stack_samples().filter(|sample| which.has(*sample)) {
            let span = sample.span().map(|span| self.of_span[span.id().index()]);
            let thread = sample.track().thread_name();
            let key = (span, thread, sample.node());
            let frame = known.get(&key).copied().unwrap_or_else(|| {
                let mut functions: Vec<_> = sample.stack().map(StackFrame::function).collect();
                let (mut outer, mut next) = (span, Some(functions.pop().unwrap_or(UNKNOWN)));
                let mut innermost = 0;
                while let Some(function) = next {
                    let is_too_deep = outer.is_some_and(|outer| self.frames[outer].depth >= Self::DEPTH);
                    let function = (!is_too_deep).then_some(function);
                    let name = function.map_or(Name::DeeperFunctions, Name::Function);
                    let new = || self.push(outer, name, Some(thread));
                    innermost = *named.entry((outer, thread, function)).or_insert_with(new);
                    outer = Some(innermost);
                    next = if is_too_deep { None } else { functions.pop() };
                }
                known.insert(key, innermost);
                innermost
            });
            self.add(frame, sample.duration());
        }
    }

    fn push(&mut self, outer: Option<usize>, name: Name<'a>, thread: Option<&'a str>) -> usize {
        let depth = outer.map_or(1, |outer| self.frames[outer].depth + 1);
        self.frames.push(Frame { outer, name, thread, depth, nanos: 0 });
        self.frames.len() - 1
    }

    fn add(&mut self, frame: usize, time: Duration) {
        let sum = &mut self.frames[frame].nanos;
        *sum = sum.saturating_add(nanos(time));
    }

    /// Returns a stack as text.
    fn text(&self, frame: usize) -> String {
        let mut text = frame_text(self.frames[frame].thread.unwrap_or(UNATTRIBUTED));
        let mut stack: Vec<_> = std::iter::successors(Some(frame), |&frame| self.frames[frame].outer).collect();
        while let Some(frame) = stack.pop() {
            text.push(';');
            text += &match &self.frames[frame].name {
                Name::Span(name) => frame_text(name),
                Name::Work(name) => frame_text(name),
                Name::Function(name) => frame_text(name),
                Name::DeeperFunctions => "[functions nested deeper]".to_owned(),
                Name::Deeper(1) => "[1 span nested deeper]".to_owned(),
                Name::Deeper(spans) => format!("[{spans} spans nested deeper]"),
            };
        }
        text
    }

    fn write(&self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        for (index, frame) in self.frames.iter().enumerate().filter(|(_, frame)| frame.nanos > 0) {
            writeln!(out, "{} {}", self.text(index), frame.nanos)?;
        }
        let losses = (!trace.losses().is_empty()).then(|| trace.losses().to_string());
        let no_gpu = trace.gpu().problem().map(|_| trace.gpu().to_string());
        let facts = losses.iter().chain(&no_gpu);
        facts.into_iter().try_for_each(|text| writeln!(out, "{} 1", frame_text(&format!("[kernspan {text}]"))))
    }
}

/// The frame around unattributed work.
const UNATTRIBUTED: &str = "[unattributed]";

/// The frame in place of a stack that could not be taken.
const UNKNOWN: &str = "[unknown]";

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a name without the characters that separate frames and lines.
fn frame_text(name: &str) -> String {
    name.replace(';', ":").replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests;
