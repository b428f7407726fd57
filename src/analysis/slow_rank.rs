//! The finding that a rank is late, and the others wait for it.

use super::{
    finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
    lateness::LateWhen,
    rank_waits::{LateRank, RankWaits},
};
use crate::{trace::Framework, units::time};
use std::{cmp::Reverse, time::Duration};

/// The bounds of what is saved, as parts of the simulated saving. A fifth: of ranks that share a GPU, those that wait
/// leave it to the late one, and in 25 recordings of four ranks on one GPU at least that much was saved. A tenth more:
/// the noise of a mean over few steps.
const BOUNDS: (f64, f64) = (0.2, 1.1);
/// The most ranks that the evidence names one by one.
const NAMED: usize = 8;

/// Returns a finding for each rank that is late, if fixing it saves time. `longest` returns the longest span of a rank
/// with a path.
pub(crate) fn slow_ranks(
    waits: &RankWaits,
    framework: Framework,
    longest: impl Fn(u32, &[String]) -> Option<TimeRange>,
) -> Vec<Finding> {
    let saves = |late: &&LateRank| late.saves_up_to.is_some_and(|saved| !saved.is_zero());
    let finding = |late: &LateRank| finding(waits, late, framework, &longest);
    waits.late().iter().filter(saves).map(finding).collect()
}

fn finding(
    waits: &RankWaits,
    late: &LateRank,
    framework: Framework,
    longest: impl Fn(u32, &[String]) -> Option<TimeRange>,
) -> Finding {
    let kind = FindingKind::SlowRank;
    let LateRank { rank, cause, .. } = late;
    let path = cause.as_ref().map(|cause| cause.path.clone()).unwrap_or_default();
    let name = path.last().map_or_else(String::new, |name| format!(", mostly in `{name}`"));
    let mut evidence = vec![waiting(waits)];
    evidence.extend(cause.as_ref().zip(path.last()).map(|(cause, name)| {
        let (own, others) = (time(cause.time), time(cause.others));
        let place = if cause.on_gpu { "the GPU" } else { "the host" };
        format!("`{name}` takes {own} of a step on {place} of rank {rank}, {others} on the median of the others.")
    }));
    if !matches!(late.when, LateWhen::Always | LateWhen::Sometimes) {
        evidence.push(format!("It is late {}.", late.when));
    }
    let likely = late.saves_up_to.unwrap_or_default();
    let saving = Saving::new(likely.mul_f64(BOUNDS.0), likely, likely.mul_f64(BOUNDS.1));
    Finding {
        kind,
        title: format!("rank {rank} keeps the others waiting for {} of each step{name}", time(late.waited_for)),
        location: cause.as_ref().and_then(|cause| cause.location.clone()),
        evidence,
        ranges: longest(*rank, &path).into_iter().collect(),
        path,
        remedies: vec![Remedy { change: kind.advice(framework).to_owned(), saving }],
        saving,
        step: late.step.max(Duration::from_nanos(1)),
        steps: late.steps.1,
        each: None,
    }
}

/// Says how long each rank waits for others, or of many, those that wait the least.
fn waiting(waits: &RankWaits) -> String {
    let mut ranks: Vec<_> = waits.ranks().iter().collect();
    let all = ranks.len();
    if all > NAMED {
        ranks.sort_by_key(|rank| rank.waits);
        ranks.truncate(NAMED / 2);
    }
    let times: Vec<_> = ranks.iter().map(|rank| format!("rank {} {}", rank.rank, time(rank.waits))).collect();
    let most = waits.ranks().iter().max_by_key(|rank| (rank.waits, Reverse(rank.rank)));
    let most = most.filter(|_| all > NAMED).map_or_else(String::new, |most| {
        format!("; of all {all}, rank {} waits the longest: {}", most.rank, time(most.waits))
    });
    format!("In collectives of a step, ranks wait for others: {}{most}.", times.join(", "))
}

#[cfg(test)]
mod tests {
    use super::slow_ranks;
    use crate::{
        analysis::{Analysis, Finding, FindingKind, RankProfile, RankWaits},
        trace::{Framework, sample::late_ranks},
    };

    /// Returns the findings of ranks that load and compute for so many microseconds.
    fn found(ranks: &[(u64, u64)]) -> Vec<Finding> {
        let profile = |trace| {
            let mut profile = RankProfile::default();
            profile.add(&Analysis::of(&trace));
            profile
        };
        let profiles: Vec<_> = late_ranks(ranks).into_iter().map(profile).collect();
        slow_ranks(&RankWaits::of(&profiles), Framework::Other, |rank, path| profiles[rank as usize].longest(path))
    }

    #[test]
    fn the_rank_that_others_wait_for_is_named_with_its_span() {
        let found_all = found(&[(100, 1000), (100, 1000), (100, 1400), (100, 1000)]);
        let [finding] = &found_all[..] else { panic!("{found_all:?}") };
        assert_eq!((finding.kind, finding.path.join(" > ").as_str()), (FindingKind::SlowRank, "train_step > backward"));
        assert_eq!(finding.title, "rank 2 keeps the others waiting for 400 µs of each step, mostly in `backward`");
        let micros = [finding.saving.least, finding.saving.likely, finding.saving.most].map(|time| time.as_micros());
        assert_eq!(micros, [80, 400, 440]);
        assert!(finding.evidence[0].contains("rank 1 400 µs, rank 2 0 µs"), "{:?}", finding.evidence);
        assert_eq!(finding.ranges.len(), 1);
        // A slow loader on another rank.
        let finding = found(&[(100, 1000), (600, 1000), (100, 1000)]).remove(0);
        assert_eq!(finding.title, "rank 1 keeps the others waiting for 500 µs of each step, mostly in `data`");
        assert_eq!(finding.location.as_deref(), Some("src/model.rs:7"));
        // The slower one of two ranks.
        assert!(found(&[(100, 1000), (100, 1400)])[0].title.starts_with("rank 1 keeps"));
    }

    #[test]
    fn many_ranks_are_not_listed() {
        let finding = found(&[&[(100, 1000); 19][..], &[(100, 1400)]].concat()).remove(0);
        assert!(finding.evidence[0].ends_with("; of all 20, rank 0 waits the longest: 400 µs."), "{finding:?}");
    }

    #[test]
    fn ranks_that_are_alike_are_not_reported() {
        assert_eq!(found(&[(100, 1000), (100, 1040), (100, 1000)]), [], "4 % are too little");
        assert_eq!(found(&[(100, 1000)]), []);
        assert_eq!(found(&[]), []);
    }
}
