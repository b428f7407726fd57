//! The memory of a GPU in use over a window, by the spans that allocated it.

use super::points::{POINTS, point};
use crate::{
    export::json::Object,
    report::{Average, MemoryPeak},
    trace::{Allocation, DeviceId, MemoryChange, Trace},
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The memory of one GPU in use over a window, by owner.
///
/// An owner is a span that is nested in the outermost one, such as `forward` in `train_step`, or the outermost span
/// itself if the memory was allocated there.
#[derive(Debug)]
pub(super) struct MemoryCurve {
    device: DeviceId,
    /// The owners, the largest first, each with its bytes at the highest moment of each point.
    owners: Vec<(String, Vec<u64>)>,
}

impl MemoryCurve {
    /// The number of owners that have their own line.
    const OWNERS: usize = 6;
    /// The name of the line for all others.
    const OTHERS: &str = "[others]";

    /// Returns the curve of each GPU that allocated or freed memory in the window.
    pub(super) fn of_devices(trace: &Trace) -> Vec<Self> {
        let devices: BTreeSet<_> = trace.allocations().map(Allocation::device).collect();
        let owners = if devices.is_empty() { Vec::new() } else { owners(trace) };
        devices.into_iter().map(|device| Self::of(trace, device, &owners)).collect()
    }

    /// Returns the curve of a GPU. `owners` has a name for each span.
    fn of(trace: &Trace, device: DeviceId, owners: &[&str]) -> Self {
        let mut live: FxHashMap<u64, (&str, u64)> = FxHashMap::default();
        let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
        // For each point, the bytes in use and those of each owner at its highest moment; later points without a change
        // are like the end of the previous one.
        let mut points: Vec<Option<(u64, BTreeMap<&str, u64>)>> = vec![None; POINTS];
        let mut ends: Vec<Option<(u64, BTreeMap<&str, u64>)>> = points.clone();
        for allocation in trace.allocations().filter(|allocation| allocation.device() == device) {
            match allocation.change() {
                MemoryChange::Allocate => {
                    let span = allocation.span().map(|span| owners[span.id().index()]);
                    let (owner, size) = (span.unwrap_or(Average::UNATTRIBUTED), allocation.bytes().unwrap_or(0));
                    let replaced = live.insert(allocation.address(), (owner, size));
                    remove(&mut bytes, replaced);
                    *bytes.entry(owner).or_default() += size;
                }
                MemoryChange::Free => remove(&mut bytes, live.remove(&allocation.address())),
            }
            let at = point(trace, allocation.at());
            let now = (allocation.in_use(), bytes.clone());
            if points[at].as_ref().is_none_or(|(highest, _)| now.0 >= *highest) {
                points[at] = Some(now.clone());
            }
            ends[at] = Some(now);
        }
        let mut last: Option<(u64, BTreeMap<&str, u64>)> = None;
        for (at, end) in points.iter_mut().zip(ends) {
            let before = last.clone();
            last = end.or(last);
            if at.is_none() {
                *at = before;
            }
        }
        Self { device, owners: lines(&points) }
    }

    pub(super) fn device(&self) -> DeviceId {
        self.device
    }

    pub(super) fn write(&self, chart: &mut Object<'_>) {
        chart.string("unit", "memory");
        chart.array("lines", |lines| {
            for (owner, values) in &self.owners {
                lines.object(|line| {
                    line.string("name", owner);
                    line.array("values", |array| values.iter().for_each(|&bytes| array.number(bytes)));
                });
            }
        });
    }
}

/// Returns the lines of a chart: what was allocated before the window first, then the largest owners.
fn lines(points: &[Option<(u64, BTreeMap<&str, u64>)>]) -> Vec<(String, Vec<u64>)> {
    let mut largest: BTreeMap<&str, u64> = BTreeMap::new();
    for (owner, &bytes) in points.iter().flatten().flat_map(|(_, owners)| owners) {
        let most = largest.entry(owner).or_default();
        *most = bytes.max(*most);
    }
    let mut owners: Vec<_> = largest.into_iter().filter(|(_, most)| *most > 0).collect();
    owners.sort_by_key(|&(owner, most)| (std::cmp::Reverse(most), owner));
    let shown: Vec<&str> = owners.iter().take(MemoryCurve::OWNERS).map(|(owner, _)| *owner).collect();
    let mut lines = vec![(MemoryPeak::BEFORE.to_owned(), Vec::new())];
    lines.extend(shown.iter().map(|owner| ((*owner).to_owned(), Vec::new())));
    lines.push((MemoryCurve::OTHERS.to_owned(), Vec::new()));
    for point in points {
        let nothing = (0, BTreeMap::new());
        let (in_use, owners) = point.as_ref().unwrap_or(&nothing);
        // Owners together have no more than is in use, even if the records contradict that.
        let mut rest = *in_use;
        let mut take = |bytes: u64| {
            let taken = bytes.min(rest);
            rest -= taken;
            taken
        };
        let of_shown: Vec<u64> = shown.iter().map(|owner| take(owners.get(owner).copied().unwrap_or(0))).collect();
        let others = owners.iter().filter(|(owner, _)| !shown.contains(owner)).map(|(_, bytes)| *bytes);
        let others = take(others.fold(0, u64::saturating_add));
        lines[0].1.push(rest);
        of_shown.iter().zip(1..).for_each(|(&bytes, line)| lines[line].1.push(bytes));
        lines[shown.len() + 1].1.push(others);
    }
    lines.retain(|(_, values)| values.iter().any(|&bytes| bytes > 0));
    lines
}

fn remove<'a>(bytes: &mut BTreeMap<&'a str, u64>, freed: Option<(&'a str, u64)>) {
    if let Some((owner, size)) = freed {
        bytes.entry(owner).and_modify(|bytes| *bytes = bytes.saturating_sub(size));
    }
}

/// Returns for each span the name of the span that its memory is counted for.
fn owners(trace: &Trace) -> Vec<&str> {
    // A parent comes before its children. Everything nested in a second-level span counts for that span.
    let mut owners: Vec<(&str, u8)> = Vec::with_capacity(trace.spans().len());
    for span in trace.spans() {
        owners.push(match span.parent().map(|parent| owners[parent.id().index()]) {
            None => (span.name(), 0),
            Some((_, 0)) => (span.name(), 1),
            Some(owner) => owner,
        });
    }
    owners.into_iter().map(|(name, _)| name).collect()
}
