//! Slow links: groups of ranks that exchange data more slowly than others of their kind.

use super::collective_calls::{CollectiveCall, CollectiveOperation};
use crate::units;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

/// Compares groups of ranks by how fast they exchange data, without synchronised clocks: the last rank of a collective
/// to arrive waits for nobody, so its time is that of the transfer.
///
/// Groups are alike if they have as many ranks, are all within a host or all across hosts, and exchange about as much
/// with the same operation. Two ranks that send to each other are a group as well. A group is slow if its transfers
/// take half as long again as the median of those that are alike, and if that is 5 % of a step. No two groups can tell
/// which of them is slow, so there must be three, two thirds of them not slow: otherwise, there are two kinds of links.
///
/// ```
/// use kernspan::analysis::{CollectiveOperation, LinkComparison};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let mut links = LinkComparison::default();
/// for (group, transfer) in [("a", 2), ("b", 9), ("c", 2)] {
///     let first = 2 * u32::from(group.as_bytes()[0]);
///     let ranks = [(first, ms(transfer)), (first + 1, ms(transfer + 1))];
///     links.add(7, group, CollectiveOperation::AllReduce, 1 << 20, &ranks);
/// }
/// let slow = links.slow(ms(100), |_| "node-a");
/// assert_eq!((slow.len(), slow[0].group.as_str(), slow[0].costs), (1, "b", ms(7)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct LinkComparison {
    groups: BTreeMap<(Arc<str>, CollectiveOperation), LinkSums>,
}

/// The transfers of one group and operation.
#[derive(Clone, Debug, Default)]
struct LinkSums {
    ranks: BTreeSet<u32>,
    /// The time, the bytes and the number of transfers in each step.
    steps: BTreeMap<u64, (Duration, u64, u64)>,
}

/// The traits that groups which are alike share: operation, ranks, whether they are on one host, the number of
/// transfers in a step, and the binary logarithm of the size.
type LinkKind = (CollectiveOperation, usize, bool, u64, u32);

/// The links of a group of ranks that are slower than those of others: see [`LinkComparison`]. `Display` writes a
/// sentence.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowLink {
    /// The name of the group.
    pub group: String,
    /// The operation.
    pub operation: CollectiveOperation,
    /// The ranks of the group.
    pub ranks: Vec<u32>,
    /// Their hosts, as far as they are known.
    pub hosts: Vec<String>,
    /// The host that all slow groups across hosts have in common, and no other group across hosts, if there are several
    /// of them.
    pub host: Option<String>,
    /// The time of its transfers in a step: the median of the steps.
    pub transfer: Duration,
    /// The median of that over the groups that are alike.
    pub others: Duration,
    /// The number of those groups.
    pub alike: usize,
    /// Bytes per second that each link carries, and the median of the other groups; `None` if sizes are not known.
    pub bandwidths: Option<(f64, f64)>,
    /// The time of a step that it costs.
    pub costs: Duration,
    /// The time of a step.
    pub step: Duration,
}

/// A group with its typical step.
struct Link<'a> {
    group: &'a Arc<str>,
    operation: CollectiveOperation,
    ranks: &'a BTreeSet<u32>,
    transfer: Duration,
    bytes: u64,
}

impl LinkComparison {
    /// How much longer transfers of a slow group take than the median: half as long again. Chosen, as the noise of
    /// transfers between the same ranks is some 10 %.
    const SLOW: f64 = 1.5;
    /// The part of a step that a slow link costs at least: that of a rank that is late, see
    /// [`RankComparison`](super::RankComparison).
    const COSTS_ONE_IN: u32 = 20;
    /// The least groups that are alike, and the part of them that may be slow: one in 3.
    const ALIKE: usize = 3;

    /// Adds an exchange with its duration on each of its ranks: all ranks of the group, or both sides of a transfer.
    pub fn add(
        &mut self,
        step: u64,
        group: &str,
        operation: CollectiveOperation,
        bytes: u64,
        ranks: &[(u32, Duration)],
    ) {
        // Both sides are one transfer.
        let operation = if operation == CollectiveOperation::Receive { CollectiveOperation::Send } else { operation };
        let Some(transfer) = ranks.iter().map(|(_, time)| *time).min().filter(|_| ranks.len() > 1) else { return };
        let sums = self.groups.entry((group.into(), operation)).or_default();
        sums.ranks.extend(ranks.iter().map(|(rank, _)| *rank));
        let sum = sums.steps.entry(step).or_default();
        *sum = (sum.0 + transfer, sum.1 + bytes, sum.2 + 1);
    }

    /// Returns what the collectives of ranks say. Those that some rank of the group lacks are left out, and pairwise
    /// exchanges of groups of more than two.
    pub fn of<'a>(ranks: impl IntoIterator<Item = (u32, &'a [CollectiveCall])>) -> Self {
        type Key<'a> = (u64, bool, &'a Arc<str>, u32);
        type Sides<'a> = (&'a CollectiveCall, Vec<(u32, Duration)>);
        let mut all: BTreeMap<Key<'_>, Sides<'_>> = BTreeMap::new();
        for (rank, calls) in ranks {
            for call in calls {
                let key = (call.step, call.operation.is_pairwise(), &call.group, call.number);
                all.entry(key).or_insert_with(|| (call, Vec::new())).1.push((rank, call.duration()));
            }
        }
        let mut new = Self::default();
        for ((step, is_pairwise, ..), (call, ranks)) in all {
            let size = ranks.len();
            let is_whole = call.group_size == 0 || call.group_size as usize == size;
            if is_whole && (!is_pairwise || size == 2) {
                new.add(step, &call.group, call.operation, call.bytes, &ranks);
            }
        }
        new
    }

    /// Returns the slow groups, the most expensive first, if steps take so long. `host` returns the host of a rank,
    /// which is empty if it is not known.
    pub fn slow<'a>(&self, step: Duration, host: impl Fn(u32) -> &'a str) -> Vec<SlowLink> {
        let hosts = |link: &Link<'_>| {
            let hosts: BTreeSet<&str> = link.ranks.iter().map(|rank| host(*rank)).collect();
            hosts.into_iter().filter(|host| !host.is_empty()).collect::<Vec<_>>()
        };
        let mut kinds: BTreeMap<LinkKind, Vec<Link<'_>>> = BTreeMap::new();
        for ((group, operation), sums) in &self.groups {
            let Some((transfer, bytes, count)) = sums.typical() else { continue };
            let link = Link { group, operation: *operation, ranks: &sums.ranks, transfer, bytes };
            let is_local = hosts(&link).len() < 2;
            let size = (bytes / count.max(1)).checked_ilog2().unwrap_or(0);
            kinds.entry((*operation, sums.ranks.len(), is_local, count, size)).or_default().push(link);
        }
        let mut slow: Vec<SlowLink> = Vec::new();
        let (mut of_slow, mut of_others) = (Vec::new(), BTreeSet::new());
        for ((.., is_local, _, _), links) in kinds.iter().filter(|(_, links)| links.len() >= Self::ALIKE) {
            let mut transfers: Vec<_> = links.iter().map(|link| (link.transfer, link.bytes)).collect();
            transfers.sort_unstable();
            let (others, bytes) = transfers[(links.len() - 1) / 2];
            let costs = |link: &Link<'_>| link.transfer.saturating_sub(others);
            let is_slow = |link: &&Link<'_>| {
                link.transfer.as_secs_f64() >= Self::SLOW * others.as_secs_f64()
                    && costs(link).saturating_mul(Self::COSTS_ONE_IN) >= step
            };
            let found: Vec<_> = links.iter().filter(is_slow).collect();
            if found.len() * Self::ALIKE > links.len() || step.is_zero() {
                continue;
            }
            if !is_local {
                of_slow.extend(found.iter().map(|link| hosts(link)));
                of_others.extend(links.iter().filter(|link| !is_slow(link)).flat_map(hosts));
            }
            slow.extend(found.into_iter().map(|link| SlowLink {
                group: link.group.to_string(),
                operation: link.operation,
                ranks: link.ranks.iter().copied().collect(),
                hosts: hosts(link).into_iter().map(ToOwned::to_owned).collect(),
                host: None,
                transfer: link.transfer,
                others,
                alike: links.len() - 1,
                bandwidths: link.bandwidth(link.bytes, link.transfer).zip(link.bandwidth(bytes, others)),
                costs: costs(link),
                step,
            }));
        }
        let is_common = |host: &&&str| of_slow.iter().all(|hosts| hosts.contains(host)) && !of_others.contains(**host);
        let mut common = of_slow.first().into_iter().flatten().filter(is_common);
        // If several hosts are always together, none of them stands out.
        if let (Some(host), None, 2..) = (common.next(), common.next(), of_slow.len()) {
            slow.iter_mut().filter(|link| link.hosts.len() > 1).for_each(|link| link.host = Some((*host).to_owned()));
        }
        slow.sort_by_key(|link| Reverse(link.costs));
        slow
    }
}

impl LinkSums {
    /// Returns the time, the bytes and the number of transfers in a step: that with the median time.
    fn typical(&self) -> Option<(Duration, u64, u64)> {
        let mut steps: Vec<_> = self.steps.values().copied().collect();
        steps.sort_unstable();
        steps.get(steps.len().checked_sub(1)? / 2).copied()
    }
}

impl Link<'_> {
    fn bandwidth(&self, bytes: u64, time: Duration) -> Option<f64> {
        let factor = self.operation.bus_factor(u32::try_from(self.ranks.len()).unwrap_or(u32::MAX));
        (bytes > 0 && !time.is_zero()).then(|| factor * bytes as f64 / time.as_secs_f64())
    }
}

impl fmt::Display for SlowLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The most ranks that are named.
        const NAMED: usize = 8;
        let names: Vec<_> = self.ranks.iter().take(NAMED).map(ToString::to_string).collect();
        match &names[..] {
            [one, other] => write!(f, "the link between ranks {one} and {other}")?,
            names => {
                let more = if self.ranks.len() > names.len() { ", …" } else { "" };
                write!(f, "a link between ranks {}{more}", names.join(", "))?;
            }
        }
        match (&self.host, &self.hosts[..]) {
            (Some(host), _) => write!(f, ", as all links of {host},")?,
            (None, []) => {}
            (None, [host]) => write!(f, " on {host}")?,
            (None, [first, .., last]) => write!(f, " on hosts {first} to {last}")?,
        }
        let [transfer, others, step] = [self.transfer, self.others, self.step].map(units::time);
        let (operation, alike) = (self.operation, self.alike);
        write!(f, " is slow: {operation} takes {transfer} of a step of {step}, and {others} in {alike} groups alike")?;
        match self.bandwidths {
            Some((own, others)) => write!(f, " ({}, not {})", units::bandwidth(own), units::bandwidth(others)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkComparison, SlowLink};
    use crate::analysis::CollectiveOperation;
    use std::time::Duration;

    const STEP: Duration = Duration::from_millis(100);

    /// Returns the slow links of pairs of ranks on hosts, which exchange a megabyte in so many milliseconds.
    fn slow(pairs: &[([u32; 2], u64)]) -> Vec<SlowLink> {
        const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
        let mut links = LinkComparison::default();
        for step in 0..5 {
            for ([one, other], millis) in pairs {
                // The first to arrive waits. In one step, all transfers hang.
                let time = Duration::from_millis(if step == 3 { 50 } else { *millis });
                let ranks = [(*one, time + Duration::from_millis(30)), (*other, time)];
                links.add(step, &format!("{one}-{other}"), CollectiveOperation::AllReduce, 1_000_000, &ranks);
            }
        }
        links.slow(STEP, |rank| HOSTS[rank as usize / 4])
    }

    #[test]
    fn a_link_that_is_slower_than_others_of_its_kind_is_named() {
        let found = slow(&[([0, 1], 4), ([2, 3], 4), ([4, 5], 20), ([6, 7], 5)]);
        let [link] = &found[..] else { panic!("{found:?}") };
        let expected = "the link between ranks 4 and 5 on b is slow: all-reduce takes 20.0 ms of a step of 100 ms, and \
                        4.00 ms in 3 groups alike (50.0 MB/s, not 250 MB/s)";
        assert_eq!(link.to_string(), expected);
        assert_eq!((link.costs.as_millis(), link.host.as_deref()), (16, None));
        assert_eq!(slow(&[([0, 1], 4), ([2, 3], 4), ([4, 5], 8), ([6, 7], 5)]), [], "4 % of a step");
        assert_eq!(slow(&[([0, 1], 50), ([2, 3], 50), ([4, 5], 60)]), [], "noise");
        assert_eq!(slow(&[([0, 1], 4), ([4, 5], 20)]), [], "of two, either may be as it should");
    }

    #[test]
    fn links_within_and_across_hosts_are_two_kinds() {
        assert_eq!(slow(&[([0, 1], 4), ([2, 3], 4), ([4, 5], 4), ([0, 4], 30), ([1, 5], 30), ([2, 6], 30)]), []);
        // Two kinds on the same hosts.
        assert_eq!(slow(&[([0, 1], 4), ([2, 3], 4), ([4, 5], 4), ([6, 7], 30), ([4, 7], 30), ([5, 6], 30)]), []);
    }

    #[test]
    fn a_host_whose_links_are_all_slow_is_named() {
        let found = slow(&[
            ([0, 4], 20),
            ([4, 8], 20),
            ([8, 12], 4),
            ([12, 0], 4),
            ([9, 13], 4),
            ([13, 1], 4),
            ([10, 2], 4),
            ([2, 14], 4),
        ]);
        let hosts: Vec<_> = found.iter().map(|link| link.host.as_deref()).collect();
        assert_eq!(hosts, [Some("b"); 2], "{found:?}");
        assert!(found[0].to_string().contains(", as all links of b, is slow: "), "{}", found[0]);
    }
}
