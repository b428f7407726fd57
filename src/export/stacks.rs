//! Folded stacks, the input of flame graph tools.

use super::{exporter::Exporter, result::ExportResult, work_key::WorkKey};
use crate::{file, trace::Trace};
use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

/// An exporter of folded stacks, the input of flame graph tools such as inferno, speedscope and flamegraph.pl.
///
/// A line is a stack of spans with the nanoseconds that were spent in its innermost span itself.
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
/// [`Span::caller`](crate::trace::Span::caller). Losses are a frame of their own, one nanosecond wide, and so is the
/// reason why GPUs were not recorded.
///
/// If GPUs did anything, there is a second file, `{host}_{pid}.{time}.gpu.folded`, with nanoseconds of GPU time. Its
/// innermost frames are kernels and copies, inside the spans that caused them or inside `[unattributed]`.
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Stacks {
    folder: PathBuf,
}

impl Stacks {
    /// Makes an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes the stacks of a trace with the time that the host spent in them, without a file of its own.
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
        write(&host_stacks(trace).0, trace, out)
    }

    /// Writes the stacks of a trace with the time that GPUs worked for them, without a file of its own. It writes
    /// nothing if they did nothing.
    pub fn write_gpu(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        if trace.work().len() == 0 {
            return Ok(());
        }
        let (mut stacks, stack_of) = host_stacks(trace);
        add_gpu_work(trace, &mut stacks, &stack_of);
        write(&stacks, trace, out)
    }
}

impl Exporter for Stacks {
    fn name(&self) -> &str {
        "Stacks"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, trace: &Trace) -> ExportResult {
        let (mut stacks, stack_of) = host_stacks(trace);
        let mut files = vec![file::write(&self.folder, trace, ".folded", |out| write(&stacks, trace, out))?];
        if trace.work().len() > 0 {
            add_gpu_work(trace, &mut stacks, &stack_of);
            files.push(file::write(&self.folder, trace, ".gpu.folded", |out| write(&stacks, trace, out))?);
        }
        Ok(files)
    }
}

/// A stack as text, with the nanoseconds of its innermost frame.
type Stack = (String, u64);

/// Returns the stacks of spans with the time that the host spent in them, and for each span the index of its stack.
fn host_stacks(trace: &Trace) -> (Vec<Stack>, Vec<usize>) {
    let mut stack_of: Vec<usize> = vec![0; trace.spans().len()];
    let mut stacks: Vec<Stack> = Vec::new();
    let mut known: BTreeMap<(Option<usize>, &str, &str), usize> = BTreeMap::new();
    // The frames of a caller are known before those of its spans.
    for span in trace.caller_order().unwrap_or_default().into_iter().map(|id| trace.span(id)) {
        let caller = span.caller().map(|caller| (stack_of[caller.id().index()], caller.track().thread_name()));
        let thread = span.track().thread_name();
        let stack = *known.entry((caller.map(|(stack, _)| stack), thread, span.name())).or_insert_with(|| {
            let outer = match caller {
                None => frame(thread),
                Some((stack, of)) if of == thread => stacks[stack].0.clone(),
                // The same frames, on this thread.
                Some((stack, of)) => frame(thread) + stacks[stack].0.strip_prefix(&frame(of)).unwrap_or_default(),
            };
            stacks.push((format!("{outer};{}", frame(span.name())), 0));
            stacks.len() - 1
        });
        stacks[stack].1 = stacks[stack].1.saturating_add(nanos(span.self_time()));
        stack_of[span.id().index()] = stack;
    }
    (stacks, stack_of)
}

/// Replaces the time of the host by that of GPUs. Each kernel is a frame inside the spans that caused it.
fn add_gpu_work(trace: &Trace, stacks: &mut Vec<Stack>, stack_of: &[usize]) {
    let mut known: HashMap<(Option<usize>, WorkKey), usize> = HashMap::new();
    let mut named: HashMap<String, usize> = HashMap::new();
    stacks.iter_mut().for_each(|(_, nanos)| *nanos = 0);
    for work in trace.work() {
        let outer = work.span().map(|span| stack_of[span.id().index()]);
        let stack = *known.entry((outer, WorkKey::of(work))).or_insert_with(|| {
            let outer = outer.map_or(UNATTRIBUTED, |outer| &stacks[outer].0);
            let stack = format!("{outer};{}", frame(&work.name().to_string()));
            *named.entry(stack).or_insert_with_key(|stack| {
                stacks.push((stack.clone(), 0));
                stacks.len() - 1
            })
        });
        stacks[stack].1 = stacks[stack].1.saturating_add(nanos(work.duration()));
    }
}

/// The frame around work whose span is not known.
const UNATTRIBUTED: &str = "[unattributed]";

fn write(stacks: &[Stack], trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    for (stack, nanos) in stacks.iter().filter(|(_, nanos)| *nanos > 0) {
        writeln!(out, "{stack} {nanos}")?;
    }
    let losses = (!trace.losses().is_empty()).then(|| trace.losses().to_string());
    let no_gpu = trace.gpu().problem().map(|_| trace.gpu().to_string());
    losses.iter().chain(&no_gpu).try_for_each(|text| writeln!(out, "{} 1", frame(&format!("[kernspan {text}]"))))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a name without the characters that separate frames and lines.
fn frame(name: &str) -> String {
    name.replace(';', ":").replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::{add_gpu_work, host_stacks, write};
    use crate::trace::sample::{gpu_trace, set_caller, set_track, spans_trace};

    #[test]
    fn frames_are_those_of_callers_on_the_thread_that_spent_the_time() {
        let spans =
            [("task", None, 20, 30), ("piece", Some(0), 22, 24), ("request", None, 0, 10), ("own", None, 40, 41)];
        let mut trace = spans_trace(&spans);
        [0, 1].into_iter().for_each(|span| set_track(&mut trace, span, "worker"));
        set_caller(&mut trace, 0, Some(2));
        set_caller(&mut trace, 3, Some(2));
        let (stacks, stack_of) = host_stacks(&trace);
        let lines: Vec<_> =
            stack_of.into_iter().map(|stack| format!("{} {}", stacks[stack].0, stacks[stack].1)).collect();
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
        let (mut stacks, stack_of) = host_stacks(&trace);
        add_gpu_work(&trace, &mut stacks, &stack_of);
        let mut out = Vec::new();
        write(&stacks, &trace, &mut out).unwrap();
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
}
