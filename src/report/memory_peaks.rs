//! The memory peaks of GPUs: the highest of each over all windows, the spans that had allocated the memory, and tables.

use super::{
    average::Average,
    labels,
    table::Table,
    units,
    view::{View, view_methods},
};
use crate::{
    analysis::SortedMap,
    trace::{Allocation, DeviceId, MemoryChange, Span, SpanId, Trace},
};
use rustc_hash::FxHashMap;
use std::{cmp::Ordering, fmt, time::Duration};

/// The memory peak of each GPU over the whole run, as tables of the spans that had allocated the memory.
///
/// Refine it with its methods, then print it or take its [`peaks`](Self::peaks).
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for peak in report.memory().peaks() {
///     let largest = peak.owners.first().map_or("nothing", |owner| owner.name.as_str());
///     println!("GPU {}: {} bytes, most of them of {largest}", peak.device, peak.in_use);
/// }
/// println!("{}", report.memory().limit(20));
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its peaks are taken"]
#[derive(Clone, Copy, Debug)]
pub struct MemoryPeaks<'a> {
    highest: &'a HighestPeaks,
    view: View,
}

/// The moment at which the most memory of a GPU was in use, and the spans that had allocated it.
///
/// `in_use` is the sum of `before` and the bytes of all `owners`. `Display` writes one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPeak {
    /// The GPU.
    pub device: DeviceId,
    /// The number of the window that the peak was in, counted from 0.
    pub window: u32,
    /// The time from the opening of the window to the peak.
    pub after: Duration,
    /// Bytes in use: see [`Allocation::in_use`](crate::trace::Allocation::in_use).
    pub in_use: u64,
    /// Bytes that were not allocated in the window, such as weights and the state of the optimizer.
    ///
    /// This includes memory that was freed without its size being known. It also includes memory of the window whose
    /// free was not seen, after its address was allocated again.
    pub before: u64,
    /// The spans that allocated the rest, largest first.
    pub owners: Vec<MemoryOwner>,
}

/// Memory in use that was allocated by spans of one name, nested in spans of the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryOwner {
    /// The name of the spans, [`Average::UNATTRIBUTED`] if no span is known, or [`MemoryOwner::OTHERS`].
    pub name: String,
    /// The names of the surrounding spans, from the inside out. Of a deeper stack these are the innermost 100, and the
    /// last one says how many more there are.
    pub stack: Vec<String>,
    /// Bytes that the spans had allocated and nobody had freed.
    pub bytes: u64,
    /// The number of allocations of these bytes.
    pub allocations: u64,
}

/// A row of the table: an owner, and its share of the memory in use.
struct OwnerRow<'a> {
    owner: &'a MemoryOwner,
    percent: f64,
}

/// The highest memory peak of each GPU, over all windows.
#[derive(Debug, Default)]
pub(super) struct HighestPeaks(SortedMap<DeviceId, MemoryPeak>);

impl<'a> MemoryPeaks<'a> {
    /// The number of owners of a GPU's memory that are shown by default.
    pub const LIMIT: usize = 10;

    pub(super) fn new(highest: &'a HighestPeaks) -> Self {
        Self { highest, view: View::new(Self::LIMIT) }
    }

    view_methods!("Limits the number of owners that are printed for each GPU. By default, [`Self::LIMIT`].");

    /// Returns the highest peak of each GPU that allocated or freed memory, with all owners.
    pub fn peaks(&self) -> impl ExactSizeIterator<Item = &'a MemoryPeak> {
        self.highest.iter()
    }
}

impl fmt::Display for MemoryPeaks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.peaks().len() == 0 {
            return writeln!(f, "no GPU memory was recorded");
        }
        self.peaks().try_for_each(|peak| peak.write_table(f, self.view))
    }
}

impl HighestPeaks {
    /// Adds the allocations of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        let mut highest: SortedMap<DeviceId, (usize, Allocation<'_>)> = SortedMap::default();
        for (index, allocation) in trace.allocations().enumerate() {
            let peak = highest.or_insert_with(allocation.device(), || (index, allocation));
            if allocation.in_use() > peak.1.in_use() {
                *peak = (index, allocation);
            }
        }
        for (device, (index, allocation)) in highest {
            // It takes long to find the owners, so only those of a new highest peak are looked for.
            if self.get(device).is_none_or(|peak| peak.in_use < allocation.in_use()) {
                *self.0.or_default(device) = MemoryPeak::after(trace, index, allocation);
            }
        }
    }

    /// Returns the peak of a GPU, if it allocated or freed memory.
    pub(super) fn get(&self, device: DeviceId) -> Option<&MemoryPeak> {
        self.0.get(&device)
    }

    /// Returns the peak of each GPU.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &MemoryPeak> {
        self.0.values()
    }
}

impl MemoryPeak {
    /// The number of owners that are kept apart. Smaller ones are summed up in [`MemoryOwner::OTHERS`].
    pub const OWNERS: usize = 1_000;
    /// The name of the row for [`before`](Self::before).
    pub const BEFORE: &'static str = "[allocated before the window]";

    /// Returns the memory in use after an allocation, which has this index in the trace.
    pub(super) fn after(trace: &Trace, index: usize, peak: Allocation<'_>) -> Self {
        let mut live: FxHashMap<u64, Allocation<'_>> = FxHashMap::default();
        let until = trace.allocations().take(index + 1);
        for allocation in until.filter(|allocation| allocation.device() == peak.device()) {
            match allocation.change() {
                // If the address was in use already, its free was not seen.
                MemoryChange::Allocate => live.insert(allocation.address(), allocation),
                MemoryChange::Free => live.remove(&allocation.address()),
            };
        }
        let mut owners = MemoryOwner::of(live.values());
        // The owners together have no more than is in use, even if the records contradict that.
        let mut before = peak.in_use();
        for owner in &mut owners {
            owner.bytes = owner.bytes.min(before);
            before -= owner.bytes;
        }
        Self {
            device: peak.device(),
            window: trace.window(),
            after: peak.at().since(trace.start()),
            in_use: peak.in_use(),
            before,
            owners,
        }
    }

    /// Returns the span name that owns the most, wherever its spans are nested, and its bytes.
    fn largest_name(&self) -> Option<(&str, u64)> {
        let mut names: SortedMap<&str, u64> = SortedMap::default();
        for owner in &self.owners {
            *names.or_default(owner.name.as_str()) += owner.bytes;
        }
        // Reversed, so that the first in the alphabet wins a tie.
        names.into_iter().rev().max_by_key(|&(_, bytes)| bytes).filter(|&(_, bytes)| bytes > 0)
    }

    /// Writes the line and the table of the owners.
    pub(super) fn write_table(&self, f: &mut fmt::Formatter<'_>, view: View) -> fmt::Result {
        self.viewed_table(view).write(f)
    }

    /// Returns the table of the largest owners, at most `rows` of them, as it is printed below the line.
    pub fn table(&self, rows: usize) -> Table {
        self.viewed_table(View::new(rows))
    }

    fn viewed_table(&self, mut view: View) -> Table {
        let before = MemoryOwner { name: Self::BEFORE.to_owned(), bytes: self.before, ..MemoryOwner::default() };
        let before = Some(&before).filter(|before| before.bytes > 0);
        // This row is first, whatever its size, and does not count for the limit: so it is never left out.
        view.limit = view.limit.saturating_add(usize::from(before.is_some()));
        let all = self.in_use.max(1) as f64;
        let row = |owner| OwnerRow { owner, percent: 100.0 * owner.bytes as f64 / all };
        let rows: Vec<_> = before.into_iter().chain(&self.owners).map(row).collect();
        let mut table = view.table(&rows, OwnerRow::table);
        table.heading(self.to_string());
        table
    }
}

impl fmt::Display for MemoryPeak {
    /// Writes a line such as `GPU 0 memory at its peak: 1.20 GB, 819.20 MB of it from before the window; most: linear
    /// 204.80 MB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} memory at its peak: {}", self.device, units::bytes(self.in_use))?;
        if self.before > 0 {
            write!(f, ", {} of it from before the window", units::bytes(self.before))?;
        }
        match self.largest_name() {
            Some((name, bytes)) => write!(f, "; most: {name} {}", units::bytes(bytes)),
            None => Ok(()),
        }
    }
}

impl OwnerRow<'_> {
    fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("Allocated by", rows, |row| row.owner.name.clone());
        if rows.iter().any(|row| !row.owner.stack.is_empty()) {
            table.text("Inside", rows, |row| row.owner.stack.join(" < ")).keep_start();
        }
        table.number("CUDA Mem", rows, |row| units::bytes(row.owner.bytes));
        table.number("CUDA Mem %", rows, |row| units::percent(row.percent)).droppable(1);
        let allocations =
            |row: &Self| units::or_none((row.owner.allocations > 0).then(|| row.owner.allocations.to_string()));
        table.number("# of Allocations", rows, allocations).droppable(2);
        table
    }
}

impl MemoryOwner {
    /// The name of the row that sums up the smallest owners.
    pub const OTHERS: &'static str = labels::OTHERS;

    /// Returns the owners of these allocations, largest first.
    fn of<'a>(live: impl Iterator<Item = &'a Allocation<'a>>) -> Vec<Self> {
        let mut paths = OwnerPaths::default();
        let mut owners: FxHashMap<Option<usize>, (u64, u64)> = FxHashMap::default();
        for allocation in live {
            let (bytes, count) = owners.entry(allocation.span().map(|span| paths.of(span))).or_default();
            *bytes = bytes.saturating_add(allocation.bytes().unwrap_or(0));
            *count += 1;
        }
        let mut owners: Vec<_> = owners.into_iter().collect();
        // Ties by name, so that the same run prints the same table.
        owners.sort_unstable_by(|(a, (a_bytes, _)), (b, (b_bytes, _))| {
            b_bytes.cmp(a_bytes).then_with(|| paths.order(*a, *b)).then(a.cmp(b))
        });
        let smallest = owners.split_off(owners.len().min(MemoryPeak::OWNERS));
        let owner = |(path, (bytes, allocations)): (Option<usize>, (u64, u64))| {
            let mut names = paths.names(path);
            let name = names.next().unwrap_or_default().to_owned();
            Self { name, stack: labels::shortened(names), bytes, allocations }
        };
        let mut owners: Vec<_> = owners.into_iter().map(owner).collect();
        if !smallest.is_empty() {
            let mut others = Self { name: Self::OTHERS.to_owned(), ..Self::default() };
            for (_, (bytes, allocations)) in smallest {
                others.bytes = others.bytes.saturating_add(bytes);
                others.allocations += allocations;
            }
            owners.push(others);
        }
        owners
    }
}

/// A span that allocated memory, and the path around it.
#[derive(Debug)]
struct OwnerPath<'a> {
    outer: Option<usize>,
    name: &'a str,
    depth: usize,
}

/// The paths of spans that allocated memory, each once.
#[derive(Debug, Default)]
struct OwnerPaths<'a> {
    paths: Vec<OwnerPath<'a>>,
    index: FxHashMap<(Option<usize>, &'a str), usize>,
    of_span: FxHashMap<SpanId, usize>,
}

impl<'a> OwnerPaths<'a> {
    /// Returns the path of a span and those that it works for.
    fn of(&mut self, span: Span<'a>) -> usize {
        let mut unknown = Vec::new();
        let mut known = None;
        for outer in std::iter::successors(Some(span), |span| span.caller()) {
            known = self.of_span.get(&outer.id()).copied();
            if known.is_some() {
                break;
            }
            unknown.push(outer);
        }
        while let Some(span) = unknown.pop() {
            let path = *self.index.entry((known, span.name())).or_insert_with(|| {
                let depth = known.map_or(0, |outer| self.paths[outer].depth + 1);
                self.paths.push(OwnerPath { outer: known, name: span.name(), depth });
                self.paths.len() - 1
            });
            self.of_span.insert(span.id(), path);
            known = Some(path);
        }
        known.unwrap_or(0)
    }

    /// Returns the names of a path, from the inside out.
    fn names(&self, path: Option<usize>) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        let unattributed = path.is_none().then_some(Average::UNATTRIBUTED);
        let outwards = std::iter::successors(path, |&path| self.paths[path].outer);
        unattributed.into_iter().chain(outwards.map(|path| self.paths[path].name))
    }

    /// Compares two paths by their innermost names, and then by their depth: recursion may be thousands deep.
    fn order(&self, a: Option<usize>, b: Option<usize>) -> Ordering {
        let [first, second] = [a, b].map(|path| self.names(path).take(labels::STACK));
        let depth = |path: Option<usize>| path.map(|path| self.paths[path].depth);
        first.cmp(second).then_with(|| depth(a).cmp(&depth(b)))
    }
}

#[cfg(test)]
mod tests;
