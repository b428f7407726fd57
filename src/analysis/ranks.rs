//! Ranks of a distributed run, and the one that the others wait for.

use super::{
    analysis::Analysis,
    collectives::path_of,
    finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
    kinds::WorkKind,
    quantile::lower_median,
    sorted::SortedMap,
};
use crate::{
    trace::{Framework, SpanId},
    units::time,
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// A rank is slow if its own time is longer than the median of all ranks by this part.
pub(crate) const SLOW: f64 = 0.05;
/// The bounds of what is saved if the slow rank becomes as fast as the median, as parts of the difference. Half: the
/// second slowest rank is then the one that is waited for, and other ranks may have caused part of the delay. A tenth
/// more: the noise of a mean over few steps.
const BOUNDS: (f64, f64) = (0.5, 1.1);
/// The most places that are kept of a rank.
const PLACES: usize = 256;
/// The most steps of a rank that are kept.
const STEPS: usize = 10_000;
/// The most ranks that the evidence names one by one.
const NAMED: usize = 8;

/// The time of one rank's steps, without the time in which it only waits for other ranks.
#[derive(Debug, Default)]
pub(crate) struct RankTimes {
    /// The time of each step in which the rank did something else than collectives.
    own: Vec<Duration>,
    /// The whole time of these steps.
    durations: Vec<Duration>,
    /// The time of a step on the critical path, by place, added up over windows.
    places: SortedMap<Vec<String>, PlaceTime>,
    windows: u32,
    framework: Framework,
}

/// A place on the critical path of a rank.
#[derive(Clone, Debug)]
struct PlaceTime {
    location: Option<String>,
    time: Duration,
    longest: TimeRange,
}

impl RankTimes {
    /// Adds a window.
    pub(crate) fn add(&mut self, window: &Analysis<'_>) {
        self.windows += 1;
        self.framework = window.framework();
        let mut steps: SortedMap<u64, (Duration, Duration)> = SortedMap::default();
        for step in window.step_breakdown() {
            // Of several GPUs, the one that waits the least.
            let own = step.duration.saturating_sub(step.exposed_communication);
            let of_step = steps.or_insert_with(step.step, || (step.duration, own));
            of_step.1 = of_step.1.max(own);
        }
        let room = STEPS.saturating_sub(self.own.len());
        self.own.extend(steps.values().map(|(_, own)| *own).take(room));
        self.durations.extend(steps.values().map(|(duration, _)| *duration).take(room));
        let durations: Duration = steps.values().map(|(duration, _)| *duration).sum();
        self.add_places(window, durations / u32::try_from(steps.len()).unwrap_or(u32::MAX).max(1));
    }

    /// Adds the places on the critical path of a window, in which a step takes this long.
    fn add_places(&mut self, window: &Analysis<'_>, step: Duration) {
        let trace = window.trace();
        let (mut whole, mut of_spans) = (Duration::ZERO, FxHashMap::<SpanId, Duration>::default());
        for part in window.critical_path() {
            whole += part.duration();
            let is_collective =
                part.work.is_some_and(|work| WorkKind::of(trace.work_of(work)) == WorkKind::Communication);
            if let Some(span) = part.span.filter(|_| !is_collective) {
                *of_spans.entry(span).or_default() += part.duration();
            }
        }
        let scale = if whole.is_zero() { 0.0 } else { step.as_secs_f64() / whole.as_secs_f64() };
        let mut of_spans: Vec<_> = of_spans.into_iter().collect();
        of_spans.sort_unstable_by_key(|(span, _)| *span);
        for (id, time) in of_spans {
            let span = trace.span(id);
            let is_full = self.places.len() >= PLACES;
            let longest = TimeRange::new(trace, span.start(), span.end());
            let path = path_of(span);
            if is_full && !self.places.contains_key(&path) {
                continue;
            }
            let location = || span.callsite().location();
            let new = || PlaceTime { location: location(), time: Duration::ZERO, longest };
            let place = self.places.or_insert_with(path, new);
            place.time += time.mul_f64(scale);
            if longest.duration() > place.longest.duration() {
                place.longest = longest;
            }
        }
    }

    /// The median of its own time in a step.
    pub(crate) fn own(&self) -> Duration {
        lower_median(self.own.iter().copied()).unwrap_or_default()
    }

    /// The time of a step at a place, for each window.
    fn at(&self, path: &[String]) -> Duration {
        self.places.get(path).map_or(Duration::ZERO, |place| place.time / self.windows.max(1))
    }
}

/// Returns the finding that one rank, or some of them, take longer than the others, which wait for them.
///
/// Collectives end on all ranks at the same time, so that the steps of all take equally long. The slow rank is the one
/// that does not wait.
pub(crate) fn slow_rank(ranks: &[(u32, &RankTimes)]) -> Option<Finding> {
    let ranks: Vec<(u32, &RankTimes)> = ranks.iter().copied().filter(|(_, times)| !times.own.is_empty()).collect();
    let own: Vec<_> = ranks.iter().map(|(_, times)| times.own()).collect();
    let typical = lower_median(own.iter().copied()).unwrap_or_default();
    let is_slow = |own: Duration| own.as_secs_f64() >= (1.0 + SLOW) * typical.as_secs_f64();
    let &(rank, slowest) = ranks.iter().max_by_key(|(_, times)| times.own())?;
    if ranks.len() < 2 || !is_slow(slowest.own()) {
        return None;
    }
    let late = slowest.own().saturating_sub(typical);
    let others: Vec<_> = ranks.iter().filter(|(_, times)| !is_slow(times.own())).map(|(_, times)| *times).collect();
    let more = |path: &[String]| {
        let of_others = lower_median(others.iter().map(|times| times.at(path))).unwrap_or_default();
        slowest.at(path).checked_sub(of_others).map(|more| (more, of_others))
    };
    let places = slowest.places.iter().filter_map(|(path, place)| Some((path, place, more(path)?)));
    // A place that does not explain a tenth of the difference is not the reason.
    let place = places.max_by_key(|(.., (more, _))| *more).filter(|(.., (more, _))| *more * 10 >= late);
    let name = |path: &[String]| path.last().cloned().unwrap_or_default();
    let mostly = place.as_ref().map_or_else(String::new, |(path, ..)| format!(", mostly in `{}`", name(path)));
    let mut evidence = vec![own_times(&ranks, typical)];
    if let Some((path, _, (more, of_others))) = &place {
        evidence.push(format!(
            "`{}` takes {} of a step on rank {rank}, {} on the median of the others.",
            name(path),
            time(*more + *of_others),
            time(*of_others)
        ));
    }
    let kind = FindingKind::SlowRank;
    let step = lower_median(slowest.durations.iter().copied()).unwrap_or_default().max(slowest.own());
    let (least, most) = (late.mul_f64(BOUNDS.0), late.mul_f64(BOUNDS.1));
    let saving = Saving::new(least, late, most);
    let slow = ranks.iter().filter(|(_, times)| is_slow(times.own())).map(|(rank, _)| *rank);
    Some(Finding {
        kind,
        title: format!("{} {} more than other ranks in each step{mostly}", takes(slow.collect()), time(late)),
        path: place.as_ref().map(|(path, ..)| (*path).clone()).unwrap_or_default(),
        location: place.as_ref().and_then(|(_, place, _)| place.location.clone()),
        evidence,
        ranges: place.map(|(_, place, _)| place.longest).into_iter().collect(),
        remedies: vec![Remedy { change: kind.advice(slowest.framework).to_owned(), saving }],
        saving,
        step: step.max(Duration::from_nanos(1)),
        steps: slowest.own.len() as u64,
    })
}

/// Returns the beginning of a sentence: `rank 2 takes`, `ranks 1 and 3 take up to`.
fn takes(ranks: Vec<u32>) -> String {
    let names: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    match names.as_slice() {
        [one] => format!("rank {one} takes"),
        [first @ .., last] if first.len() < NAMED => format!("ranks {} and {last} take up to", first.join(", ")),
        _ => format!("{} ranks take up to", names.len()),
    }
}

/// Returns the own time of each rank, or of few of many.
fn own_times(ranks: &[(u32, &RankTimes)], typical: Duration) -> String {
    let mut ranks = ranks.to_vec();
    let all = ranks.len();
    if all > NAMED {
        ranks.sort_by_key(|(_, times)| std::cmp::Reverse(times.own()));
        ranks.truncate(NAMED / 2);
    }
    let times: Vec<_> = ranks.iter().map(|(rank, times)| format!("rank {rank} {}", time(times.own()))).collect();
    let rest = if all > NAMED { format!("; the median of all {all} is {}", time(typical)) } else { String::new() };
    format!("A step without waiting in collectives takes: {}{rest}.", times.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{RankTimes, slow_rank};
    use crate::{
        analysis::{Analysis, Finding, FindingKind},
        trace::sample::late_ranks,
    };
    use std::collections::BTreeMap;

    /// Returns the finding of ranks that load and compute for so many microseconds.
    fn found(ranks: &[(u64, u64)]) -> Option<Finding> {
        let mut times: BTreeMap<u32, RankTimes> = BTreeMap::new();
        for trace in late_ranks(ranks) {
            times.entry(trace.metadata().rank).or_default().add(&Analysis::of(&trace));
        }
        slow_rank(&times.iter().map(|(rank, times)| (*rank, times)).collect::<Vec<_>>())
    }

    #[test]
    fn the_rank_that_others_wait_for_is_named_with_its_span() {
        let finding = found(&[(100, 1000), (100, 1000), (100, 1400), (100, 1000)]).unwrap();
        assert_eq!((finding.kind, finding.path.join(" > ").as_str()), (FindingKind::SlowRank, "train_step > backward"));
        assert_eq!(finding.title, "rank 2 takes 400 µs more than other ranks in each step, mostly in `backward`");
        let micros = [finding.saving.least, finding.saving.likely, finding.saving.most].map(|time| time.as_micros());
        assert_eq!(micros, [200, 400, 440]);
        assert!(finding.evidence[0].contains("rank 0 1.1"), "{:?}", finding.evidence);
        assert_eq!(finding.ranges.len(), 1);
        // A slow loader on another rank.
        let finding = found(&[(100, 1000), (600, 1000), (100, 1000)]).unwrap();
        assert_eq!(finding.title, "rank 1 takes 500 µs more than other ranks in each step, mostly in `data`");
        assert_eq!(finding.location.as_deref(), Some("src/model.rs:7"));
    }

    #[test]
    fn ranks_that_are_alike_are_not_reported() {
        assert_eq!(found(&[(100, 1000), (100, 1040), (100, 1000)]), None, "4 % are too little");
        assert_eq!(found(&[(100, 1000)]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn several_slow_ranks_are_named() {
        let finding = found(&[(100, 1000), (100, 1300), (100, 1000), (100, 1400), (100, 1000)]).unwrap();
        assert!(finding.title.starts_with("ranks 1 and 3 take up to 400 µs more"), "{}", finding.title);
        // Of two ranks, the slower one.
        let finding = found(&[(100, 1000), (100, 1400)]).unwrap();
        assert!(finding.title.starts_with("rank 1 takes 400 µs more"), "{}", finding.title);
    }
}
