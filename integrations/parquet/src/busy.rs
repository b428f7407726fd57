//! The times in which a GPU computes.

use kernspan::trace::{DeviceId, Timestamp, Work};
use std::{collections::BTreeMap, time::Duration};

/// The times in which each GPU executes any of some work.
pub(crate) struct BusyTimes(BTreeMap<DeviceId, Vec<Busy>>);

/// A time without gaps, and all time before it.
struct Busy {
    start: Timestamp,
    end: Timestamp,
    before: Duration,
}

impl BusyTimes {
    pub(crate) fn of<'a>(work: impl Iterator<Item = Work<'a>>) -> Self {
        let mut times: BTreeMap<DeviceId, Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
        for work in work {
            times.entry(work.stream().device()).or_default().push((work.start(), work.end()));
        }
        Self(times.into_iter().map(|(device, times)| (device, merged(times))).collect())
    }

    /// Returns how much of a time the GPU is busy.
    pub(crate) fn covered(&self, device: DeviceId, from: Timestamp, to: Timestamp) -> Duration {
        let Some(times) = self.0.get(&device) else { return Duration::ZERO };
        let until = |at: Timestamp| {
            let Some(last) = times.partition_point(|busy| busy.start < at).checked_sub(1) else {
                return Duration::ZERO;
            };
            let busy = &times[last];
            busy.before + busy.end.min(at).since(busy.start)
        };
        until(to).saturating_sub(until(from))
    }
}

fn merged(mut times: Vec<(Timestamp, Timestamp)>) -> Vec<Busy> {
    times.sort_unstable();
    let mut merged: Vec<Busy> = Vec::new();
    for (start, end) in times {
        match merged.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            last => {
                let before = last.map_or(Duration::ZERO, |last| last.before + last.end.since(last.start));
                merged.push(Busy { start, end, before });
            }
        }
    }
    merged
}
