//! Which rank the others wait for, without synchronised clocks.
//!
//! A collective's kernel lasts, on each rank, from that rank's arrival to the end, which is common to all. So the last
//! to arrive has the shortest kernel, and what the others have more is what they waited for it. Step times say nothing:
//! they are equal on all ranks.

use super::{analysis::Analysis, collectives::path_of, kinds::WorkKind, quantile::lower_median};
use crate::{
    trace::{SpanId, Step, Trace},
    units,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{cmp::Reverse, collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// One rank of a run: its collectives, and the time of its spans, over all windows.
///
/// It takes less memory than the traces, so that many ranks can be compared.
///
/// ```
/// # fn show(traces: &[kernspan::Trace]) {
/// use kernspan::analysis::{Analysis, RankProfile, RankWaits};
/// use std::collections::BTreeMap;
///
/// let mut ranks: BTreeMap<u32, RankProfile> = BTreeMap::new();
/// for trace in traces {
///     ranks.entry(trace.metadata().rank).or_default().add(&Analysis::of(trace));
/// }
/// let waits = RankWaits::of(&ranks.into_values().collect::<Vec<_>>());
/// waits.late().into_iter().for_each(|late| println!("{late}"));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RankProfile {
    rank: u32,
    world_size: u32,
    host: String,
    /// A step that is in several windows, as if there were several runs.
    repeated: Option<u64>,
    /// The durations of whole steps, by number.
    steps: BTreeMap<u64, Duration>,
    /// The duration of each collective.
    collectives: FxHashMap<CollectiveKey, Duration>,
    /// The time of spans, by path, in all steps together.
    places: FxHashMap<Vec<String>, Place>,
}

/// What is the same on all ranks of a collective: its step, its group, and its number among those of both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CollectiveKey {
    step: u64,
    group: Arc<str>,
    number: u32,
}

#[derive(Clone, Debug, Default)]
struct Place {
    location: Option<String>,
    /// The time on the host, without that of spans inside.
    host: Duration,
    /// The time of work on GPUs that is not a collective.
    gpu: Duration,
}

/// The ranks of a run, and how long each of them waits for others and they for it.
#[derive(Clone, Debug, Default)]
pub struct RankWaits {
    ranks: Vec<RankWait>,
    late: Vec<LateRank>,
    warnings: Vec<String>,
}

/// One rank of [`RankWaits`]. Times are means of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RankWait {
    /// The rank.
    pub rank: u32,
    /// The host it runs on.
    pub host: String,
    /// The number of whole steps.
    pub steps: u64,
    /// The time of a step.
    pub step: Duration,
    /// The number of collectives in all steps.
    pub collectives: u64,
    /// The time that it waits in collectives for the last rank to arrive.
    pub waits: Duration,
    /// The time that the others wait for it where it is the last: the median of them.
    pub waited_for: Duration,
    /// The number of collectives at which it arrives last.
    pub last: u64,
}

/// A rank that the others wait for. `Display` writes one or two sentences.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LateRank {
    /// The rank.
    pub rank: u32,
    /// The time of a step that the others wait for it: the median of them.
    pub waited_for: Duration,
    /// The same, of the one that waits the least in each collective: what is certain to be lost.
    pub least: Duration,
    /// The time of a step.
    pub step: Duration,
    /// The numbers of the steps in which the others wait for it, and how many steps there are.
    pub steps: (Vec<u64>, u64),
    /// What it does longer than the others, if there is something that explains it.
    pub cause: Option<LateCause>,
}

/// What a late rank does longer than others.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LateCause {
    /// The span, and those around it, outermost first.
    pub path: Vec<String>,
    /// The place of the span in the source, if known.
    pub location: Option<String>,
    /// Whether it is work on the GPU, rather than on the host.
    pub on_gpu: bool,
    /// Its time in a step on this rank.
    pub time: Duration,
    /// The median of that on the other ranks.
    pub others: Duration,
}

impl RankProfile {
    /// The most paths of spans that are kept, so that a run of many windows stays bounded.
    const PATHS: usize = 50_000;

    /// Adds a window of this rank.
    pub fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        let metadata = trace.metadata();
        (self.rank, self.world_size, self.host) = (metadata.rank, metadata.world_size, metadata.host.clone());
        let whole: FxHashSet<u64> = trace.steps().iter().filter(|step| !step.cut().any()).map(Step::number).collect();
        for step in trace.steps().iter().filter(|step| whole.contains(&step.number())) {
            if self.steps.insert(step.number(), step.duration()).is_some() {
                self.repeated = Some(step.number());
            }
        }
        let mut gpu: FxHashMap<SpanId, Duration> = FxHashMap::default();
        let mut numbers: FxHashMap<(u64, Arc<str>), u32> = FxHashMap::default();
        // Work is in the order of its start, on each stream.
        for work in trace.work() {
            let Some(step) = work.step().map(Step::number).filter(|step| whole.contains(step)) else {
                continue;
            };
            if WorkKind::of(work) != WorkKind::Communication {
                work.span().into_iter().for_each(|span| *gpu.entry(span.id()).or_default() += work.duration());
                continue;
            }
            let group = work.collective().map_or_else(Arc::default, |collective| Arc::clone(&collective.group));
            let number = numbers.entry((step, Arc::clone(&group))).or_default();
            self.collectives.insert(CollectiveKey { step, group, number: *number }, work.duration());
            *number += 1;
        }
        self.add_places(trace, &whole, &gpu);
    }

    fn add_places(&mut self, trace: &Trace, whole: &FxHashSet<u64>, gpu: &FxHashMap<SpanId, Duration>) {
        for span in trace.spans() {
            if span.step().is_none_or(|step| !whole.contains(&step.number())) {
                continue;
            }
            let path = path_of(span);
            if self.places.len() >= Self::PATHS && !self.places.contains_key(&path) {
                continue;
            }
            let place = self.places.entry(path).or_default();
            place.host += span.self_time();
            place.gpu += gpu.get(&span.id()).copied().unwrap_or_default();
            if place.location.is_none() {
                place.location = span.callsite().location();
            }
        }
    }

    /// The mean time of a step at a place, on the host and on the GPU.
    fn at(&self, path: &[String]) -> [Duration; 2] {
        let steps = u32::try_from(self.steps.len()).unwrap_or(u32::MAX).max(1);
        self.places.get(path).map_or([Duration::ZERO; 2], |place| [place.host / steps, place.gpu / steps])
    }
}

impl RankWaits {
    /// A rank is late if the others wait for it for at least this part of a step, even the one that waits the least. Of
    /// trainings on four ranks without a fault, 3 % is the most that was seen (`benches/trainings/ranks.py`).
    const LATE: f64 = 0.05;
    /// The part of its lateness that a span must explain to be named.
    const EXPLAINS: f64 = 0.2;

    /// Compares the ranks of a run.
    pub fn of(profiles: &[RankProfile]) -> Self {
        let mut profiles: Vec<_> = profiles.iter().collect();
        profiles.sort_by_key(|profile| profile.rank);
        let mut arrivals: BTreeMap<&CollectiveKey, Vec<(usize, Duration)>> = BTreeMap::new();
        for (index, profile) in profiles.iter().enumerate() {
            for (key, duration) in &profile.collectives {
                arrivals.entry(key).or_default().push((index, *duration));
            }
        }
        let mut sums = vec![Sums::default(); profiles.len()];
        for (key, ranks) in &arrivals {
            let Some(&(last, shortest)) = ranks.iter().min_by_key(|(_, duration)| *duration) else { continue };
            for &(index, duration) in ranks {
                sums[index].waits += duration - shortest;
            }
            let others: Vec<_> =
                ranks.iter().filter(|(index, _)| *index != last).map(|(_, duration)| *duration - shortest).collect();
            if let (Some(least), Some(median)) = (others.iter().min(), lower_median(others.iter().copied())) {
                let sum = &mut sums[last];
                sum.last += 1;
                sum.waited_for += median;
                sum.least += *least;
                *sum.by_step.entry(key.step).or_default() += *least;
            }
        }
        let ranks = profiles.iter().zip(&sums).map(|(profile, sums)| sums.summary(profile)).collect();
        let late = profiles.iter().zip(&sums).enumerate();
        let late = late.filter_map(|(index, (profile, sums))| sums.late(profile, index, &profiles));
        let mut late: Vec<_> = late.collect();
        late.sort_by_key(|late| Reverse(late.least));
        Self { ranks, late, warnings: warnings(&profiles, &arrivals) }
    }

    /// The ranks, in order.
    pub fn ranks(&self) -> &[RankWait] {
        &self.ranks
    }

    /// The ranks that the others wait for, the latest first.
    pub fn late(&self) -> &[LateRank] {
        &self.late
    }

    /// What does not fit together: steps or collectives that some ranks lack.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// What is added up for a rank over all collectives.
#[derive(Clone, Debug, Default)]
struct Sums {
    waits: Duration,
    waited_for: Duration,
    least: Duration,
    last: u64,
    /// The least that others wait for it, by step.
    by_step: BTreeMap<u64, Duration>,
}

impl Sums {
    fn summary(&self, profile: &RankProfile) -> RankWait {
        let steps = u32::try_from(profile.steps.len()).unwrap_or(u32::MAX).max(1);
        RankWait {
            rank: profile.rank,
            host: profile.host.clone(),
            steps: profile.steps.len() as u64,
            step: profile.steps.values().sum::<Duration>() / steps,
            collectives: profile.collectives.len() as u64,
            waits: self.waits / steps,
            waited_for: self.waited_for / steps,
            last: self.last,
        }
    }

    fn late(&self, profile: &RankProfile, index: usize, profiles: &[&RankProfile]) -> Option<LateRank> {
        let summary = self.summary(profile);
        let steps = u32::try_from(profile.steps.len()).unwrap_or(u32::MAX).max(1);
        let least = self.least / steps;
        let part = |of: Duration| of.mul_f64(RankWaits::LATE);
        if summary.step.is_zero() || least < part(summary.step) {
            return None;
        }
        let is_late = |(step, least): (&u64, &Duration)| {
            (profile.steps.get(step).copied().unwrap_or_default().mul_f64(RankWaits::LATE) <= *least).then_some(*step)
        };
        let late_steps = self.by_step.iter().filter_map(is_late).collect();
        let others = profiles.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| *other);
        let others: Vec<_> = others.collect();
        Some(LateRank {
            rank: profile.rank,
            waited_for: summary.waited_for,
            least,
            step: summary.step,
            steps: (late_steps, summary.steps),
            cause: cause(profile, &others)
                .filter(|cause| (cause.time - cause.others).as_secs_f64() >= RankWaits::EXPLAINS * least.as_secs_f64()),
        })
    }
}

/// Returns the span whose time exceeds that of the other ranks the most.
fn cause(profile: &RankProfile, others: &[&RankProfile]) -> Option<LateCause> {
    let candidates = profile.places.iter().flat_map(|(path, place)| {
        let own = profile.at(path);
        [0, 1].into_iter().filter_map(move |kind| {
            let of_others = lower_median(others.iter().map(|other| other.at(path)[kind])).unwrap_or_default();
            let more = own[kind].checked_sub(of_others).filter(|more| !more.is_zero())?;
            Some((more, path, place, kind == 1, own[kind], of_others))
        })
    });
    // Of several that are equal, always the same one.
    let (_, path, place, on_gpu, time, others) = candidates.max_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1)))?;
    Some(LateCause { path: path.clone(), location: place.location.clone(), on_gpu, time, others })
}

/// Says what does not fit together.
fn warnings(profiles: &[&RankProfile], arrivals: &BTreeMap<&CollectiveKey, Vec<(usize, Duration)>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let size = profiles.iter().map(|profile| profile.world_size).max().unwrap_or(0);
    let missing: Vec<_> =
        (0..size).filter(|rank| profiles.binary_search_by_key(rank, |profile| profile.rank).is_err()).collect();
    if !missing.is_empty() {
        let named: Vec<_> = missing.iter().take(8).map(ToString::to_string).collect();
        let more = if missing.len() > named.len() { ", …" } else { "" };
        warnings.push(format!("{} of {size} ranks have no trace: {}{more}", missing.len(), named.join(", ")));
    }
    let mixed = profiles.iter().find_map(|profile| Some((profile.rank, profile.repeated?)));
    if let Some((rank, step)) = mixed {
        warnings.push(format!("rank {rank} has step {step} in several traces: these may be of several runs"));
    }
    let all: FxHashSet<u64> = profiles.iter().flat_map(|profile| profile.steps.keys().copied()).collect();
    let lacking: Vec<_> = profiles.iter().filter(|profile| profile.steps.len() < all.len()).collect();
    if let Some(worst) = lacking.iter().min_by_key(|profile| profile.steps.len()) {
        let (rank, count) = (worst.rank, lacking.len());
        let (has, all) = (worst.steps.len(), all.len());
        let ranks = if count == 1 { "rank lacks" } else { "ranks lack" };
        warnings.push(format!("{count} {ranks} steps that others have: rank {rank} has {has} of {all}"));
    }
    // A rank takes part if it has the step, and collectives of the group in any step.
    let groups = profiles.iter().map(|profile| profile.collectives.keys().map(|key| &key.group).collect());
    let groups: Vec<FxHashSet<&Arc<str>>> = groups.collect();
    let unequal = arrivals.iter().filter(|(key, ranks)| {
        let takes_part = |(profile, groups): &(&&RankProfile, &FxHashSet<&Arc<str>>)| {
            profile.steps.contains_key(&key.step) && groups.contains(&key.group)
        };
        ranks.len() < profiles.iter().zip(&groups).filter(takes_part).count()
    });
    if let unequal @ 1.. = unequal.count() {
        let verb = if unequal == 1 { "collective is" } else { "collectives are" };
        warnings.push(format!("{unequal} {verb} not on all ranks of the group: ranks differ in their number"));
    }
    warnings
}

impl fmt::Display for LateRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waited, step) = (units::time(self.waited_for), units::time(self.step));
        let (late, all) = (self.steps.0.len() as u64, self.steps.1);
        write!(f, "rank {} is late: the others wait for it for {waited} of a step of {step}", self.rank)?;
        if late * 2 <= all {
            let steps: Vec<_> = self.steps.0.iter().take(5).map(ToString::to_string).collect();
            let more = if late > 5 { ", …" } else { "" };
            write!(f, ", in {late} of {all} steps ({}{more})", steps.join(", "))?;
        }
        let Some(cause) = &self.cause else { return f.write_str("; no span of it takes that much longer") };
        let name = cause.path.last().map_or("", String::as_str);
        let place = if cause.on_gpu { "on the GPU" } else { "on the host" };
        let (time, others) = (units::time(cause.time), units::time(cause.others));
        write!(f, ". `{name}` takes {time} of a step {place}, and {others} on the others")?;
        cause.location.as_ref().map_or(Ok(()), |location| write!(f, " ({location})"))
    }
}

#[cfg(test)]
mod tests;
