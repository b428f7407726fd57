use super::{average::Average, table::Table, units};
use crate::trace::{Allocation, DeviceId, MemoryChange, Span, Trace};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

/// The moment at which the most memory of a GPU was in use, and who had allocated it.
///
/// `in_use` is the sum of `before` and the bytes of all `owners`. Its `Display` is a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPeak {
    /// The GPU.
    pub device: DeviceId,
    /// In which window it was, counted from 0.
    pub window: u32,
    /// How long after the window had opened.
    pub after: Duration,
    /// Bytes in use: see [`Allocation::in_use`](crate::trace::Allocation::in_use).
    pub in_use: u64,
    /// Those that were not allocated in the window, such as weights and the optimizer's state. What is freed without its size being
    /// known still counts, and so does what was allocated in the window at an address that was given out again, its free not seen.
    pub before: u64,
    /// Who allocated the others, the largest first.
    pub owners: Vec<MemoryOwner>,
}

/// Memory in use that was allocated by spans of one name, nested in spans of the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryOwner {
    /// The name of the spans, [`Average::UNATTRIBUTED`] if none is known, or [`MemoryOwner::OTHERS`].
    pub name: String,
    /// The names of the spans around them, from the inside out.
    pub stack: Vec<String>,
    /// Bytes that they had allocated and nobody had freed.
    pub bytes: u64,
    /// In how many allocations.
    pub allocations: u64,
}

impl MemoryPeak {
    /// Owners that are told apart. The smallest ones past that are one, [`MemoryOwner::OTHERS`].
    pub const OWNERS: usize = 1_000;
    /// The name of the row of [`before`](Self::before).
    pub const BEFORE: &'static str = "[allocated before the window]";

    /// What there was after `moment`, which has this place among the allocations.
    pub(super) fn at(trace: &Trace, place: usize, moment: Allocation<'_>) -> Self {
        let mut live: FxHashMap<u64, Allocation<'_>> = FxHashMap::default();
        let until = trace.allocations().take(place + 1);
        for allocation in until.filter(|allocation| allocation.device() == moment.device()) {
            match allocation.change() {
                // If the address was in use already, its free was not seen.
                MemoryChange::Allocate => live.insert(allocation.address(), allocation),
                MemoryChange::Free => live.remove(&allocation.address()),
            };
        }
        let mut owners = MemoryOwner::of(live.values());
        // Nobody owns more than there is, whatever the records say.
        let mut before = moment.in_use();
        for owner in &mut owners {
            owner.bytes = owner.bytes.min(before);
            before -= owner.bytes;
        }
        Self {
            device: moment.device(),
            window: trace.window(),
            after: moment.at().since(trace.start()),
            in_use: moment.in_use(),
            before,
            owners,
        }
    }

    /// The name whose spans own the most, wherever they are nested, and how much that is.
    fn most(&self) -> Option<(&str, u64)> {
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for owner in &self.owners {
            *names.entry(&owner.name).or_default() += owner.bytes;
        }
        // Of equals the first in the alphabet.
        names.into_iter().rev().max_by_key(|&(_, bytes)| bytes).filter(|&(_, bytes)| bytes > 0)
    }

    pub(super) fn write_table(&self, f: &mut fmt::Formatter<'_>, limit: usize, width: usize) -> fmt::Result {
        writeln!(f, "{self}")?;
        // Not among the owners by its size, so that it is never left out.
        let before = MemoryOwner { name: Self::BEFORE.to_owned(), bytes: self.before, ..MemoryOwner::default() };
        let owners = self.owners.iter().take(limit).cloned();
        let rows: Vec<_> = Some(before).filter(|before| before.bytes > 0).into_iter().chain(owners).collect();
        let mut table = Table::new(&rows);
        table.text("Allocated by", |row| row.name.clone());
        if rows.iter().any(|row| !row.stack.is_empty()) {
            table.text("Inside", |row| row.stack.join(" < "));
        }
        table.number("CUDA Mem", |row| units::bytes(row.bytes));
        let all = self.in_use.max(1) as f64;
        table.number("CUDA Mem %", |row| units::percent(100.0 * row.bytes as f64 / all)).spare(1);
        let count = |row: &MemoryOwner| (row.allocations > 0).then(|| row.allocations.to_string());
        table.number("# of Allocations", |row| units::or_none(count(row))).spare(2);
        table.write(f, self.owners.len().saturating_sub(limit), width)
    }
}

impl fmt::Display for MemoryPeak {
    /// `GPU 0 memory at its peak: 1.20 GB, 819.20 MB of it from before the window; most: linear 204.80 MB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} memory at its peak: {}", self.device, units::bytes(self.in_use))?;
        if self.before > 0 {
            write!(f, ", {} of it from before the window", units::bytes(self.before))?;
        }
        match self.most() {
            Some((name, bytes)) => write!(f, "; most: {name} {}", units::bytes(bytes)),
            None => Ok(()),
        }
    }
}

impl MemoryOwner {
    /// The name of those who are not told apart.
    pub const OTHERS: &'static str = "[others]";

    /// Who made these allocations, the largest owner first.
    fn of<'a>(live: impl Iterator<Item = &'a Allocation<'a>>) -> Vec<Self> {
        let mut paths: HashMap<Vec<&str>, (u64, u64)> = HashMap::new();
        for allocation in live {
            let path = allocation.span().map(|span| span.stack().map(Span::name).collect());
            let (bytes, count) = paths.entry(path.unwrap_or_else(|| vec![Average::UNATTRIBUTED])).or_default();
            *bytes = bytes.saturating_add(allocation.bytes().unwrap_or(0));
            *count += 1;
        }
        let mut paths: Vec<_> = paths.into_iter().collect();
        // Ties by name, so that the same run prints the same table.
        paths.sort_by(|(a, (a_bytes, _)), (b, (b_bytes, _))| b_bytes.cmp(a_bytes).then_with(|| a.cmp(b)));
        let others = paths.split_off(paths.len().min(MemoryPeak::OWNERS));
        let owner = |(path, (bytes, allocations)): (Vec<&str>, (u64, u64))| {
            let mut names = path.into_iter().map(str::to_owned);
            Self { name: names.next().unwrap_or_default(), stack: names.collect(), bytes, allocations }
        };
        let mut owners: Vec<_> = paths.into_iter().map(owner).collect();
        if !others.is_empty() {
            let mut all = Self { name: Self::OTHERS.to_owned(), ..Self::default() };
            for (_, (bytes, allocations)) in others {
                all.bytes = all.bytes.saturating_add(bytes);
                all.allocations += allocations;
            }
            owners.push(all);
        }
        owners
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryOwner, MemoryPeak};
    use crate::{
        report::memory::HighestPeaks,
        trace::{CallsiteData, CallsiteId, DeviceId, MemoryChange, SpanData, Trace, sample::memory_trace},
    };
    use std::{slice, time::Duration};

    const TRAIN_STEP: Option<usize> = Some(0);
    const FORWARD: Option<usize> = Some(1);
    const BACKWARD: Option<usize> = Some(2);
    const MB: u64 = 1 << 20;

    fn only(trace: Trace) -> MemoryPeak {
        let mut peaks = HighestPeaks::default();
        peaks.add(&trace);
        peaks.get(DeviceId::new(0)).unwrap().clone()
    }

    fn owners(peak: &MemoryPeak) -> Vec<(String, u64, u64)> {
        let sum: u64 = peak.owners.iter().map(|owner| owner.bytes).sum();
        assert_eq!(peak.before + sum, peak.in_use, "the parts are the whole");
        let path = |owner: &MemoryOwner| [slice::from_ref(&owner.name), &owner.stack].concat().join(" < ");
        peak.owners.iter().map(|owner| (path(owner), owner.bytes, owner.allocations)).collect()
    }

    fn owner(path: &str, bytes: u64, allocations: u64) -> (String, u64, u64) {
        (path.to_owned(), bytes, allocations)
    }

    /// 100 MB from before; at the peak `forward` has 2 × 20 MB, `backward` 30 MB, nobody 5 MB.
    fn step() -> Trace {
        memory_trace(&[
            (1, Some(20 * MB), 120 * MB, FORWARD),
            (2, Some(20 * MB), 140 * MB, FORWARD),
            (3, Some(10 * MB), 150 * MB, TRAIN_STEP),
            (3, None, 140 * MB, TRAIN_STEP),
            (4, Some(5 * MB), 145 * MB, None),
            (5, Some(30 * MB), 175 * MB, BACKWARD),
            (1, None, 155 * MB, BACKWARD),
            (6, Some(20 * MB), 175 * MB, TRAIN_STEP),
        ])
    }

    #[test]
    fn the_peak_is_of_those_who_have_not_freed_theirs() {
        let peak = only(step());
        assert_eq!((peak.in_use, peak.before, peak.after), (175 * MB, 100 * MB, Duration::from_micros(5)));
        assert_eq!(
            owners(&peak),
            [
                owner("forward < train_step", 40 * MB, 2),
                owner("backward < train_step", 30 * MB, 1),
                owner("[unattributed]", 5 * MB, 1),
            ]
        );
    }

    #[test]
    fn instances_of_spans_are_one_owner() {
        // Span 4 is the second `forward`.
        let peak = only(memory_trace(&[(1, Some(7), 7, FORWARD), (2, Some(8), 15, Some(4))]));
        assert_eq!((peak.before, owners(&peak)), (0, vec![owner("forward < train_step", 15, 2)]));
    }

    #[test]
    fn memory_freed_without_its_size_being_known_is_from_before_the_window() {
        // Whatever was at 9 still counts.
        let peak = only(memory_trace(&[(9, None, 100, BACKWARD), (1, Some(10), 110, FORWARD)]));
        assert_eq!((peak.before, owners(&peak)), (100, vec![owner("forward < train_step", 10, 1)]));
        let peak = only(memory_trace(&[(9, None, 100, BACKWARD)]));
        assert_eq!((peak.before, owners(&peak)), (100, vec![]));
    }

    #[test]
    fn an_address_that_is_given_out_again_has_its_last_owner() {
        // The 10 bytes of `forward` are still counted as in use, though they cannot be.
        let peak = only(memory_trace(&[(1, Some(10), 110, FORWARD), (1, Some(30), 140, BACKWARD)]));
        assert_eq!((peak.before, owners(&peak)), (110, vec![owner("backward < train_step", 30, 1)]));
    }

    #[test]
    fn nobody_owns_more_than_there_is() {
        let peak = only(memory_trace(&[(1, Some(u64::MAX), 5, FORWARD), (2, Some(u64::MAX), 9, FORWARD)]));
        assert_eq!((peak.before, owners(&peak)), (0, vec![owner("forward < train_step", 9, 2)]));
    }

    #[test]
    fn the_smallest_owners_are_not_told_apart() {
        let mut trace = memory_trace(&[]);
        let (callsite, span) = (trace.callsites[1].clone(), trace.spans[1].clone());
        let mut records = Vec::new();
        for bytes in 0..MemoryPeak::OWNERS as u64 + 5 {
            trace.callsites.push(CallsiteData { name: format!("layer {bytes}").into(), ..callsite.clone() });
            let callsite = CallsiteId::new(trace.callsites.len() - 1);
            trace.spans.push(SpanData { callsite, ..span.clone() });
            records.push((bytes, Some(bytes), bytes * (bytes + 1) / 2, Some(trace.spans.len() - 1)));
        }
        trace.allocations = memory_trace(&records).allocations;
        let owners = owners(&only(trace));
        assert_eq!(owners.len(), MemoryPeak::OWNERS + 1);
        assert_eq!(owners[0], owner("layer 1004 < train_step", 1004, 1));
        assert_eq!(owners[MemoryPeak::OWNERS], owner(MemoryOwner::OTHERS, 1 + 2 + 3 + 4, 5));
    }

    #[test]
    fn a_line_says_whose_spans_have_the_most_wherever_they_are() {
        // `forward` twice, once outside of any step.
        let mut trace = memory_trace(&[(1, Some(3), 3, FORWARD), (2, Some(3), 6, Some(4)), (3, Some(4), 10, BACKWARD)]);
        trace.spans[4].parent = None;
        assert_eq!(only(trace.clone()).to_string(), "GPU 0 memory at its peak: 10 B; most: forward 6 B");
        trace.allocations.iter_mut().for_each(|allocation| allocation.change = MemoryChange::Free);
        assert_eq!(only(trace).to_string(), "GPU 0 memory at its peak: 10 B, 10 B of it from before the window");
    }
}
