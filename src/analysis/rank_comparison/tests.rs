use super::{RankComparison, median_without};
use std::time::Duration;

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Four ranks, two by two: `tensor` has 0 and 1, or 2 and 3; `data` has 0 and 2, or 1 and 3.
fn mesh() -> RankComparison {
    let mut ranks = RankComparison::default();
    for rank in 0..4 {
        ranks.add_rank(rank, 4, "");
        ranks.add_step(rank, 0, ms(100));
    }
    ranks
}

#[test]
fn a_rank_that_has_waited_itself_is_not_late() {
    let mut ranks = mesh();
    // Rank 1 is late by 20 ms, and makes rank 0 late.
    ranks.add_collective(0, "tensor 0", &[(0, ms(21)), (1, ms(1))]);
    ranks.add_collective(0, "tensor 1", &[(2, ms(1)), (3, ms(1))]);
    ranks.add_collective(0, "data 0", &[(0, ms(1)), (2, ms(21))]);
    ranks.add_collective(0, "data 1", &[(1, ms(1)), (3, ms(21))]);
    assert_eq!(ranks.late(), [1]);
    let waits = ranks.finish();
    // Two groups wait for it at the same time: the step is longer by 20 ms, not by 40.
    assert_eq!((waits.late()[0].least, waits.late()[0].waited_for), (ms(20), ms(20)));
    assert!(waits.warnings().is_empty(), "{:?}", waits.warnings());
}

#[test]
fn the_bubbles_of_a_pipeline_excuse_nobody_and_accuse_nobody() {
    let mut ranks = mesh();
    // Ranks 0 and 2 are the first stage, which waits for gradients; rank 2 waits longer, as rank 3 is late.
    for (rank, time) in [(0, 30), (2, 50), (1, 10), (3, 10)] {
        ranks.add_exchange(0, rank, ms(time));
    }
    ranks.add_collective(0, "data 0", &[(0, ms(21)), (2, ms(1))]);
    ranks.add_collective(0, "data 1", &[(1, ms(21)), (3, ms(1))]);
    assert_eq!(ranks.late(), [3]);
}

#[test]
fn the_median_of_the_others() {
    let sorted = [1, 2, 3, 4].map(ms);
    assert_eq!([1, 2, 3, 4].map(|value| median_without(&sorted, ms(value))), [3, 3, 2, 2].map(ms));
    assert_eq!((median_without(&[ms(1)], ms(1)), median_without(&[], ms(1))), (Duration::ZERO, Duration::ZERO));
}
