//! When a rank is late, and whether it is its whole host.

use super::collective_calls::CollectiveCall;
use crate::units;
use std::{cmp::Reverse, collections::BTreeMap, fmt, time::Duration};

/// In which steps a rank is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum LateWhen {
    /// In nearly all of them.
    Always,
    /// In nearly all since this one, and in few before.
    Since(u64),
    /// In nearly all before this one, and in few since.
    Until(u64),
    /// In every so many steps, of which this is the first.
    Every {
        /// The number of steps from one to the next.
        period: u64,
        /// The first of them.
        first: u64,
    },
    /// In some, without an order.
    Sometimes,
}

impl LateWhen {
    /// The part of steps that may be exceptions.
    const EXCEPTIONS: f64 = 0.1;
    /// The least steps before and after a change, and the least repetitions: fewer are likely by chance.
    const LEAST: usize = 3;

    /// Returns when a rank is late, given the numbers of the steps in which it is, and those of all steps. Both are in
    /// order.
    ///
    /// ```
    /// use kernspan::analysis::LateWhen;
    ///
    /// let all: Vec<u64> = (100..140).collect();
    /// assert_eq!(LateWhen::of(&[105, 115, 125, 135], &all), LateWhen::Every { period: 10, first: 105 });
    /// assert_eq!(LateWhen::of(&(120..140).collect::<Vec<_>>(), &all), LateWhen::Since(120));
    /// ```
    pub fn of(late: &[u64], all: &[u64]) -> Self {
        let is_late: Vec<bool> = all.iter().map(|step| late.binary_search(step).is_ok()).collect();
        let allowed = |steps: usize| (Self::EXCEPTIONS * steps as f64).floor() as usize;
        let count = is_late.iter().filter(|late| **late).count();
        if all.len() - count <= allowed(all.len()) {
            return Self::Always;
        }
        // The steps that a change before this one does not explain. Both sides must be clear, each by itself.
        let change = |at: usize, late_after: bool| {
            let wrong = |part: &[bool], expected: bool| part.iter().filter(|late| **late != expected).count();
            let (before, after) = is_late.split_at(at);
            let wrong = [wrong(before, !late_after), wrong(after, late_after)];
            let is_clear = wrong[0] <= allowed(before.len()) && wrong[1] <= allowed(after.len());
            is_clear.then_some((wrong[0] + wrong[1], at))
        };
        let edges = Self::LEAST..(all.len() + 1).saturating_sub(Self::LEAST);
        let best = |late_after: bool| edges.clone().filter_map(|at| change(at, late_after)).min();
        match (best(true), best(false)) {
            (Some((wrong, at)), until) if until.is_none_or(|(other, _)| wrong <= other) => return Self::Since(all[at]),
            (_, Some((_, at))) => return Self::Until(all[at]),
            _ => {}
        }
        let gaps: Vec<_> = late.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Windows may leave steps out, so the shortest gap is the period.
        if let (Some(&period @ 2..), Some(&first)) = (gaps.iter().min(), late.first()) {
            let phase = first % period;
            let expected = all.iter().filter(|step| **step >= first && **step % period == phase).count();
            let met = late.iter().filter(|step| **step % period == phase).count();
            let wrong = (expected - met.min(expected)) + (late.len() - met);
            if met >= Self::LEAST && wrong <= allowed(expected) {
                return Self::Every { period, first };
            }
        }
        Self::Sometimes
    }
}

/// Writes `since step 120`.
impl fmt::Display for LateWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("in all steps"),
            Self::Since(step) => write!(f, "since step {step}"),
            Self::Until(step) => write!(f, "until step {step}"),
            Self::Every { period, first } => write!(f, "in every {period}th step from step {first} on"),
            Self::Sometimes => f.write_str("in some steps"),
        }
    }
}

/// A host whose ranks are all late: the ranks of other hosts wait for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LateHost {
    /// The host.
    pub host: String,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// The time of a step that all ranks of other hosts wait for all ranks of this one.
    pub waited_for: Duration,
    /// The time of a step.
    pub step: Duration,
}

/// Returns the hosts whose ranks are all late, the latest first: ranks of several hosts, with their collectives, in
/// steps that take so long on average.
///
/// A collective is over on all ranks at the same time, so those that arrive later have a shorter one. A host is late by
/// what the shortest on other hosts exceeds the longest on it, if that is 5 % of a step. If a single rank is late, the
/// others of its host wait as well, and the host is not.
pub fn late_hosts(ranks: &[(u32, &str, &[CollectiveCall])], step: Duration) -> Vec<LateHost> {
    /// As a rank is late: see [`RankWaits`](super::RankWaits).
    const LATE: f64 = 0.05;
    let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    ranks.iter().for_each(|(rank, host, _)| hosts.entry(*host).or_default().push(*rank));
    if hosts.len() < 2 || hosts.contains_key("") {
        return Vec::new();
    }
    // The shortest and the longest time of each collective on each host.
    type Extremes<'a> = BTreeMap<&'a str, (Duration, Duration)>;
    let mut collectives: BTreeMap<_, Extremes<'_>> = BTreeMap::new();
    for (_, host, calls) in ranks {
        for call in *calls {
            let of_host = collectives.entry((call.step, &call.group, call.number)).or_default();
            let known = of_host.entry(host).or_insert((call.duration(), call.duration()));
            *known = (known.0.min(call.duration()), known.1.max(call.duration()));
        }
    }
    let mut steps: Vec<_> = collectives.keys().map(|(step, ..)| *step).collect();
    steps.dedup();
    let mut sums: BTreeMap<&str, Duration> = BTreeMap::new();
    for of_host in collectives.values() {
        // The last host to arrive, and the shortest time on the others.
        let Some((host, (_, longest))) = of_host.iter().min_by_key(|(_, (_, longest))| *longest) else { continue };
        let others = of_host.iter().filter(|(other, _)| *other != host).map(|(_, (shortest, _))| *shortest).min();
        *sums.entry(host).or_default() += others.unwrap_or_default().saturating_sub(*longest);
    }
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX).max(1);
    let late = |(host, sum): (&str, Duration)| {
        let waited_for = sum / count;
        let is_late = !step.is_zero() && waited_for >= step.mul_f64(LATE);
        let ranks = hosts.get(host).filter(|ranks| is_late && ranks.len() > 1)?.clone();
        Some(LateHost { host: host.to_owned(), ranks, waited_for, step })
    };
    let mut hosts: Vec<_> = sums.into_iter().filter_map(late).collect();
    hosts.sort_by_key(|host| Reverse(host.waited_for));
    hosts
}

/// Writes a sentence.
impl fmt::Display for LateHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, waited, step) = (self.ranks.len(), units::time(self.waited_for), units::time(self.step));
        let host = &self.host;
        write!(f, "all {count} ranks of {host} are late: other hosts wait for them for {waited} of a step of {step}")
    }
}

#[cfg(test)]
mod tests {
    use super::{LateWhen, late_hosts};
    use crate::{analysis::collective_calls, trace::sample::late_ranks};
    use std::time::Duration;

    fn when(late: impl IntoIterator<Item = u64>) -> LateWhen {
        LateWhen::of(&late.into_iter().collect::<Vec<_>>(), &(1000..1060).collect::<Vec<_>>())
    }

    #[test]
    fn a_change_is_found_despite_exceptions() {
        assert_eq!(when(1030..1060), LateWhen::Since(1030));
        // One late step before, and one that is not after.
        assert_eq!(when([1010].into_iter().chain((1030..1060).filter(|step| *step != 1045))), LateWhen::Since(1030));
        assert_eq!(when(1000..1030), LateWhen::Until(1030));
        assert_eq!(when(1000..1060), LateWhen::Always);
        assert_eq!(when((1000..1060).filter(|step| step % 20 != 0)), LateWhen::Always);
        assert_eq!(when((1000..1060).filter(|step| step % 5 != 0)), LateWhen::Sometimes);
    }

    #[test]
    fn a_period_is_found_also_if_steps_are_left_out() {
        assert_eq!(when((1004..1060).step_by(8)), LateWhen::Every { period: 8, first: 1004 });
        // Two windows, with 100 steps between them that were not recorded.
        let all: Vec<u64> = (0..40).chain(140..180).collect();
        let late: Vec<u64> = all.iter().copied().filter(|step| step % 10 == 3).collect();
        assert_eq!(LateWhen::of(&late, &all), LateWhen::Every { period: 10, first: 3 });
        assert_eq!(when([1004, 1012]), LateWhen::Sometimes, "twice is chance");
        assert_eq!(when([1003, 1011, 1016, 1033, 1050]), LateWhen::Sometimes);
        assert_eq!(when([1003]), LateWhen::Sometimes);
        assert_eq!(LateWhen::of(&[], &[]), LateWhen::Always);
    }

    #[test]
    fn a_host_is_late_if_all_its_ranks_are() {
        let hosts = ["a", "a", "b", "b"];
        let found = |ranks: &[(u64, u64)]| {
            let calls: Vec<_> = late_ranks(ranks).iter().map(collective_calls).collect();
            let ranks: Vec<_> = calls
                .iter()
                .zip(hosts)
                .enumerate()
                .map(|(rank, (calls, host))| (rank as u32, host, &calls[..]))
                .collect();
            late_hosts(&ranks, Duration::from_micros(1600))
        };
        let late = found(&[(100, 1000), (100, 1000), (100, 1400), (100, 1350)]);
        assert_eq!(late.len(), 1, "{late:?}");
        assert_eq!(
            (late[0].host.as_str(), &late[0].ranks[..], late[0].waited_for.as_micros()),
            ("b", &[2, 3][..], 350)
        );
        assert!(found(&[(100, 1000), (100, 1000), (100, 1400), (100, 1000)]).is_empty(), "a single rank");
        assert!(found(&[(100, 1000); 4]).is_empty());
    }
}
