use super::LatencyHistogram;
use proptest::prelude::*;
use std::{thread, time::Duration};

/// The number of latencies of each shape: ten million where the code is optimized.
const MANY: u64 = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };

/// A generator of pseudo-random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number above 0 and at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A distribution of latencies: its name, and a function that draws one, in nanoseconds.
type Shape = (&'static str, fn(&mut Random) -> f64);

fn shapes() -> [Shape; 5] {
    [
        ("exponential", |random| -3e6 * random.unit().ln()),
        ("log-normal, a heavy tail", |random| 2e6 * (1.2 * random.normal()).exp()),
        ("Pareto, a heavier one", |random| 1e5 * random.unit().powf(-1.0 / 1.5)),
        ("two peaks", |random| match random.next() % 50 {
            0 => 2.5e8 + 1e7 * random.normal(),
            _ => 1e6 + 5e4 * random.normal(),
        }),
        ("from nanoseconds to minutes", |random| 10_f64.powf(12.0 * random.unit())),
    ]
}

#[test]
fn percentiles_are_within_a_percent_of_exact_ones_merged_over_threads() {
    const THREADS: u64 = 4;
    for (shape, latency) in shapes() {
        let of_thread = move |thread: u64| {
            let mut random = Random(thread);
            (0..MANY / THREADS).map(|_| latency(&mut random).max(0.0) as u64).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| {
                thread::spawn(move || {
                    let nanos = of_thread(seed);
                    let mut histogram = LatencyHistogram::default();
                    nanos.iter().for_each(|&nanos| histogram.add_nanos(nanos));
                    (nanos, histogram)
                })
            })
            .collect();
        let (mut exact, [mut merged, mut logged, mut all]) = (Vec::new(), <[LatencyHistogram; 3]>::default());
        for thread in threads {
            let (nanos, histogram) = thread.join().unwrap();
            exact.extend(nanos);
            merged.merge(&histogram);
            logged.merge(&read_back(&histogram));
        }
        exact.iter().for_each(|&nanos| all.add_nanos(nanos));
        assert!(merged.buckets().eq(all.buckets()) && logged.buckets().eq(all.buckets()), "{shape}");
        assert_eq!(facts(&logged), facts(&all), "{shape}");
        assert_eq!((merged.count(), merged.lost()), (MANY, 0));
        assert_eq!(merged.max(), exact.iter().max().map(|&nanos| Duration::from_nanos(nanos)), "{shape}");
        let sum: u128 = exact.iter().map(|&nanos| u128::from(nanos)).sum();
        assert_eq!(merged.sum().as_nanos(), sum, "{shape}");
        for percent in LatencyHistogram::PERCENTILES {
            let rank = (percent / 100.0 * MANY as f64).ceil() as usize;
            let exact = *exact.select_nth_unstable(rank - 1).1 as f64;
            let found = merged.percentile(percent).unwrap().as_nanos() as f64;
            let error = (found - exact).abs() / exact.max(1.0);
            assert!(error < 0.01, "{shape}, p{percent}: {found} instead of {exact}, {:.3} %", 100.0 * error);
        }
    }
}

/// Returns the histogram that is read from the line of a log.
fn read_back(histogram: &LatencyHistogram) -> LatencyHistogram {
    serde_json::from_str(&serde_json::to_string(histogram).unwrap()).unwrap()
}

/// Everything that can be read from a histogram.
fn facts(histogram: &LatencyHistogram) -> (u64, Duration, Option<Duration>, Vec<Option<Duration>>) {
    let percentiles = (0..=40).map(|part| histogram.percentile(f64::from(part) * 2.5)).collect();
    (histogram.count(), histogram.sum(), histogram.max(), percentiles)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn merging_is_as_adding_all_in_any_order(
        parts in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..20), 0..6),
    ) {
        let histogram = |nanos: &[u64]| {
            let mut histogram = LatencyHistogram::default();
            nanos.iter().for_each(|&nanos| histogram.add_nanos(nanos));
            histogram
        };
        let all = histogram(&parts.concat());
        let merge = |parts: &mut dyn Iterator<Item = &Vec<u64>>| {
            let mut merged = LatencyHistogram::default();
            parts.for_each(|part| merged.merge(&histogram(part)));
            merged
        };
        prop_assert_eq!(facts(&merge(&mut parts.iter())), facts(&all));
        prop_assert_eq!(facts(&merge(&mut parts.iter().rev())), facts(&all));
    }

    #[test]
    fn a_histogram_is_read_as_it_was_written(
        // A maximum in seconds is exact up to the 53 bits of a float.
        nanos in prop::collection::vec(0_u64..1 << 48, 0..30),
        longest in any::<Option<u64>>(),
    ) {
        let mut histogram = LatencyHistogram::default();
        nanos.iter().for_each(|&nanos| histogram.add_nanos(nanos));
        let read = read_back(&histogram);
        prop_assert_eq!(facts(&read), facts(&histogram));
        longest.into_iter().for_each(|nanos| histogram.add_nanos(nanos));
        prop_assert!(read_back(&histogram).buckets().eq(histogram.buckets()));
        prop_assert_eq!(read_back(&histogram).count(), histogram.count());
    }

    #[test]
    fn what_was_added_since_is_the_difference(
        before in prop::collection::vec(any::<u32>(), 0..20),
        after in prop::collection::vec(any::<u32>(), 0..20),
    ) {
        let mut histogram = LatencyHistogram::default();
        before.iter().for_each(|&nanos| histogram.add_nanos(nanos.into()));
        let earlier = histogram.clone();
        let mut only_after = LatencyHistogram::default();
        for &nanos in &after {
            histogram.add_nanos(nanos.into());
            only_after.add_nanos(nanos.into());
        }
        let since = histogram.since(&earlier);
        prop_assert_eq!((since.count(), since.sum()), (only_after.count(), only_after.sum()));
        for percent in LatencyHistogram::PERCENTILES {
            let (a, b) = (since.percentile(percent), only_after.percentile(percent));
            prop_assert_eq!(a.is_some(), b.is_some());
            // Both stand for the same bucket, and neither exceeds its own maximum.
            let (a, b) = (a.unwrap_or_default().as_nanos() as f64, b.unwrap_or_default().as_nanos() as f64);
            prop_assert!((a - b).abs() <= 0.01 * b.max(1.0), "{} and {}", a, b);
        }
    }
}

#[test]
fn few_latencies_have_percentiles_by_rank() {
    let millis = |millis: &[u64]| millis.iter().copied().map(Duration::from_millis).collect::<LatencyHistogram>();
    let one = millis(&[7]);
    assert!(LatencyHistogram::PERCENTILES.iter().all(|&percent| one.percentile(percent) == one.percentile(50.0)));
    assert!(one.percentile(50.0).unwrap().abs_diff(Duration::from_millis(7)) < Duration::from_micros(28));
    let none = LatencyHistogram::default();
    assert_eq!((none.percentile(50.0), none.max(), none.mean(), none.since(&one).count()), (None, None, None, 0));
    let four = millis(&[10, 20, 30, 40]);
    assert!(four.percentile(50.0).unwrap().abs_diff(Duration::from_millis(20)) < Duration::from_micros(80));
    assert_eq!(four.percentile(100.0), Some(Duration::from_millis(40)));
    assert_eq!((four.count_at_most(Duration::from_millis(31)), four.count_at_most(Duration::ZERO)), (3, 0));
    // Longer than any request, and than the histogram's range at first.
    assert_eq!(millis(&[u64::MAX / 1_000_000]).lost(), 0);
}

#[test]
fn a_histogram_that_contradicts_itself_is_not_read() {
    let read = |text: &str| serde_json::from_str::<LatencyHistogram>(text).map_err(|error| error.to_string());
    let whole = r#"{"count":3,"max":0.4,"sum_ns":500000000,"buckets_ns":[[50000000,2],[400000000,1]]}"#;
    let found = read(whole).unwrap();
    assert_eq!((found.count(), found.lost(), found.max()), (3, 0, Some(Duration::from_millis(400))));
    // The latencies for which there was no memory are in no bucket.
    assert_eq!(read(&whole.replace("3,", "5,")).unwrap().lost(), 2);
    for (part, wrong, expected) in [
        ("[400000000,1]", "[400000000,2]", "more durations than the 3 of all"),
        ("0.4", "-0.4", "negative"),
        ("0.4", "null", "beyond the maximum, 0 ns"),
        ("\"buckets_ns\"", "\"p50\"", "missing field `buckets_ns`"),
    ] {
        let error = read(&whole.replace(part, wrong)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(facts(&read_back(&LatencyHistogram::default())), facts(&LatencyHistogram::default()));
}
