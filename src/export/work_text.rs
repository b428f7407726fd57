//! Texts that exporters keep because much GPU work shares them: a bounded cache, the keys of work, and the names of the
//! operations that a kernel performed.

use crate::trace::{BatchId, Detail, DeviceId, Direction, MemoryKind, NameKey, OperationCall, Span, SpanId, Work};
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};

/// A map of at most [`CAPACITY`](Self::CAPACITY) entries, which is cleared when full.
///
/// A training loop does few different things, each many times, so exporters keep the text of each. A program that never
/// repeats itself must not fill the memory.
#[derive(Debug)]
pub(super) struct Cache<K, V>(FxHashMap<K, V>);

impl<K: Eq + Hash, V> Cache<K, V> {
    const CAPACITY: usize = 4096;

    /// Returns the value of a key, creating it if necessary.
    #[inline]
    pub(super) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if self.0.len() >= Self::CAPACITY && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.entry(key).or_insert_with(make)
    }
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

/// A cache key for a piece of work: everything about it except when it ran and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKey {
    Kernel {
        device: DeviceId,
        names: [NameKey; 2],
        grid: [u32; 3],
        block: [u32; 3],
        registers: u16,
        shared_memory: [u32; 2],
    },
    Copy {
        direction: Direction,
        from: MemoryKind,
        to: MemoryKind,
    },
    Fill {
        memory: MemoryKind,
    },
}

impl Hash for WorkKey {
    /// Hashes only enough to distinguish most keys.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match *self {
            Self::Kernel {
                names: [name, _],
                grid: [x, y, z],
                block: [threads, ..],
                shared_memory: [_, shared],
                ..
            } => {
                let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                (name, pair(x, y), pair(z ^ shared, threads)).hash(state);
            }
            Self::Copy { direction, from, to } => (direction as u8, from as u8, to as u8).hash(state),
            Self::Fill { memory } => (memory as u8).hash(state),
        }
    }
}

impl WorkKey {
    pub(super) fn of(work: Work<'_>) -> Self {
        match work.detail() {
            Detail::Kernel(kernel) => Self::Kernel {
                device: work.stream().device(),
                names: [NameKey::of(&kernel.name), NameKey::of(&kernel.raw_name)],
                grid: kernel.grid,
                block: kernel.block,
                registers: kernel.registers,
                shared_memory: [kernel.static_shared_memory, kernel.dynamic_shared_memory],
            },
            Detail::Copy(copy) => Self::Copy { direction: copy.direction, from: copy.from, to: copy.to },
            Detail::Fill(fill) => Self::Fill { memory: fill.memory },
        }
    }
}

/// The names of a kernel's operations, and of the spans that requested them, each joined into one text.
///
/// The texts are kept for the next kernel, which is often from the same batch.
#[derive(Debug, Default)]
pub(super) struct OperationNames {
    /// The batch and the span that the texts belong to.
    key: Option<(BatchId, Option<SpanId>)>,
    operations: String,
    spans: String,
}

impl OperationNames {
    /// The maximum number of names in a text. A batch may have thousands of operations.
    const MAX_NAMES: usize = 16;

    /// Returns the operations that a piece of work was launched for, such as `matmul, add, … 3 more`, and the spans
    /// that requested them if there are several; `None` if no operation is known.
    pub(super) fn of(&mut self, work: Work<'_>) -> Option<(&str, Option<&str>)> {
        let key = (work.batch_id()?, work.span().map(Span::id));
        if self.key.replace(key) != Some(key) {
            let more = work.operations().len().saturating_sub(Self::MAX_NAMES);
            self.operations = join(work.operations().map(OperationCall::name).take(Self::MAX_NAMES));
            if more > 0 {
                self.operations += &format!(", … {more} more");
            }
            // Spans are not counted: that would visit all operations of the batch.
            let mut spans = work.spans().map(Span::name);
            self.spans = join(spans.by_ref().take(Self::MAX_NAMES));
            if spans.next().is_some() {
                self.spans += ", …";
            }
            if work.spans().nth(1).is_none() {
                self.spans.clear();
            }
        }
        let spans = Some(self.spans.as_str()).filter(|spans| !spans.is_empty());
        (!self.operations.is_empty()).then_some((self.operations.as_str(), spans))
    }
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Cache, OperationNames};
    use crate::trace::{
        Operation, Trace,
        sample::{add_operations, gpu_trace, operations_trace},
    };
    use std::sync::Arc;

    #[test]
    fn a_full_cache_begins_anew() {
        let mut cache = Cache::default();
        for key in 0..=Cache::<usize, usize>::CAPACITY {
            assert_eq!(*cache.get_or_insert_with(key, || key), key);
            assert_eq!(*cache.get_or_insert_with(key, || unreachable!()), key);
        }
        assert_eq!(cache.0.len(), 1);
    }

    fn names(trace: &Trace) -> Vec<Option<(String, Option<String>)>> {
        let mut names = OperationNames::default();
        let owned = |(operations, spans): (&str, Option<&str>)| (operations.to_owned(), spans.map(str::to_owned));
        trace.work().map(|work| names.of(work).map(owned)).collect()
    }

    #[test]
    fn work_has_the_names_of_its_operations_and_of_their_spans_if_there_are_several() {
        let names = names(&operations_trace());
        // On stream 7: a copy, the two kernels, in each step; then a stray one. On stream 8, nothing was launched in a
        // batch.
        let one = Some(("matmul".to_owned(), None));
        let both = Some(("matmul, add, add".to_owned(), Some("backward, train_step".to_owned())));
        assert_eq!(names[..7], [None, one.clone(), both.clone(), None, one, both, None]);
        assert_eq!(names[7..], [None, None, None, None]);
    }

    #[test]
    fn only_the_first_of_many_names_are_shown() {
        let mut trace = gpu_trace();
        let operations: Vec<_> = (0..20).map(|number| Arc::new(Operation::new(number.to_string()))).collect();
        let calls: Vec<_> = operations.iter().map(|operation| (operation, None, 1)).collect();
        add_operations(&mut trace, &calls, &[(2, 1)]);
        let (operations, spans) = names(&trace)[1].clone().unwrap();
        assert_eq!(operations, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, … 4 more");
        assert_eq!(spans, None);
        // Each in a span of its own.
        let span = trace.spans[0].clone();
        trace.spans.resize(30, span);
        trace.operations.clear();
        trace.operation_calls.clear();
        let add = Arc::new(Operation::new("add"));
        let calls: Vec<_> = (10..30).map(|span| (&add, Some(span), 1)).collect();
        add_operations(&mut trace, &calls, &[(2, 1)]);
        let (_, spans) = names(&trace)[1].clone().unwrap();
        let names: Vec<_> = spans.as_deref().unwrap().split(", ").map(str::to_owned).collect();
        assert_eq!((names.len(), names[0].as_str(), names[15].as_str()), (17, "forward", "train_step"));
        assert_eq!(names[16], "…");
    }
}
