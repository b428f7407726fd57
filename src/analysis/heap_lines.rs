//! What each line of the program allocates on the heap.

use crate::trace::Trace;
use rustc_hash::FxHashMap;

/// What one line of the program allocates on the heap, as estimated from samples.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeapLine {
    /// The line, such as `src/model.rs:42`, or the function if the program has no debug information.
    pub line: String,
    /// The bytes allocated.
    pub allocated: u64,
    /// The bytes of these that were still in use when their window closed.
    pub kept: u64,
    /// The number of allocations.
    pub allocations: u64,
    /// The number of samples that these figures are estimated from.
    pub samples: u64,
}

/// Returns what each line of the program allocated in a window, most bytes first. It is empty unless
/// [`heap_lines`](crate::ProfilerBuilder::heap_lines) is set.
pub fn heap_lines(trace: &Trace) -> Vec<HeapLine> {
    let mut lines: FxHashMap<&str, (HeapLine, f64)> = FxHashMap::default();
    for sample in trace.heap_samples() {
        let Some(line) = sample.line() else { continue };
        let (sum, allocations) = lines.entry(line).or_default();
        sum.allocated = sum.allocated.saturating_add(sample.bytes());
        if sample.freed().is_none() {
            sum.kept = sum.kept.saturating_add(sample.bytes());
        }
        sum.samples += 1;
        *allocations += sample.allocations();
    }
    let line = |(line, (sum, allocations)): (&str, (HeapLine, f64))| HeapLine {
        line: line.to_owned(),
        allocations: allocations.round() as u64,
        ..sum
    };
    let mut lines: Vec<_> = lines.into_iter().map(line).collect();
    sort(&mut lines);
    lines
}

/// Sorts lines by the bytes allocated, most first.
pub(crate) fn sort(lines: &mut [HeapLine]) {
    lines.sort_by(|a, b| b.allocated.cmp(&a.allocated).then_with(|| a.line.cmp(&b.line)));
}

impl HeapLine {
    /// Adds what the same line allocated in another window.
    pub(crate) fn add(&mut self, more: &Self) {
        self.allocated = self.allocated.saturating_add(more.allocated);
        self.kept = self.kept.saturating_add(more.kept);
        self.allocations = self.allocations.saturating_add(more.allocations);
        self.samples += more.samples;
    }
}
