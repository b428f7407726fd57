use super::{ExportResult, Exporter, file};
use crate::trace::{Span, Trace};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

/// Writes folded stacks, the input of flame graph tools (inferno, speedscope, flamegraph.pl): a line for each stack of
/// spans, with the nanoseconds spent in its innermost span itself.
///
/// ```no_run
/// # use kernspan::{Profiler, Stacks};
/// let (layer, profiler) = Profiler::builder().export(Stacks::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// The file is named `{host}_{pid}.{time}.folded`. The outermost frame is the thread's name. Losses are a frame of their own,
/// one nanosecond wide.
#[derive(Clone, Debug)]
pub struct Stacks {
    folder: PathBuf,
}

impl Stacks {
    /// Writes into this folder, which is made if it is not there.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }
}

impl Exporter for Stacks {
    fn export(&mut self, trace: &Trace) -> ExportResult {
        Ok(vec![file::write(&self.folder, trace, ".folded", |out| fold(trace, out))?])
    }
}

fn fold(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    // A parent comes before its children, so its frames are known.
    let mut frames: Vec<usize> = Vec::with_capacity(trace.spans().len());
    let mut stacks: Vec<(String, u64)> = Vec::new();
    let mut known: BTreeMap<(Option<usize>, &str, &str), usize> = BTreeMap::new();
    for span in trace.spans() {
        let parent = span.parent().map(|parent| frames[parent.id().index()]);
        let thread = span.track().thread_name();
        let stack = *known.entry((parent, thread, span.name())).or_insert_with(|| {
            let outer = parent.map_or_else(|| frame(thread), |parent| stacks[parent].0.clone());
            stacks.push((format!("{outer};{}", frame(span.name())), 0));
            stacks.len() - 1
        });
        stacks[stack].1 += nanos(span);
        frames.push(stack);
    }
    for (stack, nanos) in stacks.iter().filter(|(_, nanos)| *nanos > 0) {
        writeln!(out, "{stack} {nanos}")?;
    }
    if !trace.losses().is_empty() {
        writeln!(out, "{} 1", frame(&format!("[kernspan {}]", trace.losses())))?;
    }
    Ok(())
}

fn nanos(span: Span<'_>) -> u64 {
    u64::try_from(span.self_time().as_nanos()).unwrap_or(u64::MAX)
}

/// A name without what separates frames and lines.
fn frame(name: &str) -> String {
    name.replace(';', ":").replace(|c: char| c.is_control(), " ")
}
