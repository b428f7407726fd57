//! Folded stacks, the input of flame graph tools.

use super::{
    exporter::{ExportResult, Exporter},
    work_text::WorkKey,
};
use crate::{analysis::Analysis, file, trace::Trace};
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a name without the characters that separate frames and lines.
fn frame_text(name: &str) -> String {
    name.replace(';', ":").replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::Frames;
    use crate::trace::sample::{gpu_trace, set_caller, set_parent, set_track, spans_trace};

    #[test]
    fn frames_are_those_of_callers_on_the_thread_that_spent_the_time() {
        let spans =
            [("task", None, 20, 30), ("piece", Some(0), 22, 24), ("request", None, 0, 10), ("own", None, 40, 41)];
        let mut trace = spans_trace(&spans);
        [0, 1].into_iter().for_each(|span| set_track(&mut trace, span, "worker"));
        set_caller(&mut trace, 0, Some(2));
        set_caller(&mut trace, 3, Some(2));
        let stacks = Frames::of_host(&trace);
        let line = |&frame: &usize| format!("{} {}", stacks.text(frame), stacks.frames[frame].nanos);
        let lines: Vec<_> = stacks.of_span.iter().map(line).collect();
        let expected = [
            "worker;request;task 8000",
            "worker;request;task;piece 2000",
            "main;request 10000",
            "main;request;own 1000",
        ];
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
}
