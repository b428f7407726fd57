//! The collectives of a run by group and operation: how much they move, how fast, and how much of it nothing hides.

use super::collective_calls::{CollectiveCall, CollectiveOperation};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

/// The collectives of one group and operation: see [`collective_groups`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CollectiveGroup {
    /// The name of the group; empty if it is not known.
    pub group: String,
    /// The operation.
    pub operation: CollectiveOperation,
    /// The number of ranks in the group, or of those seen if it is not known.
    pub ranks: u32,
    /// The number of collectives in all steps.
    pub count: u64,
    /// The size of all of them on a rank, in bytes; 0 if it is not known.
    pub bytes: u64,
    /// The time of all of them, including that of waiting for other ranks: the mean of the ranks.
    pub time: Duration,
    /// The part of `time` in which no kernel computes.
    pub exposed: Duration,
    /// The time of all of them without waiting: of each, the shortest time over the ranks.
    pub transfer: Duration,
    /// The number of steps in which they were seen.
    pub steps: u64,
}

impl CollectiveGroup {
    /// The part of [`time`](Self::time) in which a kernel computes.
    pub fn hidden(&self) -> Duration {
        self.time.saturating_sub(self.exposed)
    }

    /// Bytes per second, as NCCL's tests define it: the size by the time without waiting. `None` if it is not known.
    pub fn algorithm_bandwidth(&self) -> Option<f64> {
        let seconds = self.transfer.as_secs_f64();
        (self.bytes > 0 && seconds > 0.0).then(|| self.bytes as f64 / seconds)
    }

    /// Bytes per second that each link carries, which is to be compared with the hardware's bandwidth.
    pub fn bus_bandwidth(&self) -> Option<f64> {
        Some(self.algorithm_bandwidth()? * self.operation.bus_factor(self.ranks))
    }
}

/// What is summed up of one collective.
#[derive(Default)]
struct Sums {
    shortest: Option<Duration>,
    bytes: u64,
}

/// Returns the collectives of ranks by group and operation, those first that are exposed the longest.
///
/// ```
/// # fn show(traces: &[kernspan::Trace]) {
/// use kernspan::analysis::{collective_calls, collective_groups};
///
/// let calls: Vec<_> = traces.iter().map(collective_calls).collect();
/// for group in collective_groups(calls.iter().map(Vec::as_slice)) {
///     println!("{} of {}: {:?} bytes/s", group.operation, group.group, group.bus_bandwidth());
/// }
/// # }
/// ```
pub fn collective_groups<'a>(ranks: impl IntoIterator<Item = &'a [CollectiveCall]>) -> Vec<CollectiveGroup> {
    #[derive(Default)]
    struct Group {
        collectives: BTreeMap<(u64, u32), Sums>,
        seen: u32,
        size: u32,
        time: Duration,
        exposed: Duration,
    }
    let mut groups: BTreeMap<(&Arc<str>, CollectiveOperation), Group> = BTreeMap::new();
    for calls in ranks {
        let mut of_rank: BTreeMap<(&Arc<str>, CollectiveOperation), ()> = BTreeMap::new();
        for call in calls {
            let key = (&call.group, call.operation);
            let group = groups.entry(key).or_default();
            if of_rank.insert(key, ()).is_none() {
                group.seen += 1;
            }
            group.size = group.size.max(call.group_size);
            group.time += call.duration();
            group.exposed += call.exposed;
            let sums = group.collectives.entry((call.step, call.number)).or_default();
            sums.shortest = sums.shortest.into_iter().chain([call.duration()]).min();
            sums.bytes = sums.bytes.max(call.bytes);
        }
    }
    let summary = |((group, operation), of): ((&Arc<str>, CollectiveOperation), Group)| {
        let mut steps: Vec<_> = of.collectives.keys().map(|(step, _)| *step).collect();
        steps.dedup();
        CollectiveGroup {
            group: group.to_string(),
            operation,
            ranks: if of.size > 0 { of.size } else { of.seen },
            count: of.collectives.len() as u64,
            bytes: of.collectives.values().map(|sums| sums.bytes).sum(),
            time: of.time / of.seen.max(1),
            exposed: of.exposed / of.seen.max(1),
            transfer: of.collectives.values().filter_map(|sums| sums.shortest).sum(),
            steps: steps.len() as u64,
        }
    };
    let mut groups: Vec<_> = groups.into_iter().map(summary).collect();
    groups.sort_by_key(|group| Reverse(group.exposed));
    groups
}

#[cfg(test)]
mod tests {
    use super::collective_groups;
    use crate::{
        analysis::{CollectiveFlow, CollectiveOperation, collective_calls},
        trace::sample::{HostTrace, late_ranks, ranks},
    };

    #[test]
    fn kernels_are_summed_up_by_operation() {
        let calls: Vec<_> = ranks().iter().map(collective_calls).collect();
        let groups = collective_groups(calls.iter().map(Vec::as_slice));
        let [gather, reduce] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!(
            (gather.operation, reduce.operation),
            (CollectiveOperation::AllGather, CollectiveOperation::AllReduce)
        );
        // In each of two steps, the all-reduce takes 10 µs on the first rank and 14 µs on the second.
        assert_eq!((reduce.count, reduce.ranks, reduce.steps), (2, 2, 2));
        assert_eq!((reduce.time.as_micros(), reduce.transfer.as_micros()), (24, 20));
        // The gather is exposed, the all-reduce is not.
        assert_eq!((gather.exposed.as_micros(), gather.hidden().as_micros()), (20, 0));
        assert_eq!(reduce.exposed.as_micros(), 0);
        assert_eq!(reduce.bus_bandwidth(), None, "the size is not known");
        let calls = late_ranks(&[(100, 1000), (100, 1400)]).iter().map(collective_calls).collect::<Vec<_>>();
        let groups = collective_groups(calls.iter().map(Vec::as_slice));
        assert_eq!((groups[0].transfer.as_micros(), groups[0].time.as_micros()), (4 * 110, 4 * 310));
    }

    #[test]
    fn spans_with_fields_are_collectives() {
        let mut host = HostTrace::default();
        host.step(1000).span(1, "sync", 100, 300);
        host.field("collective.operation", "all_reduce").field("collective.group", "world");
        host.field("collective.bytes", 4_000_000u64).field("collective.ranks", 4u64);
        host.span(1, "to_next", 400, 500).field("collective.operation", "send").field("collective.peer", 3u64);
        host.span(1, "other", 600, 700);
        let trace = host.trace();
        let calls = collective_calls(&trace);
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert_eq!((calls[0].flow(), calls[1].flow()), (CollectiveFlow::All, CollectiveFlow::From(0)));
        assert_eq!(&*calls[1].group, ":0→3");
        let groups = collective_groups([&calls[..]]);
        let reduce = groups.iter().find(|group| group.operation == CollectiveOperation::AllReduce).unwrap();
        assert_eq!((reduce.group.as_str(), reduce.ranks, reduce.exposed.as_micros()), ("world", 4, 200));
        // 4 MB in 200 µs, of which each link carries 2 · 3/4.
        assert_eq!((reduce.algorithm_bandwidth(), reduce.bus_bandwidth()), (Some(2e10), Some(3e10)));
    }
}
