use super::{RankProfile, RankWaits};
use crate::{analysis::Analysis, trace::sample::late_ranks};

/// Compares ranks that load and compute for so many microseconds.
fn compared(ranks: &[(u64, u64)]) -> RankWaits {
    let profiles: Vec<_> = late_ranks(ranks)
        .iter()
        .map(|trace| {
            let mut profile = RankProfile::default();
            profile.add(&Analysis::of(trace));
            profile
        })
        .collect();
    RankWaits::of(&profiles)
}

#[test]
fn the_rank_that_arrives_last_is_late_by_what_the_others_wait() {
    let waits = compared(&[(100, 1000), (100, 1000), (100, 1400), (100, 1000)]);
    let [late] = waits.late() else { panic!("{:?}", waits.late()) };
    assert_eq!((late.rank, late.waited_for.as_micros(), late.least.as_micros()), (2, 400, 400));
    let cause = late.cause.as_ref().unwrap();
    assert_eq!((cause.path.join(" > ").as_str(), cause.on_gpu), ("train_step > backward", true));
    assert_eq!((cause.time - cause.others).as_micros(), 400);
    let waited: Vec<_> = waits.ranks().iter().map(|rank| rank.waits.as_micros()).collect();
    assert_eq!(waited, [400, 400, 0, 400]);
    assert!(waits.warnings().is_empty(), "{:?}", waits.warnings());
    // A slow loader on another rank.
    let waits = compared(&[(100, 1000), (600, 1000), (100, 1000)]);
    let cause = waits.late()[0].cause.clone().unwrap();
    assert_eq!((waits.late()[0].rank, cause.on_gpu, cause.path.last().unwrap().as_str()), (1, false, "data"));
}

#[test]
fn ranks_that_are_alike_are_not_late() {
    assert!(compared(&[(100, 1000), (100, 1040), (100, 1000)]).late().is_empty());
    assert!(compared(&[(100, 1000)]).late().is_empty());
    assert!(compared(&[]).ranks().is_empty());
}

#[test]
fn ranks_that_lack_steps_or_collectives_are_named() {
    let mut profiles: Vec<RankProfile> = Vec::new();
    for trace in late_ranks(&[(100, 1000), (100, 1000), (100, 1000)]) {
        let mut profile = RankProfile::default();
        profile.add(&Analysis::of(&trace));
        profiles.push(profile);
    }
    let step = *profiles[1].steps.keys().next().unwrap();
    profiles[1].steps.remove(&step);
    let key = profiles[2].collectives.keys().max().unwrap().clone();
    profiles[2].collectives.remove(&key);
    let waits = RankWaits::of(&profiles);
    let [steps, collectives] = waits.warnings() else { panic!("{:?}", waits.warnings()) };
    assert!(steps.starts_with("1 rank lacks steps that others have: rank 1 has"), "{steps}");
    assert!(collectives.starts_with("1 collective is not on all ranks"), "{collectives}");
}
