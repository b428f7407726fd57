use super::{ClockOffsets, CollectiveFlow};
use crate::{
    analysis::collective_calls,
    trace::{Timestamp, sample::late_ranks},
};
use proptest::prelude::*;

const START: u64 = 1_700_000_000_000_000_000;

/// A clock that is ahead of true time by so many nanoseconds at the start, and drifts.
#[derive(Clone, Copy, Debug)]
struct TrueClock {
    offset: i64,
    drift_ppm: f64,
}

impl TrueClock {
    fn ahead(self, true_nanos: u64) -> i64 {
        self.offset + (self.drift_ppm * 1e-6 * true_nanos as f64) as i64
    }

    fn read(self, true_nanos: u64) -> Timestamp {
        Timestamp::from_unix_nanos((START + true_nanos).saturating_add_signed(self.ahead(true_nanos)))
    }
}

fn clocks(count: usize) -> impl Strategy<Value = Vec<TrueClock>> {
    let clock = (-50_000_000i64..50_000_000, -20.0..20.0);
    prop::collection::vec(clock.prop_map(|(offset, drift_ppm)| TrueClock { offset, drift_ppm }), count)
}

/// Adds a collective of these ranks, which arrive this long after a time, and returns when it has ended.
fn exchange(
    offsets: &mut ClockOffsets,
    (hosts, clocks): (&[usize], &[TrueClock]),
    flow: CollectiveFlow,
    ranks: &[u32],
    arrivals: impl Fn(u32) -> u64,
) {
    let begin: Vec<_> = ranks.iter().map(|rank| arrivals(*rank)).collect();
    let last = begin.iter().copied().max().unwrap_or(0);
    let of_root = |root: u32| ranks.iter().position(|rank| *rank == root).map_or(last, |index| begin[index]);
    let ended = |rank: u32, own: u64| match flow {
        CollectiveFlow::From(root) => own.max(of_root(root)) + 20_000,
        CollectiveFlow::To(root) if rank != root => own + 20_000,
        _ => last + 20_000 + u64::from(rank) * 500,
    };
    let seen: Vec<_> = ranks
        .iter()
        .zip(&begin)
        .map(|(&rank, &begin)| {
            let clock = clocks[hosts[rank as usize]];
            (rank, clock.read(begin), clock.read(ended(rank, begin)))
        })
        .collect();
    offsets.add(flow, &seen);
}

proptest! {
    #[test]
    fn the_true_offset_is_in_every_interval(
        clocks in clocks(4),
        jitter in prop::collection::vec(0u64..3_000_000, 8 * 40),
        gap in 10_000_000u64..3_000_000_000,
        at in 0u64..40,
    ) {
        // Eight ranks on four hosts. Hosts 0 and 2 meet only through host 1, as do 0 and 3.
        let hosts = [0, 0, 1, 1, 2, 2, 3, 3];
        let names = ["a", "b", "c", "d"];
        let ranks = hosts.iter().enumerate().map(|(rank, host)| (rank as u32, names[*host]));
        let mut offsets = ClockOffsets::new(ranks);
        for step in 0..40u64 {
            let arrival = |rank: u32| gap * step + jitter[(8 * step + u64::from(rank)) as usize];
            let all = (&hosts[..], &clocks[..]);
            exchange(&mut offsets, all, CollectiveFlow::All, &[0, 1, 2], arrival);
            exchange(&mut offsets, all, CollectiveFlow::All, &[3, 4, 5], arrival);
            let (from, to) = (CollectiveFlow::From(2), CollectiveFlow::To(2));
            exchange(&mut offsets, all, from, &[2, 6, 7], arrival);
            exchange(&mut offsets, all, to, &[2, 6, 7], arrival);
        }
        let now = clocks[0].read(gap * at);
        prop_assert_eq!(offsets.warnings(now), Vec::<String>::new());
        for (clock, found) in clocks.iter().zip(offsets.offsets(now)) {
            let truth = clock.ahead(gap * at) - clocks[0].ahead(gap * at);
            let (least, most) = found.interval.unwrap();
            prop_assert!((least..=most).contains(&truth), "{} of {}: {}..={}", truth, found, least, most);
        }
    }

    #[test]
    fn many_clocks_are_compared_through_the_first(clocks in clocks(40), late in 0u32..40) {
        let hosts: Vec<usize> = (0..40).collect();
        let mut offsets = ClockOffsets::new((0..40).map(|rank| (rank, "")));
        let ranks: Vec<_> = (0..40).collect();
        for step in 0..3 {
            let arrival = |rank| 1_000_000_000 * step + if rank == late { 700_000 } else { 0 };
            exchange(&mut offsets, (&hosts, &clocks), CollectiveFlow::All, &ranks, arrival);
        }
        let now = clocks[0].read(1_000_000_000);
        for (clock, found) in clocks.iter().zip(offsets.offsets(now)) {
            let truth = clock.ahead(1_000_000_000) - clocks[0].ahead(1_000_000_000);
            let (least, most) = found.interval.unwrap();
            prop_assert!((least..=most).contains(&truth) && most - least < 3_000_000, "{} of {}", truth, found);
        }
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_unix_nanos(START + 1_000 * micros)
}

#[test]
fn a_contradiction_is_a_warning_and_not_an_empty_interval() {
    let mut clocks = ClockOffsets::new([(0, "a"), (1, "b"), (2, "c")]);
    clocks.add(CollectiveFlow::All, &[(0, at(0), at(10)), (1, at(0), at(10)), (2, at(0), at(10))]);
    assert_eq!(clocks.offsets(at(0))[1].interval, Some((-15_000, 15_000)));
    // The clock of b was set by a second.
    clocks.add(CollectiveFlow::All, &[(0, at(100), at(110)), (1, at(1_000_100), at(1_000_110))]);
    let offsets = clocks.offsets(at(0));
    // It is still known through c, by the first collective alone.
    assert_eq!(offsets[2].interval, Some((-15_000, 15_000)));
    assert!(offsets.iter().all(|it| it.interval.is_none_or(|(least, most)| least <= most)), "{offsets:?}");
    let [warning] = &clocks.warnings(at(0))[..] else { panic!("{:?}", clocks.warnings(at(0))) };
    assert!(warning.starts_with("no difference of their clocks explains the collectives of a and b"), "{warning}");
    // A circle in which only all three contradict each other.
    let mut clocks = ClockOffsets::new([(0, "a"), (1, "b"), (2, "c")]);
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        clocks.add(CollectiveFlow::From(from), &[(from, at(100), at(101)), (to, at(0), at(1))]);
    }
    assert!(clocks.offsets(at(0)).iter().skip(1).all(|it| it.interval.is_none()));
    assert_eq!(clocks.warnings(at(0)).len(), 1, "{:?}", clocks.warnings(at(0)));
}

#[test]
fn ranks_of_one_host_share_a_clock_or_are_named() {
    let mut clocks = ClockOffsets::new([(0, "a"), (1, "a"), (2, "")]);
    clocks.add(CollectiveFlow::All, &[(0, at(0), at(10)), (1, at(5), at(11)), (2, at(1_003), at(1_010))]);
    let offsets = clocks.offsets(at(0));
    assert_eq!((offsets.len(), &offsets[0].ranks[..], offsets[0].interval), (2, &[0, 1][..], Some((0, 0))));
    assert_eq!(offsets[1].to_string(), "rank 2 is 988 µs to 1.01 ms ahead");
    assert!(clocks.warnings(at(0)).is_empty());
    clocks.add(CollectiveFlow::All, &[(0, at(0), at(10)), (1, at(2_010), at(2_015))]);
    let warnings = clocks.warnings(at(0));
    assert_eq!(warnings, ["ranks 0 and 1 are both on a, but their clocks differ by at least 2.00 ms"]);
}

#[test]
fn a_broadcast_and_unmatched_collectives_bound_one_side_or_none() {
    let mut clocks = ClockOffsets::new([(0, "a"), (1, "b")]);
    let arrivals = [(0, at(0), at(10)), (1, at(0), at(10))];
    clocks.add(CollectiveFlow::Unknown, &arrivals);
    clocks.add(CollectiveFlow::From(7), &arrivals);
    clocks.add(CollectiveFlow::From(0), &arrivals);
    assert_eq!(clocks.offsets(at(0))[1].interval, None, "only b's lead has a bound");
    clocks.add(CollectiveFlow::To(1), &arrivals);
    assert_eq!(clocks.offsets(at(0))[1].interval, None, "the same side again");
    clocks.add(CollectiveFlow::To(0), &arrivals);
    assert_eq!(clocks.offsets(at(0))[1].interval, Some((-15_000, 15_000)));
    assert!(ClockOffsets::default().offsets(at(0)).is_empty());
}

#[test]
fn traces_of_unknown_hosts_have_a_clock_each() {
    let traces = late_ranks(&[(100, 1000), (100, 1400), (100, 1000)]);
    let calls: Vec<_> = traces.iter().map(collective_calls).collect();
    let ranks = traces.iter().zip(&calls).map(|(trace, calls)| (trace.metadata().rank, "", calls.as_slice()));
    let offsets = ClockOffsets::of(ranks).offsets(traces[0].start());
    for offset in &offsets[1..] {
        let (least, most) = offset.interval.unwrap();
        assert!(least < 0 && 0 < most, "{offset}");
    }
    let (least, most) = offsets[1].interval.unwrap();
    assert!(most - least < 700_000, "rank 1 is late by 400 µs, and the exchange takes 100: {least}..={most}");
}
