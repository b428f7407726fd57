//! How far the clocks of hosts are apart, as intervals that are certain.
//!
//! If every rank of a collective needs data of every other, none ends before the last has begun: in true time,
//! `end(a) >= begin(b)`. So the clock of `a` is ahead of that of `b` by at most `end(a) - begin(b)`, each read on its
//! own clock, and by at least `begin(a) - end(b)`. Every collective adds such bounds, and the tightest count.

use super::collective_calls::{CollectiveCall, CollectiveFlow};
use crate::{trace::Timestamp, units};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    collections::{BTreeMap, hash_map::Entry},
    fmt,
    sync::Arc,
    time::Duration,
};

/// Bounds on the differences between the clocks of hosts, from the collectives of their ranks.
///
/// Ranks of one host share a clock; ranks of unknown hosts have one each. Ranks that share no group are compared
/// through others. The clocks must agree to within some seconds, so that drift over their difference is negligible.
///
/// ```
/// use kernspan::{analysis::{ClockOffsets, CollectiveFlow}, trace::Timestamp};
///
/// let at = Timestamp::from_unix_nanos;
/// let mut clocks = ClockOffsets::new([(0, "node-a"), (1, "node-b")]);
/// // The clock of node-b is 1 ms ahead. First rank 1 arrives last, then rank 0.
/// clocks.add(CollectiveFlow::All, &[(0, at(10_000_000), at(12_100_000)), (1, at(13_000_000), at(13_100_000))]);
/// clocks.add(CollectiveFlow::All, &[(0, at(22_000_000), at(22_100_000)), (1, at(21_000_000), at(23_100_000))]);
/// let offsets = clocks.offsets(at(22_000_000));
/// let (least, most) = offsets[1].interval.unwrap();
/// assert!(least <= 1_000_000 && 1_000_000 <= most && most - least < 250_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClockOffsets {
    clocks: Vec<Clock>,
    of_ranks: BTreeMap<u32, usize>,
    /// For clocks `(a, b)`, the bounds on how far `a` is ahead of `b`.
    bounds: FxHashMap<(usize, usize), BTreeMap<u64, UpperBound>>,
}

/// A clock, which the ranks of one host share.
#[derive(Clone, Debug, Default)]
struct Clock {
    host: String,
    ranks: Vec<u32>,
    /// Two of its ranks that cannot share a clock, and by how much they differ at least.
    apart: Option<(i64, u32, u32)>,
}

/// At this time, one clock was ahead of another by at most so many nanoseconds.
#[derive(Clone, Copy, Debug)]
struct UpperBound {
    at: u64,
    nanos: i64,
}

/// How far the clock of a host is ahead of the first one's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClockOffset {
    /// The host; empty if it is not known.
    pub host: String,
    /// The ranks that have this clock.
    pub ranks: Vec<u32>,
    /// The least and the most nanoseconds that it is ahead; negative if it is behind. `None` if collectives do not
    /// tell, or contradict each other.
    pub interval: Option<(i64, i64)>,
}

impl ClockOffsets {
    /// The most that a clock drifts against true time, in parts per million: that of an undisciplined quartz oscillator
    /// in a server. NTP disciplines to less. The difference of two clocks drifts by twice as much.
    pub const DRIFT_PPM: f64 = 20.0;
    /// The error of timestamps, by which bounds are widened: CUPTI converts the GPU's timer to the host's clock. It is
    /// chosen, not measured. Of 1,260 collectives of four ranks on one host, none came nearer to contradicting a common
    /// clock than 72 µs, without it.
    pub const TIMESTAMP_ERROR: Duration = Duration::from_micros(5);
    /// Of up to so many clocks in a collective, all pairs are compared; of more, each with the first one.
    const PAIRS: usize = 16;
    /// The time for which only the tightest bound of two clocks is kept, in nanoseconds. The drift in it is 40 µs.
    const BUCKET: u64 = 1_000_000_000;

    /// Returns the clocks of ranks and their hosts, of which nothing is known yet.
    pub fn new<'a>(ranks: impl IntoIterator<Item = (u32, &'a str)>) -> Self {
        let mut new = Self::default();
        let mut hosts: FxHashMap<&str, usize> = FxHashMap::default();
        for (rank, host) in ranks {
            let next = new.clocks.len();
            let clock = if host.is_empty() { next } else { *hosts.entry(host).or_insert(next) };
            if clock == next {
                new.clocks.push(Clock { host: host.to_owned(), ..Clock::default() });
            }
            if new.of_ranks.insert(rank, clock).is_none() {
                new.clocks[clock].ranks.push(rank);
            }
        }
        new
    }

    /// Returns what the collectives of ranks say, each with its host.
    ///
    /// ```
    /// # fn show(traces: &[kernspan::Trace]) {
    /// use kernspan::analysis::{ClockOffsets, collective_calls};
    ///
    /// let calls: Vec<_> = traces.iter().map(|trace| (trace.metadata(), collective_calls(trace))).collect();
    /// let ranks = calls.iter().map(|(metadata, calls)| (metadata.rank, metadata.host.as_str(), calls.as_slice()));
    /// let clocks = ClockOffsets::of(ranks);
    /// if let Some(first) = traces.first() {
    ///     clocks.offsets(first.start()).iter().for_each(|offset| println!("{offset}"));
    /// }
    /// # }
    /// ```
    pub fn of<'a>(ranks: impl IntoIterator<Item = (u32, &'a str, &'a [CollectiveCall])>) -> Self {
        let ranks: Vec<_> = ranks.into_iter().collect();
        let mut new = Self::new(ranks.iter().map(|(rank, host, _)| (*rank, *host)));
        type Key<'a> = (u64, &'a Arc<str>, u32);
        type Arrivals = Vec<(u32, Timestamp, Timestamp)>;
        let mut collectives: BTreeMap<Key<'_>, (CollectiveFlow, Arrivals)> = BTreeMap::new();
        for (rank, _, calls) in &ranks {
            for call in *calls {
                let flow = call.flow();
                let key = (call.step, &call.group, call.number);
                let (common, arrivals) = collectives.entry(key).or_insert_with(|| (flow, Vec::new()));
                // Ranks that disagree on what they do are not matched rightly.
                if *common != flow {
                    *common = CollectiveFlow::Unknown;
                }
                arrivals.push((*rank, call.start, call.end));
            }
        }
        collectives.into_values().for_each(|(flow, arrivals)| new.add(flow, &arrivals));
        new
    }

    /// Adds a collective: when each rank began and ended it, by its own clock.
    pub fn add(&mut self, flow: CollectiveFlow, arrivals: &[(u32, Timestamp, Timestamp)]) {
        // The earliest end and the latest begin on each clock, with their ranks.
        let mut clocks: BTreeMap<usize, [(Timestamp, u32); 2]> = BTreeMap::new();
        for &(rank, begin, end) in arrivals {
            let Some(&clock) = self.of_ranks.get(&rank) else { continue };
            let known = clocks.entry(clock).or_insert([(end, rank), (begin, rank)]);
            *known = [known[0].min((end, rank)), known[1].max((begin, rank))];
        }
        let root = match flow {
            CollectiveFlow::All => None,
            CollectiveFlow::From(root) | CollectiveFlow::To(root) => match self.of_ranks.get(&root) {
                Some(clock) if clocks.contains_key(clock) => Some(*clock),
                _ => return,
            },
            CollectiveFlow::Unknown => return,
        };
        let all: Vec<_> = clocks.into_iter().collect();
        if root.is_none() {
            all.iter().for_each(|&(clock, [end, begin])| self.clocks[clock].check(end, begin));
        }
        let hub = if root.is_none() && all.len() > Self::PAIRS { all.first().map(|(clock, _)| *clock) } else { None };
        for &(a, [(end, _), _]) in &all {
            for &(b, [_, (begin, _)]) in &all {
                let is_bound = match flow {
                    CollectiveFlow::From(_) => Some(b) == root,
                    CollectiveFlow::To(_) => Some(a) == root,
                    _ => hub.is_none_or(|hub| a == hub || b == hub),
                };
                if a != b && is_bound {
                    self.bound(a, b, UpperBound { at: begin.as_unix_nanos(), nanos: difference(end, begin) });
                }
            }
        }
    }

    fn bound(&mut self, a: usize, b: usize, new: UpperBound) {
        let bucket = self.bounds.entry((a, b)).or_default().entry(new.at / Self::BUCKET).or_insert(new);
        if new.nanos < bucket.nanos {
            *bucket = new;
        }
    }

    /// Returns how far each clock is ahead of the first one at a time.
    pub fn offsets(&self, at: Timestamp) -> Vec<ClockOffset> {
        let edges = self.edges(at);
        // The upper bounds of each clock against the first, and of the first against each.
        let [most, least] = [false, true].map(|is_reversed| shortest(self.clocks.len(), &edges, is_reversed));
        let interval = |index: usize| {
            let (most, least) = (most[index]?, -least[index]?);
            (least <= most).then_some((least, most))
        };
        let offset = |(index, clock): (usize, &Clock)| ClockOffset {
            host: clock.host.clone(),
            ranks: clock.ranks.clone(),
            interval: if index == 0 { Some((0, 0)) } else { interval(index) },
        };
        self.clocks.iter().enumerate().map(offset).collect()
    }

    /// Returns the bounds at a time: for clocks `(a, b)`, how far `a` is ahead of `b` at most. Pairs that contradict
    /// each other are left out.
    fn edges(&self, at: Timestamp) -> Vec<(usize, usize, i64)> {
        let at = at.as_unix_nanos();
        let widened = |bound: &UpperBound| {
            let drift = 2.0 * Self::DRIFT_PPM * 1e-6 * bound.at.abs_diff(at) as f64;
            bound.nanos.saturating_add(drift.ceil() as i64).saturating_add(Self::TIMESTAMP_ERROR.as_nanos() as i64)
        };
        let tightest = |bounds: &BTreeMap<u64, UpperBound>| bounds.values().map(widened).min();
        let mut edges: BTreeMap<(usize, usize), i64> = BTreeMap::new();
        edges.extend(self.bounds.iter().filter_map(|(&pair, bounds)| Some((pair, tightest(bounds)?))));
        let is_possible =
            |a: usize, b: usize, nanos: i64| edges.get(&(b, a)).is_none_or(|back| nanos.saturating_add(*back) >= 0);
        edges.iter().filter(|((a, b), n)| is_possible(*a, *b, **n)).map(|((a, b), n)| (*a, *b, *n)).collect()
    }

    /// Returns what contradicts itself at a time: clocks that no difference explains, and ranks of one host whose
    /// clocks differ.
    pub fn warnings(&self, at: Timestamp) -> Vec<String> {
        let mut warnings: Vec<_> = self.clocks.iter().filter_map(Clock::warning).collect();
        let reason = "collectives are matched wrongly, or a clock was set meanwhile";
        let edges = self.edges(at);
        let known: FxHashSet<_> = edges.iter().map(|(a, b, _)| (*a, *b)).collect();
        let mut left_out: Vec<_> =
            self.bounds.keys().filter(|(a, b)| a < b && !known.contains(&(*a, *b))).copied().collect();
        left_out.sort_unstable();
        for (a, b) in left_out {
            let [a, b] = [a, b].map(|clock| self.clocks[clock].name());
            warnings.push(format!("no difference of their clocks explains the collectives of {a} and {b}: {reason}"));
        }
        if !edges.is_empty() && shortest(self.clocks.len(), &edges, false).first() == Some(&None) {
            warnings.push(format!("no differences of clocks explain the collectives of several groups: {reason}"));
        }
        warnings
    }
}

impl Clock {
    /// Notes two ranks whose clocks differ, given the earliest end and the latest begin of a collective.
    fn check(&mut self, (end, ended): (Timestamp, u32), (begin, began): (Timestamp, u32)) {
        let apart = -difference(end, begin);
        let least = ClockOffsets::TIMESTAMP_ERROR.as_nanos() as i64;
        if ended != began && apart > least && self.apart.is_none_or(|(known, ..)| known < apart) {
            self.apart = Some((apart, ended, began));
        }
    }

    fn warning(&self) -> Option<String> {
        let (nanos, a, b) = self.apart?;
        let (host, time) = (&self.host, units::time(Duration::from_nanos(nanos.unsigned_abs())));
        Some(format!("ranks {a} and {b} are both on {host}, but their clocks differ by at least {time}"))
    }

    fn name(&self) -> String {
        match (self.host.as_str(), self.ranks.first()) {
            ("", Some(rank)) => format!("rank {rank}"),
            (host, _) => host.to_owned(),
        }
    }
}

impl ClockOffset {
    /// The middle of the interval, in nanoseconds.
    pub fn middle(&self) -> Option<i64> {
        self.interval.map(|(least, most)| least.saturating_add(most.saturating_sub(least) / 2))
    }
}

/// Writes `node-b is 1.0 ms to 1.2 ms ahead`.
impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.as_str(), self.ranks.first()) {
            ("", Some(rank)) => write!(f, "rank {rank}")?,
            (host, _) => f.write_str(host)?,
        }
        let time = |nanos: i64| units::time(Duration::from_nanos(nanos.unsigned_abs()));
        match self.interval {
            None => f.write_str(" is ahead or behind by an unknown time"),
            Some((0, 0)) => f.write_str(" is the reference"),
            Some((least @ 0.., most)) => write!(f, " is {} to {} ahead", time(least), time(most)),
            Some((least, most @ ..=0)) => write!(f, " is {} to {} behind", time(most), time(least)),
            Some((least, most)) => write!(f, " is between {} behind and {} ahead", time(least), time(most)),
        }
    }
}

/// Returns the nanoseconds from `b` to `a`, on different clocks.
fn difference(a: Timestamp, b: Timestamp) -> i64 {
    let difference = i128::from(a.as_unix_nanos()) - i128::from(b.as_unix_nanos());
    difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Returns the tightest upper bounds of all clocks against the first one, or of the first against each: the shortest
/// paths by Bellman and Ford. If bounds contradict each other in a circle, none is certain.
fn shortest(clocks: usize, edges: &[(usize, usize, i64)], is_reversed: bool) -> Vec<Option<i64>> {
    let mut known: FxHashMap<usize, i64> = FxHashMap::default();
    if clocks > 0 {
        known.insert(0, 0);
    }
    let mut is_changed = true;
    for _ in 0..=clocks {
        is_changed = false;
        for &(a, b, nanos) in edges {
            let (to, from) = if is_reversed { (b, a) } else { (a, b) };
            let Some(bound) = known.get(&from).map(|from| from.saturating_add(nanos)) else { continue };
            match known.entry(to) {
                Entry::Occupied(known) if *known.get() <= bound => continue,
                Entry::Occupied(mut known) => _ = known.insert(bound),
                Entry::Vacant(unknown) => _ = unknown.insert(bound),
            }
            is_changed = true;
        }
        if !is_changed {
            break;
        }
    }
    (0..clocks).map(|clock| known.get(&clock).copied().filter(|_| !is_changed)).collect()
}

#[cfg(test)]
mod tests;
