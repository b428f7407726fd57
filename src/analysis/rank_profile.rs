//! What a rank's traces tell about it, as far as ranks are compared by it.

use super::{
    analysis::Analysis,
    collective_calls::{collective_calls, is_collective},
    collectives::path_of,
    finding::TimeRange,
    kinds::CallKind,
    rank_comparison::RankComparison,
    rank_simulation::{RankTimeline, time_without_lateness},
    rank_waits::RankWaits,
};
use crate::trace::{Attribution, SpanId, Step, Timestamp, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

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
    /// The start and the end of whole steps, by number.
    steps: BTreeMap<u64, (Timestamp, Timestamp)>,
    /// The start and the end of each collective.
    collectives: FxHashMap<CollectiveKey, (Timestamp, Timestamp)>,
    /// The time of spans, by path, in all steps together.
    places: FxHashMap<Vec<String>, Place>,
}

/// What is the same on all ranks of a collective: its step, its group, and its number among those of both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CollectiveKey {
    step: u64,
    is_pairwise: bool,
    group: Arc<str>,
    number: u32,
}

#[derive(Clone, Debug, Default)]
struct Place {
    location: Option<String>,
    /// The time on the host, without that of spans inside, and without [waits](gpu_waits) for GPUs.
    host: Duration,
    /// The time of work on GPUs that is not a collective.
    gpu: Duration,
    /// The longest of the spans.
    longest: Option<TimeRange>,
}

/// Returns how long each span itself waits for GPUs, in calls that return when some work is done.
///
/// While a rank is late, the others wait for it in the span that needs the result: without this, that span takes as
/// long on all ranks, whatever the late one does in it.
pub fn gpu_waits(trace: &Trace) -> HashMap<SpanId, Duration> {
    let mut waits: HashMap<SpanId, Duration> = HashMap::new();
    for (call, kind) in trace.api_calls().zip(CallKind::of_calls(trace)) {
        if let (CallKind::Synchronizing, Attribution::Direct, Some(span)) = (kind, call.attribution(), call.span()) {
            *waits.entry(span.id()).or_default() += call.duration();
        }
    }
    waits
}

impl RankProfile {
    /// The most paths of spans that are kept, so that a run of many windows stays bounded.
    const PATHS: usize = 50_000;
    /// The most collectives, some 10 MB. Windows that follow are left out, which are the same ones on all ranks.
    const COLLECTIVES: usize = 100_000;

    /// Adds a window of this rank.
    pub fn add(&mut self, window: &Analysis<'_>) {
        if self.collectives.len() >= Self::COLLECTIVES {
            return;
        }
        let trace = window.trace();
        let metadata = trace.metadata();
        (self.rank, self.world_size, self.host) = (metadata.rank, metadata.world_size, metadata.host.clone());
        let whole: FxHashSet<u64> = trace.steps().iter().filter(|step| !step.cut().any()).map(Step::number).collect();
        for step in trace.steps().iter().filter(|step| whole.contains(&step.number())) {
            if self.steps.insert(step.number(), (step.start(), step.end())).is_some() {
                self.repeated = Some(step.number());
            }
        }
        for call in collective_calls(trace) {
            let is_pairwise = call.operation.is_pairwise();
            let key = CollectiveKey { step: call.step, is_pairwise, group: call.group, number: call.number };
            self.collectives.insert(key, (call.start, call.end));
        }
        let mut gpu: FxHashMap<SpanId, Duration> = FxHashMap::default();
        for work in trace.work().filter(|work| !is_collective(*work)) {
            if work.step().is_some_and(|step| whole.contains(&step.number())) {
                work.span().into_iter().for_each(|span| *gpu.entry(span.id()).or_default() += work.duration());
            }
        }
        self.add_places(trace, &whole, &gpu);
    }

    fn add_places(&mut self, trace: &Trace, whole: &FxHashSet<u64>, gpu: &FxHashMap<SpanId, Duration>) {
        let waits = gpu_waits(trace);
        for span in trace.spans() {
            if span.step().is_none_or(|step| !whole.contains(&step.number())) {
                continue;
            }
            let path = path_of(span);
            if self.places.len() >= Self::PATHS && !self.places.contains_key(&path) {
                continue;
            }
            let place = self.places.entry(path).or_default();
            place.host += span.self_time().saturating_sub(waits.get(&span.id()).copied().unwrap_or_default());
            place.gpu += gpu.get(&span.id()).copied().unwrap_or_default();
            if place.longest.is_none_or(|longest| longest.duration() < span.duration()) {
                place.longest = Some(TimeRange::new(trace, span.start(), span.end()));
            }
            // One that does not depend on the order, if spans of several places have the same path.
            if let Some(location) = span.callsite().location()
                && place.location.as_ref().is_none_or(|known| location < *known)
            {
                place.location = Some(location);
            }
        }
    }
}

impl RankProfile {
    /// Returns whether there are whole steps.
    pub(crate) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Returns the longest span with a path.
    pub(crate) fn longest(&self, path: &[String]) -> Option<TimeRange> {
        self.places.get(path)?.longest
    }
}

/// Returns the most time of a step that fixing a rank saves: the mean of the steps that all ranks have.
fn saving(ranks: &[&RankProfile], late: u32) -> Option<Duration> {
    let common = |step: &u64| ranks.iter().all(|it| it.steps.contains_key(step));
    let steps: Vec<u64> = ranks.first()?.steps.keys().copied().filter(common).collect();
    let (mut saved, mut count) = (Duration::ZERO, 0);
    // Steps that follow each other are run together: what is late at the end of one is waited for in the next.
    for run in steps.chunk_by(|step, next| step + 1 == *next) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let mut timelines = Vec::with_capacity(ranks.len());
        for it in ranks {
            let (Some(&(start, _)), Some(&(_, end))) = (it.steps.get(first), it.steps.get(last)) else { continue };
            let calls = it.collectives.iter().filter(|(key, _)| (*first..=*last).contains(&key.step));
            let calls = calls.map(|(key, &(start, end))| (key, start, end)).collect();
            timelines.push(RankTimeline::new(it.rank, (start, end), calls));
        }
        let Some((now, without)) = time_without_lateness(&timelines, late) else { continue };
        saved += now.saturating_sub(without);
        count += u32::try_from(run.len()).unwrap_or(u32::MAX);
    }
    (count > 0).then(|| saved / count)
}

impl RankWaits {
    /// Compares the ranks of a run.
    pub fn of<P: Borrow<RankProfile>>(profiles: &[P]) -> Self {
        let profiles: Vec<&RankProfile> = profiles.iter().map(Borrow::borrow).collect();
        let mut comparison = RankComparison::default();
        for profile in &profiles {
            comparison.add_rank(profile.rank, profile.world_size, &profile.host);
            for (step, (start, end)) in &profile.steps {
                comparison.add_step(profile.rank, *step, end.since(*start));
            }
            profile.repeated.into_iter().for_each(|step| comparison.add_repeated_step(profile.rank, step));
        }
        let mut arrivals: BTreeMap<&CollectiveKey, Vec<(u32, Duration)>> = BTreeMap::new();
        for profile in &profiles {
            for (key, (start, end)) in &profile.collectives {
                arrivals.entry(key).or_default().push((profile.rank, end.since(*start)));
            }
        }
        for (key, ranks) in &arrivals {
            match key.is_pairwise {
                true => ranks.iter().for_each(|&(rank, time)| comparison.add_exchange(key.step, rank, time)),
                false => comparison.add_collective(key.step, &key.group, ranks),
            }
        }
        let late: BTreeSet<u32> = comparison.late().iter().copied().collect();
        let late = profiles.iter().filter(|profile| late.contains(&profile.rank));
        let paths: BTreeSet<&Vec<String>> = late.flat_map(|profile| profile.places.keys()).collect();
        for path in paths {
            let places = || profiles.iter().filter_map(|profile| Some((profile.rank, profile.places.get(path)?)));
            let times: Vec<_> = places().map(|(rank, place)| (rank, [place.host, place.gpu])).collect();
            let location = places().filter_map(|(_, place)| place.location.as_deref()).min();
            comparison.add_place(path, location, &times);
        }
        let mut waits = comparison.finish();
        waits.late.iter_mut().for_each(|late| late.saves_up_to = saving(&profiles, late.rank));
        waits
    }
}

#[cfg(test)]
mod tests;
