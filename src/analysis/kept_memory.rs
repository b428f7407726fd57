//! Memory that outlives the step it was allocated in, by span.

use super::memory_series::MemorySource;
use crate::trace::{Allocation, Attribution, DeviceId, MemoryChange, Span, Timestamp, Trace};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Memory that spans of one path allocated, and that was still in use a step later.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptMemory {
    /// Where it is.
    pub source: MemorySource,
    /// The names of the span that allocated it and of the spans around it, from the inside out; empty if no span is
    /// known.
    pub path: Vec<String>,
    /// The place of the innermost span in the source, such as `src/model.rs:42`, if known.
    pub location: Option<String>,
    /// The line of the program that allocated most of it, if known: see
    /// [`heap_lines`](crate::ProfilerBuilder::heap_lines).
    pub line: Option<String>,
    /// The bytes. On the heap, this is an estimate from samples.
    pub bytes: u64,
    /// The number of allocations; on the heap, that of samples.
    pub allocations: u64,
    /// The number of steps that allocated some of it.
    pub steps: u64,
}

/// An allocation and its end.
struct Lifetime<'a> {
    source: MemorySource,
    span: Option<Span<'a>>,
    line: Option<&'a str>,
    bytes: u64,
    at: Timestamp,
    freed: Option<Timestamp>,
}

impl<'a> Lifetime<'a> {
    /// The names of the span and of the spans around it, from the inside out.
    fn path(&self) -> impl Iterator<Item = &'a str> {
        std::iter::successors(self.span, |span| span.caller()).map(Span::name)
    }

    fn path_hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.source.hash(&mut hasher);
        self.path().for_each(|name| name.hash(&mut hasher));
        hasher.finish()
    }
}

/// Returns the memory allocated in each step of the window but the last, and not freed by the end of the next step, by
/// the spans that allocated it; largest first. Also returns the number of these steps.
///
/// A batch that is loaded ahead is freed a step later, or several: memory that is younger than some that the same spans
/// have freed in this window is not taken for kept. So what is left are caches and leaks, and whatever the first step
/// allocates for good. Where a framework reports its tensors, [`MemorySource::Gpu`] has the tensors; what its pool
/// has taken from the driver and kept is returned by [`kept_pages`].
pub fn kept_memory(trace: &Trace) -> (Vec<KeptMemory>, u64) {
    kept(trace, gpu_lifetimes(trace.allocations()).into_iter().chain(heap_lifetimes(trace)))
}

/// Returns the [pages](Trace::pages) that a framework's pool has taken from the driver and kept, as [`kept_memory`]
/// returns what tensors keep. Their source is [`MemorySource::Gpu`], too.
pub fn kept_pages(trace: &Trace) -> (Vec<KeptMemory>, u64) {
    kept(trace, gpu_lifetimes(trace.pages()))
}

fn kept<'a>(trace: &'a Trace, lifetimes: impl IntoIterator<Item = Lifetime<'a>>) -> (Vec<KeptMemory>, u64) {
    let whole = trace.steps().iter().filter(|step| !step.cut().any());
    let watched = whole.clone().count().saturating_sub(1);
    let lifetimes: Vec<_> = lifetimes.into_iter().collect();
    if lifetimes.is_empty() {
        return (Vec::new(), watched as u64);
    }
    let steps: Vec<_> = whole.collect();
    let step_at = |at| steps.partition_point(|step| step.start() <= at).checked_sub(1);
    let mut kept: FxHashMap<(MemorySource, Vec<String>), (KeptMemory, usize)> = FxHashMap::default();
    let mut lines: FxHashMap<(Vec<String>, &str), u64> = FxHashMap::default();
    // After how many steps each path has freed memory at the latest.
    let mut latest: FxHashMap<u64, usize> = FxHashMap::default();
    for lifetime in &lifetimes {
        let freed = lifetime.freed.and_then(step_at);
        if let (Some(step), Some(freed)) = (step_at(lifetime.at), freed) {
            let after = latest.entry(lifetime.path_hash()).or_default();
            *after = (*after).max(freed.saturating_sub(step));
        }
    }
    for lifetime in lifetimes {
        let Some(step) = step_at(lifetime.at) else { continue };
        let is_inside = lifetime.at < steps[step].end();
        let patience = latest.get(&lifetime.path_hash()).copied().unwrap_or(0).max(1);
        let was_freed = lifetime.freed.is_some_and(|freed| freed <= steps[(step + patience).min(watched)].end());
        if !is_inside || step + patience > watched || was_freed {
            continue;
        }
        let path: Vec<_> = lifetime.path().map(ToOwned::to_owned).collect();
        if let Some(line) = lifetime.line {
            *lines.entry((path.clone(), line)).or_default() += lifetime.bytes;
        }
        let (kept, last) = kept.entry((lifetime.source, path)).or_insert_with_key(|(source, path)| {
            let location = lifetime.span.and_then(|span| span.callsite().location());
            let empty = KeptMemory {
                source: *source,
                path: path.clone(),
                location,
                line: None,
                bytes: 0,
                allocations: 0,
                steps: 0,
            };
            (empty, usize::MAX)
        });
        kept.bytes = kept.bytes.saturating_add(lifetime.bytes);
        kept.allocations += 1;
        kept.steps += u64::from(*last != step);
        *last = step;
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    for ((path, line), _) in lines {
        // The last one has the most bytes.
        if let Some((kept, _)) = kept.get_mut(&(MemorySource::Heap, path)) {
            kept.line = Some(line.to_owned());
        }
    }
    let mut kept: Vec<_> = kept.into_values().map(|(kept, _)| kept).collect();
    kept.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| (a.source, &a.path).cmp(&(b.source, &b.path))));
    (kept, watched as u64)
}

/// Returns the allocations on GPUs, in chronological order. A free that belongs to none is of memory from before.
///
/// They count from when the program requested them: a framework that queues work may allocate in a later step, or even
/// what was requested before the window, which belongs to none of its steps.
fn gpu_lifetimes<'a>(allocations: impl Iterator<Item = Allocation<'a>>) -> Vec<Lifetime<'a>> {
    let mut live: FxHashMap<(DeviceId, u64), usize> = FxHashMap::default();
    let mut lifetimes: Vec<Lifetime<'a>> = Vec::new();
    for allocation in allocations.filter(|allocation| allocation.attribution() != Attribution::Before) {
        let key = (allocation.device(), allocation.address());
        let before = match allocation.change() {
            MemoryChange::Allocate => {
                lifetimes.push(Lifetime {
                    source: MemorySource::Gpu(allocation.device()),
                    span: allocation.span(),
                    line: None,
                    bytes: allocation.bytes().unwrap_or(0),
                    at: allocation.requested(),
                    freed: None,
                });
                // If the address was in use already, its free was not seen.
                live.insert(key, lifetimes.len() - 1)
            }
            MemoryChange::Free => live.remove(&key),
        };
        if let Some(before) = before {
            lifetimes[before].freed = Some(allocation.requested());
        }
    }
    lifetimes
}

fn heap_lifetimes(trace: &Trace) -> impl Iterator<Item = Lifetime<'_>> {
    trace.heap_samples().map(|sample| Lifetime {
        source: MemorySource::Heap,
        span: sample.span(),
        line: sample.line(),
        bytes: sample.bytes(),
        at: sample.at(),
        freed: sample.freed(),
    })
}

#[cfg(test)]
mod tests {
    use super::{MemorySource, kept_memory};
    use crate::trace::{DeviceId, sample::GpuTrace};

    /// Returns the paths that keep memory in 12 steps, and in how many steps. Batches are loaded so many steps ahead,
    /// and each step keeps what it says.
    fn kept(ahead: u64, keeps: impl Fn(u64) -> bool) -> Vec<(Vec<String>, u64)> {
        let mut program = GpuTrace::default();
        for step in 0..12 {
            program.step(|program| {
                program.span("load", |program| {
                    program.host(10).take(1000 + step + ahead, 64);
                });
                program.span("forward", |program| {
                    program.host(10).take(2000 + step, 512);
                    if !keeps(step) {
                        program.host(10).drop(2000 + step);
                    }
                });
                program.host(10).drop(1000 + step);
            });
        }
        let (kept, steps) = kept_memory(&program.trace());
        assert_eq!(steps, 11);
        assert!(kept.iter().all(|kept| kept.source == MemorySource::Gpu(DeviceId::new(0))));
        kept.into_iter().map(|kept| (kept.path, kept.steps)).collect()
    }

    #[test]
    fn what_outlives_its_step_is_kept() {
        let forward = vec!["forward".to_owned()];
        assert_eq!(kept(0, |_| true), [(forward.clone(), 11)]);
        assert_eq!(kept(0, |step| step % 2 == 0), [(forward, 6)]);
        assert_eq!(kept(0, |_| false), []);
    }

    #[test]
    fn batches_that_are_loaded_ahead_are_not_kept() {
        for ahead in [1, 2, 5] {
            assert_eq!(kept(ahead, |_| false), [], "{ahead} steps ahead");
            assert_eq!(kept(ahead, |_| true), [(vec!["forward".to_owned()], 11)], "{ahead} steps ahead");
        }
    }
}
