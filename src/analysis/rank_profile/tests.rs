use super::{RankProfile, RankWaits, gpu_waits};
use crate::{
    analysis::Analysis,
    trace::{
        Metadata, Trace,
        sample::{GpuTrace, late_ranks},
    },
};
use std::sync::Arc;

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

/// While one rank computes on the host, the others wait in the same span for the GPU, and so for as long.
#[test]
fn what_a_span_waits_for_the_gpu_is_not_its_work() {
    let rank = |number: u32, host: u64, wait: u64| {
        let mut program = GpuTrace::default();
        for _ in 0..4 {
            program.step(|program| {
                program.span("backward", |program| {
                    program.host(50).launch("ncclDevKernel_AllReduce", 100 + wait);
                });
                program.span("optimizer", |program| {
                    program.host(host).synchronize();
                });
            });
        }
        let mut trace = program.trace();
        // No span is inside another.
        trace.spans.iter_mut().for_each(|span| span.self_nanos = span.end.since(span.start).as_nanos() as u64);
        trace.metadata = Arc::new(Metadata { rank: number, world_size: 3, ..(*trace.metadata).clone() });
        trace
    };
    let traces = [rank(0, 50, 500), rank(1, 550, 0), rank(2, 50, 500)];
    let times = |trace: &Trace| {
        let optimizer = trace.spans().find(|span| span.name() == "optimizer").unwrap();
        (optimizer.self_time().as_micros(), gpu_waits(trace)[&optimizer.id()].as_micros())
    };
    let ((waiting, waits), (late, none)) = (times(&traces[0]), times(&traces[1]));
    assert!(waiting.abs_diff(late) < 60 && waits > 400 && none < 60, "{waiting} {waits}, {late} {none}");
    let profiles = traces.iter().map(|trace| {
        let mut profile = RankProfile::default();
        profile.add(&Analysis::of(trace));
        profile
    });
    let waits = RankWaits::of(&profiles.collect::<Vec<_>>());
    let [late] = waits.late() else { panic!("{waits:?}") };
    let cause = late.cause.as_ref().unwrap();
    assert_eq!((late.rank, cause.path.last().unwrap().as_str(), cause.on_gpu), (1, "optimizer", false));
}
