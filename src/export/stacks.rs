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
/// Each window is a file, `{host}_{pid}.{time}.folded`. The outermost frame is the thread's name. Losses are a frame of
/// their own, one nanosecond wide, and so is the reason why GPUs were not recorded.
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
    // A parent comes before its children, so its frames are known.
    let mut stack_of: Vec<usize> = Vec::with_capacity(trace.spans().len());
    let mut stacks: Vec<Stack> = Vec::new();
    let mut known: BTreeMap<(Option<usize>, &str, &str), usize> = BTreeMap::new();
    for span in trace.spans() {
        let parent = span.parent().map(|parent| stack_of[parent.id().index()]);
        let thread = span.track().thread_name();
        let stack = *known.entry((parent, thread, span.name())).or_insert_with(|| {
            let outer = parent.map_or_else(|| frame(thread), |parent| stacks[parent].0.clone());
            stacks.push((format!("{outer};{}", frame(span.name())), 0));
            stacks.len() - 1
        });
        stacks[stack].1 = stacks[stack].1.saturating_add(nanos(span.self_time()));
        stack_of.push(stack);
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
    use crate::trace::sample::gpu_trace;

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
