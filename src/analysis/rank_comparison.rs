//! The comparison of ranks: who is late, and in which span, from any source of collectives and spans.

use super::{
    lateness::LateWhen,
    rank_waits::{LateCause, LateRank, RankWait, RankWaits},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{cmp::Reverse, collections::BTreeMap, mem, time::Duration};

/// Compares the ranks of a run, from traces, tables or any other source. It holds little: the ranks, their whole steps,
/// and sums of their waiting.
///
/// A collective's kernel lasts, on each rank, from that rank's arrival to the end, which is common to all. So the last
/// to arrive has the shortest kernel, and what the others have more is what they waited for it. Step times say nothing:
/// they are equal on all ranks.
///
/// With several groups, as in a mesh of data, tensor and pipeline parallelism, a rank may only be last because it has
/// waited for another one before. So what a group waits for a rank counts less what the rank waits in other groups, as
/// far as that is more than the median of the group's other ranks. The late rank's spans are compared with those of the
/// group that waits for it the longest, whose ranks do the same work.
///
/// Ranks and steps come first, then collectives, step by step, then the spans:
///
/// ```
/// use kernspan::analysis::RankComparison;
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let mut ranks = RankComparison::default();
/// for rank in 0..3 {
///     ranks.add_rank(rank, 3, "node-a");
///     ranks.add_step(rank, 7, ms(100));
/// }
/// ranks.add_collective(7, "data", &[(0, ms(22)), (1, ms(2)), (2, ms(21))]); // Rank 1 arrives last.
/// assert_eq!(ranks.late(), [1]);
/// let path = ["step".to_owned(), "loader".to_owned()];
/// let on_host = |time| [ms(time), Duration::ZERO];
/// ranks.add_place(&path, None, &[(0, on_host(5)), (1, on_host(25)), (2, on_host(6))]);
/// let waits = ranks.finish();
/// assert_eq!(waits.late()[0].cause.as_ref().unwrap().path, path);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RankComparison {
    ranks: Vec<RankSums>,
    /// The index of each rank in `ranks`.
    indices: FxHashMap<u32, usize>,
    /// The ranks that have collectives of each group in any step, by index.
    groups: Vec<FxHashSet<usize>>,
    group_numbers: FxHashMap<Box<str>, usize>,
    /// The step whose collectives are being added.
    step: StepWaits,
    /// For each step and group, how many collectives so many ranks have.
    sizes: FxHashMap<(u64, usize), Vec<(usize, u64)>>,
    /// The late ranks, once all collectives have been added.
    late: Option<Vec<u32>>,
}

/// Everything that is added up for a rank.
#[derive(Clone, Debug, Default)]
struct RankSums {
    rank: u32,
    world_size: u32,
    host: String,
    repeated: Option<u64>,
    /// The durations of whole steps.
    steps: BTreeMap<u64, Duration>,
    collectives: u64,
    waits: Duration,
    waited_for: Duration,
    last: u64,
    /// The time that it keeps others waiting by itself, by step.
    late: BTreeMap<u64, Lateness>,
    /// The same in all steps, by group.
    by_group: FxHashMap<usize, Duration>,
    cause: Option<LateCause>,
}

/// What one group waits for a rank in a step: the one that waits the least, and the median.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    least: Duration,
    median: Duration,
}

/// The waiting of one step.
#[derive(Clone, Debug, Default)]
struct StepWaits {
    number: u64,
    /// For each group and the index of each of its ranks, what it waits, and what the others wait for it.
    groups: BTreeMap<usize, FxHashMap<usize, (Duration, Lateness)>>,
    /// The time of pairwise exchanges, by the index of the rank.
    exchanges: FxHashMap<usize, Duration>,
}

impl RankComparison {
    /// A rank is late if the others wait for it for at least this part of a step, even the one that waits the least:
    /// one in 20, 5 %. Of trainings on four ranks without a fault, 3 % is the most that was seen
    /// (`benches/trainings/ranks.py`).
    const LATE_ONE_IN: u32 = 20;
    /// The part of its lateness that a span must explain to be named: one in 5.
    const EXPLAINS_ONE_IN: u32 = 5;

    /// Adds a rank, or what is known of it.
    pub fn add_rank(&mut self, rank: u32, world_size: u32, host: &str) {
        let index = *self.indices.entry(rank).or_insert(self.ranks.len());
        if index == self.ranks.len() {
            self.ranks.push(RankSums { rank, ..RankSums::default() });
        }
        let sums = &mut self.ranks[index];
        (sums.world_size, sums.host) = (sums.world_size.max(world_size), host.to_owned());
    }

    /// Adds a whole step of a rank: one that was recorded from its begin to its end. A step that the rank already has
    /// is noted, as [`add_repeated_step`](Self::add_repeated_step) does.
    pub fn add_step(&mut self, rank: u32, step: u64, duration: Duration) {
        let Some(sums) = self.sums(rank) else { return };
        if sums.steps.insert(step, duration).is_some() {
            sums.repeated = Some(step);
        }
    }

    /// Notes that a rank has a step in several traces, as if there were several runs.
    pub fn add_repeated_step(&mut self, rank: u32, step: u64) {
        if let Some(sums) = self.sums(rank) {
            sums.repeated = Some(step);
        }
    }

    /// Returns whether a rank has a step, whole. Collectives and spans of other steps are not to be added.
    pub fn has_step(&self, rank: u32, step: u64) -> bool {
        self.indices.get(&rank).is_some_and(|&index| self.ranks[index].steps.contains_key(&step))
    }

    /// Adds a collective with its duration on each of its ranks, each of them once. The collectives of a step must
    /// follow each other.
    pub fn add_collective(&mut self, step: u64, group: &str, ranks: &[(u32, Duration)]) {
        self.begin_step(step);
        let group = self.group(group);
        let index_of = |&(rank, time): &(u32, Duration)| Some((*self.indices.get(&rank)?, time));
        let arrivals: Vec<_> = ranks.iter().filter_map(index_of).collect();
        // Of several that are equally late, the first.
        let shortest = arrivals.iter().min_by_key(|&&(index, time)| (time, self.ranks[index].rank));
        let Some(&(last, shortest)) = shortest else { return };
        let waits = self.step.groups.entry(group).or_default();
        let mut others = Vec::with_capacity(arrivals.len());
        for &(index, time) in &arrivals {
            let wait = time - shortest;
            waits.entry(index).or_default().0 += wait;
            let sums = &mut self.ranks[index];
            sums.collectives += 1;
            sums.waits += wait;
            self.groups[group].insert(index);
            if index != last {
                others.push(wait);
            }
        }
        if let (Some(&least), Some(median)) = (others.iter().min(), median_of(&mut others.clone())) {
            let lateness = &mut waits.entry(last).or_default().1;
            lateness.least += least;
            lateness.median += median;
            let sums = &mut self.ranks[last];
            sums.last += 1;
            sums.waited_for += median;
        }
        let sizes = self.sizes.entry((step, group)).or_default();
        match sizes.iter_mut().find(|(size, _)| *size == arrivals.len()) {
            Some((_, count)) => *count += 1,
            None => sizes.push((arrivals.len(), 1)),
        }
    }

    /// Adds an exchange between two ranks, as one of them has it. Nobody is late by these, but the time that a rank
    /// spends in them excuses it.
    pub fn add_exchange(&mut self, step: u64, rank: u32, duration: Duration) {
        self.begin_step(step);
        if let Some(&index) = self.indices.get(&rank) {
            self.ranks[index].collectives += 1;
            *self.step.exchanges.entry(index).or_default() += duration;
        }
    }

    /// Returns the ranks that are late, in order. No collective can be added any more: all have been.
    pub fn late(&mut self) -> &[u32] {
        self.end_step();
        self.late.get_or_insert_with(|| {
            let mut late: Vec<_> = self.ranks.iter().filter(|sums| sums.is_late()).map(|sums| sums.rank).collect();
            late.sort_unstable();
            late
        })
    }

    /// Adds the time of spans with a path, outermost first, in all whole steps of each rank: on the host, without spans
    /// inside, and on GPUs, without collectives. Ranks that have none may be left out, and paths that no late rank has.
    pub fn add_place(&mut self, path: &[String], location: Option<&str>, times: &[(u32, [Duration; 2])]) {
        let late = self.late().to_vec();
        let times: FxHashMap<usize, [Duration; 2]> = times
            .iter()
            .filter_map(|&(rank, times)| {
                let index = *self.indices.get(&rank)?;
                Some((index, times.map(|time| time / self.ranks[index].step_count())))
            })
            .collect();
        for index in late.iter().filter_map(|rank| self.indices.get(rank).copied()) {
            let Some(own) = times.get(&index) else { continue };
            let Some(peers) = self.ranks[index].group().map(|group| &self.groups[group]) else { continue };
            for (kind, &time) in own.iter().enumerate() {
                let of_peer = |peer: &usize| times.get(peer).map_or(Duration::ZERO, |times| times[kind]);
                let mut peers: Vec<_> = peers.iter().filter(|peer| **peer != index).map(of_peer).collect();
                let others = median_of(&mut peers).unwrap_or_default();
                let Some(more) = time.checked_sub(others).filter(|more| !more.is_zero()) else { continue };
                let location = location.map(ToOwned::to_owned);
                let cause = LateCause { path: path.to_vec(), location, on_gpu: kind == 1, time, others };
                let best = &mut self.ranks[index].cause;
                // Of several that are equal, always the same one.
                let is_better = best.as_ref().is_none_or(|best| {
                    let order = more.cmp(&(best.time - best.others)).then_with(|| best.path.as_slice().cmp(path));
                    order.then(cause.on_gpu.cmp(&best.on_gpu)).is_gt()
                });
                if is_better {
                    *best = Some(cause);
                }
            }
        }
    }

    /// Ends the comparison.
    pub fn finish(mut self) -> RankWaits {
        self.late();
        // Groups have indices of ranks.
        let unequal = self.unequal();
        self.ranks.sort_by_key(|sums| sums.rank);
        let mut late: Vec<_> = self.ranks.iter().filter(|sums| sums.is_late()).map(RankSums::late_rank).collect();
        late.sort_by_key(|late| Reverse(late.least));
        RankWaits {
            ranks: self.ranks.iter().map(RankSums::summary).collect(),
            late,
            warnings: warnings(&self.ranks, unequal),
        }
    }

    fn sums(&mut self, rank: u32) -> Option<&mut RankSums> {
        self.indices.get(&rank).map(|&index| &mut self.ranks[index])
    }

    fn group(&mut self, name: &str) -> usize {
        if let Some(&group) = self.group_numbers.get(name) {
            return group;
        }
        self.group_numbers.insert(name.into(), self.groups.len());
        self.groups.push(FxHashSet::default());
        self.groups.len() - 1
    }

    fn begin_step(&mut self, step: u64) {
        if self.step.number != step {
            self.end_step();
            self.step.number = step;
        }
    }

    /// Finds out who is late in the step, now that all of its collectives are known.
    fn end_step(&mut self) {
        let StepWaits { number, groups, exchanges } = mem::take(&mut self.step);
        let mut all = exchanges;
        for (&index, (waits, _)) in groups.values().flatten() {
            *all.entry(index).or_default() += *waits;
        }
        for (group, waits) in groups {
            let elsewhere = |index: &usize, waits: &Duration| all.get(index).copied().unwrap_or_default() - *waits;
            let mut sorted: Vec<_> = waits.iter().map(|(index, (own, _))| elsewhere(index, own)).collect();
            sorted.sort_unstable();
            for (index, (own, lateness)) in waits.iter().filter(|(_, (_, lateness))| !lateness.least.is_zero()) {
                let own = elsewhere(index, own);
                let excused = own.saturating_sub(median_without(&sorted, own));
                let late = Lateness {
                    least: lateness.least.saturating_sub(excused),
                    median: lateness.median.saturating_sub(excused),
                };
                let sums = &mut self.ranks[*index];
                *sums.by_group.entry(group).or_default() += late.least;
                // Several groups wait for it at the same time.
                let most = sums.late.entry(number).or_default();
                if late.least > most.least {
                    *most = late;
                }
            }
        }
    }

    /// Returns the number of collectives that are not on all ranks of their group. A rank takes part if it has the
    /// step, and collectives of the group in any step.
    fn unequal(&self) -> u64 {
        let of_group = |(&(step, group), sizes): (&(u64, usize), &Vec<(usize, u64)>)| {
            let ranks = |index: &&usize| self.ranks.get(**index).is_some_and(|sums| sums.steps.contains_key(&step));
            let all = self.groups[group].iter().filter(ranks).count();
            sizes.iter().filter(|(size, _)| *size < all).map(|(_, count)| count).sum::<u64>()
        };
        self.sizes.iter().map(of_group).sum()
    }
}

impl RankSums {
    fn step_count(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX).max(1)
    }

    fn least(&self) -> Duration {
        self.late.values().map(|lateness| lateness.least).sum()
    }

    fn is_late(&self) -> bool {
        let steps: Duration = self.steps.values().sum();
        !steps.is_zero() && self.least().saturating_mul(RankComparison::LATE_ONE_IN) >= steps
    }

    /// Returns the group that waits for it the longest.
    fn group(&self) -> Option<usize> {
        self.by_group.iter().max_by_key(|&(&group, &late)| (late, Reverse(group))).map(|(&group, _)| group)
    }

    fn summary(&self) -> RankWait {
        let steps = self.step_count();
        RankWait {
            rank: self.rank,
            host: self.host.clone(),
            steps: self.steps.len() as u64,
            step: self.steps.values().sum::<Duration>() / steps,
            collectives: self.collectives,
            waits: self.waits / steps,
            waited_for: self.waited_for / steps,
            last: self.last,
        }
    }

    fn late_rank(&self) -> LateRank {
        let RankWait { rank, step, steps, .. } = self.summary();
        let least = self.least() / self.step_count();
        let is_late = |(step, late): (&u64, &Lateness)| {
            let duration = self.steps.get(step).copied().unwrap_or_default();
            (late.least.saturating_mul(RankComparison::LATE_ONE_IN) >= duration).then_some(*step)
        };
        let late: Vec<u64> = self.late.iter().filter_map(is_late).collect();
        let explains = |it: &&LateCause| (it.time - it.others).saturating_mul(RankComparison::EXPLAINS_ONE_IN) >= least;
        LateRank {
            rank,
            waited_for: self.late.values().map(|late| late.median).sum::<Duration>() / self.step_count(),
            least,
            step,
            when: LateWhen::of(&late, &self.steps.keys().copied().collect::<Vec<_>>()),
            steps: (late, steps),
            cause: self.cause.as_ref().filter(explains).cloned(),
            saves_up_to: None,
        }
    }
}

/// Returns the median, or the lower of both in the middle.
fn median_of(values: &mut [Duration]) -> Option<Duration> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// Returns the lower median of sorted values without one of them, which is zero if there is no other.
fn median_without(sorted: &[Duration], value: Duration) -> Duration {
    let Some(middle) = sorted.len().checked_sub(2).map(|last| last / 2) else { return Duration::ZERO };
    if value <= sorted[middle] { sorted[middle + 1] } else { sorted[middle] }
}

/// Says what does not fit together.
fn warnings(ranks: &[RankSums], unequal: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    let size = ranks.iter().map(|sums| sums.world_size).max().unwrap_or(0);
    let missing: Vec<_> =
        (0..size).filter(|rank| ranks.binary_search_by_key(rank, |sums| sums.rank).is_err()).collect();
    if !missing.is_empty() {
        let named: Vec<_> = missing.iter().take(8).map(ToString::to_string).collect();
        let more = if missing.len() > named.len() { ", …" } else { "" };
        warnings.push(format!("{} of {size} ranks have no trace: {}{more}", missing.len(), named.join(", ")));
    }
    if let Some((rank, step)) = ranks.iter().find_map(|sums| Some((sums.rank, sums.repeated?))) {
        warnings.push(format!("rank {rank} has step {step} in several traces: these may be of several runs"));
    }
    let all: FxHashSet<u64> = ranks.iter().flat_map(|sums| sums.steps.keys().copied()).collect();
    let lacking: Vec<_> = ranks.iter().filter(|sums| sums.steps.len() < all.len()).collect();
    if let Some(worst) = lacking.iter().min_by_key(|sums| sums.steps.len()) {
        let (rank, count) = (worst.rank, lacking.len());
        let (has, all) = (worst.steps.len(), all.len());
        let ranks = if count == 1 { "rank lacks" } else { "ranks lack" };
        warnings.push(format!("{count} {ranks} steps that others have: rank {rank} has {has} of {all}"));
    }
    if unequal > 0 {
        let verb = if unequal == 1 { "collective is" } else { "collectives are" };
        warnings.push(format!("{unequal} {verb} not on all ranks of the group: ranks differ in their number"));
    }
    warnings
}

#[cfg(test)]
mod tests;
